# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw what is to happen in each scene, and solve positions and speeds so that it does.

Vectors of an encounter are (right, ahead) of the camera's heading; the camera is at the origin at
the newest frame. The robot's volume starts at z = 0 and is as wide as `ROBOT`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.bodies import HERO
from vjepa_ros.lab.world.scenes.scene import FAR_M, ROBOT, SceneRng, to_world

WORLDS = ('standard', 'rough', 'roaming')
PLACES = ('empty', 'room', 'corridor', 'street', 'motorway', 'park', 'warehouse', 'table', 'lab')
OUTCOMES = ('drive_into', 'drive_wall', 'hit_by', 'emerge', 'rest', 'pass_static', 'pass_moving',
            'cross', 'recede', 'follow', 'clear', 'gap', 'turn', 'stopped')
PLACE = {name: i for i, name in enumerate(PLACES)}
OUTCOME = {name: i for i, name in enumerate(OUTCOMES)}
CONTACT = ('drive_into', 'drive_wall', 'hit_by', 'emerge')   # outcomes that end in a contact
HELD = ('cup', 'carton')                                     # bodies in a hand
FACING = ('figure', 'walker', 'cup', 'carton')               # bodies that turn to the camera


@dataclass(frozen=True)
class WorldConfig:
    # of smooth drives; rough for platforms that lean, shake and turn; roaming for cameras of such
    # platforms that move in all ways and look anywhere, close to what stands around
    name: str = 'standard'
    training: bool = False  # what the rough world has in training alone, see `docs/training.md`

    @property
    def rough(self) -> bool:
        return self.name != 'standard'

    @property
    def roaming(self) -> bool:
        return self.name == 'roaming'


INTERVAL_S = (1 / 30, 1 / 2)    # least and greatest time between frames of a clip
HOLD_SHARE = 0.2                # of clips show every picture twice
_PLACE_SHARES = {'standard': torch.tensor([.08, .16, .20, .15, .07, .09, .10, .15, 0]),
                 'rough': torch.tensor([.06, .12, .13, .16, .09, .08, .08, .06, .22]),
                 'roaming': torch.tensor([.04, .28, .12, .17, .03, .04, .05, .03, .24])}
_OUTCOME_SHARES = torch.tensor([
    # into wall hit emerge rest pass_s pass_m cross recede follow clear gap turn stopped
    [17, 0, 17, 6, 12, 11, 9, 8, 6, 5, 9, 5, 5, 3],       # empty
    [15, 18, 15, 6, 15, 9, 7, 6, 4, 3, 6, 6, 9, 4],       # room
    [17, 19, 17, 4, 11, 9, 7, 3, 4, 5, 12, 7, 6, 3],      # corridor
    [22, 2, 18, 7, 9, 14, 10, 6, 4, 8, 13, 2, 3, 2],      # street
    [24, 0, 18, 0, 4, 10, 8, 2, 6, 16, 22, 0, 2, 2],      # motorway
    [19, 0, 20, 8, 11, 11, 9, 8, 5, 4, 10, 4, 5, 4],      # park
    [17, 17, 13, 7, 11, 9, 6, 5, 4, 4, 10, 9, 6, 4],      # warehouse
    [0, 0, 50, 0, 26, 0, 6, 12, 16, 0, 0, 0, 0, 5],       # table
    [18, 14, 17, 5, 14, 12, 9, 6, 4, 3, 6, 6, 8, 4],      # lab
], dtype=torch.float32)
_MORE_STOPS = 10                                   # for training
_MORE_LEADS = {'street': 14, 'motorway': 22}       # in the rough world
# Who carries the camera: a low robot, a tall robot, a person, a car.
_CARRIER_SHARES = torch.tensor([
    [.5, .25, .2, .05], [.45, .3, .25, 0], [.45, .3, .25, 0], [.35, .15, .2, .3], [0, 0, 0, 1.],
    [.45, .25, .3, 0], [.5, .35, .15, 0], [.4, .6, 0, 0], [.4, .3, .3, 0]])
_HEIGHTS = torch.tensor([[.1, .55], [.5, 1.3], [1.2, 1.9], [1.1, 2.0]])
_SPEEDS = torch.tensor([[.2, 5], [.15, 1.2], [.2, 2], [.3, 3], [12, 33], [.3, 4], [.3, 2.5],
                        [.1, .2], [.15, 1.2]])
_CAR_SPEEDS = torch.tensor([3., 15.])
_ASPECTS = torch.tensor([1, 4 / 3, 16 / 9, 3.3])
_STILL_SHARES = torch.tensor([
    HERO.weights(person=2, figure=1, box=3, stack=2, column=2, bin=1, chair=1, panel=1, door=.5,
                 cart=1, tree=2, car=2, ball=.5, dog=.5, truck=.5),
    HERO.weights(person=2, figure=1, box=3, stack=2, column=1, bin=1, chair=3, desk=2, panel=1,
                 door=1, dog=.5, cart=.5, ball=.5),
    HERO.weights(person=3, figure=3, box=2, stack=1, column=1, bin=1, chair=1.5, panel=1,
                 door=1.5, cart=.5),
    HERO.weights(person=2, figure=1, car=5, truck=1, column=2, bin=1, box=1, tree=1, panel=.5),
    HERO.weights(car=6, truck=2, box=1, column=.5),
    HERO.weights(person=2, figure=2, tree=5, column=1, bin=1, box=1, panel=1, dog=1),
    HERO.weights(person=1.5, figure=.5, box=4, stack=4, column=1, cart=2, panel=.5, bin=1),
    HERO.weights(cup=5, carton=5, ball=1),
    HERO.weights(panel=6, person=3, figure=1, box=3, stack=2, chair=2, desk=2, cart=2, door=.5,
                 column=1, ball=.5)])
_MOVING_SHARES = torch.tensor([
    HERO.weights(person=4, figure=3, car=2, dog=1, cart=1, ball=1, truck=.3),
    HERO.weights(person=5, figure=3, cart=1, dog=1, ball=.7),
    HERO.weights(person=5, figure=5, cart=1, dog=.4, ball=.3),
    HERO.weights(person=3, figure=2, car=5, truck=1, dog=.5, cart=.3),
    HERO.weights(car=7, truck=2),
    HERO.weights(person=4, figure=3, dog=2, ball=1),
    HERO.weights(person=4, figure=2, cart=3, truck=.3),
    HERO.weights(cup=5, carton=5, ball=.7),
    HERO.weights(person=6, figure=4, cart=2, dog=.5, ball=.5)])
_BODY_SPEEDS = {'person': (.4, 2.2), 'figure': (.4, 2.2), 'walker': (.4, 2.2), 'car': (1.5, 14),
                'truck': (1.5, 11), 'dog': (.5, 4), 'cart': (.2, 1.8), 'ball': (.6, 4),
                'cup': (.05, .7), 'carton': (.05, .7)}
_BODY_SPEED = torch.tensor([_BODY_SPEEDS.get(name, (.2, 1.5)) for name in HERO.names])


@dataclass(frozen=True)
class Event:
    """Numbers (B,) of `PLACES` and `OUTCOMES`."""

    place: Tensor
    outcome: Tensor

    def at(self, *places: str) -> Tensor:
        return is_any(self.place, PLACE, places)

    def happens(self, *outcomes: str) -> Tensor:
        return is_any(self.outcome, OUTCOME, outcomes)


@dataclass(frozen=True)
class SceneSpec(Event):
    """What is to happen in each of B scenes; all tensors (B,) unless said."""

    interval_s: Tensor  # as `frame_times` takes it
    hold: Tensor
    hfov: Tensor  # horizontal field of view [rad]
    aspect: Tensor  # width by height of the source picture
    height: Tensor  # of the camera [m]
    pitch: Tensor  # [rad]
    roll: Tensor
    heading: Tensor  # yaw in the axes of the place [rad]
    speed: Tensor  # of the robot [m/s]
    drift: Tensor  # its direction relative to the heading [rad]
    turn: Tensor  # [rad/s]
    hand: Tensor  # strengths of what shakes the camera
    steps: Tensor
    motor: Tensor
    present: Tensor  # whether there is a body of importance
    kind: Tensor  # its type in the kit `HERO`
    size: Tensor  # its half width, height, half length (B, 3) [m]
    moves: Tensor
    body_speed: Tensor  # how fast it would like to move [m/s]


def is_any(value: Tensor, numbers: dict[str, int], names: tuple[str, ...]) -> Tensor:
    return torch.isin(value, torch.tensor([numbers[name] for name in names]))


KIND = {name: i for i, name in enumerate(HERO.names)}


def make_spec(draws: SceneRng, config: WorldConfig) -> SceneSpec:
    place = draws.pick(_PLACE_SHARES[config.name])
    shares = _OUTCOME_SHARES.clone()
    for name, more in _MORE_LEADS.items() if config.rough else ():
        shares[PLACE[name], OUTCOME['follow']] += more
    if config.training and not config.roaming:
        shares[:, OUTCOME['stopped']] += _MORE_STOPS
    outcome = draws.pick(shares[place])
    event = Event(place, outcome)
    at, happens = event.at, event.happens
    interval, half = draws.log(*INTERVAL_S), INTERVAL_S[1] / 2
    slow = draws.chance(HOLD_SHARE) & (interval <= half)
    # The share is of all clips, but long intervals cannot be halved: draw those again, shorter.
    again = draws.chance(HOLD_SHARE) & (interval > half)
    interval = torch.where(again, draws.log(INTERVAL_S[0], half), interval)
    hold = torch.where(slow | (again & (interval <= half)), 2, 1)

    aspect = _ASPECTS[draws.pick(torch.tensor([.16, .4, .28, .16]))]
    degrees = torch.where(draws.chance(0.5), draws.uniform(55, 85), draws.uniform(35, 130))
    hfov = torch.deg2rad(degrees)
    carrier = draws.pick(_CARRIER_SHARES[place])
    heights = _HEIGHTS[carrier]
    height = draws.log(heights[:, 0], heights[:, 1])

    driving = happens('drive_into', 'drive_wall', 'pass_static', 'follow', 'clear', 'gap') | (
        happens('hit_by', 'emerge', 'pass_moving', 'cross', 'recede', 'turn')
        & (draws.chance(0.5) | at('motorway')))
    driving &= ~at('table')
    speeds = torch.where((carrier == 3)[:, None] & at('street')[:, None], _CAR_SPEEDS,
                         _SPEEDS[place])
    speed = torch.where(driving, draws.log(speeds[:, 0], speeds[:, 1]), 0)
    back = happens('recede') & ~at('motorway', 'table') & draws.chance(0.35)
    speed = torch.where(back, -0.5 * draws.log(speeds[:, 0], speeds[:, 1]).clamp(max=2.5), speed)

    by_hand, by_car = carrier == 2, carrier == 3
    drift = torch.where(driving, draws.normal(0.025), 0)
    drift = torch.where(by_hand, 2.5 * drift, torch.where(by_car, 0.25 * drift, drift))
    bends = torch.where(driving, draws.chance(0.45), draws.chance(0.25)) & ~at('table')
    turn = torch.where(bends, draws.normal(0.25), 0)
    turn = torch.where(happens('turn'), draws.sign() * draws.uniform(0.15, 1.5), turn)
    most = torch.minimum(0.35 / (interval * hold), 2 / speed.abs().clamp(min=0.5))
    most = torch.where(at('motorway'), 0.04, most)
    turn = turn.clamp(-most, most)

    steady = at('table') & draws.chance(0.75)
    hand = torch.where(by_hand | (at('table') & ~steady), draws.uniform(0.3, 2), 0)
    steps = torch.where(by_hand & (speed != 0), draws.uniform(0.4, 1.5), 0)
    rolls = (speed != 0) | draws.chance(0.3)
    motor = torch.where(~by_hand & rolls & ~at('table') & draws.chance(0.7), draws.log(0.1, 2), 0)
    motor = torch.where(by_car, 0.4 * motor, motor)

    lower = draws.chance(0.12) & ~by_car
    pitch = draws.normal(0.06) - torch.where(by_hand, 0.07, 0.0)
    pitch = torch.where(lower, -draws.uniform(0.15, 0.45), pitch)
    pitch = torch.where(draws.chance(0.05), draws.uniform(0.08, 0.25), pitch)
    pitch = torch.where(by_car, 0.5 * pitch, pitch)
    roll = draws.normal(0.015) + torch.where(by_hand, draws.normal(0.05), 0)
    roll = torch.where(draws.chance(0.04) & ~by_car, draws.normal(0.2), roll)

    moves = happens('hit_by', 'emerge', 'pass_moving', 'cross', 'follow') | (
        happens('recede') & ~back)
    stops = happens('stopped') & draws.chance(0.5)     # otherwise the robot is what stops
    moves |= stops | (happens('stopped') & at('table'))
    kind = torch.where(moves, draws.pick(_MOVING_SHARES[place]), draws.pick(_STILL_SHARES[place]))
    present = ~happens('drive_wall', 'clear', 'gap') & ~(happens('turn') & draws.chance(0.5))
    wish = draws.log(_BODY_SPEED[kind, 0], _BODY_SPEED[kind, 1])
    wish = torch.where(is_any(kind, KIND, ('car', 'truck')) & ~at('street', 'motorway'),
                       0.3 * wish + 0.3, wish)
    return SceneSpec(place, outcome, interval, hold, hfov, aspect, height, pitch, roll,
                     _heading(draws, event, driving), speed, drift, turn, hand, steps,
                     motor, present, kind, HERO.size(draws, kind), moves, wish)


def _heading(draws: SceneRng, event: Event, driving: Tensor) -> Tensor:
    at, happens = event.at, event.happens
    spread = torch.full((draws.count,), 0.07)
    spread = torch.where(at('room', 'lab'), 0.35, spread)
    spread = torch.where(at('motorway'), 0.012, spread)
    spread = torch.where(at('table'), 0.25, spread)
    spread = torch.where(at('corridor', 'warehouse') & ~driving, 0.4, spread)
    spread = torch.where(at('corridor', 'warehouse') & happens('drive_wall'), 0.3, spread)
    heading = draws.normal(spread).clamp(-0.9, 0.9)
    oblique = (at('room', 'lab') & happens('drive_wall')) | happens('turn') | (
        at('street') & ~driving & draws.chance(0.5))
    heading = torch.where(oblique, draws.uniform(-1.1, 1.1), heading)
    anywhere = draws.uniform(-math.pi, math.pi)
    return torch.where(at('empty', 'park'), anywhere, heading)


_LEAST_SHARE = 0.002    # of the picture that a body should fill where it matters
# Share of the times to contact that reach far, and from when to when [s].
_FAR_SHARE, _FAR_S = 0.12, (0.4, 8.0)
_FAR_SHARE_IN_TRAINING, _FAR_S_IN_TRAINING = 0.5, (0.4, 10.0)


@dataclass(frozen=True)
class Encounter:
    """How camera and body of importance stand and move at the newest frame."""

    spec: SceneSpec  # with speeds and heights as solved
    at: Tensor  # (B, 2) of the body along the heading [m]
    velocity: Tensor  # (B, 2) its own [m/s]
    base: Tensor  # (B,) height of its underside [m]
    rise: Tensor  # (B,) its upward speed [m/s]
    yaw: Tensor  # (B,) of the body in the place's axes [rad]
    contact_s: Tensor  # (B,) planned time until the robot touches it, or the wall [s]; or inf
    robot_braking: Tensor  # (B,) how the speeds were before, see `travelled`
    body_braking: Tensor  # (B,)
    body_range: Tensor  # (B,)


def _polar(angle: Tensor, length: Tensor) -> Tensor:
    return torch.stack((angle.sin() * length, angle.cos() * length), -1)


def _closing(draws: SceneRng, spec: SceneSpec) -> tuple[Tensor, Tensor]:
    """Bearing from which the body closes in [rad], and how fast [m/s]."""
    car = is_any(spec.kind, KIND, ('car', 'truck'))
    spread = torch.where(car, 0.1, 0.22 * spec.hfov)
    bearing = torch.minimum(draws.normal(spread).abs(), 0.4 * spec.hfov) * draws.sign()
    aside = draws.uniform(0.15, 0.4) * spec.hfov * draws.sign()
    bearing = torch.where(spec.happens('emerge'), aside, bearing)
    # A slower one ahead on the same way; on a motorway nothing comes the other way.
    leads = spec.moves & (spec.speed > 0) & torch.where(
        spec.at('motorway'), torch.ones_like(spec.moves), draws.chance(0.2))
    leads &= ~spec.happens('emerge')
    bearing = torch.where(leads, 0.12 * bearing, bearing)
    speed = spec.speed.clamp(min=0)
    wish = torch.where(leads, speed * draws.uniform(0.15, 0.9), spec.body_speed)
    wish = torch.maximum(wish, speed * bearing.sin().abs() * 1.03 + 1e-3)
    root = (wish.square() - (speed * bearing.sin()).square()).clamp(min=0).sqrt()
    closing = speed * bearing.cos() + torch.where(leads, -root, root)
    bearing = torch.where(spec.moves, bearing, spec.drift)
    closing = torch.where(spec.moves, closing, speed)
    return bearing, closing.clamp(min=1e-3)


def _yaw(draws: SceneRng, spec: SceneSpec, at: Tensor, velocity: Tensor,
         outward: Tensor) -> Tensor:
    """Yaw of the bodies in the place's axes: along their motion, or as such things stand."""
    ways = to_world(velocity, spec.heading)
    along = torch.atan2(ways[..., 0], ways[..., 1])
    bearing = spec.heading + torch.atan2(at[..., 0], at[..., 1])
    car = is_any(spec.kind, KIND, ('car', 'truck')) & spec.at('street', 'motorway')
    turned = torch.where(draws.chance(0.3) & spec.at('street'), math.pi, 0.0)
    still = torch.where(car, turned + draws.normal(0.05), draws.uniform(-math.pi, math.pi))
    boxy = spec.at('room', 'corridor', 'warehouse', 'lab') & draws.chance(0.6)
    square = math.pi / 2 * torch.floor(draws.uniform(0, 4)) + draws.normal(0.08)
    still = torch.where(boxy, square, still)
    yaw = torch.where(velocity.norm(dim=-1) > 0.01, along, still)
    facing = bearing + draws.normal(0.25)
    held = is_any(spec.kind, KIND, HELD)
    facing = torch.where(held & (outward < 0), facing + math.pi, facing)
    yaw = torch.where(is_any(spec.kind, KIND, FACING), facing, yaw)
    # A flat figure in side view walks along its own x axis.
    walker = spec.kind == KIND['walker']
    return torch.where(walker, torch.atan2(-ways[..., 1], ways[..., 0]), yaw)


def solve(draws: SceneRng, spec: SceneSpec, config: WorldConfig) -> Encounter:
    """Positions, velocities and times for the planned outcomes."""
    b = draws.count
    held = is_any(spec.kind, KIND, HELD)
    tangent = (spec.hfov / 2).tan()
    focal = 0.5 / tangent
    half_v = torch.atan(tangent / spec.aspect)
    width, tall, length = spec.size.unbind(-1)
    # The trunk of a tree is what one runs into.
    slim = torch.where(spec.kind == KIND['tree'], 0.1, 1.0)
    side = torch.maximum(width, length * 0.7) * slim
    depth = torch.maximum(width * 0.7, length) * slim
    # As far off as the body still fills a share of the picture, and where it is to be met, as
    # the part of it that the robot would touch does.
    seen_width = 2 * torch.maximum(width, 0.5 * length) * slim.sqrt()
    touched = torch.minimum(seen_width, torch.tensor(2 * ROBOT.half_width)) * (
        torch.minimum(tall, spec.height.clamp(min=ROBOT.height)))
    area = torch.where(spec.happens(*CONTACT), touched, seen_width * tall)
    far = focal * (area * spec.aspect / _LEAST_SHARE).sqrt()

    bearing, closing = _closing(draws, spec)
    tau = torch.where(draws.chance(0.25), draws.uniform(0.08, 0.9), draws.uniform(0.2, 3.1))
    share, span = (_FAR_SHARE_IN_TRAINING, _FAR_S_IN_TRAINING) if config.training else (
        _FAR_SHARE, _FAR_S)
    tau = torch.where(draws.chance(share), draws.log(*span), tau)
    meets = spec.happens('drive_into', 'hit_by', 'emerge', 'pass_static', 'pass_moving')
    near = torch.where(held, 0.08, 0.15 + 0.1 * width)
    if config.roaming:      # the speed is as drawn, and the time what it takes
        tau = torch.maximum(torch.minimum(tau, far / closing), near / closing)
    gap = closing * tau
    scale = torch.minimum(torch.maximum(gap, near), torch.maximum(far, 2 * near)) / gap
    scale = torch.where(meets, scale, 1.0)
    scale = torch.where(spec.happens('drive_wall'), (0.1 / gap).clamp(min=1), scale)
    # Long times with a fast robot need places larger than ours: everything goes slower.
    leads = spec.moves & spec.at('motorway')
    speed, closing = spec.speed * torch.where(leads, 1, scale), closing * scale
    robot = _polar(spec.drift, speed)                                   # B 2

    # Which yaw, and so which extent, depends on the velocity alone but for what faces us.
    velocity = robot - _polar(bearing, closing)
    crosses, recedes = spec.happens('cross'), spec.happens('recede')
    away = torch.where(held, spec.body_speed, spec.body_speed.clamp(max=12))
    way, slant = draws.sign(), draws.normal(0.25)
    across = torch.stack((way * away * slant.cos(), away * slant.sin()), -1)
    look = draws.uniform(-0.4, 0.4) * spec.hfov
    leaving = _polar(look + draws.normal(0.3), away) + robot.clamp(min=0)
    velocity = torch.where(crosses[:, None], across, velocity)
    velocity = torch.where(recedes[:, None], leaving, velocity)
    pace = 1 + draws.uniform(-0.03, 0.05)
    velocity = torch.where(spec.happens('follow')[:, None], robot * pace[:, None], velocity)
    velocity = torch.where((spec.moves & ~spec.happens('stopped'))[:, None], velocity, 0)

    outward = draws.sign()
    aim = _polar(bearing, torch.ones(b))
    yaw = _yaw(draws, spec, aim, velocity, outward)
    turned = yaw - spec.heading
    reach = torch.stack((width * turned.cos().abs() + length * turned.sin().abs(),
                         width * turned.sin().abs() + length * turned.cos().abs()), -1)
    reach = reach * slim[:, None]

    # Where its middle is when its front is level with the robot's: in the way, or beside it.
    inside = draws.uniform(-0.75, 0.75) * torch.maximum(
        reach[:, 0], 0.6 * reach[:, 0] + ROBOT.half_width)
    margin = torch.where(held, draws.log(0.03, 0.3), draws.log(0.12, 2))
    margin = torch.where(is_any(spec.kind, KIND, ('car', 'truck')), 0.2 + 1.3 * margin, margin)
    beside = outward * (ROBOT.half_width + reach[:, 0] + margin)
    passes = spec.happens('pass_static', 'pass_moving')
    across_at = torch.where(passes, beside, inside)
    # What passes close by is out of view shortly before: mostly look at it earlier.
    seen = (across_at.abs() / (0.84 * spec.hfov / 2).tan() - reach[:, 1]) / (
        closing * bearing.cos())
    tau = torch.where(passes & draws.chance(0.55), torch.maximum(tau, seen), tau)
    spot = torch.stack((across_at, reach[:, 1]), -1) + _polar(bearing, closing * tau)

    # Crossing: out of the robot's way before the robot gets there.
    when = draws.uniform(-0.8, 2.2)
    out = when + (ROBOT.half_width + reach[:, 0]) / across[:, 0].abs().clamp(min=0.05)
    spare = reach[:, 1] + torch.where(held, draws.log(0.1, 0.6), draws.log(0.2, 4))
    ahead = spare + (speed - velocity[:, 1]).clamp(min=0) * out.clamp(min=0)
    right = -across[:, 0] * when
    ahead = torch.maximum(ahead, right.abs() / (0.45 * spec.hfov).tan())
    spot = torch.where(crosses[:, None], torch.stack((right, ahead), -1), spot)

    # Standing, leaving, following, stopped: somewhere in view.
    least = near + torch.maximum(side, depth)
    off = draws.log(least, torch.maximum(0.7 * far, 1.5 * least))
    off = torch.where(spec.happens('follow'), least + 0.3 + speed * draws.uniform(0.5, 2.2), off)
    off = torch.where(held, draws.log(0.15, 1.1) + depth, off)
    off = torch.where(spec.happens('stopped') & ~held, least + draws.log(0.05, 2.5), off)
    lane = torch.where(spec.happens('follow'), draws.normal(0.03), look)
    stands = spec.happens('rest', 'recede', 'follow', 'turn', 'stopped')
    spot = torch.where(stands[:, None], _polar(lane, off), spot)

    distance = spot.norm(dim=-1)
    touching = spec.happens(*CONTACT)
    middle = spec.height + distance * (spec.pitch + draws.uniform(-0.5, 0.5) * half_v).tan()
    base = torch.where(held, (middle - tall / 2).clamp(min=0.03), 0)
    goal = spec.height + draws.normal(0.04) - tall / 2
    rise = torch.where(held & touching, (goal - base) / tau, 0)
    rise = torch.where(held & ~touching & draws.chance(0.4) & spec.moves, draws.normal(0.15), rise)
    rise = torch.where(spec.happens('stopped'), 0, rise)
    # A body below the picture warns of nothing: such a robot has a lower camera.
    front = (distance - depth).clamp(min=0.05)
    under = tall + front * (0.6 * half_v - spec.pitch).clamp(-0.3, 1.2).tan()
    low = spec.present & ~held & ~spec.at('motorway')
    height = torch.where(low, torch.minimum(spec.height, under).clamp(min=0.1), spec.height)

    duration = 8 * spec.interval_s
    robot_braking = torch.where(draws.chance(0.5), speed.abs() * draws.normal(0.45) / duration, 0)
    pace = velocity.norm(dim=-1)
    body_braking = torch.where(draws.chance(0.5), pace * draws.normal(0.6) / duration, 0)
    # What has just stopped was fast before; its speed now is zero.
    stop = draws.uniform(0.25, 1.2) * torch.where(held, 0.4, 1.0)
    stopped = spec.happens('stopped')
    robot_braking = torch.where(stopped & ~spec.moves, stop, robot_braking)
    body_braking = torch.where(stopped & spec.moves, stop, body_braking)
    body_range = torch.where(held, draws.uniform(0.15, 0.7), FAR_M)
    # The side from which the body came is where it was farther off.
    tiny = _polar(lane, torch.full((b,), -1e-6))
    velocity = torch.where((stopped & spec.moves)[:, None], tiny, velocity)
    speed = torch.where(stopped & ~spec.moves, 1e-6, speed)

    contact = torch.where(touching, tau, torch.inf)
    # Flat figures that go across are seen from the side.
    figure = spec.kind == KIND['figure']
    sight = spot / distance.clamp(min=1e-6)[:, None]
    sideways = (velocity[:, 0] * sight[:, 1] - velocity[:, 1] * sight[:, 0]).abs() > 0.7 * pace
    kind = torch.where(figure & sideways & (pace > 0.1), KIND['walker'], spec.kind)
    spec = replace(spec, speed=speed, height=height, kind=kind)
    yaw = torch.where(kind == KIND['walker'], _yaw(draws, spec, spot, velocity, outward), yaw)
    return Encounter(spec, spot, velocity, base, rise, yaw, contact, robot_braking,
                     body_braking, body_range)
