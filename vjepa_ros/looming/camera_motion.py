# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell how the camera turned, and which way it moved, from displacements over the image.

Turning moves every point by an amount that depends on its direction only, moving along by one
that depends on its distance and points away from one spot (Longuet-Higgins and Prazdny, "The
interpretation of a moving retinal image", Proc. R. Soc. B 208, 1980). Three explanations are
tried from the simplest: the camera did not turn, it only turned, it turned and moved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vjepa_ros.looming.camera_cells import AGREE, TURN_PRIOR, Cells, Look, Move

STILL_SHARE = 0.3     # of the evidence without displacement shows that the camera did not turn
FIXED_SHARE = 0.1     # the same, where other motion is seen in less than half of the image
TURN_SHARE = 0.9      # of the evidence explained by turning alone leaves nothing to explain
MOVE_GAIN = 0.1       # cost by which turning and moving must beat turning alone
LEAST = 8             # cells needed for any statement


@dataclass(frozen=True)
class CameraMotion:
    """Motion of the camera between two frames, as seen in the newer one."""

    rotation: np.ndarray          # (3,) rad about x (pitch, up), y (yaw, right), z (roll)
    direction: np.ndarray | None  # (3,) unit vector the camera moved along, None when unknown
    covariance: np.ndarray        # (6, 6) of rotation and direction
    agreement: float              # share of the evidence that the explanation fits
    kind: str                     # 'still', 'turn', 'move' or 'unknown'


def camera_motion(points: np.ndarray, displaced: np.ndarray, covariance: np.ndarray,
                  focal_px: float, start: CameraMotion | None = None) -> CameraMotion:
    """Explain displacements by a motion of the camera.

    Parameters
    ----------
    points : (N, 2) directions x/z, y/z in the newer frame
    displaced : (N, 2) directions of the same scene points in the older frame
    covariance : (N, 2, 2) of displaced, in px^2
    focal_px : focal length in px
    start : rough motion between the same frames, to be refined
    """
    if len(points) < LEAST:
        covariance = np.diag([TURN_PRIOR ** 2] * 3 + [1.0] * 3)
        return CameraMotion(np.zeros(3), None, covariance, 0.0, 'unknown')
    cells = Cells(points, displaced, covariance, focal_px)
    if start is not None and start.kind != 'unknown':
        return _refined(cells, start)
    unmoved = cells.look(np.zeros(3))
    still = unmoved.z < AGREE
    cov, cost, seen = cells.turn(cells.worth, 5, unmoved)
    share = float(cells.worth @ (seen.z < AGREE))
    if cells.worth @ still >= max(STILL_SHARE, share / 2):
        return _still(cells, still, unmoved)
    if share >= TURN_SHARE and not _fixed_scene(cells, still, seen.z < AGREE):
        return _with_direction(cells, seen, cov, 'turn')
    start, t = cells.direction([unmoved, seen, cells.look(cells.turn_of_wall())])
    found = cells.move(start.rotation, t, start.left)
    if _fixed_scene(cells, still, found.agrees):
        return _still(cells, still, unmoved)
    if found.cost > cost - MOVE_GAIN:
        return _with_direction(cells, seen, cov, 'turn')
    return _told(found)


def _fixed_scene(cells: Cells, still: np.ndarray, explained: np.ndarray) -> bool:
    """Whether a few still cells outweigh a motion that explains only a part of the image.

    Cells that stay put are no coincidence; a large object that moves before a plain wall
    otherwise passes for a turning camera.
    """
    return bool(cells.worth @ still >= FIXED_SHARE
                and cells.worth @ (explained & ~still) * cells.filled < 0.5)


def _refined(cells: Cells, start: CameraMotion) -> CameraMotion:
    """Motion of the same kind fitted again from a start."""
    if start.kind == 'move':
        return _told(cells.move(start.rotation, start.direction, rounds=3))
    seen, worth = cells.look(start.rotation), cells.worth
    if start.kind == 'still':
        worth = worth * (seen.z < AGREE)
    covariance, _, seen = cells.turn(worth, 2, seen, started=True)
    return _with_direction(cells, seen, covariance, start.kind)


def _still(cells: Cells, still: np.ndarray, unmoved: Look) -> CameraMotion:
    """A camera that did not turn, as those (bool) without displacement tell."""
    covariance, _, seen = cells.turn(cells.worth * still, 1, unmoved)
    return _with_direction(cells, seen, covariance, 'still')


def _with_direction(cells: Cells, seen: Look, covariance: np.ndarray,
                    kind: str) -> CameraMotion:
    """Settled rotation with the direction that explains the remaining displacement."""
    found = cells.move(seen.rotation, cells.direction([seen])[1], seen.left, fixed=True)
    joint = np.zeros((6, 6))
    joint[:3, :3], joint[3:, 3:] = covariance, found.covariance
    return CameraMotion(seen.rotation, found.direction, joint, found.share, kind)


def _told(found: Move) -> CameraMotion:
    kind = 'move' if found.share > 0.4 else 'unknown'
    return CameraMotion(found.rotation, found.direction, found.covariance, found.share, kind)
