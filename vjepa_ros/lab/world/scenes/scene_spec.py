# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw the specification of each scene: place, camera, motion and outcome."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.bodies import HERO
from vjepa_ros.lab.world.scenes.scene import SceneRng

WORLDS = ('standard', 'rough')
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
    """Which world is drawn."""

    # One of `WORLDS`: standard for smooth drives with even frames, rough for platforms that
    # lean, shake and turn, with the cameras that they have (`platforms`, `camera`)
    name: str = 'standard'
    # In the rough world, what training has beside the clips that figures are made with, which
    # stay as they were: more stops, harder ones, and what has stopped may stand for a while;
    # fewer turns; changes of speed that set in, with a lean that comes and goes; bodies with
    # plain surfaces; more contacts that are seconds away; stamps that tell when a picture
    # arrived
    training: bool = False

    def __post_init__(self) -> None:
        if self.name not in WORLDS:
            raise ValueError(f"world '{self.name}' is not one of {', '.join(WORLDS)}")
        if self.training and not self.rough:
            raise ValueError(f"world '{self.name}' has no clips for training alone")

    @property
    def rough(self) -> bool:
        """Whether it is the rough world."""
        return self.name == 'rough'


INTERVAL_S = (1 / 30, 1 / 2)    # least and greatest time between frames of a clip
HOLD_SHARE = 0.2                # of clips show every picture twice
# Of the standard world and of the rough one.
_PLACE_SHARES = {'standard': torch.tensor([.08, .16, .20, .15, .07, .09, .10, .15, 0]),
                 'rough': torch.tensor([.06, .12, .13, .16, .09, .08, .08, .06, .22])}
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
_MORE_STOPS = torch.zeros_like(_OUTCOME_SHARES)    # where wanted
_MORE_STOPS[:, OUTCOME['stopped']] = 10
_MORE_LEADS = torch.zeros_like(_OUTCOME_SHARES)    # in the rough world
_MORE_LEADS[[PLACE['street'], PLACE['motorway']], OUTCOME['follow']] = torch.tensor([14., 22.])
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
class SceneSpec:
    """What is to happen in each of B scenes; all tensors (B,) unless said."""

    # place, outcome: numbers of `PLACES` and `OUTCOMES`
    place: Tensor
    outcome: Tensor
    # interval_s, hold: see `frame_times`
    interval_s: Tensor
    hold: Tensor
    # hfov, aspect: horizontal field of view [rad], and width by height of the source picture
    hfov: Tensor
    aspect: Tensor
    carrier: Tensor  # 0 low robot, 1 tall robot, 2 person, 3 car
    # height, pitch, roll: of the camera [m], [rad]
    height: Tensor
    pitch: Tensor
    roll: Tensor
    # heading, speed, drift, turn: yaw in the axes of the place [rad]; the robot's speed [m/s],
    # its direction relative to the heading [rad], and rate of turn [rad/s]
    heading: Tensor
    speed: Tensor
    drift: Tensor
    turn: Tensor
    # hand, steps, motor: strengths of what shakes the camera
    hand: Tensor
    steps: Tensor
    motor: Tensor
    # present, kind, size: whether there is a body of importance, its type in the kit `HERO`, its
    # half width, height, half length (B, 3) [m]
    present: Tensor
    kind: Tensor
    size: Tensor
    # moves, body_speed: whether it moves, and how fast it would like to [m/s]
    moves: Tensor
    body_speed: Tensor

    def happens(self, *outcomes: str) -> Tensor:
        """(B,) bool, whether the outcome is one of these."""
        return is_any(self.outcome, OUTCOME, outcomes)

    def at(self, *places: str) -> Tensor:
        """(B,) bool, whether the place is one of these."""
        return is_any(self.place, PLACE, places)


def is_any(value: Tensor, numbers: dict[str, int], names: tuple[str, ...]) -> Tensor:
    """Whether values are among the numbers of these names."""
    found = torch.zeros(len(numbers), dtype=torch.bool)
    found[[numbers[name] for name in names]] = True
    return found[value]


KIND = {name: i for i, name in enumerate(HERO.names)}


def make_spec(draws: SceneRng, config: WorldConfig) -> SceneSpec:
    """Draw a specification for every scene."""
    place = draws.pick(_PLACE_SHARES[config.name])
    shares = _OUTCOME_SHARES + _MORE_LEADS if config.rough else _OUTCOME_SHARES
    if config.training:
        shares = shares + _MORE_STOPS
    outcome = draws.pick(shares[place])

    def at(*names: str) -> Tensor:
        return is_any(place, PLACE, names)

    def happens(*names: str) -> Tensor:
        return is_any(outcome, OUTCOME, names)

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
    return SceneSpec(place, outcome, interval, hold, hfov, aspect, carrier, height, pitch, roll,
                     _heading(draws, at, happens, driving), speed, drift, turn, hand, steps,
                     motor, present, kind, HERO.size(draws, kind), moves, wish)


def _heading(draws: SceneRng, at: Callable[..., Tensor], happens: Callable[..., Tensor],
             driving: Tensor) -> Tensor:
    """Heading of the cameras in the axes of their places [rad]."""
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
