# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Give one past several futures: what the robot would see and touch under other motions.

At the newest frame of a clip a robot takes one of F plans of S steps, each a twist held for a
time. Bodies go on as they move at that frame, and wait before the robot as in `drive`, see
`reaction`. Where the robot touches them follows from positions alone; what it would see is drawn.
So a model can learn what actions cause, from plans that share one past. B scenes, F plans, S
steps, K shapes.

Axes and signs: poses are those of scenes (x right, z ahead, yaw to the right); twists are those of
a ROS Twist (ahead, to the left, turn to the left).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.reaction import STANDS_M_S, meets
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.scenes.bodies import HERO_KINDS
from vjepa_ros.lab.world.scenes.scene import CARD, COVERING, CYLINDER, ELLIPSOID, Scenes
from vjepa_ros.lab.world.scenes.scene_rng import SceneRng
from vjepa_ros.model.twist_paths import poses

LOOK_S = 0.1            # time between two looks for contact
STEP_S = (0.25, 0.55)   # of a plan's first step, and of all others: six of them last 3 s


@dataclass(frozen=True)
class Plans:
    """F plans for each of B robots.

    Attributes
    ----------
    twists : Tensor
        (B, F, S, 3) speed ahead and to the left [m/s], turn to the left [rad/s].
    duration_s : Tensor
        (S,) for which each twist is held [s].
    offset : Tensor
        (B,) distance of the camera ahead of the point about which the robot turns [m].
    """

    twists: Tensor
    duration_s: Tensor
    offset: Tensor

    @property
    def ends_s(self) -> Tensor:
        """(S,) time at the end of each step [s]."""
        return self.duration_s.cumsum(0)

    def poses(self, times: Tensor) -> Tensor:
        """Where cameras are relative to now, see `twist_paths.poses`."""
        return poses(self.twists, self.duration_s, self.offset, times)


def draw_plans(draws: SceneRng, speed: Tensor, count: int, steps: int, even: bool = True
               ) -> Plans:
    """Draw plans around what robots do now.

    Parameters
    ----------
    speed : Tensor
        (B,) present speed ahead [m/s].
    count, steps : int
        F, at least 2, and S.
    even : bool
        Whether steps last as long as `STEP_S` says, instead of 0.6 to 1.2 times that.

    Returns
    -------
    Plans
        The first goes on as now, the second stops. Of the others a third keep one arc, a third
        change it once, and a third change speed and turn at each step; one in ten is driven
        backwards, and one in five robots also goes sideways.
    """
    if count < 2:
        raise ValueError(f'count is {count}; a past needs at least 2 plans')
    usual = torch.where(speed.abs() > 0.1, speed.abs(), draws.log(0.2, 1.5))[:, None]
    shape = (count, steps)
    pace = usual[..., None] * draws.uniform(0.2, 1.6, *shape)
    turn = draws.normal(0.6, *shape).clamp(-1.5, 1.5)
    aside = draws.normal(0.3, *shape) * usual[..., None] * draws.chance(0.2, 1, 1)
    kind, change = draws.pick(torch.ones(3), count, 1), (draws.unit(count, 1) * steps).long()
    since = torch.arange(steps)
    source = torch.where(kind == 0, 0, torch.where(kind == 1, (since >= change).long(), since))
    drawn = torch.stack((pace, aside, turn), -1).gather(
        2, source[..., None].expand(-1, -1, -1, 3))
    drawn[..., 0] *= torch.where(draws.chance(0.1, count, 1), -1.0, 1.0)
    drawn[:, 0] = torch.stack((speed, *[torch.zeros_like(speed)] * 2), -1)[:, None]
    drawn[:, 1] = 0
    first, later = STEP_S
    duration = torch.tensor([first] + [later] * (steps - 1))
    if not even:
        duration = duration * (0.6 + 0.6 * draws.unit()[0])
    return Plans(drawn, duration, draws.uniform(0.0, 0.5))


@dataclass(frozen=True)
class Ways:
    """Where F robots and K shapes of B scenes are at N moments that are `LOOK_S` apart.

    Attributes
    ----------
    times : Tensor
        (N,) since now [s].
    place, yaw : Tensor
        (B, F, N, 2) x and z of the middle of the robot relative to the camera of now, in world
        axes [m], (B, F, N) [rad].
    moved_s : Tensor
        (B, F, N, K) for how long each shape has moved since now: less than the time where it
        waited for the robot [s].
    """

    times: Tensor
    place: Tensor
    yaw: Tensor
    moved_s: Tensor


def ways(scenes: Scenes, plans: Plans, robot: Robot) -> Ways:
    """Follow robots along their plans, and bodies that wait before them."""
    times = torch.arange(1 + round(float(plans.duration_s.sum()) / LOOK_S),
                         device=plans.twists.device) * LOOK_S
    poses = plans.poses(times)                                                      # B F N 3
    heading = _heading(scenes)[:, None, None]
    yaw = poses[..., 2] + heading
    middle = torch.stack(_back(poses[..., :2], heading), -1) \
        - robot.length / 2 * torch.stack((yaw.sin(), yaw.cos()), -1)
    return Ways(times, middle, yaw, _moved(scenes, plans, middle, times, robot))


def _moved(scenes: Scenes, plans: Plans, middle: Tensor, times: Tensor, robot: Robot) -> Tensor:
    """For how long shapes have moved at each time, (B, F, N, K) [s]."""
    velocity = scenes.velocity[..., 0::2]                                           # B K 2
    pace = velocity.norm(dim=-1)
    way = velocity / pace[..., None].clamp(min=1e-6)
    goes = scenes.alive & (pace > 1e-6)
    off = scenes.yaw[:, -1] - torch.atan2(way[..., 0], way[..., 1])
    wide, deep = scenes.half[..., 0], scenes.half[..., 2]
    along = wide * off.sin().abs() + deep * off.cos().abs()
    across = wide * off.cos().abs() + deep * off.sin().abs()
    # The first body is the one that is meant to be in the way.
    heeds = torch.arange(len(scenes.kinds), device=middle.device) >= len(HERO_KINDS)
    at = (times[:, None] >= plans.ends_s).sum(-1).clamp(max=plans.twists.shape[2] - 1)
    stands = plans.twists[:, :, at, :2].norm(dim=-1) < STANDS_M_S                   # B F N
    bodies = _same_body(scenes).float()
    start = scenes.position[:, -1, :, 0::2] - scenes.camera_position[:, -1, None, 0::2]
    moved = [torch.zeros(*stands.shape[:2], len(scenes.kinds), device=middle.device)]
    for n in range(len(times) - 1):
        there = start[:, None] + moved[-1][..., None] * velocity[:, None]           # B F K 2
        right, ahead = _turned(middle[:, :, n, None] - there,
                               torch.atan2(way[..., 0], way[..., 1])[:, None])
        waits = goes[:, None] & (stands[:, :, n, None] | heeds) & meets(
            ahead, right.abs(), along[:, None], across[:, None], pace[:, None], robot)
        waits = waits.float() @ bodies > 0
        moved.append(moved[-1] + LOOK_S * ~waits)
    return torch.stack(moved, 2)


def _same_body(scenes: Scenes) -> Tensor:
    """Return which shapes move as one rigid body, (B, K, K) bool.

    Of such a body the velocity less that of a turn about the origin is the same in all parts.
    """
    place, rate = scenes.position[:, -1], scenes.yaw_rate
    carried = torch.stack((rate * place[..., 2], torch.zeros_like(rate),
                           -rate * place[..., 0]), -1)
    motion = torch.cat((scenes.velocity - carried, rate[..., None]), -1)            # B K 4
    return (motion[:, :, None] - motion[:, None]).abs().amax(-1) < 1e-3


def _heading(scenes: Scenes) -> Tensor:
    """Yaw of the cameras at the newest frame, (B,) [rad]."""
    ahead = scenes.camera_rotation[:, -1, 2]
    return torch.atan2(ahead[:, 0], ahead[:, 2])


def contact_time(scenes: Scenes, plans: Plans, robot: Robot) -> Tensor:
    """When robots touch something, (B, F) [s]; inf where they do not within their plan.

    Whether it can be seen now does not matter. A robot that touches something from the start has
    time 0.
    """
    found = ways(scenes, plans, robot)
    return torch.where(touching(found, scenes, robot), found.times, torch.inf).amin(-1)


def touching(found: Ways, scenes: Scenes, robot: Robot) -> Tensor:
    """Whether robots touch any shape, (B, F, N) bool.

    Notes
    -----
    Exact for boxes, cards and cylinders, by separating axes (Gottschalk, Lin and Manocha,
    "OBBTree", 1996). An ellipsoid counts as the upright cylinder around its section.
    """
    own = scenes.position[:, -1, :, 0::2] - scenes.camera_position[:, -1, None, 0::2]       # B K 2
    went, yaw, half_long = found.moved_s, found.yaw, robot.length / 2
    moved = own[:, None, None] + went[..., None] * scenes.velocity[:, None, None, :, 0::2]
    turned = scenes.yaw[:, -1, None, None] + went * scenes.yaw_rate[:, None, None]  # B F N K
    away = moved - found.place[..., None, :]                                        # B F N K 2
    between = turned - yaw[..., None]
    sort = torch.tensor(scenes.kinds, device=went.device)
    round_ones = (sort == CYLINDER) | (sort == ELLIPSOID)
    wide, high, deep = scenes.half[:, None, None].unbind(-1)          # B 1 1 K
    deep = torch.where(sort == CARD, 0.0, torch.where(sort == CYLINDER, wide, deep))
    camera_height = -scenes.camera_position[:, -1, 1, None, None, None]
    top = (camera_height + 0.1).clamp(min=robot.height)
    centre = -scenes.position[:, -1, None, None, :, 1]
    off = torch.maximum(robot.clearance - centre, centre - top).clamp(min=0)
    shrunk = torch.where(sort == ELLIPSOID, (1 - (off / high).square()).clamp(min=0).sqrt(), 1.0)
    solid = scenes.alive[:, None, None] & (off <= high) & (sort != COVERING)
    c, s = between.cos(), between.sin()
    # The shape seen from the robot, and the robot from the shape.
    rx, rz = _turned(away, yaw[..., None])
    sx, sz = _turned(away, turned)
    apart = (rx.abs() > robot.half_width + wide * c.abs() + deep * s.abs()) \
        | (rz.abs() > half_long + wide * s.abs() + deep * c.abs())
    apart |= (sx.abs() > wide + robot.half_width * c.abs() + half_long * s.abs()) \
        | (sz.abs() > deep + robot.half_width * s.abs() + half_long * c.abs())
    # Of a disc: from its centre to the nearest point of the robot.
    radius = torch.maximum(wide, deep) * shrunk
    beside = (rx.abs() - robot.half_width).clamp(min=0)
    before = (rz.abs() - half_long).clamp(min=0)
    clear = beside.square() + before.square() > radius.square()
    return (solid & ~torch.where(round_ones, apart | clear, apart)).any(-1)


def _turned(vector: Tensor, yaw: Tensor) -> tuple[Tensor, Tensor]:
    """Ground vectors (..., 2) in axes turned by a yaw (...): right and ahead."""
    x, z = vector.unbind(-1)
    return x * yaw.cos() - z * yaw.sin(), x * yaw.sin() + z * yaw.cos()


def filmed(scenes: Scenes, plans: Plans, chosen: Tensor, times: Tensor, robot: Robot) -> Scenes:
    """Return what cameras see along one plan each, as scenes to be drawn.

    Parameters
    ----------
    chosen : Tensor
        (B,) int64 number of the plan.
    times : Tensor
        (B, N) of the frames since now [s], at most the end of the plans.
    robot : Robot
        Before which bodies wait.

    Returns
    -------
    Scenes
        With N frames. Cameras keep height, pitch and roll; they do not shake. Where blur by motion
        follows from the frame before, which may be long ago here, there is none.
    """
    pick = chosen[:, None, None, None]
    count = times.shape[1]
    along = plans.poses(times).gather(1, pick.expand(-1, 1, count, 3))[:, 0]        # B N 3
    driven = plans.twists.gather(1, pick.expand(-1, 1, *plans.twists.shape[2:]))[:, 0]
    # The step that ends at a time counts there, not the one that begins.
    at = (times[..., None] > plans.ends_s).sum(-1).clamp(max=driven.shape[1] - 1)   # B N
    twists = driven.gather(1, at[..., None].expand(-1, -1, 3))                      # B N 3
    own = Plans(driven[:, None], plans.duration_s, plans.offset)
    went = _between(ways(scenes, own, robot).moved_s[:, 0], times)                  # B N K
    axes, heading = scenes.camera_rotation[:, -1], _heading(scenes)[:, None]
    x, z = _back(along[..., :2], heading)
    place = scenes.camera_position[:, -1:] + torch.stack((x, torch.zeros_like(x), z), -1)
    c, s = along[..., 2].cos(), along[..., 2].sin()
    zero, one = torch.zeros_like(c), torch.ones_like(c)
    turn = torch.stack((c, zero, -s, zero, one, zero, s, zero, c), -1).unflatten(-1, (3, 3))
    vx, vz = _back(torch.stack((-twists[..., 1], twists[..., 0]), -1), heading + along[..., 2])
    speed = torch.stack((vx, torch.zeros_like(vx), vz), -1)
    rotation = axes[:, None] @ turn
    # A turn about the vertical, in the camera's own axes; y leads down.
    spin = -twists[..., 2:] * rotation[..., 1]
    texture = scenes.texture[:, -1:] if scenes.texture.ndim == 3 else scenes.texture
    return replace(
        scenes, camera_position=place, camera_rotation=rotation, camera_velocity=speed[:, -1],
        camera_spin=spin[:, -1],
        position=scenes.position[:, -1:] + went[..., None] * scenes.velocity[:, None],
        yaw=scenes.yaw[:, -1:] + went * scenes.yaw_rate[:, None],
        texture=texture.expand(-1, count, -1) if texture.ndim == 3 else texture,
        exposure=scenes.exposure[:, -1:].expand(-1, count),
        shutter=torch.zeros_like(scenes.shutter),
        capture=None if scenes.capture is None else replace(
            scenes.capture, velocity=speed, spin=spin))


def _between(moved_s: Tensor, times: Tensor) -> Tensor:
    """Values (B, L, K) at looks `LOOK_S` apart, at times (B, N) between and after them [s]."""
    last = moved_s.shape[1] - 1
    before = (times / LOOK_S).floor().long().clamp(0, max(0, last - 1))
    share = (times - before * LOOK_S)[..., None]
    rows = torch.arange(len(times), device=times.device)[:, None]
    first, second = moved_s[rows, before], moved_s[rows, (before + 1).clamp(max=last)]
    return first + share / LOOK_S * (second - first)


def folded(scenes: Scenes, frames: int) -> Scenes:
    """Return scenes of N frames as N / `frames` times as many, each scene's one after the other.

    So they have the shape, and the order in memory, for which a renderer is compiled. Noise
    repeats after so many frames.
    """
    count = scenes.camera_position.shape[1] // frames

    def fold(values: Tensor) -> Tensor:
        return values.unflatten(1, (count, frames)).flatten(0, 1).contiguous()

    moving = ('camera_position', 'camera_rotation', 'position', 'yaw', 'exposure')
    if scenes.texture.ndim == 3:
        moving = (*moving, 'texture')
    made = replace(scenes.map(lambda values: values.repeat_interleave(count, 0)),
                   **{name: fold(getattr(scenes, name)) for name in moving})
    if scenes.capture is None or made.capture is None:
        return made
    return replace(made, capture=replace(made.capture, velocity=fold(scenes.capture.velocity),
                                         spin=fold(scenes.capture.spin)))


def _back(vector: Tensor, yaw: Tensor) -> tuple[Tensor, Tensor]:
    """Ground vectors (..., 2) of axes turned by a yaw (...), in world axes: x and z."""
    right, ahead = vector.unbind(-1)
    return (right * yaw.cos() + ahead * yaw.sin(), ahead * yaw.cos() - right * yaw.sin())
