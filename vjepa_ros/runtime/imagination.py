# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score plans of a base on the features of what its camera sees now.

`Imagination.see` reads the features that a session has computed; `Imagination.imagine` then scores
any number of plans in one batched pass. On CUDA both are graphs. N plans, K steps, n cells of the
coarse grid, D width of the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.metadata import BundleMeta
from vjepa_ros.model.checkpoint.twist_files import load_twists
from vjepa_ros.model.head_specs import CLEARANCE_BINS
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.twist_paths import VIEW_DIM, View
from vjepa_ros.model.twist_predictor import CELLS, Seen, TwistPredictor
from vjepa_ros.model.variants import find_variant
from vjepa_ros.runtime.cuda.graph_replay import MOST_GRAPHS, Queue, Replay
from vjepa_ros.runtime.device import DeviceChoice, choose_device, computing_with
from vjepa_ros.runtime.torchscript import Traced

LEAST_PLANS = 16    # of a thread


@dataclass(frozen=True)
class Foreseen:
    """What follows from N plans of K steps, as arrays in float32.

    Attributes
    ----------
    contact : ndarray
        (N, K) probability of having touched something by the end of each step.
    clearance : ndarray
        (N, K, C+1) probability of each bin of `CLEARANCE_EDGES` for the free way ahead after it.
    course : ndarray
        (N, K, n) probability that something in a cell is on a collision course then.
    looming : ndarray
        (N, K, n) greatest looming rate in a cell then [1/s].
    features : ndarray
        (N, K, n, D) imagined features.

    """

    contact: np.ndarray
    clearance: np.ndarray
    course: np.ndarray
    looming: np.ndarray
    features: np.ndarray


class Imagination:
    """A predictor of twists on its device. Not for several threads at once.

    Parameters
    ----------
    predictor : TwistPredictor
        Owned from then on.
    choice : DeviceChoice
        Device and precision.
    meta : BundleMeta, optional
        Description of its file; None for random weights.
    encoder_sha256 : str
        Hash of the tensors of the encoder (`WeightsReport.tensors_sha256`); '' for random weights.

    Attributes
    ----------
    meta, encoder_sha256
        As given.
    view : View or None
        That of the newest features; None before the first, and after some that were refused.
    execution : str
        `graph`, or `eager` off CUDA and where a graph could not be captured.
    execution_reason : str
        Why it could not; ''.

    """

    def __init__(self, predictor: TwistPredictor, choice: DeviceChoice,
                 meta: BundleMeta | None = None, encoder_sha256: str = ''):
        self.choice, self.meta, self.encoder_sha256 = choice, meta, encoder_sha256
        self._predictor = predictor.eval().requires_grad_(False).to(choice.device)
        if choice.dtype != torch.float32:
            self._predictor.set_branch_precision(choice.branches)
        self._queue = Queue(choice.device)
        self._seen: Seen | None = None
        self._sight: Replay | None = None               # for features of one grid
        self._grid = (0, 0)
        self.view: View | None = None
        self._traced = Traced(self._foresee_of, 'scoring of plans')     # on a CPU
        self._helpers = ThreadPoolExecutor(thread_name_prefix='plans')
        self._plans: dict[tuple[int, int], Replay] = {}  # by number of plans and steps

    @property
    def execution(self) -> str:
        """How plans are scored; see the class."""
        replays = [one for one in (self._sight, *self._plans.values()) if one is not None]
        return 'graph' if replays and all(one.captured for one in replays) else 'eager'

    @property
    def execution_reason(self) -> str:
        """Why there is no graph; ''."""
        replays = [one for one in (self._sight, *self._plans.values()) if one is not None]
        return next((one.reason for one in replays if one.reason), '')

    @classmethod
    def load(cls, model_size: str = 'tiny', weights: str | Path = '', predictor: str | Path = '',
             device: str = 'auto', precision: str = 'auto') -> Imagination:
        """Load the predictor of a weights file, see `load_twists` and `choose_device`.

        Raises
        ------
        WeightsError, DeviceError
            With the parameter, its value and the remedy.

        """
        found = load_twists(model_size, weights, predictor)
        choice = choose_device(device, device != 'auto', precision)
        return cls(found.predictor, choice, found.meta, found.report.tensors_sha256)

    @classmethod
    def random(cls, model_size: str = 'tiny', device: str = 'auto', precision: str = 'auto',
               seed: int = 0) -> Imagination:
        """Make one with random weights, to measure how long it takes."""
        variant = find_variant(model_size)
        heads = Heads.for_variant(variant, seed)
        predictor = TwistPredictor(variant.dim, heads.hidden)
        predictor.init_random(seed)
        predictor.read_as(heads)
        return cls(predictor, choose_device(device, device != 'auto', precision))

    @torch.inference_mode()
    def see(self, features: np.ndarray, view: View) -> None:
        """Take the newest features of a camera; plans are about them until the next ones.

        Parameters
        ----------
        features : ndarray
            (T', Hp, Wp, D) float32 of the encoder, see `Output.features`, T' at least 2.
        view : View
            The camera on the robot, and the twist of the robot when it took the newest frame.

        Raises
        ------
        ValueError
            For features of another shape, or that are not finite. What was seen before is dropped.

        """
        self.view = None
        if features.ndim != 4 or len(features) < 2 or features.shape[-1] != self._predictor.dim:
            raise ValueError(f'features are {features.shape}, but must be (tubelets, rows, columns'
                             f', {self._predictor.dim}) with at least 2 tubelets')
        if not np.isfinite(features[-2:]).all():
            raise ValueError('features are not finite')
        numbers = np.concatenate((features[-2:].ravel(), view.tensor().numpy()), dtype=np.float32)
        rows, cols = grid = features.shape[1:3]
        if self._sight is None or grid != self._grid:
            self._sight = None
            self._plans.clear()     # they read what was seen where it was
            self._grid = grid
            self._sight = Replay(self._queue, lambda given: self._look(given, rows, cols),
                                 numbers.size, 'sight for plans')
        self._queue.settle()        # the numbers of the time before may be on their way
        self._sight.start(numbers)
        self.view = view

    @torch.inference_mode()
    def imagine(self, twists: np.ndarray, durations_s: Sequence[float] | np.ndarray) -> Foreseen:
        """Score plans.

        Parameters
        ----------
        twists : ndarray
            (N, K, 3): ahead, to the left [m/s], turn to the left [rad/s].
        durations_s : array
            (K,) for which each is held [s]. Training had steps of 0.15 to 0.66 s, 3.6 s in all.

        Raises
        ------
        ValueError
            Without features, for other shapes, numbers that are not finite, or durations that are
            not above 0.

        """
        twists, lasts = np.asarray(twists, np.float32), np.asarray(durations_s, np.float32)
        if self._sight is None or self.view is None:
            raise ValueError('there are no features yet; call see() first')
        if twists.ndim != 3 or twists.shape[2] != 3 or lasts.shape != twists.shape[1:2] or (
                not twists.size):
            raise ValueError(f'twists are {twists.shape} and durations_s {lasts.shape}, but must '
                             'be (plans, steps, 3) and (steps,)')
        if not np.isfinite(twists).all() or not all(0 < value < math.inf for value in lasts):
            raise ValueError('twists and durations_s must be finite, and durations_s above 0')
        n, k = shape = twists.shape[:2]
        if shape not in self._plans:
            while len(self._plans) >= MOST_GRAPHS:
                self._plans.pop(next(iter(self._plans)))
            self._plans[shape] = Replay(
                self._queue, lambda given: self._score(given, n, k), 3 * n * k + k,
                f'scores of {n} plans of {k} steps', self._sight.captured)
        replay = self._plans[shape]
        replay.start(np.concatenate((twists.ravel(), lasts)))
        found = replay.finish()
        if self._queue.stream is not None:
            found = found.copy()    # the next plans overwrite it
        fields = (1, CLEARANCE_BINS + 1, CELLS, CELLS, CELLS * self._predictor.dim)
        contact, clearance, course, looming, features = np.split(
            found, np.cumsum(fields)[:-1], axis=-1)
        return Foreseen(contact[..., 0], clearance, course, looming,
                        features.reshape(n, k, CELLS, -1))

    def _look(self, given: Tensor, rows: int, cols: int) -> None:
        """See; what is seen stays on the device, for a graph at one address."""
        newest = given[:-VIEW_DIM].view(1, 2, rows, cols, -1)
        self._seen = self._predictor.see(self._predictor.present(newest), given[None, -VIEW_DIM:])

    def _score(self, given: Tensor, plans: int, steps: int) -> Tensor:
        """Score plans: (N, K, all fields of `Foreseen` side by side)."""
        seen = self._seen
        assert seen is not None
        twists, lasts = given[:-steps].view(plans, steps, 3), given[-steps:]
        if given.device.type != 'cpu':
            return self._foresee(seen, twists, lasts)
        # Threads of their own take a part of the plans each: those of a layer wait for each other
        # after every operator.
        parts = twists.chunk(max(1, min(torch.get_num_threads(), plans // LEAST_PLANS)))
        shared = (lasts, seen.start, seen.near, seen.rays, seen.view,
                  *(one for pair in seen.memory for one in pair))
        others = [self._helpers.submit(self._part, part, *shared) for part in parts[1:]]
        return torch.cat([self._part(parts[0], *shared), *(one.result() for one in others)])

    @torch.inference_mode()
    def _part(self, *given: Tensor) -> Tensor:
        """Score a part of the plans."""
        with computing_with(1):
            return self._traced(*given)

    def _foresee_of(self, twists: Tensor, lasts: Tensor, start: Tensor, near: Tensor,
                    rays: Tensor, view: Tensor, *memory: Tensor) -> Tensor:
        """Score plans of what is given as tensors alone."""
        pairs = list(zip(memory[::2], memory[1::2], strict=True))
        return self._foresee(Seen(start, near, pairs, rays, view), twists, lasts)

    def _foresee(self, seen: Seen, twists: Tensor, lasts: Tensor) -> Tensor:
        """Score plans (N, K, 3), see `_score`."""
        found = self._predictor.imagine(seen, twists[None], lasts)
        return torch.cat([one[0].float().flatten(2) for one in (
            found.contact_until[..., None], found.clearance.float().softmax(-1),
            found.course.sigmoid(), found.looming, found.features)], -1)
