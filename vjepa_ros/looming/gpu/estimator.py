# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The looming estimate of `vjepa_ros.looming.estimator` with its pixels on a GPU.

All work on pixels and samples (choice of the older frame, displacement, evidence, window fits)
runs on the device in two steps of static shape. The motion of the camera, between these steps, and
the rates, after them, concern a few hundred cells. Kernels compute them on the device, and then
all of it is one CUDA graph; without kernels, or with a gyroscope, the code of the host does, and
each step is a graph.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import cv2
import numpy as np
import torch
from torch import Tensor

from vjepa_ros.looming.affine import AffineFits
from vjepa_ros.looming.ego_motion import CameraMotion, Derotation, Rays
from vjepa_ros.looming.estimator import (
    CellGrid,
    LoomingField,
    LoomingSettings,
    PROBE_S,
    PairLooming,
    pair_looming,
    window_fitters,
)
from vjepa_ros.looming.gpu.fit import (
    Aligner,
    DeviceFitter,
    noise_energy,
    turn_affine,
    turned_back,
    weigh,
)
from vjepa_ros.looming.gpu.flow import Choice, DenseFlow, GlobalMotion, Trust
from vjepa_ros.looming.gpu.kernels import (
    Fits,
    HEAD,
    LoomingKernels,
    MOST_FRAMES,
    prepare_kernels,
    read_pair,
)
from vjepa_ros.looming.gyroscope import Gyroscope, GyroscopeError, Turn
from vjepa_ros.runtime.cuda.compiler import kernels_for
from vjepa_ros.runtime.cuda.graph_replay import DeviceStream, Replay

_FIRST = 8          # numbers of a cell: shift, its covariance, inliers, misfit
_SECOND = 45        # theta, covariance, inliers, misfit, vouched
_FRAMES = HEAD + 2 * MOST_FRAMES    # numbers given to the first step
_LENS = 4           # numbers given to the second step: focal length, centre, slant
_TRIAL_SIZE = 128, 96   # of the pictures of a trial [px]
SAME = 1e-2         # difference of kernels in it, as a share of all
_TURN = 10          # and after them, without kernels: matrix of the rotation, time


@dataclass
class _Held:
    pair: tuple[Tensor, Tensor]     # newer and older frame, `Aligner.prepared`
    trust: Tensor
    start: Tensor
    exposure: Tensor
    fits: Fits
    dt_s: Tensor


@dataclass
class _Frame:
    rays: Rays
    ages: list[float]       # of the older frames [s]
    stamps: list[int]       # of them [ns]
    lens: np.ndarray        # (_LENS,) float32
    turns: Derotation | None
    dt_s: float = math.nan
    # What the host computes: blunt fits, what a gyroscope tells or why it does not, the motion.
    fits: AffineFits | None = None
    turn: Turn | None = None
    problem: str = ''
    motion: CameraMotion | None = None


class DeviceLooming:
    """Looming field of a short history of grey frames, computed on a device."""

    def __init__(self, queue: DeviceStream, settings: LoomingSettings | None = None,
                 chosen: tuple[LoomingKernels | None, str] | None = None) -> None:
        """Prepare; with `chosen`, kernels or why there are none, nothing is captured."""
        self.queue, self._chosen = queue, chosen
        self.how = 'not started'    # how the device computes; any thread may read it
        self._settings = settings or LoomingSettings()
        self._steps: _Steps | None = None
        self._frame: _Frame | None = None

    def estimate(self, history: Sequence[tuple[int, np.ndarray]],
                 focal_px: float | None = None,
                 center: tuple[float, float] | None = None,
                 gyroscope: Gyroscope | None = None,
                 focal_error: float | None = None) -> LoomingField | None:
        """Estimate as on the host, with frames that are uploaded first."""
        if len(history) < 2:
            return None
        history = history[-MOST_FRAMES:]
        shape = (MOST_FRAMES, *history[0][1].shape)
        frames = None if self._steps is None else self._steps.frames
        if frames is None or frames.shape != shape:
            frames = torch.zeros(shape, dtype=torch.uint8, device=self.queue.device)
        stacked = torch.from_numpy(np.stack([gray for _, gray in history]))
        self.queue.settle()
        frames[:len(history)] = stacked.to(self.queue.device)
        if frames.device.type == 'cuda':
            torch.cuda.synchronize(frames.device)
        recent = [(ns, row) for row, (ns, _) in enumerate(history)]
        if not self.begin(frames, recent, focal_px, center, gyroscope, focal_error):
            return None
        self.proceed()
        return self.finish()

    def begin(self, frames: Tensor, recent: Sequence[tuple[int, int]], focal_px: float | None,
              center: tuple[float, float] | None, gyroscope: Gyroscope | None = None,
              focal_error: float | None = None) -> bool:
        """Queue the work on the newest frame of a history.

        `frames`: (M, h, w) uint8 on the device; another tensor than the last time costs a new
        start of about a second, as does a gyroscope that comes or goes.
        """
        s = self._settings
        chosen = self._candidates(recent)
        if chosen is None:
            return False
        rows, ages, stamps, near = chosen
        steps = self._ready(frames, gyroscope is not None)
        h, w = frames.shape[1:]
        rays = steps.grid.rays(focal_px, center)
        given = np.zeros(_FRAMES + _LENS, np.float32)
        goal = s.target_px * steps.grid.inner[0] / 384
        given[:HEAD] = (recent[-1][1], rows[near], ages[near], len(rows) == 1, goal,
                        s.max_baseline_s)
        given[HEAD:HEAD + len(rows)] = rows
        given[HEAD + MOST_FRAMES:_FRAMES] = np.inf
        given[HEAD + MOST_FRAMES:][:len(rows)] = ages
        lens = given[_FRAMES:]
        lens[:] = rays.focal_px, *(center or ((w - 1) / 2, (h - 1) / 2)), s.slant
        turns = None if gyroscope is None else steps.grid.turns(
            gyroscope, recent[-1][0], focal_px, center, focal_error)
        self._frame = _Frame(rays, ages, stamps, lens, turns)
        if steps.both is not None:
            steps.both.start(given)
        else:
            steps.first.start(given[:_FRAMES])
        return True

    def proceed(self) -> None:
        """Where kernels do not, compute the motion of the camera and queue the second step."""
        steps, frame = self._under_way()
        if steps.both is not None:
            return
        found = steps.first.finish()
        cells = found[:-1].reshape(-1, _FIRST).astype(np.float64)
        older = int(found[-1])
        frame.dt_s = frame.ages[older]
        theta = np.zeros((len(cells), 6))
        theta[:, ::3] = cells[:, :2]
        frame.fits = AffineFits(theta, cells[:, 2:6].reshape(-1, 2, 2), cells[:, 6], cells[:, 7])
        if frame.turns is not None:
            try:
                frame.turn = frame.turns.since(frame.stamps[older]).turn
            except GyroscopeError as error:
                frame.problem = str(error)
            else:
                frame.turns.learn(frame.turn, frame.fits)
        self._refine(steps, frame, frame.turn)

    @staticmethod
    def _refine(steps: _Steps, frame: _Frame, turn: Turn | None) -> None:
        """Compute the motion of the camera here, and queue the second step."""
        assert frame.fits is not None
        frame.motion = frame.rays.camera_motion(frame.fits, turn=turn)
        matrix = cv2.Rodrigues(frame.motion.rotation)[0].ravel()
        steps.second.start(np.array([*frame.lens, *matrix, frame.dt_s], np.float32))

    def finish(self) -> LoomingField:
        """Wait for the second step and arrange its result."""
        steps, frame = self._under_way()
        pair = self._pair(steps, frame, frame.turn)
        problem = frame.problem
        if frame.turn is not None and pair.doubtful:
            self._refine(steps, frame, None)
            pair, problem = pair.or_plain(self._pair(steps, frame, None))
        field = steps.grid.field(pair, self._settings.min_confidence)
        return field if frame.turns is None else replace(field, gyroscope=problem)

    def _pair(self, steps: _Steps, frame: _Frame, turn: Turn | None) -> PairLooming:
        """Wait for the second step, and read what it says with the rotation that it was given."""
        if steps.both is not None:
            found = steps.both.finish()
            return read_pair(found[:-1], frame.ages[int(found[-1])])
        assert frame.motion is not None
        found = steps.second.finish()
        found = found.reshape(-1, _SECOND).astype(np.float64)
        fits = AffineFits(found[:, :6], found[:, 6:42].reshape(-1, 6, 6), found[:, 42],
                          found[:, 43])
        return pair_looming(fits, frame.rays, frame.motion, found[:, 44], frame.dt_s,
                            self._settings.slant, turn)

    def _under_way(self) -> tuple[_Steps, _Frame]:
        if self._steps is None or self._frame is None:
            raise RuntimeError('no frame was begun')
        return self._steps, self._frame

    def _candidates(self, recent: Sequence[tuple[int, int]]
                    ) -> tuple[list[int], list[float], list[int], int] | None:
        """Rows, ages [s] and stamps [ns] of the frames to choose from; which is for the pace."""
        newest_ns = recent[-1][0]
        held = [(row, (newest_ns - ns) * 1e-9, ns) for ns, row in recent[:-1]]
        usable = [one for one in held if one[1] <= self._settings.max_baseline_s]
        if not usable:
            usable = [one for one in held[-1:] if one[1] <= self._settings.max_gap_s]
        if not usable:
            return None
        # Of a very fast camera every second frame or fewer, evenly.
        usable = usable[::-1][::-(-len(usable) // MOST_FRAMES)][::-1]
        rows, ages, stamps = (list(column) for column in zip(*usable, strict=True))
        near = min(range(len(ages)), key=lambda k: abs(math.log(ages[k] / PROBE_S)))
        return rows, ages, stamps, near

    def _ready(self, frames: Tensor, on_host: bool) -> _Steps:
        """Prepare the steps for frames that lie elsewhere or have another size than the last.

        And where the motion of the camera is no longer computed where it was.
        """
        if (self._steps is None or self._steps.frames is not frames
                or self._steps.on_host != on_host):
            if self._steps is not None:
                self.queue.settle()
            self._steps, self.how = None, 'not started'
            self._steps = _Steps(self.queue, self._settings, frames, on_host, self._chosen)
            self.how = self._steps.how
        return self._steps


class _Steps:
    """Both steps for frames in one place on the device.

    With `on_host` the motion of the camera and the rates are left to the host, also by kernels.
    """

    def __init__(self, queue: DeviceStream, settings: LoomingSettings, frames: Tensor,
                 on_host: bool, chosen: tuple[LoomingKernels | None, str] | None) -> None:
        device, (h, w) = queue.device, frames.shape[1:]
        self.frames, self.on_host, self._settings = frames, on_host, settings
        self.grid = CellGrid((w, h), settings.cell_px)
        size = self.grid.inner
        self._fork = queue.fork
        with queue.here():
            self.kernels, reason = choose_kernels(device) if chosen is None else chosen
            self.motion = None if on_host else self.kernels
            self._choice = Choice(size, device, self.kernels)
            self._flow = DenseFlow(size, device, kernels=self.kernels)
            self._global = GlobalMotion(size, device, self.kernels)
            self._trust = Trust(size, device, self.kernels)
            self._half, self._full = (Aligner(size, device, reduce, self.kernels)
                                      for reduce in (2, 1))
            loose = settings.looseness_px
            blunt, *fine = window_fitters(self.grid)
            self._fit_blunt = DeviceFitter(blunt, device, 2, 2 * loose, self.kernels)
            self._fits = [DeviceFitter(one, device, 1, loose, self.kernels)
                          for one in fine]
            at = torch.as_tensor(self.grid.samples, dtype=torch.float32, device=device)
            self._spots = at.permute(2, 0, 1).contiguous()                            # 2 Hs Ws
            self._cells_at = torch.as_tensor(self.grid.centers.T.copy(), dtype=torch.float32,
                                             device=device)                          # 2 C
        self.both: Replay | None = None
        if self.motion is not None:
            self.both = Replay(queue, self._measure, np.zeros(_FRAMES + _LENS, np.float32),
                               'looming', chosen is None)
            captured = self.both.captured
        else:
            self.first = Replay(queue, self._displace, np.zeros(_FRAMES, np.float32), 'looming',
                                chosen is None)
            # It reads what the first leaves where its graph has put it.
            self.second = Replay(queue, self._refine, np.zeros(_LENS + _TURN, np.float32),
                                 'looming', self.first.captured)
            captured = self.first.captured and self.second.captured
        self.how = 'graph' if captured else 'eager'
        if self.kernels:
            self.how += ' of kernels' + (', motion on the host' if on_host else '')
        elif reason:
            self.how += f' without kernels: {reason}'

    def _measure(self, given: Tensor) -> Tensor:
        best = self._displace(given[:_FRAMES])
        return torch.cat([self._refine(given[_FRAMES:]), best])

    def _displace(self, given: Tensor) -> Tensor:
        """First step: displacement, and blunt fits for the motion of the camera."""
        newer, near = self._picture(given[:2])
        best, row, dt_s, large = self._choice(given, newer, near)
        older = self._picture(row)[0]
        with self._fork.aside():
            half = self._half.prepared(newer), self._half.prepared(older)
            pair = self._full.prepared(newer), self._full.prepared(older)
        guess = self._global(newer, older, large)
        warped = self._global.warped(older, guess)
        found, back = self._flow(torch.cat([newer, warped]), torch.cat([warped, newer])).chunk(2)
        flow, trust = self._trust(found, back, guess)
        self._fork.rejoin()
        samples = self._half.samples(half[0], *self._half.moved(half[1], flow), flow)
        noise = noise_energy(samples, self.kernels)
        blunt = self._fit_blunt
        fits = Fits(*(part[0] for part in blunt.room(1, thorough=False)))
        own = blunt.measure(samples, weigh(samples, trust, noise, 2, self.kernels), noise, fits)
        start = blunt.settle(fits, own, noise)
        self._held = _Held(pair, trust, start, samples.exposure, fits, dt_s)
        if self.motion is not None:
            return best
        cells = torch.cat([fits.theta[..., ::3], fits.covariance.flatten(2),
                           fits.inliers[..., None], fits.misfit[..., None]], -1)
        return torch.cat([cells.flatten(), best])

    def _refine(self, given: Tensor) -> Tensor:
        """Second step: exact fits of what is left without rotation, with kernels also looming."""
        held, grid, by = self._held, self._fits[0], self.motion
        lens, rough = given[:_LENS], None
        with self._fork.aside():
            spread = grid.spread(held.start)
            moved = self._full.moved(held.pair[1], spread)
        if by is not None:
            rough = by.motion(held.fits, self._cells_at, lens)
            self._fork.rejoin()
            beyond, base, start = by.derotate(rough, lens, self._spots, spread, self._cells_at,
                                              held.start)
            dt_s = held.dt_s
        else:
            self._fork.rejoin()
            turn, dt_s = given[_LENS:-1].view(3, 3), given[-1:]
            focal, center = lens[0], lens[1:3]
            spots = (self._spots - center[:, None, None]) / focal
            away = (turned_back(spots.flatten(1), turn)[0].view_as(spots) - spots) * focal
            beyond = spread - away
            base = turn_affine((self._cells_at - center[:, None]) / focal, turn, focal)[None]
            start = held.start - base
        samples = self._full.samples(held.pair[0], *moved, beyond, held.exposure)
        noise = noise_energy(samples, self.kernels)
        weight = weigh(samples, held.trust, noise, 1, self.kernels)
        fits = grid.room(1, len(self._fits))
        narrow, *wide = (Fits(*(part[k] for part in fits)) for k in range(len(self._fits)))
        with self._fork.aside():
            for fitter, room in zip(self._fits[1:], wide, strict=True):
                fitter.measure(samples, weight, noise, room)
        own = grid.measure(samples, weight, noise, narrow, start)
        self._fork.rejoin()
        found, vouched = grid.widened(fits, own, noise, dt_s, base)
        if by is not None:
            motion = by.motion(found, self._cells_at, lens, rough)
            rates = by.rates(found, vouched, self._cells_at, lens, dt_s, motion)
            return torch.cat([motion.float(), rates])
        return torch.cat([found.theta, found.covariance.flatten(2), found.inliers[..., None],
                          found.misfit[..., None], vouched[..., None]], -1)[0]

    def _picture(self, rows: Tensor) -> Tensor:
        """Frames of some rows, one after the other: (len, 1, h, w) float32 without the rim."""
        down, across = self.grid.span
        return self.frames.index_select(0, rows.long())[:, None, down, across].float()


@lru_cache(maxsize=16)
def choose_kernels(device: torch.device) -> tuple[LoomingKernels | None, str]:
    """Compile the kernels for a device and try them, once: these, or why not; '' off CUDA.

    That takes a second or two; see `prepare_kernels`.
    """
    pending = prepare_kernels(device)
    if pending is None:
        return None, ''
    return kernels_for('looming', device, None, pending.result,
                       lambda kernels: trial(kernels, device), SAME)


def trial(kernels: LoomingKernels | None, device: torch.device) -> Tensor:
    """Measure looming in films, by kernels or without: numbers of about 1."""
    w, h = _TRIAL_SIZE
    random = np.random.default_rng(0)
    fine, rough = (cv2.resize(random.integers(0, 256, (2 * h // px, 2 * w // px), dtype=np.uint8),
                              (2 * w, 2 * h), interpolation=cv2.INTER_CUBIC) for px in (8, 32))
    picture = cv2.addWeighted(fine, 0.5, rough, 0.5, 0)
    numbers = []
    # A camera that comes nearer, one that turns fast, and one that stands.
    for count, grow, shift in ((4, 0.02, 1.0), (2, 0.0, 17.0), (4, 0.0, 0.0)):
        history = []
        for k in range(count):
            size, at = 1 + grow * k, shift * k
            seen = cv2.warpAffine(picture, np.array([[size, 0, at - w / 2 * size],
                                                     [0, size, -h / 2 * size]]), (w, h))
            seen = 0.9 * seen + 2 * k + random.normal(0, 2, (h, w))
            history.append((k * 66_000_000, seen.clip(0, 255).astype(np.uint8)))
        looming = DeviceLooming(DeviceStream(device), LoomingSettings(min_confidence=0.0),
                                (kernels, ''))
        found = looming.estimate(history, float(w))
        assert found is not None    # the frames are near each other
        numbers += [found.rate * found.confidence, found.confidence, found.sigma]
    return torch.from_numpy(np.stack(numbers))
