# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The table of parameters: the one place from which declaration, validation and docs are made.

This module imports no ROS, so the documentation can be checked anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.perception.config import GEOMETRIES
from vjepa_ros.perception.settings import LOOMING_METHODS, Settings
from vjepa_ros.ros.common.parameter import BACKGROUND, CONFIGURE, KINDS, LIVE, STARTUP, Param
from vjepa_ros.ros.perception_node.obstacle_table import (
    OBSTACLE_ROWS,
    make_obstacle_settings,
    mount_rows,
)

__all__ = ['BACKGROUND', 'CONFIGURE', 'KINDS', 'LIVE', 'ROWS', 'STARTUP', 'TABLE', 'Param',
           'camera_rows', 'check_together', 'make_settings', 'markdown']

DEVICE = re.compile(r'auto|cpu|mps|cuda(:\d+)?')
NAME = re.compile(r'[A-Za-z](_?[A-Za-z0-9])*(/[A-Za-z](_?[A-Za-z0-9])*)*')

ALLOW_DOWNLOAD = Param(
    'allow_download', bool, False, 'Fetch weights from the Hugging Face hub whose name is set '
    'while the node runs, too; those named at its start are fetched anyway', STARTUP)
MAX_IMAGE_PIXELS = Param(
    'max_image_pixels', int, 4096 * 4096, 'Images with more pixels are refused before they are '
    'decoded, and counted: few bytes can hold a picture that takes minutes and gigabytes',
    low=4096, high=10**8, unit='px')

TABLE: tuple[Param, ...] = (
    # The model: made ready in the background when changed while the node runs.
    Param('device', str, 'auto', 'Where the model runs; auto takes CUDA, then MPS, then the CPU',
          BACKGROUND, pattern=DEVICE, allowed='auto, cpu, cuda, cuda:N or mps'),
    Param('require_device', bool, False, 'Fail when the device is missing, rather than run on '
          'the CPU with a warning and the device_fallback flag', BACKGROUND),
    Param('model_size', str, 'tiny', 'Row of the table of variants', BACKGROUND,
          choices=tuple(VARIANTS)),
    Param('model_version', str, '2.0', 'Generation of V-JEPA', BACKGROUND, choices=('2.0', '2.1')),
    Param('weights', str, '', 'Checkpoint of the encoder: file, folder or name on the Hugging '
          'Face hub; empty: the one of this package for the model size, which it has for tiny '
          '2.0; random: none, run untrained', BACKGROUND),
    Param('weights_part', str, 'auto', 'Encoder of a file with several; auto: target_encoder, '
          'else ema_encoder, else encoder', BACKGROUND,
          choices=('auto', 'target_encoder', 'ema_encoder', 'encoder')),
    Param('heads', str, '', 'Safetensors file of learned heads for these weights; empty: those '
          'in the file of the weights, if it has some', BACKGROUND),
    Param('allow_random_weights', bool, False, 'Run untrained when there are no weights; every '
          'output then says so', BACKGROUND),
    ALLOW_DOWNLOAD,
    Param('num_frames', int, 8, 'Frames in a clip', BACKGROUND, low=4, high=64, multiple=2),
    Param('image_size', int, 192, "Side of the encoder's input", BACKGROUND, low=32, high=1024,
          multiple=16, unit='px'),
    Param('precision', str, 'auto', 'Number format of the model; fp8: bf16 with as many matrices '
          'in float8 as stay exact enough, on NVIDIA GPUs from compute capability 8.9 on; int8: '
          'fp32 with as many in int8, on CPUs with VNNI and without bf16 instructions',
          BACKGROUND, choices=('auto', 'fp32', 'fp16', 'bf16', 'fp8', 'int8')),
    Param('compile', str, 'auto', 'Use torch.compile, which needs a C compiler, on CUDA Triton '
          'too, and a longer start; auto: on CUDA where all that is there and this package has no '
          'kernels of its own; on: fail when it is not possible', BACKGROUND,
          choices=('off', 'auto', 'on')),
    Param('resize_mode', str, 'squash', "How a frame becomes the encoder's input; hf and meta "
          'are the exact profiles of the published weights', BACKGROUND,
          choices=('squash', 'crop', 'letterbox', 'hf', 'meta')),
    Param('clip_fps', float, 4.0, 'Rate at which clips are sampled from the camera', BACKGROUND,
          low=0.25, high=60.0, unit='Hz'),
    Param('max_frame_gap', float, 1.0, 'Longest time between frames before a clip starts anew',
          BACKGROUND, low=0.02, high=60.0, unit='s'),
    Param('looming.width', int, 384, 'Width at which looming is estimated on 4:3 images; '
          'others get the same number of pixels', BACKGROUND, low=96, high=1920, unit='px'),
    Param('geometry', str, 'auto', 'Where frames are resized and looming is measured: host, '
          'device (the one of the model) or auto: device with CUDA, else host',
          BACKGROUND, choices=GEOMETRIES),
    Param('assumed_fov', float, 65.0, 'Horizontal field of view used until camera_info arrives',
          BACKGROUND, low=10.0, high=170.0, unit='deg'),
    Param('seed', int, 0, 'Seed of random weights', BACKGROUND, low=0, high=2**31 - 1),
    Param('cpu_threads', int, 0, "PyTorch's CPU threads; 0 leaves its default", BACKGROUND,
          low=0, high=256),
    # Wiring.
    Param('cameras', tuple[str, ...], ('camera',), 'Names of the cameras; each reads '
          'NAME/image_raw (or NAME/image_raw/compressed) and NAME/camera_info', CONFIGURE,
          pattern=NAME, allowed='ROS names such as front or left/eye'),
    Param('autostart', bool, False, 'Configure and activate without a lifecycle manager',
          STARTUP),
    # Rates and ages.
    Param('max_rate', float, 15.0, 'Most results per second and camera', low=0.1, high=240.0,
          unit='Hz'),
    Param('max_frame_age', float, 1.0, 'Older frames, and those of the future or of '
          'unknown age, are flagged stale, with level unknown', low=0.01, high=3600.0, unit='s'),
    MAX_IMAGE_PIXELS,
    Param('no_frame_timeout', float, 2.0, 'Silence of a camera after which the node warns',
          low=0.1, high=3600.0, unit='s'),
    # Perception.
    Param('looming.method', str, 'fused', 'Where looming and collision come from, as far as there '
          'are learned heads that hold for the clips; geometric where there are none',
          choices=LOOMING_METHODS),
    Param('collision_horizon', float, 2.0, 'collision_probability speaks of contact within this '
          'time', low=0.1, high=10.0, unit='s'),
    Param('approach_speed', float, 1.0, 'With heads, collision_probability also speaks of contact '
          'within that time if the robot went ahead at this speed; 0 leaves that out', low=0.0,
          high=10.0, unit='m/s'),
    Param('thresholds.caution_ttc', float, 4.0, 'Time to contact at which caution begins',
          low=0.05, high=60.0, unit='s'),
    Param('thresholds.warning_ttc', float, 2.5, 'Time to contact at which warning begins',
          low=0.05, high=60.0, unit='s'),
    Param('thresholds.danger_ttc', float, 1.2, 'Time to contact at which danger begins',
          low=0.05, high=60.0, unit='s'),
    Param('thresholds.motion', float, 1.0, 'motion_score above this raises caution; 1 = off',
          low=0.0, high=1.0),
    Param('thresholds.obstacle', float, 1.0, 'obstacle_score above this raises caution; 1 = off',
          low=0.0, high=1.0),
    Param('thresholds.looming', float, 0.1,
          'Looming rates below this count as not approaching: no region, no bearing',
          low=0.001, high=10.0, unit='1/s'),
    Param('smoothing.method', str, 'ema', 'Smoothing of the scores',
          choices=('ema', 'median', 'none')),
    Param('smoothing.rise', float, 0.05, 'Time constant while a score rises (ema)', low=0.0,
          high=10.0, unit='s'),
    Param('smoothing.fall', float, 0.5, 'Time constant while a score falls (ema)', low=0.0,
          high=10.0, unit='s'),
    Param('smoothing.window', int, 5, 'Results in the median', low=1, high=99),
    Param('hysteresis', float, 0.25, 'A level is left when the time to contact exceeds its '
          'threshold by this part', low=0.0, high=2.0),
    Param('level_hold', float, 0.4, 'Least time a level is kept before it falls', low=0.0,
          high=10.0, unit='s'),
    Param('roi', tuple[float, ...], (0.0, 0.0, 1.0, 1.0), 'Region of interest: left, top, right, '
          'bottom as fractions of the image', low=0.0, high=1.0),
    Param('collision_margin', float, 0.05, 'A surface is on course when the camera will pass it '
          'within this angle', low=0.0, high=1.0, unit='rad'),
    # Never 0: what has no confidence at all is unknown.
    Param('min_confidence', float, 0.2, 'Looming below this confidence is unknown', low=0.01,
          high=1.0),
    Param('min_known', float, 0.05, 'With less of the region of interest known, and nothing '
          'seen coming, the level is unknown', low=0.0, high=1.0),
    # Outputs.
    Param('features.reduce', str, 'last', 'Which tubelets ~/NAME/features holds',
          choices=('last', 'mean', 'all')),
    Param('overlay.width', int, 640, 'Width of the overlay, which is never below 480; 0 keeps '
          'that of the camera', low=0,
          high=3840, unit='px'),
    Param('calibration.seconds', float, 5.0, 'How long ~/calibrate watches the scene', low=0.5,
          high=600.0, unit='s'),
    Param('calibration.sigma', float, 3.0, 'Thresholds become mean + this many standard '
          'deviations', low=0.0, high=20.0),
    *OBSTACLE_ROWS,
)
ROWS = {row.name: row for row in TABLE}


def camera_rows(camera: str) -> tuple[Param, ...]:
    """Rows that exist once per camera."""
    return (Param(f'{camera}.transport', str, 'auto', 'Which image topic is read; auto takes raw '
                  'unless only compressed is published', CONFIGURE,
                  choices=('auto', 'raw', 'compressed')),
            *mount_rows(camera))


def check_together(values: Mapping[str, Any]) -> str:
    """What is wrong across several parameters, '' when nothing is."""
    cameras = values['cameras']
    if not cameras:
        return "parameter 'cameras' is [], must name at least one camera"
    if len(set(cameras)) != len(cameras):
        return f"parameter 'cameras' is {list(cameras)}, must not name a camera twice"
    taken = sorted({name.split('.')[0] for name in ROWS} & set(cameras))
    if taken:
        return f"parameter 'cameras' holds {taken}, which are names of other parameters"
    try:
        make_settings(values)
        make_obstacle_settings(values)
    except ValueError as error:
        return f'parameters do not fit together: {error}'
    return ''


def make_settings(values: Mapping[str, Any]) -> Settings:
    """The live settings of perception in a set of parameter values (ValueError if illegal)."""
    fields = {key: values[key] for key in (
        'collision_horizon', 'approach_speed', 'hysteresis', 'level_hold', 'roi',
        'collision_margin', 'min_confidence', 'min_known', 'max_frame_age')}
    for level in ('caution', 'warning', 'danger'):
        fields[f'{level}_ttc'] = values[f'thresholds.{level}_ttc']
    for score in ('motion', 'obstacle', 'looming'):
        fields[f'{score}_threshold'] = values[f'thresholds.{score}']
    for part in ('method', 'rise', 'fall', 'window'):
        fields[f'smoothing_{part}'] = values[f'smoothing.{part}']
    fields['looming_method'] = values['looming.method']
    return Settings(**fields)


def markdown(rows: Iterable[Param] = ()) -> str:
    """Rows (default: those of the node) as the table that stands in docs/parameters.md."""
    lines = ['| Parameter | Type | Default | Allowed | Unit | Effect | Meaning |',
             '|---|---|---|---|---|---|---|']
    for row in rows or (*TABLE, *camera_rows('NAME')):
        default = list(row.default) if isinstance(row.default, tuple) else row.default
        shown = str(default).lower() if row.kind is bool else repr(default)
        lines.append(f'| `{row.name}` | {KINDS[row.kind]} | `{shown}` | {row.range_text} | '
                     f'{row.unit} | {row.effect} | {row.text} |')
    return '\n'.join(lines) + '\n'
