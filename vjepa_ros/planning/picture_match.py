# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""How well a goal picture fits the present one, if it had been taken at a given pose.

A plane sweep (Collins, "A space-sweep approach to true multi-image matching", 1996) over features
of the encoder: a patch of the goal, so far away, lies at a known place of the present picture, and
should look alike there. Each column of the goal sees the ground up to one upright surface (as in
"The stixel world", Badino, Franke and Pfeiffer, 2009), whose distance is that of the best match.
No motion is needed to tell where the goal is, and nothing is learned beside the encoder.

Near the goal, flow between both pictures tells more: it expands before the place is reached, and
shrinks behind it.

P poses, K distances, Hp x Wp = N patches, D width of the features.
"""

from __future__ import annotations

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vjepa_ros.model.twist_paths import rays

DISTANCES_M = (0.6, 0.9, 1.3, 1.9, 2.7, 3.9, 5.6, 8.0, 12.0, 30.0)   # of upright surfaces
# What the place of a picture fits worse the farther it is, for what lies between patches and at
# distances that are not tried is seen a little wrong [1/m], [m].
WORSE_PER_M, WORSE_UP_TO_M = 0.12, 1.0
LEAST_AHEAD_M = 0.15     # of a point that a camera sees
STEP_PX, ROUND_TRIP_PX = 6, 1.5     # between points; that flow there and back may miss by
PAIRS, APART = 2000, 0.2            # of points; least distance of a pair over the picture's side
LEAST_LENGTH = 0.05      # squared, of a mean of features whose length counts


def mismatch(goal: Tensor, present: Tensor, view: Tensor, poses: Tensor) -> Tensor:
    """Return how badly a goal fits, (P,): about 0 for the same picture, 1 for any other.

    Parameters
    ----------
    goal, present : Tensor
        (Hp, Wp, D) features of both pictures.
    view : Tensor
        (VIEW_DIM,) of the camera, see `vjepa_ros.model.twist_paths.View`.
    poses : Tensor
        (P, 3) where the goal may have been taken: x right, z ahead [m] and yaw to the right [rad]
        of the camera, from where it is now.
    """
    rows, cols = goal.shape[:2]
    height, pitch, _, across, down = view[:5]
    right, ahead, drop = rays(view[None], rows, cols)[0].T
    ground = torch.where(drop > 0, height / drop.clamp(min=1e-3), torch.inf)
    far = torch.tensor(DISTANCES_M, device=goal.device)[:, None].minimum(ground)        # K N
    x, z, yaw = poses.T[..., None, None]                                                # P 1 1
    sine, cosine = yaw.sin(), yaw.cos()
    level = far * (ahead * cosine - right * sine) + z                                   # P K N
    aside = far * (right * cosine + ahead * sine) + x
    deep = level * pitch.cos() - far * drop * pitch.sin()
    below = far * drop * pitch.cos() + level * pitch.sin()
    least = deep.clamp(min=LEAST_AHEAD_M)
    column = (aside / least / across + 1) * cols / 2 - 0.5
    row = (below / least / down + 1) * rows / 2 - 0.5
    seen = ((deep > LEAST_AHEAD_M) & (column > -0.5) & (column < cols - 0.5)
            & (row > -0.5) & (row < rows - 0.5))
    alike, chance = _alike(*_unit(goal, present), row, column)
    cost = torch.where(seen, 1 - alike, chance)
    moved = torch.hypot(poses[:, 0], poses[:, 1]).clamp(max=WORSE_UP_TO_M)
    return cost.unflatten(-1, (rows, cols)).mean(2).amin(1).mean(1) - WORSE_PER_M * moved


def expansion(present: np.ndarray, goal: np.ndarray) -> tuple[float, float]:
    """Return by how much the picture has to expand to become the goal, and how far to trust it.

    Parameters
    ----------
    present, goal : ndarray
        (S, S, 3) uint8 RGB.

    Returns
    -------
    float, float
        The logarithm of the scale, the median over pairs of points that flow there and back
        leaves where they are; and the share of such points, 0..1.
    """
    now, then = (cv2.cvtColor(one, cv2.COLOR_RGB2GRAY) for one in (present, goal))
    flow, unset = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM), np.empty(0)
    there, back = flow.calc(now, then, unset), flow.calc(then, now, unset)
    length = len(now)
    side = np.arange(STEP_PX // 2, length, STEP_PX)
    y, x = (axis.ravel() for axis in np.meshgrid(side, side, indexing='ij'))
    start, moved = np.stack((x, y), -1), there[y, x]
    end = start + moved
    inside = ((end >= 0) & (end <= length - 1)).all(-1)
    at = np.clip(np.rint(end), 0, length - 1).astype(int)
    kept = inside & (np.linalg.norm(moved + back[at[:, 1], at[:, 0]], axis=-1) < ROUND_TRIP_PX)
    start, end = start[kept], end[kept]
    if len(start) < 2:
        return 0.0, 0.0
    one, other = np.random.default_rng(0).integers(0, len(start), (2, PAIRS))
    before = np.linalg.norm(start[one] - start[other], axis=-1)
    after = np.linalg.norm(end[one] - end[other], axis=-1)
    far = (before > APART * length) & (after > 0)
    scale = float(np.median(np.log(after[far] / before[far]))) if far.any() else 0.0
    return scale, float(kept.mean())


def _unit(goal: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
    """Return features (N, D) of length 1, without what all patches share."""
    shared = torch.cat((goal.flatten(0, 1), present.flatten(0, 1))).mean(0)
    goal, present = (F.normalize(one - shared, dim=-1) for one in (goal, present))
    return goal.flatten(0, 1), present


def _alike(goal: Tensor, present: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines (P, K, N) of goal patches with the present at a place between patches.

    Also the mean dissimilarity of any two patches. Interpolates as bilinear sampling of the
    features would, from products that are computed once.
    """
    rows, cols = present.shape[:2]
    corners = (0, 1, cols, cols + 1)
    top = row.clamp(0, rows - 1).floor().clamp(max=rows - 2)
    left = column.clamp(0, cols - 1).floor().clamp(max=cols - 2)
    down, right = row.clamp(0, rows - 1) - top, column.clamp(0, cols - 1) - left
    share = ((1 - down) * (1 - right), (1 - down) * right, down * (1 - right), down * right)
    at = (top * cols + left).long()
    flat = present.flatten(0, 1)
    products = goal @ flat.T                                                            # N N
    own = torch.arange(rows * cols, device=at.device) * (rows * cols) + at
    sums = torch.stack([part * products.flatten()[own + corner]
                        for part, corner in zip(share, corners, strict=True)]).sum(0)
    padded = F.pad(flat, (0, 0, 0, cols + 1))
    lengths = torch.zeros_like(sums)
    for i, (part, corner) in enumerate(zip(share, corners, strict=True)):
        for other, far in zip(share[:i + 1], corners[:i + 1], strict=True):
            pair = (padded[corner:corner + len(flat)] * padded[far:far + len(flat)]).sum(-1)
            lengths += (1 if corner == far else 2) * part * other * pair[at]
    return sums / lengths.clamp(min=LEAST_LENGTH).sqrt(), 1 - products.mean()
