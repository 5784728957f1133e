# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Parameters of the action planner and its configuration (needs no ROS)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from vjepa_ros.clip.resize import MODES as RESIZE_MODES
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.planning.action_space import ActionSpace, ArmSpace, TwistSpace
from vjepa_ros.planning.base_world import (
    BASE_SEARCH,
    BaseCamera,
    BaseSpace,
    MOST_LEGS,
    is_base,
)
from vjepa_ros.planning.energy_test import GapConfig
from vjepa_ros.planning.search import PUBLISHED_SEARCH, SearchConfig
from vjepa_ros.planning.world_model import PUBLISHED, WorldConfig
from vjepa_ros.ros.common.parameter import (
    ALLOW_DOWNLOAD,
    AUTOSTART,
    CONFIGURE,
    MAX_IMAGE_PIXELS,
    MOST_SEED,
    NAME,
    ONE_NAME,
    Param,
    Schema,
    make,
    model_rows,
    setting,
    transport_row,
)
from vjepa_ros.runtime.engine import EngineConfig

AUTO, ARM, TWIST = 'auto', 'arm', 'twist'
POSE, JOINTS = 'pose', 'joints'
STATE_JOINTS = ('x', 'y', 'z', 'roll', 'pitch', 'yaw', 'gripper')
MOST_SAMPLES = 65535   # a rank has 16 bits


_world = partial(setting, WorldConfig, effect=CONFIGURE)
_shared = model_rows(WorldConfig, CONFIGURE)
_search = partial(setting, SearchConfig)
_gap = partial(setting, GapConfig)
_arm = partial(setting, ArmSpace)
_twist = partial(setting, TwistSpace)
_mount = partial(setting, BaseCamera)


def _by_model(name: str, text: str, high: int) -> Param:
    """Return the row of a number that depends on the model unless it is set."""
    base, published = (getattr(one, name) for one in (BASE_SEARCH, PUBLISHED_SEARCH))
    return Param(name, int, 0, f'{text}; 0: {base} with a model for a base, else {published}, as '
                 'published', low=0, high=high)


SECTIONS: dict[str, tuple[Param, ...]] = {
    'World model': (
        _shared['device'],
        _shared['require_device'],
        _world('precision', 'Number format of the model',
               choices=('auto', 'fp32', 'fp16', 'bf16')),
        _world('weights', 'Empty: the bundled model, for a base. Otherwise a file of this '
               'package with a predictor of twists, for a base, or a checkpoint of V-JEPA 2-AC '
               'with encoder and predictor, such as vjepa2-ac-vitg.pt; random: V-JEPA 2-AC, run '
               'untrained'),
        _world('model_size', 'V-JEPA 2-AC: size of the encoder, a row of the table of variants, '
               'version 2.0', choices=tuple(VARIANTS)),
        _shared['weights_part'],
        _world('predictor', 'V-JEPA 2-AC: checkpoint of the predictor, if in another file; '
               'random: none, run untrained'),
        _shared['allow_random_weights'],
        ALLOW_DOWNLOAD,
        Param('random_predictor.width', int, PUBLISHED[0], 'Width of a predictor with random '
              'weights', CONFIGURE, low=8, high=8192, multiple=2),
        Param('random_predictor.depth', int, PUBLISHED[1], 'Number of blocks of a predictor with '
              'random weights', CONFIGURE, low=1, high=200),
        Param('random_predictor.heads', int, PUBLISHED[2], 'Number of attention heads of a '
              'predictor with random weights', CONFIGURE, low=1, high=256),
        _shared['seed'],
        _world('image_size', 'V-JEPA 2-AC: side of the encoder input', low=16, high=1024,
               multiple=16, unit='px'),
        _world('resize_mode', 'V-JEPA 2-AC: how a picture is fitted to the encoder input; the '
               'published weights were trained with crop, the centre', choices=RESIZE_MODES),
        _world('batch', 'V-JEPA 2-AC: largest number of plans in one pass; 0: by memory', low=0,
               high=MOST_SAMPLES),
        _shared['cpu_threads'],
    ),
    'Topics': (
        Param('camera', str, 'camera', 'Name of the camera; reads NAME/image_raw (or '
              'NAME/image_raw/compressed)', CONFIGURE, pattern=NAME, allowed=ONE_NAME),
        transport_row('transport'),
        Param('state_source', str, POSE, 'V-JEPA 2-AC: source of the state; pose: PoseStamped on '
              'state; joints: JointState on joint_states with the numbers of state_joints',
              CONFIGURE, choices=(POSE, JOINTS)),
        Param('state_joints', tuple[str, ...], STATE_JOINTS, 'With joints: names of the seven '
              "positions x, y, z [m], roll, pitch, yaw [rad] and closedness of the gripper; '' "
              'counts as 0', CONFIGURE),
        Param('gripper_joint', str, '', 'With pose: joint of the gripper in joint_states; empty: '
              'counts as open', CONFIGURE),
        MAX_IMAGE_PIXELS,
        Param('gripper.open', float, 0.0, 'Position of the gripper joint when open', low=-1e6,
              high=1e6),
        Param('gripper.closed', float, 1.0, 'Position of the gripper joint when closed', low=-1e6,
              high=1e6),
        Param('max_age', float, 1.0, 'Largest age of image and state; a plan from older ones is '
              'refused', low=0.01, high=3600.0, unit='s'),
        Param('plan_rate', float, 0.0, 'Plans per second while there is a goal; 0: only when '
              'asked for', CONFIGURE, low=0.0, high=20.0, unit='Hz'),
        AUTOSTART,
    ),
    'Camera of a base': (
        _mount('mount.height', 'Height of the camera above the ground', low=0.02, high=10.0,
               unit='m'),
        _mount('mount.pitch', 'Pitch of its optical axis, up positive', low=-80.0, high=80.0,
               unit='deg'),
        _mount('mount.x', 'How far it is ahead of the point about which the base turns',
               low=-10.0, high=10.0, unit='m'),
        _mount('mount.fov', 'Its horizontal field of view where it has no camera_info; 0: plans '
               'without camera_info are refused', low=0.0, high=150.0, unit='deg'),
    ),
    'Actions': (
        Param('action_space', str, AUTO, 'Space of actions; arm: changes of pose and gripper; '
              'twist: velocities of a base; auto: twist with a model for a base, else arm',
              CONFIGURE, choices=(AUTO, ARM, TWIST)),
        _arm('arm.max_step', 'Largest change of x, y and z in a step', low=1e-4, high=10.0,
             unit='m'),
        _arm('arm.max_turn', 'Largest change of each angle in a step; 0: no rotation, as '
             'published', low=0.0, high=3.14159, unit='rad'),
        _arm('arm.gripper', 'Search the gripper, too'),
        _twist('twist.max_vx', 'Largest speed ahead', low=0.0, high=50.0, unit='m/s'),
        _twist('twist.max_vy', 'Largest speed sideways', low=0.0, high=50.0, unit='m/s'),
        _twist('twist.max_omega', 'Largest turn rate', low=0.0, high=50.0, unit='rad/s'),
        _twist('twist.reverse', 'Largest speed backward', low=0.0, high=50.0, unit='m/s'),
        _twist('twist.step', 'V-JEPA 2-AC: duration of each action', low=0.01, high=10.0, unit='s',
               sets='step_s'),
    ),
    'Search': (
        _world('steps', 'Number of actions in a plan; of a base at most 5', low=1, high=8),
        _by_model('samples', 'Number of plans in an iteration', MOST_SAMPLES),
        _by_model('elites', 'Number of best plans that give the next mean and spread',
                  MOST_SAMPLES),
        _by_model('iterations', 'Number of iterations', 1000),
        _search('momentum.mean', 'Fraction of the old mean in the new one', low=0.0, high=0.99),
        _search('momentum.std', 'Fraction of the old spread in the new one', low=0.0, high=0.99),
        Param('search_seed', int, 0, 'Seed of the noise of the search', low=0, high=MOST_SEED),
        Param('time_budget', float, 20.0, 'Time for a plan, including the test against noise',
              low=0.01, high=3600.0, unit='s'),
    ),
    'Test against noise': (
        _gap('gap.repetitions', 'Number of times that plans are judged again with other noise on '
             'the pictures; 0: no test', low=0, high=100),
        _gap('gap.plans', 'Number of random plans to compare the best one with', low=1, high=1000),
        _gap('gap.pixel_noise', 'Standard deviation of the noise on pixels', low=0.0, high=100.0,
             unit='grey levels'),
        _gap('gap.least', 'Standard deviations that the gap must exceed', low=0.0, high=100.0),
    ),
}


@dataclass(frozen=True)
class PlannerConfig:
    """Configuration of the node; `mount` is None unless the model is one for a base."""

    world: WorldConfig | EngineConfig
    mount: BaseCamera | None
    search: SearchConfig
    gap: GapConfig
    space: ActionSpace
    action_space: str
    plan_rate: float
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
    base = is_base(value['weights'], value['predictor'])
    kind = value['action_space']
    if base and kind == ARM:
        raise ValueError("parameter 'action_space' is 'arm', but the model is one for a base; "
                         "set it to 'auto', or 'weights' to a checkpoint of V-JEPA 2-AC")
    if base and value['steps'] > MOST_LEGS:
        raise ValueError(f"parameter 'steps' is {value['steps']}, must be at most {MOST_LEGS} "
                         'with a model for a base')
    usual = BASE_SEARCH if base else PUBLISHED_SEARCH
    world: WorldConfig | EngineConfig
    space: ActionSpace
    if base:
        world = EngineConfig(fetched=fetched, **{name: value[name] for name in (
            'weights', 'device', 'require_device', 'precision', 'cpu_threads')})
        space = BaseSpace(**{name: value[f'twist.{name}'] for name in (
            'max_vx', 'max_vy', 'max_omega', 'reverse')})
    else:
        world = make(WorldConfig, rows, value, random_predictor=size, fetched=fetched)
        space = make(TwistSpace if kind == TWIST else ArmSpace, rows, value)
    return PlannerConfig(
        world=world, mount=make(BaseCamera, rows, value) if base else None,
        search=make(SearchConfig, rows, value, steps=value['steps'], **{
            name: value[name] or getattr(usual, name)
            for name in ('samples', 'elites', 'iterations')}),
        gap=make(GapConfig, rows, value), space=space,
        action_space=TWIST if base else kind if kind != AUTO else ARM,
        gripper_range=(value['gripper.open'], value['gripper.closed']),
        **{name: value[name] for name in (
            'camera', 'transport', 'state_source', 'state_joints', 'gripper_joint', 'max_age',
            'plan_rate', 'search_seed', 'time_budget', 'max_image_pixels')})


SCHEMA = Schema(SECTIONS, make_config, make_config, hub=('weights', 'predictor'))
