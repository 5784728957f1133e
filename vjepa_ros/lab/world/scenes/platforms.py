# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Mount the cameras of the rough world on what carries them, and move them as it moves.

`docs/training.md` explains it. A fifth of the clips keeps the carriers of the standard world.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.scene import ALWAYS, SceneRng, Shake, Steady
from vjepa_ros.lab.world.scenes.scene_spec import (
    Encounter,
    INTERVAL_S,
    OUTCOME,
    PLACES,
    SceneSpec,
    WorldConfig,
)

Range = tuple[float, float]
Axes = tuple[float, float, float]      # of yaw, pitch, roll
GRAVITY = 9.81
_DRAG = 0.35              # of a small multirotor: deceleration per speed [1/s]
_SQUAT = 0.012            # pitch of wheels and legs per acceleration [rad s^2/m]
_GRIP = 4.0               # greatest sideways acceleration [m/s^2]
_OVERLAP = 0.55           # of a picture that the next one shows again while the camera turns
_CORNER = 1.45            # greatest angle from the axis in the corner of a wide lens [rad]
USUAL, ROTATES, SLIDES = 0, 1, 2
MOTION_SHARES = (0.76, 0.14, 0.10)
WIDE_SHARE = 0.22         # of cameras have a lens of `WIDE_DEGREES`
WIDE_DEGREES = (100.0, 150.0)
BOXED_SHARE = 0.15        # of other pictures that are not square get bars
STEADY_SHARE = 0.7        # of vehicles ahead keep their distance
CHANGING_SHARE = 0.5      # of platforms turn, and as many speed up or brake
TURNING_IN_TRAINING = 0.3
STANDS_SHARE, STANDS_S = 0.75, 1.5       # of what has stopped stands, for up to so long [s]
# Share of changes of speed that set in at some time, and the speed until then as a factor on that
# of now; below 0 it stood.
SETS_IN_SHARE = 0.75
FASTER, SLOWER = (1.1, 4.0), (-0.7, 0.9)
LEANS_S = (0.05, 0.25)    # half of the time that a multirotor takes to lean [s]
DEFAULT_SHARE, SLOW_SHARE = 0.35, 0.25   # of clips at about 4 Hz, and as slow as their camera


@dataclass(frozen=True)
class Platform:
    """What carries a camera, and the three waves that shake it: lengths [m], angles [degrees]."""

    places: Mapping[str, float]  # shares
    height: Range
    speed: Range
    turn: float  # greatest rate
    speed_up: Range  # acceleration either way
    sway_hz: Range  # slow: hover, arm, suspension
    sway_deg: Axes
    step_hz: Range  # gait, bumps
    step_deg: Axes
    step_m: float  # up and down
    buzz_hz: Range  # motors, rotors
    buzz_deg: float
    sway_m: float = 0.0
    climb: float = 0.0  # greatest rate
    flies: bool = False  # leans to accelerate, and never stands quite still


_INSIDE = {'room': 3, 'corridor': 3, 'warehouse': 3, 'lab': 4}
PLATFORMS = {
    'drone': Platform(
        _INSIDE | {'lab': 7, 'empty': 3, 'park': 3, 'street': 1}, (0.2, 2.2), (0.15, 2.5), 150,
        (0.3, 3), (0.2, 1.2), (2, 2.5, 2.5), (2, 5), (0.5, 0.8, 0.8), 0, (15, 60), 0.15, 0.04,
        climb=0.8, flies=True),
    'legged': Platform(
        _INSIDE | {'empty': 2, 'park': 3, 'street': 1.5}, (0.25, 0.75), (0.15, 1.8), 100,
        (0.2, 1.5), (0.2, 0.8), (0.8, 0.8, 0.8), (1.4, 3.2), (2, 2.5, 3.5), 0.025, (10, 40), 0.08),
    'handheld': Platform(
        _INSIDE | {'empty': 2, 'park': 3, 'street': 2, 'table': 3}, (1.0, 1.8), (0.2, 1.8), 120,
        (0.1, 1), (0.3, 1.2), (1.8, 1.5, 1.8), (1.5, 2.3), (1, 1.2, 1), 0.03, (6, 12), 0.1),
    'small car': Platform(
        _INSIDE | {'empty': 3, 'park': 2, 'street': 2}, (0.07, 0.35), (0.2, 4), 150,
        (0.3, 3), (0.3, 1), (0.3, 0.3, 0.3), (3, 8), (0.2, 0.8, 0.6), 0.006, (10, 50), 0.15),
    'truck': Platform(
        {'street': 5, 'motorway': 8, 'empty': 1}, (1.6, 2.9), (2, 15), 20,
        (0.2, 1.5), (0.3, 0.8), (0.2, 0.4, 0.4), (1, 2.2), (0.1, 0.7, 0.6), 0.03, (8, 30), 0.06),
}
_STANDARD = dict.fromkeys(PLACES, 2.5) | {'table': 5, 'motorway': 3, 'lab': 3}
_SHARES = torch.tensor([[places.get(place, 0.0) for places in (
    _STANDARD, *(p.places for p in PLATFORMS.values()))] for place in PLACES])
# Of the roaming world, none of the standard one; trucks stand for all that drives in streets.
_ROAMING = _SHARES * torch.tensor([0, 1, 0.7, 2, 0.6, 1])
_ROWS = (PLATFORMS['handheld'], *PLATFORMS.values())   # the first stands for no platform


def _column(name: str, scale: float = 1.0) -> Tensor:
    return scale * torch.tensor([getattr(row, name) for row in _ROWS], dtype=torch.float32)


_HEIGHT, _SPEED, _SPEED_UP = (_column(name) for name in ('height', 'speed', 'speed_up'))
_TURN, _CLIMB, _FLIES = _column('turn', math.pi / 180), _column('climb'), _column('flies') > 0
_HZ = torch.stack([_column(f'{wave}_hz') for wave in ('sway', 'step', 'buzz')], 1)     # P W 2
_ANGLES = torch.stack([_column('sway_deg', math.pi / 180), _column('step_deg', math.pi / 180),
                       _column('buzz_deg', math.pi / 180)[:, None].expand(-1, 3)], 1)  # P W 3
_HEAVE = torch.stack([_column('sway_m'), _column('step_m'), torch.zeros(len(_ROWS))], 1)


@dataclass(frozen=True)
class Ride:
    """How B cameras ride; all tensors (B,)."""

    platform: Tensor  # number, 0 as in the standard world
    period_s: Tensor  # between two pictures of the camera [s], at most the interval of the clip
    bend: Tensor  # of the lens, see `Capture`
    boxed: Tensor  # bool, bars are added to a picture that is not square, instead of squashing it
    settled_s: Tensor  # time for which it has turned or climbed as now [s]
    climb: Tensor  # upwards at the newest frame [m/s]
    stands_s: Tensor  # for how long what has stopped stands [s], 0 for all else
    steady: Steady  # how fast it was before

    def stopping(self, times: Tensor) -> Tensor:
        """Return times (B, T) until it stands, for what has stopped a while ago."""
        return (times + self.stands_s[:, None]).clamp(max=0)

    @property
    def own(self) -> Tensor:
        """(B,) bool, whether it is a platform of the rough world."""
        return self.platform > 0

    def grown(self, rate: Tensor, times: Tensor) -> tuple[Tensor, Tensor]:
        """Integral (B, T) from the newest frame, and course, of a rate (B,) that set in once."""
        since = torch.tanh(times / self.settled_s[:, None])
        return (rate * self.settled_s)[:, None] * since, rate[:, None] * (1 - since.square())


def mount(draws: SceneRng, spec: SceneSpec, config: WorldConfig) -> tuple[SceneSpec, Ride]:
    """Mount cameras on platforms, and change what is to happen as the platforms allow."""
    platform = draws.pick((_ROAMING if config.roaming else _SHARES)[spec.place])
    own, flies = platform > 0, _FLIES[platform]
    spec, period = _timed(draws, spec, own)
    spec, bend = _seen_wide(draws, spec, own)
    boxed = own & (bend == 1) & (spec.aspect > 1) & draws.chance(BOXED_SHARE)

    free = own & ~spec.at('table', 'motorway')
    motion = torch.where(free, draws.pick(torch.tensor(MOTION_SHARES)), USUAL)
    rotates, slides = motion == ROTATES, motion == SLIDES
    calm = torch.where(draws.chance(0.5), OUTCOME['rest'], OUTCOME['clear'])
    outcome = torch.where(rotates, OUTCOME['turn'], torch.where(slides, calm, spec.outcome))
    present = torch.where(slides, calm == OUTCOME['rest'], spec.present)

    pace = draws.log(_SPEED[platform, 0], _SPEED[platform, 1])
    speed = torch.where(free & (spec.speed != 0), spec.speed.sign() * pace, spec.speed)
    speed = torch.where(slides, draws.log(0.15, 1.5), torch.where(rotates, 0, speed))
    hovers = free & flies & (spec.speed == 0) & (motion == USUAL) & draws.chance(0.7)
    speed = torch.where(hovers, draws.log(0.03, 0.25), speed)
    aside = draws.sign() * math.pi / 2 + draws.normal(0.12)
    drift = torch.where(slides, aside, spec.drift)
    drift = torch.where(hovers, draws.uniform(-math.pi, math.pi), drift)

    most = torch.minimum(_TURN[platform], (1 - _OVERLAP) * spec.hfov / spec.interval_s)
    part = torch.where(rotates, draws.uniform(0.15, 1), draws.unit().square())
    rate = draws.sign() * most * part
    turning = TURNING_IN_TRAINING if config.training else CHANGING_SHARE
    rate = torch.where(rotates | draws.chance(turning), rate, 0)
    grip = _GRIP / speed.abs().clamp(min=0.5)
    turn = torch.where(free, torch.maximum(torch.minimum(rate, grip), -grip), spec.turn)
    turn = torch.where(slides | (own & spec.happens('follow')), 0, turn)

    climbs = free & (_CLIMB[platform] > 0) & draws.chance(0.4) & ~rotates & ~slides
    climb = torch.where(climbs, draws.sign() * draws.uniform(0.1, 1) * _CLIMB[platform], 0)
    settled = torch.where(own & draws.chance(0.5), draws.log(0.3, 3), 1e3)
    stands, steady = torch.zeros_like(speed), ALWAYS
    if config.training:
        stopped = own & spec.happens('stopped') & (motion == USUAL)
        stands = torch.where(stopped & draws.chance(STANDS_SHARE), draws.uniform(0, STANDS_S), 0)
        sets_in = own & ~stopped & draws.chance(SETS_IN_SHARE)
        steady = Steady(torch.where(stopped, pace, torch.inf),
                        torch.where(sets_in, draws.log(*FASTER), torch.inf),
                        torch.where(sets_in, draws.uniform(*SLOWER).clamp(min=0), 0))
    height = draws.log(_HEIGHT[platform, 0], _HEIGHT[platform, 1])
    pitch = torch.where(draws.chance(0.15), spec.pitch, draws.normal(0.05))
    spec = replace(
        spec, outcome=outcome, present=present, speed=speed, drift=drift, turn=turn,
        height=torch.where(own & ~spec.at('table'), height, spec.height),
        pitch=torch.where(own, pitch, spec.pitch), moves=spec.moves & ~rotates & ~slides)
    return spec, Ride(platform, period, bend, boxed, settled, climb, stands, steady)


def _timed(draws: SceneRng, spec: SceneSpec, own: Tensor) -> tuple[SceneSpec, Tensor]:
    """Intervals of clips, and periods of cameras [s]: half of them give 5 to 8 Hz."""
    slow = draws.uniform(1 / 8, 1 / 5)
    kind = draws.unit()
    interval = torch.where(kind < DEFAULT_SHARE, draws.uniform(0.2, 0.3), torch.where(
        kind < DEFAULT_SHARE + SLOW_SHARE, slow, spec.interval_s))
    period = torch.where(draws.chance(0.5), slow, draws.log(1 / 30, 1 / 8))
    interval = torch.where(own, interval.clamp(*INTERVAL_S), spec.interval_s)
    return (replace(spec, interval_s=interval, hold=torch.where(own, 1, spec.hold)),
            torch.minimum(period, interval))


def _seen_wide(draws: SceneRng, spec: SceneSpec, own: Tensor) -> tuple[SceneSpec, Tensor]:
    """Fields of view and bends of lenses; no corner is more than `_CORNER` off the axis."""
    wide = own & draws.chance(WIDE_SHARE)
    bend = draws.uniform(0.05, 0.7)
    wish = torch.deg2rad(draws.uniform(*WIDE_DEGREES))
    edge = (bend * _CORNER).tan() / (1 + spec.aspect.square().reciprocal()).sqrt()
    hfov = torch.minimum(wish, 2 * edge.atan() / bend)
    return (replace(spec, hfov=torch.where(wide, hfov, spec.hfov)), torch.where(wide, bend, 1.0))


def driven(draws: SceneRng, encounter: Encounter, ride: Ride, training: bool) -> Encounter:
    """Let platforms speed up and brake as they do, and vehicles ahead keep their distance."""
    spec = encounter.spec
    least, most = _SPEED_UP[ride.platform].unbind(-1)
    changes = ride.own & (spec.speed.abs() > 0.1) & ~spec.happens('stopped') & draws.chance(
        CHANGING_SHARE)
    braking = torch.where(changes, draws.sign() * draws.uniform(least, most),
                          encounter.robot_braking)
    slowing = encounter.body_braking
    if training:
        stops, harder = ride.own & spec.happens('stopped'), draws.log(least, most)
        braking = torch.where(stops & ~spec.moves, harder, braking)
        slowing = torch.where(stops & spec.moves, harder, slowing)
    keeps = ride.own & spec.happens('follow') & draws.chance(STEADY_SHARE)
    robot = torch.stack((spec.drift.sin(), spec.drift.cos()), -1) * spec.speed[:, None]
    return replace(
        encounter, robot_braking=braking,
        velocity=torch.where(keeps[:, None], robot, encounter.velocity),
        body_braking=torch.where(keeps, braking, slowing))


def pace(speed: Tensor, braking: Tensor, times: Tensor, steady: Steady) -> Tensor:
    """Speed at times before the newest frame [m/s], (B, T); the derivative of `travelled`."""
    before = speed.abs()[:, None] - braking[:, None] * times
    fastest, slowest = steady.around(speed.abs())
    brakes = braking[:, None] > 0
    before = before.maximum(torch.where(brakes, 0, slowest))
    before = before.minimum(torch.where(brakes, fastest, torch.inf))
    return torch.where(speed < 0, -1.0, 1.0)[:, None] * before


def _lean(encounter: Encounter, ride: Ride, gain: Tensor, speed: Tensor, turn: Tensor) -> Tensor:
    """Yaw, pitch and roll (B, T, 3) [rad] of a multirotor that thrusts, or of what squats."""
    drift, flies = encounter.spec.drift[:, None], _FLIES[ride.platform][:, None]
    ahead, right = speed * drift.cos(), speed * drift.sin()
    nod = torch.where(flies, -((gain * drift.cos() + _DRAG * ahead) / GRAVITY).atan(),
                      (_SQUAT * gain).clamp(-0.05, 0.05))
    roll = torch.where(flies, ((gain * drift.sin() + _DRAG * right + ahead * turn)
                               / GRAVITY).atan(), 0)
    return torch.stack((torch.zeros_like(nod), nod, roll), -1)


def _leans(encounter: Encounter, ride: Ride, times: Tensor, half: Tensor) -> Tensor:
    spec = encounter.spec
    moves = (spec.speed.abs() > 0.1) | spec.happens('stopped')
    speed = torch.where(moves, spec.speed, 0)
    braking = torch.where(moves, encounter.robot_braking, 0)

    def at(when: Tensor) -> Tensor:
        return pace(speed, braking, ride.stopping(when), ride.steady)

    gain = (at(times + half) - at(times - half)) / (2 * half)
    return _lean(encounter, ride, gain, at(times), ride.grown(spec.turn, times)[1])


def ridden(draws: SceneRng, ride: Ride, encounter: Encounter, times: Tensor,
           training: bool) -> Shake:
    """Sway, steps, vibration and lean of platforms at times (B, T)."""
    spec, platform = encounter.spec, ride.platform
    strength = draws.uniform(0.1, 1.5)[:, None]
    rate = 2 * math.pi * draws.log(_HZ[platform, :, 0], _HZ[platform, :, 1], 3)     # B W
    size = strength[..., None] * _ANGLES[platform] * draws.uniform(0.3, 1, 3, 3)    # B W 3
    phase = draws.uniform(0, 2 * math.pi, 3, 4)
    turned = rate[:, None, :, None] * times[:, :, None, None] + phase[:, None]      # B T W 4
    swing, change = turned.sin(), rate[:, None, :, None] * turned.cos()
    angles = (size[:, None] * swing[..., :3]).sum(2)
    rates = (size[:, None] * change[..., :3]).sum(2)

    if training:
        half = draws.log(*LEANS_S)[:, None]
        leans = _leans(encounter, ride, times, half)
        step = 0.1 * half
        rates = rates + (_leans(encounter, ride, times + step, half)
                         - _leans(encounter, ride, times - step, half)) / (2 * step[..., None])
    else:
        gain = -encounter.robot_braking * (spec.speed.abs() > 0.1)
        leans = _lean(encounter, ride, gain[:, None], spec.speed[:, None], spec.turn[:, None])
    angles = angles + leans

    heave = strength * _HEAVE[platform]                                             # B W
    up = (heave[:, None] * swing[..., 3]).sum(2)
    rise = (heave[:, None] * change[..., 3]).sum(2)
    higher, climb = ride.grown(ride.climb, times)
    # Steps sway to the side too, at half the rate, at rest at the newest frame.
    half = 0.5 * rate[:, 1:2]
    wide = 0.6 * heave[:, 1:2] * draws.sign()[:, None]
    aside, drag = wide * ((half * times).cos() - 1), -wide * half * (half * times).sin()
    zero = torch.zeros_like(up)
    return Shake(angles, rates, torch.stack((aside, up[:, -1:] - up - higher, zero), -1),
                 torch.stack((drag, -rise - climb, zero), -1))
