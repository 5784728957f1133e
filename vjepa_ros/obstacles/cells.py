# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the cells of a looming field tell of the ground, of what stands on it, and how far away.

The methods and where they come from are in `vjepa_ros.obstacles.placement`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import cv2
import numpy as np

from vjepa_ros.looming.estimator import LoomingField
from vjepa_ros.obstacles.config import ObstacleSettings
from vjepa_ros.obstacles.geometry import Lens, Mount
from vjepa_ros.perception.collision import course_weight
from vjepa_ros.perception.settings import Settings

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


@dataclass(frozen=True)
class Cells:
    """The cells of a looming grid and where they look, (Hc, Wc) each."""

    rate: np.ndarray      # 1/s, 0 where unknown
    sigma: np.ndarray
    known: np.ndarray
    course: np.ndarray
    ahead: np.ndarray     # level distance per depth
    drop: np.ndarray      # fall per depth
    low: np.ndarray       # fall per level distance of the lower edge of the cell
    edges: np.ndarray     # (Hc, Wc, 2) offset to the left per level distance of both side edges
    pitch: float          # angle of a cell [rad]


def cells_of(field: LoomingField, size: tuple[int, int], lens: Lens, mount: Mount,
             settings: Settings) -> Cells:
    """Lay a looming field out; arguments as for `vjepa_ros.obstacles.placement`."""
    left = np.cross((0, 0, 1), mount.heading)
    to = mount.directions(_rays(lens, size, field.gray_size, field.cell_px,
                                tuple(field.centers[0, 0].tolist()), field.rate.shape))
    ahead, to_left, drop = to @ mount.heading, to @ left, -to[..., 2]
    ahead = np.where(ahead > 0.1, ahead, np.nan)     # straight down, or where no lens looks
    known = (np.isfinite(field.rate) & (field.confidence >= settings.min_confidence)
             & np.isfinite(ahead).all(axis=0))
    rate = np.where(known, field.rate, 0.0).astype(float)
    course = getattr(field, 'course', None)
    if course is None:
        focal = lens.optics.fx * field.gray_size[0] / size[0]
        course = course_weight(field, rate, focal, settings)
    sigma = np.maximum(field.sigma, LEAST_SIGMA + LEAST_PART * np.abs(rate))
    return Cells(rate, sigma, known, np.where(known, course, 0.0), ahead[0], drop[0],
                 drop[1] / ahead[1], np.stack((to_left[2] / ahead[2], to_left[3] / ahead[3]), -1),
                 field.cell_px * size[1] / field.gray_size[1] / lens.optics.fy)


@lru_cache(maxsize=16)
def _rays(lens: Lens, size: tuple[int, int], gray_size: tuple[int, int], cell_px: float,
          first: tuple[float, float], shape: tuple[int, int]) -> np.ndarray:
    """Rays (4, Hc, Wc, 2) of the centres of cells and of their lower, left and right edges."""
    y, x = np.mgrid[:shape[0], :shape[1]] * cell_px
    centers = np.stack((x + first[0], y + first[1]), -1)
    shifts = np.array(((0.0, 0.0), (0.0, 0.5), (-0.5, 0.0), (0.5, 0.0))) * cell_px
    points = centers[None] + shifts[:, None, None]
    return lens.rays((points + 0.5) * (np.array(size) / gray_size) - 0.5)


def horizon(mount: Mount, how: ObstacleSettings) -> float:
    """Least fall per level distance of a ray that passes the band within range."""
    above = mount.height - how.max_height
    return above / how.max_range if above > 0 else above


def closing_speed(cells: Cells, mount: Mount, odometry: float,
                  how: ObstacleSettings) -> tuple[float, float, str]:
    """Speed along the optical axis [m/s], its relative error, and where it comes from."""
    if how.distance != 'ground' and not math.isnan(odometry):
        return odometry, 0.05, 'odometry'
    if how.distance == 'odometry':
        return math.nan, math.nan, ''
    # Far ground is seen at too flat an angle; what is on course is no ground.
    depth = mount.height / np.maximum(cells.drop, 1e-6)
    ground = (cells.known & (cells.drop * 1.2 * how.max_range > mount.height * cells.ahead)
              & (cells.drop > 4 * how.pitch_error) & (cells.course < ON_COURSE))
    if ground.sum() < LEAST_GROUND:
        return math.nan, math.nan, ''
    # The nearest ground: what is higher up in the picture may be something that stands on it.
    nearest = ground & (cells.drop / cells.ahead >= np.quantile(
        (cells.drop / cells.ahead)[ground], 1 - max(NEAREST, LEAST_GROUND / ground.sum())))
    speeds = cells.rate[nearest] * depth[nearest]
    low, speed, high = np.quantile(speeds, (0.25, 0.5, 0.75))
    part = (high - low) / max(abs(speed), SLOWEST)
    if part > MOST_SPREAD and abs(speed) >= SLOWEST:
        return math.nan, math.nan, ''
    tilt = how.pitch_error * float(np.median(1.0 / cells.drop[nearest]))
    error = math.hypot(max(LEAST_PART, part / math.sqrt(LEAST_GROUND)), tilt)
    return float(speed), error, 'ground'


def standing_cells(cells: Cells, mount: Mount, speed: float,
                   how: ObstacleSettings) -> tuple[np.ndarray, np.ndarray]:
    """Which cells show something above the ground, and which of them in the way, (Hc, Wc) bool.

    What is in the way is no higher than the band or the camera with its robot.

    Parameters
    ----------
    cells, mount, how
        As above.
    speed
        Of the camera along its axis [m/s]: the ground is told by it. While the camera rests, all
        that comes nearer stands out; with NaN, only what is on course and what looms like it.
    """
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
                             cells.ahead * how.pitch_error)
    top = max(how.max_height, mount.height + 0.1)
    near = depth * cells.ahead <= 1.2 * how.max_range
    # A cell is measured in a window that reaches into its neighbours, also into nearer ground;
    # one with little texture, as at the horizon, in a wider window.
    reach = depth * cells.ahead * cells.pitch
    above = height - BLUR * reach - SURE * error > how.min_height
    course = (cells.course >= ON_COURSE) & (height - 2 * BLUR * reach > how.min_height)
    found = sure & near & (above | course)
    return found, found & (height < top)


def sight(cells: Cells, mount: Mount, watched: np.ndarray) -> np.ndarray:
    """How far each column is measured without a break, (Wc,) level distance [m].

    It ends where the ray of the lower edge of the first unknown cell meets the ground; inf where
    all is known up to the horizon. One unknown cell between two known ones is within their
    windows, and one at the border of the picture is as if the picture ended before it.

    Parameters
    ----------
    cells, mount
        As above.
    watched
        (Hc, Wc) bool, cells that look at the band.
    """
    known = cells.known.copy()
    known[1:-1] |= cells.known[:-2] & cells.known[2:]
    known[-1] |= known[-2]
    ends = watched & ~known
    first = ends.shape[0] - 1 - np.argmax(ends[::-1], axis=0)     # from the robot on
    fall = np.take_along_axis(cells.low, first[None], axis=0)[0]
    return np.where(ends.any(axis=0) & (fall > 0), mount.height / np.maximum(fall, 1e-6), np.inf)


def _like_seeds(cells: Cells, seeds: np.ndarray) -> np.ndarray:
    """Cells connected with seeds that loom about as much."""
    if not seeds.any():
        return seeds
    like = cells.rate / float(np.median(cells.rate[seeds]))
    count, labels = cv2.connectedComponents(
        (seeds | (cells.known & (like > ALIKE[0]) & (like < ALIKE[1]))).astype(np.uint8))
    return np.isin(labels, np.unique(labels[seeds])) if count > 1 else seeds


def _foot(cells: Cells, rows: np.ndarray, column: int) -> int:
    """Lowest row of what some rows of a column show.

    What looms alike, or is unknown, still belongs to it. The ground below looms more while the
    robot moves, and not at all while it stands.
    """
    foot = int(np.flatnonzero(rows)[-1])
    mean = float(np.median(cells.rate[rows, column]))
    while foot + 1 < len(rows):
        like = cells.rate[foot + 1, column] / mean
        if cells.known[foot + 1, column] and not FOOT[0] < like < FOOT[1]:
            break
        foot += 1
    return foot


def distance_of(cells: Cells, rows: np.ndarray, column: int, mount: Mount, speed: float,
                part: float, how: ObstacleSettings) -> tuple[float, float]:
    """Level distance of what some rows of a column show and its error [m]; NaN unknown."""
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
    if how.distance == 'odometry' or fall <= 0:
        return found or (math.nan, math.nan)
    at = mount.height / fall
    error = at * math.hypot(0.4 * cells.pitch, how.pitch_error) / fall
    if found:
        # What stands on the ground or above it is nearer than the ground behind its lowest patch.
        return found if found[0] < at + error else (at, max(error, found[1]))
    if foot == len(rows) - 1:
        # Its foot is below the picture: anywhere between the robot and there.
        at, error = 0.5 * at, 0.3 * at
    error = math.hypot(error, CONTACT_PART * at)
    return (at, error) if error < MOST_PART * at else (math.nan, math.nan)
