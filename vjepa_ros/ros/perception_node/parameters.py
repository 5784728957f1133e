# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the perception node and its configuration (needs no ROS)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vjepa_ros.clip.resize import MODES as RESIZE_MODES
from vjepa_ros.looming.gyroscope import JITTER_S, rotation_matrix
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.obstacles.config import AT_REST, DISTANCES, ObstacleSettings
from vjepa_ros.obstacles.geometry import Mount
from vjepa_ros.perception.settings import (
    GEOMETRIES,
    LOOMING_METHODS,
    SMOOTHING_METHODS,
    Settings,
    TrackConfig,
)
from vjepa_ros.ros.common.parameter import (
    ALLOW_DOWNLOAD,
    AUTOSTART,
    BACKGROUND,
    CAMERAS,
    CONFIGURE,
    MAX_IMAGE_PIXELS,
    NAME,
    NAMES,
    Param,
    Schema,
    make,
    model_rows,
    setting,
    transport_row,
)
from vjepa_ros.runtime.device import PRECISIONS
from vjepa_ros.runtime.engine import EngineConfig
from vjepa_ros.runtime.forward.compilation import MODES as COMPILE_MODES
from vjepa_ros.runtime.streaming import STREAMING
from vjepa_ros.sources.encodings import MAX_ASPECT

_obstacle = partial(setting, ObstacleSettings)

OBSTACLE_ROWS: tuple[Param, ...] = (
    Param('obstacles.base_frame', str, '', 'Frame of the robot on the ground, such as base_link, '
          'for the pose of cameras without NAME.mount.height (by tf) and for ~/NAME/scan; empty: '
          'tf is not used', CONFIGURE),
    Param('obstacles.points_frame', str, 'auto', 'Frame of ~/NAME/obstacle_points; camera: that '
          'of the image; base: obstacles.base_frame; auto: base where that is set', CONFIGURE,
          choices=('auto', 'camera', 'base')),
    Param('obstacles.scan', bool, False, 'Also publish ~/NAME/scan; needs obstacles.base_frame',
          CONFIGURE),
    Param('obstacles.odometry', str, '', 'Topic of nav_msgs/Odometry with the speed of the robot; '
          'empty: none', CONFIGURE),
    Param('obstacles.odometry_timeout', float, 0.5, 'Largest age of odometry', low=0.02, high=10.0,
          unit='s'),
    _obstacle('obstacles.distance', 'Source of distances: odometry, the ground plane alone, or '
              'auto: odometry when available, else the ground', choices=DISTANCES),
    _obstacle('obstacles.min_height', 'Lower end of the height band of points; lower objects are '
              'no obstacles', low=0.0, high=5.0, unit='m'),
    _obstacle('obstacles.max_height', 'Upper end of the height band of points', low=0.01,
              high=10.0, unit='m'),
    _obstacle('obstacles.max_range', 'Largest distance of obstacles', low=0.3, high=50.0,
              unit='m'),
    _obstacle('obstacles.min_known', 'Measured fraction of the view ahead below which nothing is '
              'published', low=0.0, high=1.0),
    _obstacle('obstacles.min_sight', 'Measured distance straight ahead below which nothing is '
              'published, unless the path is blocked or the heads know it', low=0.0, high=20.0,
              unit='m'),
    _obstacle('obstacles.at_rest', 'Whether to publish moving objects while the camera stands and '
              'no heads know the free path; objects at rest are invisible then', choices=AT_REST),
    _obstacle('obstacles.pitch_error', 'Standard error of the pitch of a camera while driving',
              low=0.0, high=10.0, unit='deg'),
    _obstacle('obstacles.caution', 'Standard errors by which points are placed nearer than '
              'estimated', low=0.0, high=3.0),
    _obstacle('obstacles.spacing', 'Largest distance between neighbouring points', low=0.01,
              high=0.5, unit='m'),
)


@dataclass(frozen=True)
class ObstacleConfig:
    """Configuration of obstacles in metres."""

    settings: ObstacleSettings  # how they are placed
    # base_frame, points_frame, scan, odometry: as the parameters
    base_frame: str
    points_frame: str
    scan: bool
    odometry: str
    odometry_timeout: float  # oldest odometry [s]
    mounts: Mapping[str, Mount | None]  # pose of each camera by name; None where it comes from tf

    @property
    def in_base(self) -> bool:
        """Whether points are published in the base frame.

        Nav2 compares the height band with z in its base frame, but some sources of late 2025 did
        with z as it was published (`pointcloud.cpp`): a cloud in the base frame suits all.
        """
        return self.points_frame == 'base' or (self.points_frame == 'auto'
                                               and bool(self.base_frame))


def mount_rows(camera: str) -> tuple[Param, ...]:
    """Return the rows of the pose of a camera on the robot."""
    def row(name: str, text: str, high: float, unit: str, low: float | None = None) -> Param:
        return Param(f'{camera}.mount.{name}', float, 0.0, text, CONFIGURE,
                     low=-high if low is None else low, high=high, unit=unit)

    return (row('height', 'Height of the optical centre above the ground; 0: pose by tf', 10.0,
                'm', 0.0),
            row('x', 'Position ahead of the base frame', 20.0, 'm'),
            row('y', 'Position left of the base frame', 20.0, 'm'),
            row('pitch', 'Downward tilt', 75.0, 'deg'),
            row('yaw', 'Rotation to the left', 180.0, 'deg'),
            row('roll', 'Clockwise tilt', 180.0, 'deg'))


def make_obstacle_settings(values: Mapping[str, Any]) -> ObstacleSettings:
    """Return the settings of obstacles for parameter values; ValueError when inconsistent."""
    if values['obstacles.points_frame'] == 'base' and not values['obstacles.base_frame']:
        raise ValueError("obstacles.points_frame is 'base', but obstacles.base_frame is empty; "
                         'name the frame, such as base_link')
    if values['obstacles.scan'] and not values['obstacles.base_frame']:
        raise ValueError('obstacles.scan is true, but obstacles.base_frame is empty; rays of a '
                         'scan lie in the plane of that frame: name it, such as base_link')
    return make(ObstacleSettings, OBSTACLE_ROWS, values)


def make_obstacle_config(values: Mapping[str, Any]) -> ObstacleConfig:
    """Return the configuration of obstacles; ValueError when values are inconsistent."""
    mounts: dict[str, Mount | None] = {}
    for camera in values['cameras']:
        at = {name: values[f'{camera}.mount.{name}'] for name in ('height', 'x', 'y')}
        turned = {name: math.radians(values[f'{camera}.mount.{name}'])
                  for name in ('pitch', 'yaw', 'roll')}
        mounts[camera] = Mount.from_angles(**at, **turned) if at['height'] > 0 else None
    return ObstacleConfig(make_obstacle_settings(values), **{
        name: values[f'obstacles.{name}'] for name in (
            'base_frame', 'points_frame', 'scan', 'odometry', 'odometry_timeout')},
        mounts=mounts)


_model = partial(setting, EngineConfig, effect=BACKGROUND)
_shared = model_rows(EngineConfig, BACKGROUND)
_track = partial(setting, TrackConfig, effect=BACKGROUND)
_setting = partial(setting, Settings)

SECTIONS: dict[str, tuple[Param, ...]] = {
    'Model': (
        _shared['device'],
        _shared['require_device'],
        _model('model_size', 'Size of the encoder, a row of the table of variants',
               choices=tuple(VARIANTS)),
        _model('model_version', 'Generation of V-JEPA; auto: that of the weights',
               choices=('auto', '2.0', '2.1')),
        _model('weights', 'Checkpoint of the encoder: file, folder or name on the Hugging Face '
               'hub; empty: the bundled one, which exists for tiny; random: none, run '
               'untrained'),
        _shared['weights_part'],
        _model('heads', 'Safetensors file of learned heads for these weights; empty: those in the '
               'weights file, if any'),
        _shared['allow_random_weights'],
        ALLOW_DOWNLOAD,
        _model('num_frames', 'Number of frames in a clip', low=4, high=64, multiple=2),
        _model('image_size', 'Side of the encoder input', low=32, high=1024, multiple=16,
               unit='px'),
        _model('precision', 'Number format of the model; fp8: bf16 with those matrices in float8 '
               'that stay exact enough, on NVIDIA GPUs from compute capability 8.9 on, not for '
               'block-causal weights; int8: fp32 with such matrices in int8, on CPUs with VNNI '
               'but without bf16 instructions',
               choices=('auto', *PRECISIONS)),
        _model('memory_fraction', 'Part of the memory of a GPU that the node may use', low=0.01,
               high=1.0),
        Param('on_out_of_memory', str, 'fail', 'When not even a single clip fits into memory; '
              'fail: give no results, but the reason; degrade: use half precision, then fewer '
              'frames, then smaller images, flagged device_fallback, until there is room again',
              choices=('fail', 'degrade')),
        _model('compile', 'Use torch.compile, which needs a C compiler, on CUDA also Triton, and '
               'a longer start; auto: on CUDA where these exist and this package has no kernels '
               'of its own; on: fail where it is not possible', choices=COMPILE_MODES),
        _model('streaming', 'Encode each frame pair of a camera once and remember it, which needs '
               'block-causal weights; auto: where weights and device allow it; off: encode whole '
               'clips', choices=STREAMING),
        _track('resize_mode', 'How a frame is fitted to the encoder input; hf and meta are the '
               'exact profiles of the published weights', choices=RESIZE_MODES),
        _track('clip_fps', 'Rate at which frames are sampled for clips', low=0.25, high=60.0,
               unit='Hz'),
        _track('max_frame_gap', 'Longest gap between frames of a clip; a longer one starts a new '
               'clip', low=0.02, high=60.0, unit='s'),
        _track('looming.width', 'Width at which looming is estimated for 4:3 images; others get '
               'the same number of pixels', low=96, high=1920, unit='px'),
        _track('geometry', 'Where frames are resized and looming is measured: host, device (that '
               'of the model) or auto: device with CUDA, else host', choices=GEOMETRIES),
        _track('assumed_fov', 'Horizontal field of view until camera_info arrives', low=10.0,
               high=170.0, unit='deg', sets='horizontal_fov'),
        _shared['seed'],
        _shared['cpu_threads'],
    ),
    'Topics': (
        Param('cameras', tuple[str, ...], CAMERAS, 'Names of the cameras; each reads '
              'NAME/image_raw (or NAME/image_raw/compressed) and NAME/camera_info', CONFIGURE,
              pattern=NAME, allowed=NAMES),
        AUTOSTART,
    ),
    'Rates and ages': (
        Param('max_rate', float, 15.0, 'Largest rate of results for each camera', low=0.1,
              high=240.0, unit='Hz'),
        _setting('max_frame_age', 'Largest age of a frame; older ones, and those from the future '
                 'or of unknown age, are flagged stale with level unknown', low=0.01, high=3600.0,
                 unit='s'),
        MAX_IMAGE_PIXELS,
        Param('max_image_aspect', float, MAX_ASPECT, 'Largest accepted ratio of the longer side '
              'of an image to the shorter one; thinner images are refused and counted', low=1.0,
              high=16.0),
        Param('no_frame_timeout', float, 2.0, 'Silence of a camera after which the node warns',
              low=0.1, high=3600.0, unit='s'),
    ),
    'Perception': (
        _setting('looming.method', 'Source of looming and collision where valid learned heads '
                 'exist; geometric without them', choices=LOOMING_METHODS),
        _setting('collision_horizon', 'Time within which collision_probability and '
                 'collision_if_ahead predict contact', low=0.1, high=10.0, unit='s'),
        _setting('approach_speed', 'Speed ahead that collision_if_ahead assumes; 0 leaves it '
                 'unknown', low=0.0, high=10.0, unit='m/s'),
        _setting('thresholds.caution_ttc', 'Time to contact below which the level is CAUTION',
                 low=0.05, high=60.0, unit='s'),
        _setting('thresholds.warning_ttc', 'Time to contact below which the level is WARNING',
                 low=0.05, high=60.0, unit='s'),
        _setting('thresholds.danger_ttc', 'Time to contact below which the level is DANGER',
                 low=0.05, high=60.0, unit='s'),
        _setting('thresholds.motion', 'motion_score above which the level is at least CAUTION; 1: '
                 'off', sets='motion_threshold', low=0.0, high=1.0),
        _setting('thresholds.obstacle', 'obstacle_score above which the level is at least '
                 'CAUTION; 1: off', sets='obstacle_threshold', low=0.0, high=1.0),
        _setting('thresholds.looming', 'Looming rate below which a surface does not approach: no '
                 'region, no bearing', low=0.001, high=10.0, unit='1/s', sets='looming_threshold'),
        _setting('smoothing.method', 'Smoothing of the scores', choices=SMOOTHING_METHODS),
        _setting('smoothing.rise', 'Time constant while a score rises (ema)', low=0.0, high=10.0,
                 unit='s'),
        _setting('smoothing.fall', 'Time constant while a score falls (ema)', low=0.0, high=10.0,
                 unit='s'),
        _setting('smoothing.window', 'Number of results in the median', low=1, high=99),
        _setting('hysteresis', 'Fraction by which the time to contact must exceed its threshold '
                 'before the level falls', low=0.0, high=2.0),
        _setting('level_hold', 'Minimum time at a level before it falls', low=0.0, high=10.0,
                 unit='s'),
        _setting('roi', 'Region of interest: left, top, right, bottom as fractions of the image',
                 low=0.0, high=1.0),
        _setting('collision_margin', 'Largest angle at which the camera passes a surface on '
                 'collision course', low=0.0, high=1.0, unit='rad'),
        # Never 0: what has no confidence at all is unknown.
        _setting('min_confidence', 'Confidence below which looming is unknown', low=0.01,
                 high=1.0),
        _setting('min_known', 'Known fraction of the region of interest below which the level is '
                 'unknown while nothing approaches', low=0.0, high=1.0),
    ),
    'Outputs': (
        Param('features.reduce', str, 'last', 'Tubelets in ~/NAME/features',
              choices=('last', 'mean', 'all')),
        Param('overlay.width', int, 640, 'Width of the overlay, at least 480; 0: that of the '
              'camera', low=0, high=3840, unit='px'),
        Param('calibration.seconds', float, 5.0, 'Duration of ~/calibrate', low=0.5, high=600.0,
              unit='s'),
        Param('calibration.sigma', float, 3.0, 'Standard deviations above the mean at which '
              '~/calibrate sets thresholds', low=0.0, high=20.0),
    ),
    'Obstacles in metres, for planners': OBSTACLE_ROWS,
}


def camera_rows(camera: str) -> tuple[Param, ...]:
    """Return the rows of one camera."""
    return (transport_row(f'{camera}.transport'),
            *imu_rows(camera),
            *mount_rows(camera))


def imu_rows(camera: str) -> tuple[Param, ...]:
    """Return the rows of the gyroscope of a camera."""
    return (
        Param(f'{camera}.imu_topic', str, f'{camera}/imu', 'Topic of sensor_msgs/Imu with the '
              'angular velocity of the camera, used when somebody publishes it; empty: none',
              CONFIGURE),
        Param(f'{camera}.imu_rotation', tuple[float, ...], (), 'Quaternion x, y, z, w: rotation '
              'of the frame of the IMU in the optical frame of the camera, as tf2_echo '
              'OPTICAL_FRAME IMU_FRAME prints it; empty: by tf', CONFIGURE),
        Param(f'{camera}.imu_offset', float, 0.0, 'Added to the stamps of the IMU; positive where '
              'images are stamped late', CONFIGURE, low=-0.5, high=0.5, unit='s'),
        Param(f'{camera}.imu_jitter', float, JITTER_S, 'Standard error of the stamps of images on '
              'the clock of the IMU', CONFIGURE, low=0.0, high=0.1, unit='s'))


@dataclass(frozen=True)
class ImuConfig:
    """The gyroscope of one camera."""

    topic: str  # of its messages
    # Quaternion x, y, z, w of its frame in the optical frame; None: by tf
    rotation: tuple[float, ...] | None
    # offset_s, jitter_s: added to its stamps, and standard error of those of images [s]
    offset_s: float
    jitter_s: float


def make_imu(values: Mapping[str, Any], camera: str) -> ImuConfig | None:
    """Return the gyroscope of a camera, None where it has none."""
    topic, rotation, offset_s, jitter_s = (
        values[f'{camera}.imu_{name}'] for name in ('topic', 'rotation', 'offset', 'jitter'))
    return ImuConfig(topic, rotation or None, offset_s, jitter_s) if topic else None


def check_rotation(name: str, rotation: tuple[float, ...]) -> None:
    """Raise ValueError for a rotation that is neither empty nor a quaternion."""
    if rotation:
        try:
            rotation_matrix(rotation)
        except ValueError as error:
            raise ValueError(f"'{name}' is {list(rotation)}: {error}") from None


@dataclass(frozen=True)
class NodeConfig:
    """Configuration of the node."""

    engine: EngineConfig
    track: TrackConfig
    settings: Settings
    cameras: tuple[str, ...]
    transports: tuple[str, ...]
    max_rate: float
    no_frame_timeout: float
    features_reduce: str
    overlay_width: int
    calibration_seconds: float
    calibration_sigma: float
    obstacles: ObstacleConfig
    imus: Mapping[str, ImuConfig | None]
    max_image_pixels: int
    max_image_aspect: float
    on_out_of_memory: str

    @property
    def degrades(self) -> bool:
        """Whether less is served when memory runs out."""
        return self.on_out_of_memory == 'degrade'


def make_settings(value: Mapping[str, Any]) -> Settings:
    """Return the live settings of perception; ValueError when values are inconsistent."""
    return make(Settings, SCHEMA.rows, value)


def make_config(value: Mapping[str, Any], fetched: tuple[str, ...] | None = None) -> NodeConfig:
    """Return the configuration for parameter values; ValueError when inconsistent.

    `fetched` are the names on the hub that may be downloaded, see `EngineConfig`.
    """
    whole = {name: value[name.replace('_', '.', 1)] for name in (
        'features_reduce', 'overlay_width', 'calibration_seconds', 'calibration_sigma')}
    return NodeConfig(
        engine=make(EngineConfig, SCHEMA.rows, value, fetched=fetched),
        track=make(TrackConfig, SCHEMA.rows, value, num_frames=value['num_frames'],
                   image_size=value['image_size']),
        settings=make_settings(value), obstacles=make_obstacle_config(value),
        imus={camera: make_imu(value, camera) for camera in value['cameras']},
        transports=tuple(value[f'{camera}.transport'] for camera in value['cameras']),
        **{name: value[name] for name in (
            'cameras', 'max_rate', 'no_frame_timeout', 'max_image_pixels', 'max_image_aspect',
            'on_out_of_memory')},
        **whole)


def check(value: Mapping[str, Any]) -> None:
    """Raise ValueError when values of the node as a whole are inconsistent."""
    make_settings(value)
    make_obstacle_settings(value)
    for name in (f'{camera}.imu_rotation' for camera in value['cameras']):
        check_rotation(name, value.get(name, ()))    # declared after the camera is named


SCHEMA = Schema(SECTIONS, make_config, check, {'cameras': camera_rows}, hub=('weights',))
