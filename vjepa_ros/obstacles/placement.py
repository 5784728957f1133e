# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Place obstacles in metres: from looming and speed, and from where they stand on the ground.

A looming rate L = closing speed / depth is free of scale. Three things give the scale:

- *odometry*: depth = v / L with the camera's speed v along its optical axis (Lee 1976). Holds for
  what stands still; what comes towards the robot is placed too near, what goes away too far.
- *ground speed*: a patch of the ground at a known depth (camera height, pitch, intrinsics) looms
  with v over that depth, so the ground itself tells v; then as above. This is the usual way to
  fix the scale of visual odometry with one camera (Song and Chandraker 2014, "Robust scale
  estimation in real-time monocular SFM for autonomous driving").
- *contact*: the ray of the lowest patch of an obstacle meets the ground where it stands. Needs no
  speed, and holds for what moves; useless near the horizon. It is far less exact than the two
  others (docs/nav2.md), so it only limits them, and serves alone where the speed is not known.

What stands on the ground is told from the ground itself column by column, as in the Stixel World
(Badino, Franke, Pfeiffer 2009) with looming in place of disparity. Where heads hold, the free
way ahead that they tell (`LearnedField.clearance`) counts as well: it alone sees what is still
while the robot stands. Nothing here guesses: what has no known scale has no place.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import cv2
import numpy as np

from vjepa_ros.obstacles.cells import (
    SLOWEST,
    cells_of,
    closing_speed,
    distance_of,
    horizon,
    sight,
    standing_cells,
)
from vjepa_ros.obstacles.config import ObstacleSettings
from vjepa_ros.obstacles.geometry import Lens, Mount
from vjepa_ros.perception.danger import is_alarm
from vjepa_ros.perception.settings import Settings
from vjepa_ros.perception.types import Level, Quality, Result

LEAST_CELLS = 4          # a region of fewer cells is taken for noise
LEAST_ROWS = 2           # one row alone is the smeared horizon
ROBOT_HALF_WIDTH = 0.3   # m, of the robot whose free way the heads were trained to tell


@dataclass(frozen=True)
class Obstacles:
    """What stands where, column by column of the looming grid (N columns).

    Attributes
    ----------
    reach
        (N,) level distance from the camera along its heading [m], NaN without an obstacle.
    sigma
        (N,) standard error of it [m].
    region
        (N,) int, number of the region that a column belongs to, -1 without an obstacle.
    slope
        (N, 2) offset to the left per distance along the heading, at the two borders of a column;
        0 for a column that sees nothing of the band.
    free
        (N,) bool: able to see what stands still, measured up to max_range, and nothing there.
    sight
        (N,) how far a column is measured without a break [m], inf up to the horizon.
    way
        Free way ahead by the heads where that is short [m], else NaN.
    speed
        Of the camera along its axis [m/s], NaN unknown; `source` says by what: 'odometry',
        'ground' or ''.
    withheld
        Why nothing may be published, '' when it may.
    """

    reach: np.ndarray
    sigma: np.ndarray
    region: np.ndarray
    slope: np.ndarray
    free: np.ndarray
    sight: np.ndarray
    way: float = math.nan
    speed: float = math.nan
    source: str = ''
    withheld: str = ''


def find_obstacles(result: Result, size: tuple[int, int], lens: Lens, mount: Mount,
                   speed: float, settings: Settings, how: ObstacleSettings,
                   still: bool = False) -> Obstacles:
    """Obstacles of one result.

    Parameters
    ----------
    result
        With its looming field.
    size
        Width and height of the source image [px].
    lens, mount
        Of the camera.
    speed
        Of the camera along its optical axis by odometry [m/s], NaN unknown.
    settings, how
        Live settings of perception and of this.
    still
        Whether odometry says that the robot neither moves nor turns, and has not while the
        newest picture stayed the same: only then it may stay the same.
    """
    field = result.looming
    if field is None:
        return _nothing(0, 'nothing is known of this frame')
    cells = cells_of(field, size, lens, mount, settings)
    columns = cells.rate.shape[1]
    speed, part, source = closing_speed(cells, mount, speed, how)
    learned = result.learned if result.method != 'geometric' else None
    way = math.nan
    if learned is not None and learned.sees and learned.clearance.median <= how.max_range:
        way = learned.clearance.median
    moving = abs(speed) >= SLOWEST
    evidence, standing = standing_cells(cells, mount, speed, how)
    watched = cells.drop / cells.ahead >= horizon(mount, how)
    reach = np.full(columns, np.nan)
    sigma, region = np.full(columns, np.nan), np.full(columns, -1)
    placeable = watched & np.isfinite(cells.edges).all(axis=-1)
    slope = (np.where(placeable[..., None], cells.edges, 0.0).sum(axis=0)
             / np.maximum(1, placeable.sum(axis=0))[:, None])
    count, labels = cv2.connectedComponents(evidence.astype(np.uint8), connectivity=8)
    placed, lost, seen = 0, False, np.zeros(columns, bool)
    for label in range(1, count):
        whole = labels == label
        inside = whole & standing
        if (whole.sum() < LEAST_CELLS or whole.any(axis=1).sum() < LEAST_ROWS
                or not inside.any()):
            continue
        unplaced = True
        for column in np.flatnonzero(inside.any(axis=0)):
            at, error = distance_of(cells, inside[:, column], column, mount,
                                    speed if moving else math.nan, part, how)
            unplaced &= math.isnan(at)
            seen[column] |= not math.isnan(at)
            if not at <= how.max_range or at >= np.nan_to_num(reach[column], nan=np.inf):
                continue
            reach[column], sigma[column], region[column] = at, error, placed
            slope[column] = cells.edges[inside[:, column], column].mean(axis=0)
        placed += bool((region == placed).any())
        lost |= unplaced
    far = sight(cells, mount, watched)
    sees_still = moving or (learned is not None and learned.sees)
    free = (far >= how.max_range) & watched.any(axis=0) & moving & ~standing.any(axis=0)
    share = float((cells.known & watched).sum() / max(1, watched.sum()))
    found = not lost and _danger_is_placed(result, seen, slope, way, lens, size, settings)
    withheld = _withheld(result, share, math.isnan(speed), sees_still, found, settings, how)
    if not withheld and moving and not (learned is not None and learned.sees):
        withheld = _out_of_sight(far, seen, slope, how)
    if not withheld and not still and result.unchanged_s > 0:
        # A camera that hangs repeats its picture with new stamps. What does not change looks like
        # ground without obstacles, however fast the robot is; the sooner that is seen the better.
        withheld = (f'the picture has not changed by a single bit for {result.unchanged_s:.2f} s, '
                    'and no odometry says that the robot stood all the time')
    return Obstacles(reach, sigma, region, slope, free, far, way, speed, source, withheld)


def _withheld(result: Result, known: float, speed_unknown: bool, sees_still: bool, found: bool,
              settings: Settings, how: ObstacleSettings) -> str:
    """Unknown is not clear: why a result must not speak to a planner, '' when it may."""
    seen = result.assessment
    if Quality.STALE in seen.flags:
        return 'the frame is stale'
    if seen.level == Level.UNKNOWN:
        return 'the level is unknown'
    if Quality.WARMING_UP in seen.flags:
        return 'warming up after a reset'
    if Quality.UNTRAINED in seen.flags and settings.looming_method != 'geometric':
        return ('the model is untrained; give weights, or set looming.method to geometric, which '
                'takes nothing from it')
    if Quality.ASSUMED_INTRINSICS in seen.flags:
        return 'there is no camera_info for this image'
    if how.distance == 'odometry' and speed_unknown:
        return 'there is no recent odometry, which obstacles.distance asks for'
    if known < how.min_known:
        return (f'only {known:.0%} of what lies ahead could be measured, less than '
                'obstacles.min_known')
    if not sees_still and how.at_rest == 'withhold':
        return ('the camera stands or its speed is unknown, and no heads tell the free way: what '
                'stands still can not be seen')
    if seen.level in (Level.WARNING, Level.DANGER) and not found:
        return f'the level is {seen.level.name} but what is dangerous has no known place'
    return ''


def _out_of_sight(far: np.ndarray, seen: np.ndarray, slope: np.ndarray,
                  how: ObstacleSettings) -> str:
    """Why the way straight ahead is not known far enough, '' when it is.

    Below a plain wall the ground is measured up to its foot alone, and nothing stands there.
    """
    half = ROBOT_HALF_WIDTH / max(how.min_sight, 1e-6)
    ahead = (slope.min(axis=1) < half) & (slope.max(axis=1) > -half) & (slope != 0).any(axis=1)
    dark = ahead & ~seen & (far < how.min_sight)
    # One column alone lies within the windows of those beside it.
    if ahead.any() and not (dark[1:] & dark[:-1]).any():
        return ''
    known = float(far[dark].min()) if dark.any() else 0.0
    return (f'the way ahead is measured for {known:.1f} m only, less than obstacles.min_sight: '
            'what lies beyond has too little texture')


def _danger_is_placed(result: Result, seen: np.ndarray, slope: np.ndarray, way: float,
                      lens: Lens, size: tuple[int, int], settings: Settings) -> bool:
    """Whether each danger that made the level has a distance: its own, not that of something else.

    Dangers are the regions on course with a time to contact below that of WARNING, and the
    direction of the assessment, which is also known when no region is.

    Parameters
    ----------
    result
        With assessment and looming field.
    seen
        (N,) bool, columns in which something has a distance, also one beyond max_range.
    slope
        (N, 2) as in `Obstacles`.
    way
        Free way ahead by the heads, NaN without: a thing straight ahead.
    lens, size, settings
        As above.
    """
    field, told = result.looming, result.assessment
    x = (field.centers[0, :, 0] + 0.5) * size[0] / field.gray_size[0] - 0.5
    half = 0.5 * field.cell_px * size[0] / field.gray_size[0]
    spans = [(r.x, r.x + r.width) for r in told.regions
             if r.on_course and is_alarm(r.time_to_contact, settings)]
    if not math.isnan(told.bearing):
        at = lens.optics.cx + lens.optics.fx * math.tan(told.bearing)
        spans.append((at - half, at + half))
    known = seen
    if not math.isnan(way):
        ahead = ROBOT_HALF_WIDTH / max(way, 1e-6)
        known = seen | ((slope.min(axis=1) < ahead) & (slope.max(axis=1) > -ahead))
    return bool(spans) and all((known & (x + half > low) & (x - half < high)).any()
                               for low, high in spans)


def _nothing(columns: int, withheld: str) -> Obstacles:
    return Obstacles(np.full(columns, np.nan), np.full(columns, np.nan), np.full(columns, -1),
                     np.zeros((columns, 2)), np.zeros(columns, bool), np.zeros(columns),
                     withheld=withheld)
