# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Place obstacles in metres: from looming and speed, and from where they stand on the ground.

A looming rate L = closing speed / depth is free of scale. Three things give the scale:

- *odometry*: depth = v / L with the camera's speed v along its optical axis (Lee 1976). Valid for
  what stands still.
- *ground speed*: a patch of the ground at a known depth (camera height, pitch, intrinsics) looms
  with v over that depth, so the ground itself gives v; then as above (Song and Chandraker 2014).
- *contact*: the ray of the lowest patch of an obstacle meets the ground where it stands. Needs no
  speed, and is valid for what moves. It is far less exact than the two others (docs/nav2.md), so
  it only limits them, and counts alone where the speed is unknown.

Obstacles are separated from the ground column by column, as in the Stixel World (Badino, Franke,
Pfeiffer 2009) with looming in place of disparity. The free way ahead that the heads estimate
(`LearnedField.clearance`) counts as well: it alone sees what is still while the robot stands.
What has no known scale has no place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import cv2
import numpy as np

from vjepa_ros.clip.optics import Optics
from vjepa_ros.clip.resize import View
from vjepa_ros.parameter import parameter
from vjepa_ros.perception.danger import is_alarm
from vjepa_ros.perception.learned import LearnedField
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Level, Quality, Result

MIN_HEIGHT = 0.05        # m above the ground, from where points lie and obstacles reach
MIN_KNOWN = 0.25         # part of the patches that look where the robot drives
PITCH_ERROR = math.radians(1.0)     # standard error of the pitch of a camera while driving
SPACING = 0.05           # m between points, sideways
LEAST_CELLS = 4          # a region of fewer cells is taken for noise
LEAST_ROWS = 2           # one row alone is the smeared horizon
ROBOT_HALF_WIDTH = 0.3   # m, of the robot whose free way the heads were trained to estimate
SLOWEST = 0.08           # m/s along the optical axis: slower is rest
LEAST_GROUND = 8         # patches of the ground that its speed is told from
NEAREST = 0.4            # part of the known ground, from the robot on, that is used
MOST_SPREAD = 0.5        # of that speed among them, relative
ON_COURSE = 0.5
APPROACHING = 0.1        # 1/s
ALIKE = (0.75, 1.33)     # looming of one surface among others
FOOT = (0.7, 1.1)        # looming of a patch below relative to what it still belongs to
SURE = 2.0               # standard errors by which a patch must stand above the ground
BLUR = 1.0               # cells that the window of a cell reaches below its centre
CORRELATED = 2.0         # neighbouring cells share pixels: their mean is worse than independent
LEAST_PART = 0.05        # no distance is believed to better than this part
LEAST_SIGMA = 0.01       # 1/s
CONTACT_PART = 0.4       # relative error of a distance by contact, measured: docs/nav2.md
MOST_PART = 0.8          # a distance with a greater relative error is none
# What Nav2 wants of points and rays is written beside the constants (navigation2:
# nav2_collision_monitor `pointcloud.cpp`, `scan.cpp`; nav2_costmap_2d `obstacle_layer.cpp`).
# Parts of the height band, well inside it: a point on its border can fall out by rounding.
LEVELS = (0.15, 0.5, 0.85)
# Points side by side: with the levels at least 6 for each column, and polygons of the collision
# monitor want 4 (`min_points`).
LEAST_ACROSS = 2
NEAREST_M = 0.1           # nothing is placed nearer: a scan leaves out what is below its range_min
WAY_PART = 0.3            # relative error of the free way that heads tell, measured: docs/nav2.md
# Part of the way to an obstacle that must be measured for a ray to it; cells at its foot show
# ground as well, and are the sooner unknown.
MEASURED = 0.7
SCAN_STEP = math.radians(1.0)
# Base frame: x ahead, y left, z up, z = 0 on the ground (REP 103). Optical frame: x right, y down,
# z along the optical axis. A ray is scaled so that its part along the optical axis is 1.
_OPTICAL = np.array([[0.0, 0.0, 1.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]])   # to x ahead, z up


@dataclass(frozen=True)
class Mount:
    """Pose of a camera in the base frame; ValueError below the ground or looking straight up."""

    rotation: np.ndarray
    position: np.ndarray

    def __post_init__(self) -> None:
        if not (math.isfinite(self.height) and self.height > 0):
            raise ValueError(f'the camera is {self.height:g} m above the ground of the base '
                             'frame, must be above 0; the ground is at z = 0 there')
        if np.linalg.norm(self.rotation[:2, 2]) < 0.2:
            raise ValueError('the camera looks straight up or down; obstacles ahead need one '
                             'that looks less than 78 degrees up or down')

    @cached_property
    def heading(self) -> np.ndarray:
        """(3,) level unit vector the camera looks along."""
        level = np.array([*self.rotation[:2, 2], 0.0])
        return level / np.linalg.norm(level)

    @classmethod
    def from_angles(cls, height: float, x: float = 0.0, y: float = 0.0, pitch: float = 0.0,
                    yaw: float = 0.0, roll: float = 0.0) -> Mount:
        """Make a pose of position [m] and angles [rad]: pitch down, yaw left, roll clockwise."""
        turn = _turn(0.0, 0.0, yaw) @ _turn(0.0, pitch, 0.0) @ _turn(roll, 0.0, 0.0)
        return cls(turn @ _OPTICAL, np.array([x, y, height], float))

    @classmethod
    def from_transform(cls, translation: tuple[float, float, float],
                       quaternion: tuple[float, float, float, float]) -> Mount:
        """Make a pose of a transform from the optical to the base frame; quaternion x, y, z, w."""
        axis, w = np.array(quaternion[:3], float), quaternion[3]
        sine = float(np.linalg.norm(axis))
        if not 0.9 < math.hypot(sine, w) < 1.1:
            raise ValueError(f'the quaternion {tuple(quaternion)} has length '
                             f'{math.hypot(sine, w):g}, must be 1')
        angle = 2 * math.atan2(sine, w)
        return cls(_turn(*(angle / sine * axis if sine else axis)), np.array(translation, float))

    @property
    def height(self) -> float:
        """Of the optical centre above the ground [m]."""
        return float(self.position[2])

    def directions(self, rays: np.ndarray) -> np.ndarray:
        """Turn rays (..., 2) into the base frame (..., 3); their depth along the axis is 1."""
        return np.concatenate((rays, np.ones((*rays.shape[:-1], 1))), -1) @ self.rotation.T

    def to_camera(self, points: np.ndarray) -> np.ndarray:
        """Transform points (N, 3) of the base frame into the optical frame."""
        return (points - self.position) @ self.rotation

    def closing_speed(self, linear: tuple[float, float, float],
                      angular: tuple[float, float, float] = (0.0, 0.0, 0.0)) -> float:
        """Compute the speed of the camera along its axis [m/s] from that of the base frame."""
        speed = np.asarray(linear, float) + np.cross(angular, self.position)
        return float(speed @ self.rotation[:, 2])


def _turn(x: float, y: float, z: float) -> np.ndarray:
    """Return the rotation about an axis by its length [rad]."""
    return cv2.Rodrigues(np.array((x, y, z), float))[0]


@dataclass(frozen=True)
class ObstacleSettings:
    """How obstacles are placed."""

    max_height: float = parameter(0.5, 'Upper end of the height band of points', low=0.01,
                                  high=10.0, unit='m')
    max_range: float = parameter(5.0, 'Largest distance of obstacles', low=0.3, high=50.0,
                                 unit='m')
    min_sight: float = parameter(
        1.5, 'Measured distance straight ahead below which nothing is published, unless the path '
        'is blocked or the heads know it', low=0.0, high=20.0, unit='m')

    def __post_init__(self) -> None:
        if self.max_height <= MIN_HEIGHT:
            raise ValueError(f'max_height is {self.max_height}, must be above {MIN_HEIGHT}')


@dataclass(frozen=True)
class Obstacles:
    """What stands where, column by column of the looming grid (N columns)."""

    # (N,) level distance from the camera along its heading [m], NaN without an obstacle
    reach: np.ndarray
    sigma: np.ndarray  # (N,) standard error of it [m]
    # (N, 2) offset to the left per distance along the heading, at the two borders of a column; 0
    # for a column that sees nothing of the band
    slope: np.ndarray
    # (N,) bool: able to see what stands still, measured up to max_range, and nothing there
    free: np.ndarray
    sight: np.ndarray  # (N,) how far it is measured without a break [m], inf up to the horizon
    confidence: np.ndarray  # (N,) of looming on an obstacle, 0..1, NaN without one
    way: float = math.nan  # free way ahead by the heads where that is short [m], else NaN
    way_confidence: float = math.nan  # probability by the heads that it ends within max_range
    withheld: str = ''  # why nothing may be published, '' when it may


def find_obstacles(result: Result, optics: Optics, mount: Mount, speed: float, settings: Settings,
                   how: ObstacleSettings, still: bool = False) -> Obstacles:
    """Place the obstacles of one result; `speed` along the optical axis [m/s], NaN unknown.

    `still`: odometry says that the robot stood for as long as the picture has been the same.
    """
    learned = result.learned
    if learned is None:
        nothing = np.empty(0)
        return Obstacles(nothing, nothing, np.empty((0, 2)), np.empty(0, bool), nothing, nothing,
                         withheld='looming is unknown: '
                         + (result.heads_problem or 'nobody has asked for it'))
    cells = _cells_of(learned, optics, mount, settings)
    speed, part = _closing_speed(cells, mount, speed, how)
    way = likely = math.nan
    if learned.sees and learned.clearance.quantile(0.5) <= how.max_range:
        way = learned.clearance.quantile(0.5)
        likely = learned.clearance.below(how.max_range)
    moving = abs(speed) >= SLOWEST
    evidence, standing = _standing_cells(cells, mount, speed, how)
    reach, sigma, confidence = np.full((3, cells.rate.shape[1]), np.nan)
    above = mount.height - how.max_height       # rays that fall less pass over the band
    watched = cells.drop / cells.ahead >= (above / how.max_range if above > 0 else above)
    watched &= learned.view.patch_valid > 0.5
    placeable = watched & np.isfinite(cells.edges).all(axis=-1)
    slope = (np.where(placeable[..., None], cells.edges, 0.0).sum(axis=0)
             / np.maximum(1, placeable.sum(axis=0))[:, None])
    count, labels = cv2.connectedComponents(evidence.astype(np.uint8), connectivity=8)
    lost, seen = False, np.zeros(len(reach), bool)
    for label in range(1, count):
        whole = labels == label
        inside = whole & standing
        if (whole.sum() < LEAST_CELLS or whole.any(axis=1).sum() < LEAST_ROWS
                or not inside.any()):
            continue
        unplaced = True
        for column in np.flatnonzero(inside.any(axis=0)).tolist():
            rows = inside[:, column]
            at, error = _distance_of(cells, rows, column, mount, speed if moving else math.nan,
                                     part)
            unplaced &= math.isnan(at)
            seen[column] |= not math.isnan(at)
            if at <= how.max_range and at < np.nan_to_num(reach[column], nan=np.inf):
                reach[column], sigma[column] = at, error
                slope[column] = cells.edges[rows, column].mean(axis=0)
                confidence[column] = cells.confidence[rows, column].mean()
        lost |= unplaced
    far = _sight(cells, mount, watched)
    free = (far >= how.max_range) & watched.any(axis=0) & moving & ~standing.any(axis=0)
    found = Obstacles(reach, sigma, slope, free, far, confidence, way, likely)
    known = float((cells.known & watched).sum() / max(1, watched.sum()))
    placed = not lost and _danger_is_placed(result, learned, seen, found, optics, settings)
    withheld = _withheld(result, known, moving or learned.sees, placed)
    if not withheld and not learned.sees:
        withheld = _out_of_sight(far, seen, slope, how)
    if not withheld and not still and result.unchanged_s > 0:
        # A camera that hangs repeats its picture with new stamps. What does not change looks like
        # ground without obstacles, however fast the robot is; the sooner that is seen the better.
        withheld = (f'the picture has not changed by a single bit for {result.unchanged_s:.2f} s, '
                    'and no odometry says that the robot stood all the time')
    return replace(found, withheld=withheld)


def _withheld(result: Result, known: float, sees_still: bool, placed: bool) -> str:
    """Name the reason why a result must not reach a planner, or '': unknown is not clear."""
    seen = result.assessment
    reasons = (
        (Quality.STALE in seen.flags, 'the frame is stale'),
        (seen.level == Level.UNKNOWN, 'the level is unknown'),
        (Quality.WARMING_UP in seen.flags, 'warming up after a reset'),
        (Quality.UNTRAINED in seen.flags, 'the model is untrained; give weights'),
        (Quality.ASSUMED_INTRINSICS in seen.flags, 'there is no camera_info for this image'),
        (known < MIN_KNOWN, f'only {known:.0%} of what lies ahead could be measured, less than '
         f'{MIN_KNOWN:.0%}'),
        (not sees_still, 'the camera stands or its speed is unknown, and its picture shows too '
         'little for the free way to be told: what stands still can not be seen'),
        (seen.level in (Level.WARNING, Level.DANGER) and not placed,
         f'the level is {seen.level.name} but what is dangerous has no known place'))
    return next((text for applies, text in reasons if applies), '')


def _out_of_sight(far: np.ndarray, seen: np.ndarray, slope: np.ndarray,
                  how: ObstacleSettings) -> str:
    """Name the reason why the way straight ahead is not known far enough, or ''."""
    # Below a plain wall only the ground up to its foot is measured, and nothing stands there.
    half = ROBOT_HALF_WIDTH / max(how.min_sight, 1e-6)
    ahead = (slope.min(axis=1) < half) & (slope.max(axis=1) > -half) & (slope != 0).any(axis=1)
    dark = ahead & ~seen & (far < how.min_sight)
    # One column alone lies within the windows of those beside it.
    if ahead.any() and not (dark[1:] & dark[:-1]).any():
        return ''
    known = float(far[dark].min()) if dark.any() else 0.0
    return (f'the way ahead is measured for {known:.1f} m only, less than obstacles.min_sight: '
            'what lies beyond has too little texture')


def _danger_is_placed(result: Result, learned: LearnedField, seen: np.ndarray, found: Obstacles,
                      optics: Optics, settings: Settings) -> bool:
    """Tell whether each danger that made the level has a distance in a column (N,) `seen`."""
    # Dangers are the regions on course below the time of WARNING, and the direction that is told.
    told, view = result.assessment, learned.view
    x, half = view.patch_centers[0, :, 0], 0.5 * view.patch / view.scale[0]
    spans = [(r.x, r.x + r.width) for r in told.regions
             if r.on_course and is_alarm(r.time_to_contact, settings)]
    if not math.isnan(told.bearing):
        at = float(optics.pixels(np.array((math.tan(told.bearing), 0.0)))[0])
        spans.append((at - half, at + half))
    known = seen
    if not math.isnan(found.way):
        ahead = ROBOT_HALF_WIDTH / max(found.way, 1e-6)
        known = seen | ((found.slope.min(axis=1) < ahead) & (found.slope.max(axis=1) > -ahead))
    return bool(spans) and all((known & (x + half > low) & (x - half < high)).any()
                               for low, high in spans)


@dataclass(frozen=True)
class Cells:
    """The patches of a view and their directions, (Hp, Wp) each."""

    rate: np.ndarray      # 1/s, 0 where unknown
    sigma: np.ndarray
    known: np.ndarray
    confidence: np.ndarray
    course: np.ndarray
    ahead: np.ndarray     # level distance per depth
    drop: np.ndarray      # fall per depth
    low: np.ndarray       # fall per level distance of the lower edge of the patch
    edges: np.ndarray     # (Hp, Wp, 2) offset to the left per level distance of both side edges
    pitch: float          # angle of a patch [rad]


def _cells_of(learned: LearnedField, optics: Optics, mount: Mount, settings: Settings) -> Cells:
    """Lay the patches of a view out."""
    left = np.cross((0, 0, 1), mount.heading)
    to = mount.directions(_rays(optics, learned.view))
    ahead, to_left, drop = to @ mount.heading, to @ left, -to[..., 2]
    ahead = np.where(ahead > 0.1, ahead, np.nan)     # straight down, or where no lens looks
    known = learned.known(settings.min_confidence) & np.isfinite(ahead).all(axis=0)
    rate = np.where(known, learned.rate, 0.0).astype(float)
    sigma = np.maximum(learned.sigma, LEAST_SIGMA + LEAST_PART * np.abs(rate))
    return Cells(rate, sigma, known, np.where(known, learned.confidence, 0.0),
                 np.where(known, learned.on_course, 0.0), ahead[0], drop[0],
                 drop[1] / ahead[1], np.stack((to_left[2] / ahead[2], to_left[3] / ahead[3]), -1),
                 learned.view.patch / learned.view.scale[1] / optics.fy)


@lru_cache(maxsize=16)
def _rays(optics: Optics, view: View) -> np.ndarray:
    """Rays (4, Hp, Wp, 2) of the centres of patches and of their lower, left and right edges."""
    low, high = view.patch_boxes[..., :2] - 0.5, view.patch_boxes[..., 2:] - 0.5
    middle = 0.5 * (low + high)
    points = np.stack((middle, np.stack((middle[..., 0], high[..., 1]), -1),
                       np.stack((low[..., 0], middle[..., 1]), -1),
                       np.stack((high[..., 0], middle[..., 1]), -1)))
    return optics.rays(points)


def _closing_speed(cells: Cells, mount: Mount, odometry: float,
                   how: ObstacleSettings) -> tuple[float, float]:
    """Estimate the speed along the optical axis [m/s], and its relative error."""
    if not math.isnan(odometry):
        return odometry, LEAST_PART
    # Far ground is seen at too flat an angle; what is on course is no ground.
    depth = mount.height / np.maximum(cells.drop, 1e-6)
    ground = (cells.known & (cells.drop * 1.2 * how.max_range > mount.height * cells.ahead)
              & (cells.drop > 4 * PITCH_ERROR) & (cells.course < ON_COURSE))
    if ground.sum() < LEAST_GROUND:
        return math.nan, math.nan
    # The nearest ground: what is higher up in the picture may be something that stands on it.
    nearest = ground & (cells.drop / cells.ahead >= np.quantile(
        (cells.drop / cells.ahead)[ground], 1 - max(NEAREST, LEAST_GROUND / ground.sum())))
    speeds = cells.rate[nearest] * depth[nearest]
    low, speed, high = np.quantile(speeds, (0.25, 0.5, 0.75))
    part = (high - low) / max(abs(speed), SLOWEST)
    if part > MOST_SPREAD and abs(speed) >= SLOWEST:
        return math.nan, math.nan
    tilt = PITCH_ERROR * float(np.median(1.0 / cells.drop[nearest]))
    error = math.hypot(max(LEAST_PART, part / math.sqrt(LEAST_GROUND)), tilt)
    return float(speed), error


def _standing_cells(cells: Cells, mount: Mount, speed: float,
                    how: ObstacleSettings) -> tuple[np.ndarray, np.ndarray]:
    """Find cells with something above the ground, and those of them in the way, (Hp, Wp) bool."""
    # What is in the way is no higher than the band or the camera with its robot.
    if math.isnan(speed):
        found = _like_seeds(cells, cells.known & (cells.course >= ON_COURSE)
                            & (cells.rate > 2 * cells.sigma))
        return found, found
    if abs(speed) < SLOWEST:
        found = cells.known & (cells.rate > np.maximum(2 * cells.sigma, APPROACHING))
        return found, found
    rate = cells.rate * math.copysign(1.0, speed)
    sure = cells.known & (rate > 2 * cells.sigma)
    depth = abs(speed) / np.maximum(rate, 1e-3)
    height = mount.height - depth * cells.drop
    error = depth * np.hypot(cells.drop * cells.sigma / np.maximum(rate, 1e-3),
                             cells.ahead * PITCH_ERROR)
    top = max(how.max_height, mount.height + 0.1)
    near = depth * cells.ahead <= 1.2 * how.max_range
    # A cell is measured in a window that reaches into its neighbours, also into nearer ground;
    # one with little texture, as at the horizon, in a wider window.
    reach = depth * cells.ahead * cells.pitch
    above = height - BLUR * reach - SURE * error > MIN_HEIGHT
    course = (cells.course >= ON_COURSE) & (height - 2 * BLUR * reach > MIN_HEIGHT)
    found = sure & near & (above | course)
    return found, found & (height < top)


def _sight(cells: Cells, mount: Mount, watched: np.ndarray) -> np.ndarray:
    """Compute how far each column is measured without a break, (Wc,) level distance [m]."""
    # It ends where the ray of the lower edge of the first unknown cell meets the ground. One
    # unknown cell between two known ones is within their windows.
    known = cells.known.copy()
    known[1:-1] |= cells.known[:-2] & cells.known[2:]
    known[-1] |= known[-2]
    ends = watched & ~known
    first = ends.shape[0] - 1 - np.argmax(ends[::-1], axis=0)     # from the robot on
    fall = np.take_along_axis(cells.low, first[None], axis=0)[0]
    return np.where(ends.any(axis=0) & (fall > 0), mount.height / np.maximum(fall, 1e-6), np.inf)


def _like_seeds(cells: Cells, seeds: np.ndarray) -> np.ndarray:
    """Find cells connected with seeds that loom about as much."""
    if not seeds.any():
        return seeds
    like = cells.rate / float(np.median(cells.rate[seeds]))
    count, labels = cv2.connectedComponents(
        (seeds | (cells.known & (like > ALIKE[0]) & (like < ALIKE[1]))).astype(np.uint8))
    return np.isin(labels, np.unique(labels[seeds])) if count > 1 else seeds


def _foot(cells: Cells, rows: np.ndarray, column: int) -> int:
    """Find the lowest row of a thing that some rows of a column show."""
    # The ground below looms more while the robot moves, and not at all while it stands.
    foot = int(np.flatnonzero(rows)[-1])
    mean = float(np.median(cells.rate[rows, column]))
    while foot + 1 < len(rows):
        like = cells.rate[foot + 1, column] / mean
        if cells.known[foot + 1, column] and not FOOT[0] < like < FOOT[1]:
            break
        foot += 1
    return foot


def _distance_of(cells: Cells, rows: np.ndarray, column: int, mount: Mount, speed: float,
                 part: float) -> tuple[float, float]:
    """Estimate the level distance of a thing in a column, and its error [m]; NaN unknown."""
    found = None
    if not math.isnan(speed):
        rate, sigma = cells.rate[rows, column], cells.sigma[rows, column]
        inverse = rate / cells.ahead[rows, column] / speed
        weight = (cells.ahead[rows, column] * abs(speed) / sigma) ** 2
        mean = float((inverse * weight).sum() / weight.sum())
        error = math.hypot(CORRELATED / math.sqrt(weight.sum()) / mean, part, LEAST_PART) \
            if mean > 0 else math.inf
        if error < MOST_PART:
            found = 1.0 / mean, error / mean
    foot = _foot(cells, rows, column) if not found else int(np.flatnonzero(rows)[-1])
    fall = float(cells.low[foot, column])
    if fall <= 0:
        return found or (math.nan, math.nan)
    at = mount.height / fall
    error = at * math.hypot(0.4 * cells.pitch, PITCH_ERROR) / fall
    if found:
        # What stands on the ground or above it is nearer than the ground behind its lowest patch.
        return found if found[0] < at + error else (at, max(error, found[1]))
    if foot == len(rows) - 1:
        # Its foot is below the picture: anywhere between the robot and there.
        at, error = 0.5 * at, 0.3 * at
    error = math.hypot(error, CONTACT_PART * at)
    return (at, error) if error < MOST_PART * at else (math.nan, math.nan)


# -- points and rays for planners ------------------------------------------------------------

class Scan(NamedTuple):
    """Rays from the origin of the base frame in its x-y plane, as in sensor_msgs/LaserScan."""

    # (M,) float32 [m]: a number, and all before it is free; inf for free up to max_range; NaN for
    # not known (neither marks nor clears)
    ranges: np.ndarray
    angle_min: float    # of the first ray [rad], left positive; SCAN_STEP from ray to ray
    range_max: float    # limit of numbers [m], the lower one is NEAREST_M


def base_points(found: Obstacles, mount: Mount, how: ObstacleSettings) -> np.ndarray:
    """Spread points (n, 4) over the width of obstacles and the band: x, y, z, confidence."""
    heights = MIN_HEIGHT + np.array(LEVELS) * (how.max_height - MIN_HEIGHT)
    parts = [np.empty((0, 4))]
    for z in heights:
        for reach, slope, confidence in _placed(found):
            flat = _line(mount, reach, reach * slope, SPACING)
            parts.append(np.column_stack((flat, np.full((len(flat), 2), (z, confidence)))))
    return np.concatenate(parts)


def scan(found: Obstacles, mount: Mount, how: ObstacleSettings) -> Scan:
    """Make a scan around the base frame, with what is free."""
    far = [mount.position[:2] + _ahead(mount, how.max_range, how.max_range * found.slope[:, side])
           for side in (0, 1)]
    # Around the heading of the camera, so that a view to the rear does not break at 180 degrees.
    middle = math.atan2(mount.heading[1], mount.heading[0])
    borders = np.stack([_turned(np.arctan2(p[:, 1], p[:, 0]) - middle) for p in far])
    first = math.floor(borders.min() / SCAN_STEP) * SCAN_STEP
    count = math.ceil((borders.max() - first) / SCAN_STEP) + 1
    ranges = np.full(count, np.nan)
    angles = first + SCAN_STEP * np.arange(count)
    for column in np.flatnonzero(found.free):
        low, high = np.sort(borders[:, column])
        ranges[(angles >= low) & (angles <= high)] = np.inf
    for reach, slope, _ in _placed(found, measured=True):
        points = _line(mount, reach, reach * slope, min(SPACING, 0.4 * SCAN_STEP * reach))
        index = np.round((_turned(np.arctan2(points[:, 1], points[:, 0]) - middle) - first)
                         / SCAN_STEP).astype(int)
        inside = (index >= 0) & (index < count)
        np.fmin.at(ranges, index[inside],
                   np.maximum(np.linalg.norm(points[inside], axis=1), 1.01 * NEAREST_M))
    limit = 1.01 * (how.max_range + float(np.linalg.norm(mount.position[:2])))
    # The end of a free ray, and of none: what is obliquely ahead can be farther away, and is left
    # to the points.
    ranges[np.isfinite(ranges) & (ranges > limit)] = np.nan
    return Scan(ranges.astype(np.float32), middle + first, limit)


def _placed(found: Obstacles, measured: bool = False) -> list[tuple[float, np.ndarray, float]]:
    """List level distance, both borders to the left per distance, confidence."""
    parts = []
    for column in np.flatnonzero(~np.isnan(found.reach)):
        reach = max(NEAREST_M, float(found.reach[column] - found.sigma[column]))
        if not measured or found.sight[column] >= MEASURED * reach:
            parts.append((reach, found.slope[column], float(found.confidence[column])))
    if not math.isnan(found.way):
        reach = max(NEAREST_M, found.way * (1 - WAY_PART))
        parts.append((reach, np.array((ROBOT_HALF_WIDTH, -ROBOT_HALF_WIDTH)) / reach,
                      found.way_confidence))
    return parts


def _line(mount: Mount, reach: float, across: np.ndarray, spacing: float) -> np.ndarray:
    """Spread level points (n, 2) from one border to the other."""
    count = max(LEAST_ACROSS, math.ceil(abs(across[1] - across[0]) / spacing) + 1)
    return mount.position[:2] + _ahead(mount, reach, np.linspace(across[0], across[1], count))


def _ahead(mount: Mount, reach: float, left: np.ndarray) -> np.ndarray:
    heading = mount.heading[:2]
    return reach * heading + left[:, None] * np.array((-heading[1], heading[0]))


def _turned(angles: np.ndarray) -> np.ndarray:
    """Angles within half a turn of zero."""
    return (angles + math.pi) % (2 * math.pi) - math.pi
