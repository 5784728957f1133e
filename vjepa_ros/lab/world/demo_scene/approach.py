# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Render a robot's drive up to obstacles, with the exact truth of every picture.

A camera drives through an alley: it rests, an obstacle rolls in, it drives up to it and brakes
one second before contact, backs off, the obstacle leaves, it turns on the spot, passes the
obstacle at the side while a person crosses without being on collision course, drives up faster
to a van, which then leaves; then all begins again further down the alley.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from vjepa_ros.lab.world.demo_scene import alley
from vjepa_ros.lab.world.demo_scene.pinhole import Pinhole
from vjepa_ros.lab.world.demo_scene.rasterizer import Swift
from vjepa_ros.lab.world.demo_scene.timeline import Moment, Timeline
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.rendering.truth import Truth as TruthMaps
from vjepa_ros.lab.world.rendering.truth import truth as pixel_truth
from vjepa_ros.lab.world.scenes.scene import Scenes
from vjepa_ros.lab.world.textures.bank import TextureBank

ROBOT_HALF_WIDTH_M, ROBOT_HEIGHT_M, ROBOT_LENGTH_M = 0.35, 0.8, 0.6
COLLISION_HORIZON_S = 2.0
LEVELS = (('danger', 1.5), ('warning', 3.0), ('caution', 5.0))  # up to these times to contact
_FOCAL_PER_WIDTH = 500 / 640
_EXPOSURE_SWING, _EXPOSURE_PERIOD_S = 0.035, 7.3


@dataclass(frozen=True)
class Obstacle:
    """Truth about one thing in the scene, relative to the camera.

    Attributes
    ----------
    name : str
        'trolley', 'van' or 'person'.
    distance_m, lateral_m : float
        Of the middle of its near face, forward and to the right, in m.
    closing_speed, lateral_speed : float
        m/s; closing is positive when it comes nearer.
    width_m, height_m : float
        Size of its near face.
    on_course : bool
        Whether the robot would touch it if both kept their velocity.
    box : (float, float, float, float) or None
        x0, y0, x1, y1 in pixels of its near face inside the image, None when outside.
    """

    name: str
    distance_m: float
    lateral_m: float
    closing_speed: float
    lateral_speed: float
    width_m: float
    height_m: float
    on_course: bool
    box: tuple[float, float, float, float] | None

    @property
    def looming_rate(self) -> float:
        """Closing speed over distance in 1/s."""
        return self.closing_speed / self.distance_m

    @property
    def time_to_contact_s(self) -> float:
        """Seconds until the camera reaches it; inf when it does not come nearer."""
        return 1.0 / self.looming_rate if self.closing_speed > 1e-9 else math.inf

    @property
    def bearing(self) -> float:
        """rad, positive to the right."""
        return math.atan2(self.lateral_m, self.distance_m)


@dataclass(frozen=True)
class Truth:
    """What is true at the time of a picture.

    Attributes
    ----------
    phase : str
        Part of the cycle.
    time_to_contact_s : float
        Until contact with the first obstacle on collision course; inf when there is none.
    looming_rate : float
        1/s, of that obstacle; of the nearest thing straight ahead when none is on course
        (negative while backing off); 0 when the way is free.
    distance_m : float
        To the same obstacle; inf when the way is free.
    speed, yaw_rate : float
        Of the robot: m/s forward, rad/s positive to the right.
    collision : bool
        Contact within ``COLLISION_HORIZON_S`` at the present velocities.
    level : str
        clear, caution, warning or danger after ``LEVELS``.
    clearance_m : float
        Distance to the nearest thing in the robot's corridor, whether or not anything moves; inf
        when the way is free.
    box : (float, float, float, float) or None
        Image of the obstacle that the first fields speak of.
    obstacles : tuple of Obstacle
        Everything ahead of the camera, nearest first.
    """

    phase: str
    time_to_contact_s: float
    looming_rate: float
    distance_m: float
    speed: float
    yaw_rate: float
    collision: bool
    level: str
    clearance_m: float
    box: tuple[float, float, float, float] | None
    obstacles: tuple[Obstacle, ...]

    def as_dict(self) -> dict[str, object]:
        """The fields without the list of obstacles."""
        return {name: getattr(self, name) for name in (
            'phase', 'time_to_contact_s', 'looming_rate', 'distance_m', 'speed', 'yaw_rate',
            'collision', 'level', 'clearance_m', 'box')}


def level_of(time_to_contact_s: float) -> str:
    """Level name for a time to contact after ``LEVELS``."""
    return next((name for name, limit in LEVELS if time_to_contact_s <= limit), 'clear')


class ApproachScene:
    """A picture and its truth for any time; the same seed gives the same pictures.

    Parameters
    ----------
    size : (int, int)
        Image width and height in pixels, 32 to 4096 each.
    seed : int
        Changes surfaces and noise, not the motion.
    noise : float
        Standard deviation of the sensor noise in grey levels, 0 for none.

    Raises
    ------
    ValueError
        If size or noise is out of range.
    """

    def __init__(self, size: tuple[int, int] = (640, 480), seed: int = 0, noise: float = 2.0):
        if not all(32 <= n <= 4096 for n in size):
            raise ValueError(f'size {size} is out of range: width and height are 32 to 4096 px')
        if not 0 <= noise <= 40:
            raise ValueError(f'noise {noise} is out of range: 0 to 40 grey levels')
        self.size = (int(size[0]), int(size[1]))
        self._timeline = Timeline()
        self._focal = _FOCAL_PER_WIDTH * size[0]
        self._seed, self._noise = seed, noise

    @cached_property
    def _alley(self) -> alley.Alley:
        # Not before it is needed: who only asks for the truth needs no pictures.
        return alley.Alley(self.size, self._focal, self._seed, self._noise)

    @cached_property
    def _swift(self) -> Swift:
        return Swift(self._alley.bank, self.size, self._seed)

    @property
    def bank(self) -> TextureBank:
        """The textures that `scene` speaks of."""
        return self._alley.bank

    def prepare(self) -> None:
        """Paint what the first picture would paint, which takes a second or two."""
        _ = self._swift

    @property
    def period_s(self) -> float:
        """Seconds after which the same encounters come again."""
        return self._timeline.period_s

    @property
    def phases(self) -> tuple[tuple[float, str], ...]:
        """Start in s and name of each phase of the cycle."""
        return self._timeline.phases

    @property
    def intrinsics(self) -> tuple[float, float, float, float]:
        """fx, fy, cx, cy in pixels."""
        return self._camera(self._timeline.at(0.0)).intrinsics

    def render(self, t: float) -> np.ndarray:
        """Picture (H, W, 3) uint8 RGB at time ``t`` in s, a pure function of ``t``."""
        return self._swift.draw(self.scene(t))

    def scene(self, t: float) -> Scenes:
        """The scene at time ``t`` in s as the renderer takes it, one frame."""
        exposure = 1 + _EXPOSURE_SWING * math.sin(2 * math.pi * t / _EXPOSURE_PERIOD_S)
        return self._alley.scene(self._timeline.at(t), exposure, round(t * 1e6) % 2 ** 63)

    def truth_maps(self, t: float) -> TruthMaps:
        """What is true of every pixel at time ``t`` in s, fields of shape (1, H, W)."""
        robot = Robot(ROBOT_HALF_WIDTH_M, ROBOT_HEIGHT_M, ROBOT_LENGTH_M)
        return pixel_truth(self.scene(t), self.bank, self.size, robot)

    def truth(self, t: float) -> Truth:
        """What is true at time ``t`` in s."""
        moment = self._timeline.at(t)
        seen = sorted(self._obstacles(moment), key=lambda o: o.distance_m)
        on_course = [o for o in seen if o.on_course]
        ahead = [o for o in seen
                 if abs(o.lateral_m) < ROBOT_HALF_WIDTH_M + o.width_m / 2]
        first = (min(on_course, key=lambda o: o.time_to_contact_s) if on_course
                 else ahead[0] if ahead else None)
        contact = first.time_to_contact_s if on_course else math.inf
        return Truth(
            phase=moment.phase, time_to_contact_s=contact,
            looming_rate=first.looming_rate if first else 0.0,
            distance_m=first.distance_m if first else math.inf,
            speed=moment.robot_v, yaw_rate=moment.yaw_rate,
            collision=contact <= COLLISION_HORIZON_S, level=level_of(contact),
            clearance_m=min(self._free(moment), ahead[0].distance_m if ahead else math.inf),
            box=first.box if first else None, obstacles=tuple(seen))

    def _camera(self, moment: Moment) -> Pinhole:
        return Pinhole(*self.size, self._focal, (0.0, -alley.CAMERA_HEIGHT_M, moment.robot_z),
                       moment.yaw)

    def _free(self, moment: Moment) -> float:
        """Distance to the house that a turned robot heads for [m]."""
        c, s = math.cos(moment.yaw), abs(math.sin(moment.yaw))
        room = alley.WIDTH_M / 2 - ROBOT_HALF_WIDTH_M * c
        return room / s if s > 1e-9 else math.inf

    def _obstacles(self, moment: Moment) -> list[Obstacle]:
        things = [('trolley', x, z, vx, 0.0, alley.TROLLEY_SIZE) for x, z, vx in moment.trolley]
        things.append(('van', 0.0, moment.van_z, 0.0, moment.van_v, alley.VAN_SIZE))
        x, z, vx = moment.person
        if abs(x) < alley.WIDTH_M / 2:  # not behind a wall
            things.append(('person', x, z, vx, 0.0, alley.PERSON_SIZE))
        camera = self._camera(moment)
        found = (self._obstacle(camera, moment, *thing) for thing in things)
        return [o for o in found if o is not None]

    def _obstacle(self, camera: Pinhole, moment: Moment, name: str, x: float, z: float,
                  vx: float, vz: float, size: tuple[float, float]) -> Obstacle | None:
        width, height = size
        near = camera.to_camera(np.array([(x, 0.0, z)]))[0]
        if not 0 < near[2] < alley.REACH_M:
            return None
        speed = camera.rotation() @ (vx, 0.0, vz) - (0.0, 0.0, moment.robot_v)
        on_course = False
        if speed[2] < -1e-9:
            contact = near[2] / -speed[2]
            on_course = abs(near[0] + speed[0] * contact) < ROBOT_HALF_WIDTH_M + width / 2
        outline = camera.outline(np.array([
            (x + dx * width / 2, -dy * height, z) for dx, dy in ((-1, 1), (1, 1), (1, 0), (-1, 0))
        ]))
        box = None
        if len(outline):
            low = np.maximum(outline.min(0), -0.5)
            high = np.minimum(outline.max(0), np.array(self.size) - 0.5)
            if (high > low).all():
                box = (float(low[0]), float(low[1]), float(high[0]), float(high[1]))
        return Obstacle(name, float(near[2]), float(near[0]), float(0.0 - speed[2]),
                        float(speed[0]), width, height, bool(on_course), box)
