# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the action planner and its configuration (needs no ROS)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vjepa_ros.clip.view import MODES as RESIZE_MODES
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.planning.action_space import ActionSpace, ArmSpace, TwistSpace
from vjepa_ros.planning.energy_test import GapConfig
from vjepa_ros.planning.search import SearchConfig
from vjepa_ros.planning.world_model import PUBLISHED, WorldConfig
from vjepa_ros.ros.common.parameter import (
    ALLOW_DOWNLOAD,
    AUTOSTART,
    CONFIGURE,
    DEVICE,
    DEVICES,
    MAX_IMAGE_PIXELS,
    MOST_SEED,
    NAME,
    ONE_NAME,
    TRANSPORTS,
    WEIGHTS_PARTS,
    Param,
    Schema,
    make,
    setting,
)

ARM, TWIST = 'arm', 'twist'
POSE, JOINTS = 'pose', 'joints'
STATE_JOINTS = ('x', 'y', 'z', 'roll', 'pitch', 'yaw', 'gripper')
MOST_SAMPLES = 65535   # a rank has 16 bits


_world = partial(setting, WorldConfig, effect=CONFIGURE)
_search = partial(setting, SearchConfig)
_gap = partial(setting, GapConfig)
_arm = partial(setting, ArmSpace)
_twist = partial(setting, TwistSpace)

SECTIONS: dict[str, tuple[Param, ...]] = {
    'World model': (
        _world('device', 'Where the model runs; auto takes CUDA, then MPS, then the CPU',
               pattern=DEVICE, allowed=DEVICES),
        _world('require_device', 'Fail when the device is missing, rather than run on the CPU '
               'with a warning'),
        _world('precision', 'Number format of the model',
               choices=('auto', 'fp32', 'fp16', 'bf16')),
        _world('model_size', 'Encoder: row of the table of variants, version 2.0',
               choices=tuple(VARIANTS)),
        _world('weights', 'Checkpoint of V-JEPA 2-AC, such as vjepa2-ac-vitg.pt: encoder and '
               'predictor; random: none, run untrained'),
        _world('weights_part', 'Encoder of a file with several', choices=WEIGHTS_PARTS),
        _world('predictor', 'Checkpoint of the predictor where it is another file; random: none, '
               'run untrained'),
        _world('allow_random_weights', 'Run untrained when there are no weights; every output '
               'then says so'),
        ALLOW_DOWNLOAD,
        Param('random_predictor.width', int, PUBLISHED[0], 'Width of a predictor with random '
              'weights', CONFIGURE, low=8, high=8192, multiple=2),
        Param('random_predictor.depth', int, PUBLISHED[1], 'Its blocks', CONFIGURE, low=1,
              high=200),
        Param('random_predictor.heads', int, PUBLISHED[2], 'Its attention heads', CONFIGURE, low=1,
              high=256),
        _world('seed', 'Seed of random weights', low=0, high=MOST_SEED),
        _world('image_size', "Side of the encoder's input", low=16, high=1024, multiple=16,
               unit='px'),
        Param('resize_mode', str, 'crop', "How a picture becomes the encoder's input; crop, its "
              'centre, is how the published weights were trained', CONFIGURE,
              choices=RESIZE_MODES),
        _world('batch', 'Most plans in one pass; 0 takes what memory allows', low=0,
               high=MOST_SAMPLES),
        _world('cpu_threads', "PyTorch's CPU threads; 0 leaves its default", low=0, high=256),
    ),
    'Wiring': (
        Param('camera', str, 'camera', 'Name of the camera; NAME/image_raw (or '
              'NAME/image_raw/compressed) is read', CONFIGURE, pattern=NAME, allowed=ONE_NAME),
        Param('transport', str, 'auto', 'Which image topic is read; auto takes raw unless only '
              'compressed is published', CONFIGURE, choices=TRANSPORTS),
        Param('state_source', str, POSE, 'What tells the state: pose, a PoseStamped on state; '
              'joints, a JointState on joint_states with the numbers of state_joints', CONFIGURE,
              choices=(POSE, JOINTS)),
        Param('state_joints', tuple[str, ...], STATE_JOINTS, 'With joints: names of the seven '
              'positions that are x, y, z [m], roll, pitch, yaw [rad] and closedness of the '
              "gripper; '' counts as 0", CONFIGURE),
        Param('gripper_joint', str, '', 'With pose: joint in joint_states that is the gripper; '
              'empty counts it as open', CONFIGURE),
        MAX_IMAGE_PIXELS,
        Param('gripper.open', float, 0.0, 'Position of the gripper joint that is open', low=-1e6,
              high=1e6),
        Param('gripper.closed', float, 1.0, 'Position of it that is closed', low=-1e6, high=1e6),
        Param('max_age', float, 1.0, 'A plan is refused when the newest image or state is older',
              low=0.01, high=3600.0, unit='s'),
        AUTOSTART,
    ),
    'What is searched': (
        Param('action_space', str, ARM, 'arm: changes of the pose and the gripper; twist: '
              'velocities of a base', CONFIGURE, choices=(ARM, TWIST)),
        _arm('arm.max_step', 'Largest change of x, y and z in a step', low=1e-4, high=10.0,
             unit='m'),
        _arm('arm.max_turn', 'Largest change of each angle in a step; 0 leaves rotation alone, as '
             'published', low=0.0, high=3.14159, unit='rad'),
        _arm('arm.gripper', 'Whether the gripper is searched'),
        _twist('twist.max_vx', 'Largest speed ahead', low=0.0, high=50.0, unit='m/s'),
        _twist('twist.max_vy', 'Largest speed aside', low=0.0, high=50.0, unit='m/s'),
        _twist('twist.max_omega', 'Largest turning rate', low=0.0, high=50.0, unit='rad/s'),
        _twist('twist.reverse', 'Largest speed backwards', low=0.0, high=50.0, unit='m/s'),
        _twist('twist.step', 'How long each action is held', low=0.01, high=10.0, unit='s',
               sets='step_s'),
    ),
    'Search': (
        _world('steps', 'Actions of a plan', low=1, high=8),
        _search('samples', 'Plans that are tried in an iteration', low=2, high=MOST_SAMPLES),
        _search('elites', 'The best of them, which decide the next mean and spread', low=2,
                high=MOST_SAMPLES),
        _search('iterations', 'Iterations of the search', low=1, high=1000),
        _search('momentum.mean', 'Part of the old mean in the new one', low=0.0, high=0.99),
        _search('momentum.std', 'Part of the old spread in the new one', low=0.0, high=0.99),
        Param('search_seed', int, 0, 'Seed of the noise of the search', low=0, high=MOST_SEED),
        Param('time_budget', float, 20.0, 'Time of a plan, the test against noise included',
              low=0.01, high=3600.0, unit='s'),
    ),
    'Test against noise': (
        _gap('gap.repetitions', 'How often plans are judged again with other noise on the '
             'pictures; 0 leaves the test out', low=0, high=100),
        _gap('gap.plans', 'Random plans that the best one is compared with', low=1, high=1000),
        _gap('gap.pixel_noise', 'Standard deviation of the noise of pixels', low=0.0, high=100.0,
             unit='grey levels'),
        _gap('gap.least', 'The gap must be more than this many standard deviations', low=0.0,
             high=100.0),
    ),
}


@dataclass(frozen=True)
class PlannerConfig:
    """Configuration of the node."""

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


def make_config(value: Mapping[str, Any], fetched: tuple[str, ...] | None = None
                ) -> PlannerConfig:
    """Return the configuration for parameter values; ValueError when inconsistent.

    `fetched` are the names on the hub that may be downloaded, see `WorldConfig`.
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
    rows = SCHEMA.rows
    space: type[ActionSpace] = ArmSpace if value['action_space'] == ARM else TwistSpace
    return PlannerConfig(
        world=make(WorldConfig, rows, value, random_predictor=size, fetched=fetched),
        search=make(SearchConfig, rows, value, steps=value['steps']),
        gap=make(GapConfig, rows, value), space=make(space, rows, value),
        gripper_range=(value['gripper.open'], value['gripper.closed']),
        **{name: value[name] for name in (
            'action_space', 'resize_mode', 'camera', 'transport', 'state_source', 'state_joints',
            'gripper_joint', 'max_age', 'search_seed', 'time_budget', 'max_image_pixels')})


SCHEMA = Schema(SECTIONS, make_config, make_config, hub=('weights', 'predictor'))
