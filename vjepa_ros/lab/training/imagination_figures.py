# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Judge who can tell which of several twists from one past leads into something.

Beside the predictor of twists: *points*, cells of the measured looming field that stand where
speed over rate puts them, as planners place them, in the way of each plan; *heads*, their hazard
as things move now, which is the same for all twists; *way*, how far a plan drives, without
looking. B pasts, F plans, H horizons.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.clip.optics import Optics
from vjepa_ros.lab.evaluation import metrics
from vjepa_ros.lab.evaluation.clips import horizon_key
from vjepa_ros.lab.evaluation.recording_replay import Setup
from vjepa_ros.lab.evaluation.world import MIDDLE, encoded, films, judged
from vjepa_ros.lab.training.imagination import Futures, Pasts, make_futures, make_pasts
from vjepa_ros.lab.training.network import Network
from vjepa_ros.lab.world.clips import BANK_SEED, ClipWorld
from vjepa_ros.lab.world.futures import LOOK_S
from vjepa_ros.lab.world.rendering.truth import Robot
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig
from vjepa_ros.lab.world.seeds import HELD_OUT_SEED
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.model.checkpoint.load import load_model
from vjepa_ros.model.checkpoint.twist_files import load_twists
from vjepa_ros.model.twist_predictor import Imagined, TwistPredictor, coarse
from vjepa_ros.model.variants import TUBELET
from vjepa_ros.perception.looming_cells import CELLS_OF_A_VIEW, LoomingCells

HORIZONS_S = (1.0, 2.0, 3.0)
INTERVAL_S = (0.1, 0.4)     # between frames: pictures of a robot that plans
PLANS, AT_ONCE = 16, 16     # plans of a past, and pasts of a task
PROBABILITIES = ('imagined', 'heads')
# Of the points, as planners place them.
LEAST_SPEED, REACH_M, MIN_CONFIDENCE, MARGIN_M, EVIDENCE = 0.3, 6.0, 0.3, 0.15, 2.5


@dataclass(frozen=True)
class FuturePart:
    """What every judge says of the plans of some pasts.

    Attributes
    ----------
    world
        Name of their world.
    contact_s
        (B, F) when each plan touches something, inf for never.
    risks
        (B, F, H) by judge.
    features
        See `imagined`.
    """

    world: str
    contact_s: np.ndarray
    risks: dict[str, np.ndarray]
    features: dict[str, Tensor]


def make_world(name: str, window: int, size: int, device: torch.device | str) -> ClipWorld:
    """Return a world whose clips are just what a stream remembers."""
    return ClipWorld(size, TUBELET * window, device, _bank(), config_of(name))


@lru_cache(maxsize=1)
def _bank() -> TextureBank:
    """Return the textures of held-out clips, which take seconds to paint."""
    return TextureBank.procedural(BANK_SEED)


def config_of(name: str) -> WorldConfig:
    """Return the settings of a world for pasts of a robot that plans."""
    return WorldConfig(name, interval_s=INTERVAL_S, hold_share=0.0)


def tasks(world: str, count: int, device: str, weights: str) -> list[tuple[Any, ...]]:
    """Return tasks for some pasts of a world."""
    return [(evaluate_futures, world, first, min(AT_ONCE, count - first), device, weights)
            for first in range(0, count, AT_ONCE)]


def evaluate_futures(setup: Setup, name: str, first: int, count: int, device: str, weights: str
                     ) -> FuturePart:
    """Let every judge say what it expects of the plans of some held-out pasts.

    Parameters
    ----------
    setup
        Its engine runs the same weights.
    name
        Of the world.
    first, count
        Numbers of the pasts; training draws none of them.
    device
        Of the renderer and the predictor.
    weights
        File with encoder, heads and predictor; '' for the bundled ones.
    """
    network, predictor = _networks(weights, device)
    world = _world(name, network.encoder.window, setup.track.image_size, device)
    seed = HELD_OUT_SEED + first
    sample = world.sample(seed, count)
    pasts = make_pasts(world, network, predictor, sample, seed, even=True)
    futures = make_futures(world, pasts, seed, PLANS)
    risk, features = imagined(predictor, pasts, futures)
    way = futures.plans.poses(torch.arange(0, HORIZONS_S[-1] + LOOK_S / 2, LOOK_S, device=device))
    way = way.double().cpu().numpy()                                             # B F N 3
    clips = world.film(sample)
    rendered = list(films(clips, exact=True))
    heads, points = [], []
    one = replace(setup, methods=setup.methods[-1:])
    for number, (film, output) in enumerate(zip(rendered, encoded(rendered, setup), strict=True)):
        hazard = np.full(len(HORIZONS_S), np.nan)
        if output is not None and output.heads is not None:
            hazard = output.heads.contact_within(np.array(HORIZONS_S) / film.interval_s)
        heads.append(np.tile(hazard, (PLANS, 1)))
        result = judged(film, one, output)[one.methods[0]][MIDDLE]
        cells = LoomingCells.of(result, Optics(*film.optics(), assumed=False))
        seen = pasts.view[number].double().cpu().numpy()
        points.append(met(placed(cells, seen[6], seen[0]), way[number], world.config.robot))
    driven = np.linalg.norm(np.diff(way[..., :2], axis=2), axis=-1).cumsum(-1)
    ends = [round(horizon / LOOK_S) for horizon in HORIZONS_S]
    return FuturePart(name, futures.contact_s.cpu().numpy(), {
        'imagined': risk, 'points': np.stack(points), 'heads': np.stack(heads),
        'way': driven[..., [end - 1 for end in ends]]}, features)


@lru_cache(maxsize=1)
def _networks(weights: str, device: str) -> tuple[Network, TwistPredictor]:
    encoder, heads, _ = load_model('tiny', weights=weights)
    assert heads is not None        # `load_twists` refuses a file without
    network = Network(encoder, heads).eval().requires_grad_(False).to(device)
    return network, load_twists(weights=weights).predictor.to(device)


@lru_cache(maxsize=2)
def _world(name: str, window: int, size: int, device: str) -> ClipWorld:
    return make_world(name, window, size, device)


def placed(cells: LoomingCells, speed: float, height: float) -> np.ndarray:
    """Return what stands around a camera (P, 3): right, ahead [m] and weight.

    A surface at rest is at speed over looming rate (Lee, 1976). Ground, and what is above a robot,
    is left out.
    """
    if speed < LEAST_SPEED:
        return np.empty((0, 3))
    robot, rate, sigma = Robot(), cells.rate.astype(float), cells.sigma.astype(float)
    known = np.isfinite(rate) & np.isfinite(sigma) & (cells.confidence >= MIN_CONFIDENCE)
    near = known & (rate > np.maximum(speed / REACH_M, 2 * sigma))
    rate, sigma = np.where(near, rate, 1.0), np.where(near, sigma, 0.0)
    depth = speed / rate
    high = height - depth * cells.down
    doubt = 0.08 + 0.25 * np.abs(high - height)
    solid = near & (high > robot.clearance + doubt) & (high < max(robot.height, height + 0.1))
    weight = CELLS_OF_A_VIEW / max(1, len(cells)) * cells.confidence / (
        1 + (sigma / (0.2 * rate)) ** 2)
    return np.stack((depth * cells.across, depth, weight), -1)[solid]


def met(points: np.ndarray, way: np.ndarray, robot: Robot) -> np.ndarray:
    """Return how much stands in the ways (F, N, 3) of cameras within each horizon, (F, H)."""
    x, z, yaw = (way[..., axis, None] for axis in range(3))
    dx, dz = points[:, 0] - x, points[:, 1] - z
    right, ahead = dx * np.cos(yaw) - dz * np.sin(yaw), dx * np.sin(yaw) + dz * np.cos(yaw)
    inside = (np.abs(right) < robot.half_width + MARGIN_M) & (ahead < MARGIN_M) & (
        ahead > -robot.length - MARGIN_M)
    weight = np.maximum.accumulate(inside @ points[:, 2] / EVIDENCE, axis=1)
    return weight[:, [round(horizon / LOOK_S) for horizon in HORIZONS_S]]


def gathered(parts: Sequence[FuturePart]) -> dict[str, Any]:
    """Join all parts of a world and compute the figures of every judge."""
    when = np.concatenate([part.contact_s for part in parts])
    judges = {name: figures(np.concatenate([part.risks[name] for part in parts]), when,
                            name in PROBABILITIES) for name in parts[0].risks}
    return {'pasts': len(when), 'plans': when.shape[1], 'judges': judges,
            'features': features_figures([part.features for part in parts])}


def figures(risk: np.ndarray, contact_s: np.ndarray, probability: bool = True) -> dict[str, Any]:
    """Compute the figures of one judge.

    Parameters
    ----------
    risk : ndarray
        (B, F, H) of a contact within each horizon.
    contact_s : ndarray
        (B, F) when there is one, inf for never. A plan that touches something from the start is
        left out.
    probability : bool
        Whether the risk is one; otherwise it has no calibration.

    Returns
    -------
    dict
        By horizon ``auc`` over all plans, ``auc_of_a_past`` over plans that share one (mean over
        pasts in which some touch something and some do not), ``calibration_error`` and
        ``contacts``, their share; ``rank``, the mean rank correlation of the risk within 3 s and
        the nearness of the contact over the plans of a past.

    """
    asked = contact_s > 0
    out: dict[str, Any] = {}
    for number, horizon in enumerate(HORIZONS_S):
        touched, said = contact_s <= horizon, risk[..., number]
        within = [metrics.roc_auc(s[a], t[a]) for s, t, a in zip(said, touched, asked, strict=True)
                  if a.any() and 0 < t[a].mean() < 1]
        out[horizon_key(horizon)] = {
            'contacts': float(touched[asked].mean()),
            'auc': metrics.roc_auc(said[asked], touched[asked]),
            'auc_of_a_past': _mean(within),
            'calibration_error': metrics.expected_calibration_error(
                said[asked], touched[asked]) if probability else None}
    out['rank'] = _mean([
        _rank(s[a], 1 / w[a]) for s, w, a in zip(risk[..., -1], contact_s, asked, strict=True)
        if len({*w[a].tolist()}) > 1])
    return out


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _rank(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's correlation, with means for ties; 0 where all of one are equal."""
    def places(values: np.ndarray) -> np.ndarray:
        _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
        return (np.cumsum(count) - (count + 1) / 2)[inverse]

    first, second = places(a), places(b)
    if not first.std() or not second.std():
        return 0.0
    return float(np.corrcoef(first, second)[0, 1])


@torch.no_grad()
def imagined(predictor: TwistPredictor, pasts: Pasts, futures: Futures
             ) -> tuple[np.ndarray, dict[str, Tensor]]:
    """Return the imagined risk (B, F, H), and what was imagined where pictures were filmed.

    Those are ``said`` and ``truth`` (G, S, n, D), and ``start`` (G, n, D), the present.
    """
    plans = futures.plans
    found: Imagined = predictor(pasts.present, plans.twists, plans.duration_s, pasts.view)
    times = torch.tensor(HORIZONS_S, device=plans.twists.device)
    some = len(pasts.features)
    width = pasts.features.shape[-1]
    return found.contact_within(plans.ends_s, times).cpu().numpy(), {
        'said': found.features[:some, 0].float().cpu(), 'truth': pasts.features.float().cpu(),
        'start': coarse(pasts.present[:some, ..., :width]).cpu()}


def features_figures(parts: Sequence[dict[str, Tensor]]) -> dict[str, Any]:
    """Compare imagined features with those that followed.

    Returns
    -------
    dict
        By step ``error``, the mean absolute difference, and ``error_of_the_present``, that of
        features that stay as they are; ``variance``, that of imagined features over pasts as part
        of that of true ones; ``rank`` and ``true_rank``, the effective rank of both (exponential
        of the entropy of the normalised singular values: Roy and Vetterli, 2007).

    """
    said, truth, start = (torch.cat([part[name] for part in parts])
                          for name in ('said', 'truth', 'start'))
    return {'error': (said - truth).abs().mean((0, 2, 3)).tolist(),
            'error_of_the_present': (start[:, None] - truth).abs().mean((0, 2, 3)).tolist(),
            'variance': float(said.var(0).mean() / truth.var(0).mean()),
            'rank': _effective_rank(said), 'true_rank': _effective_rank(truth)}


def _effective_rank(features: Tensor) -> float:
    flat = features[:, -1].flatten(0, 1)
    values = torch.linalg.svdvals(flat - flat.mean(0))
    share = values / values.sum()
    return float(torch.special.entr(share).sum().exp())
