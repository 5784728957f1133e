# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The parameters of the action planner, and what they mean to the planner (no ROS needed)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vjepa_ros.clip.resize import MODES
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.planning.action_space import ActionSpace, ArmSpace, TwistSpace
from vjepa_ros.planning.energy_test import GapConfig
from vjepa_ros.planning.search import SearchConfig
from vjepa_ros.planning.weights import PUBLISHED, WorldConfig
from vjepa_ros.ros.perception_node.parameter_table import (
    ALLOW_DOWNLOAD,
    CONFIGURE,
    DEVICE,
    LIVE,
    MAX_IMAGE_PIXELS,
    NAME,
    STARTUP,
    Param,
)

ARM, TWIST = 'arm', 'twist'
POSE, JOINTS = 'pose', 'joints'
STATE_JOINTS = ('x', 'y', 'z', 'roll', 'pitch', 'yaw', 'gripper')
MOST_SAMPLES = 65535   # a rank has 16 bits


def _model(name: str, kind: type, default: Any, text: str, **more: Any) -> Param:
    return Param(name, kind, default, text, CONFIGURE, **more)


def _live(name: str, kind: type, default: Any, text: str, **more: Any) -> Param:
    return Param(name, kind, default, text, LIVE, **more)


PLANNER_TABLE: tuple[Param, ...] = (
    # The world model.
    _model('device', str, 'auto', 'Where the model runs; auto takes CUDA, then MPS, then the CPU',
           pattern=DEVICE, allowed='auto, cpu, cuda, cuda:N or mps'),
    _model('require_device', bool, False, 'Fail when the device is missing, rather than run on '
           'the CPU with a warning'),
    _model('precision', str, 'auto', 'Number format of the model',
           choices=('auto', 'fp32', 'fp16', 'bf16')),
    _model('model_size', str, 'giant', 'Encoder: row of the table of variants, version 2.0',
           choices=tuple(VARIANTS)),
    _model('weights', str, '', 'Checkpoint of V-JEPA 2-AC, such as vjepa2-ac-vitg.pt: encoder and '
           'predictor; random: none, run untrained'),
    _model('weights_part', str, 'auto', 'Encoder of a file with several',
           choices=('auto', 'target_encoder', 'ema_encoder', 'encoder')),
    _model('predictor', str, '', 'Checkpoint of the predictor where it is another file; random: '
           'none, run untrained'),
    _model('allow_random_weights', bool, False, 'Run untrained when there are no weights; every '
           'output then says so'),
    ALLOW_DOWNLOAD,
    _model('random_predictor.width', int, PUBLISHED[0], 'Width of a predictor with random '
           'weights', low=8, high=8192, multiple=2),
    _model('random_predictor.depth', int, PUBLISHED[1], 'Its blocks', low=1, high=200),
    _model('random_predictor.heads', int, PUBLISHED[2], 'Its attention heads', low=1, high=256),
    _model('seed', int, 0, 'Seed of random weights', low=0, high=2**31 - 1),
    _model('image_size', int, 256, "Side of the encoder's input", low=16, high=1024, multiple=16,
           unit='px'),
    _model('resize_mode', str, 'crop', "How a picture becomes the encoder's input; crop, its "
           'centre, is how the published weights were trained', choices=MODES),
    _model('batch', int, 0, 'Most plans in one pass; 0 takes what memory allows', low=0,
           high=MOST_SAMPLES),
    _model('cpu_threads', int, 0, "PyTorch's CPU threads; 0 leaves its default", low=0, high=256),
    # Wiring.
    _model('camera', str, 'camera', 'Name of the camera; NAME/image_raw (or '
           'NAME/image_raw/compressed) is read', pattern=NAME,
           allowed='a ROS name such as front or left/eye'),
    _model('transport', str, 'auto', 'Which image topic is read; auto takes raw unless only '
           'compressed is published', choices=('auto', 'raw', 'compressed')),
    _model('state_source', str, POSE, 'What tells the state: pose, a PoseStamped on state; '
           'joints, a JointState on joint_states with the numbers of state_joints',
           choices=(POSE, JOINTS)),
    _model('state_joints', tuple[str, ...], STATE_JOINTS, 'With joints: names of the seven '
           'positions that are x, y, z [m], roll, pitch, yaw [rad] and closedness of the gripper; '
           "'' counts as 0"),
    _model('gripper_joint', str, '', 'With pose: joint in joint_states that is the gripper; empty '
           'counts it as open'),
    MAX_IMAGE_PIXELS,
    _live('gripper.open', float, 0.0, 'Position of the gripper joint that is open', low=-1e6,
          high=1e6),
    _live('gripper.closed', float, 1.0, 'Position of it that is closed', low=-1e6, high=1e6),
    _live('max_age', float, 1.0, 'A plan is refused when the newest image or state is older',
          low=0.01, high=3600.0, unit='s'),
    Param('autostart', bool, False, 'Configure and activate without a lifecycle manager', STARTUP),
    # What is searched.
    _model('action_space', str, ARM, 'arm: changes of the pose and the gripper; twist: velocities '
           'of a base', choices=(ARM, TWIST)),
    _live('arm.max_step', float, 0.05, 'Largest change of x, y and z in a step', low=1e-4,
          high=10.0, unit='m'),
    _live('arm.max_turn', float, 0.0, 'Largest change of each angle in a step; 0 leaves rotation '
          'alone, as published', low=0.0, high=3.14159, unit='rad'),
    _live('arm.gripper', bool, True, 'Whether the gripper is searched'),
    _live('twist.max_vx', float, 0.5, 'Largest speed ahead', low=0.0, high=50.0, unit='m/s'),
    _live('twist.max_vy', float, 0.0, 'Largest speed aside', low=0.0, high=50.0, unit='m/s'),
    _live('twist.max_omega', float, 1.0, 'Largest turning rate', low=0.0, high=50.0,
          unit='rad/s'),
    _live('twist.reverse', float, 0.0, 'Largest speed backwards', low=0.0, high=50.0, unit='m/s'),
    _live('twist.step', float, 0.25, 'How long each action is held', low=0.01, high=10.0,
          unit='s'),
    # The search.
    _model('steps', int, 2, 'Actions of a plan', low=1, high=8),
    _live('samples', int, 400, 'Plans that are tried in an iteration', low=2, high=MOST_SAMPLES),
    _live('elites', int, 10, 'The best of them, which decide the next mean and spread', low=2,
          high=MOST_SAMPLES),
    _live('iterations', int, 10, 'Iterations of the search', low=1, high=1000),
    _live('momentum.mean', float, 0.15, 'Part of the old mean in the new one', low=0.0, high=0.99),
    _live('momentum.std', float, 0.15, 'Part of the old spread in the new one', low=0.0,
          high=0.99),
    _live('search_seed', int, 0, 'Seed of the noise of the search', low=0, high=2**31 - 1),
    _live('time_budget', float, 20.0, 'Time of a plan, the test against noise included', low=0.01,
          high=3600.0, unit='s'),
    # The test against noise.
    _live('gap.repetitions', int, 6, 'How often plans are judged again with other noise on the '
          'pictures; 0 leaves the test out', low=0, high=100),
    _live('gap.plans', int, 8, 'Random plans that the best one is compared with', low=1,
          high=1000),
    _live('gap.pixel_noise', float, 2.0, 'Standard deviation of the noise of pixels', low=0.0,
          high=100.0, unit='grey levels'),
    _live('gap.least', float, 3.0, 'The gap must be more than this many standard deviations',
          low=0.0, high=100.0),
)


@dataclass(frozen=True)
class PlannerConfig:
    """All parameters at one moment, in the terms of the planner."""

    world: WorldConfig
    search: SearchConfig
    gap: GapConfig
    space: ActionSpace
    action_space: str
    resize_mode: str
    camera: str
    transport: str
    state_source: str
    state_joints: tuple[str, ...]
    gripper_joint: str
    gripper_range: tuple[float, float]
    max_age: float
    search_seed: int
    time_budget: float
    max_image_pixels: int


def planner_config(value: Mapping[str, Any], fetched: tuple[str, ...] | None = None
                   ) -> PlannerConfig:
    """Parameter values in the terms of the planner; ValueError when they do not fit together.

    `fetched` are the names of the hub that may be fetched, see `WorldConfig`.
    """
    if value['state_source'] == JOINTS and len(value['state_joints']) != len(STATE_JOINTS):
        raise ValueError(f"parameter 'state_joints' is {list(value['state_joints'])}, must name "
                         f'{len(STATE_JOINTS)} joints')
    if value['gripper.open'] == value['gripper.closed']:
        raise ValueError("parameters 'gripper.open' and 'gripper.closed' are both "
                         f'{value["gripper.open"]}; they must differ')
    size = tuple(value[f'random_predictor.{part}'] for part in ('width', 'depth', 'heads'))
    if size[0] % size[2] or size[0] // size[2] < 6:
        raise ValueError(f"parameter 'random_predictor.width' is {size[0]}, must be a multiple of "
                         f'the {size[2]} heads, with at least 6 channels each')
    world = WorldConfig(random_predictor=size, fetched=fetched, **{key: value[key] for key in (
        'model_size', 'weights', 'weights_part', 'predictor', 'allow_random_weights',
        'image_size', 'steps', 'device', 'require_device', 'precision', 'seed', 'cpu_threads',
        'batch')})
    search = SearchConfig(value['samples'], value['elites'], value['iterations'], value['steps'],
                          value['momentum.mean'], value['momentum.std'])
    gap = GapConfig(*(value[f'gap.{part}'] for part in ('repetitions', 'plans', 'pixel_noise',
                                                        'least')))
    if value['action_space'] == ARM:
        space: ActionSpace = ArmSpace(value['arm.max_step'], value['arm.max_turn'],
                                      value['arm.gripper'])
    else:
        space = TwistSpace(value['twist.max_vx'], value['twist.max_vy'],
                           value['twist.max_omega'], value['twist.step'], value['twist.reverse'])
    return PlannerConfig(
        world, search, gap, space, value['action_space'], value['resize_mode'], value['camera'],
        value['transport'], value['state_source'], value['state_joints'], value['gripper_joint'],
        (value['gripper.open'], value['gripper.closed']), value['max_age'],
        value['search_seed'], value['time_budget'], value['max_image_pixels'])


def check_planner(value: Mapping[str, Any]) -> str:
    """What is wrong across several parameters, '' when nothing is."""
    try:
        planner_config(value)
    except ValueError as error:
        return f'parameters do not fit together: {error}'
    return ''
