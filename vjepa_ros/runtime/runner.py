# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the passes of a model in place, as on a CPU, or in a thread, as on MPS; see also `cuda`."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.encoder import Encoder, Normalise
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.heads import Branch, Heads, IN_TURN
from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.forward.cpu import Traced
from vjepa_ros.runtime.forward.select import FUSED, PLAIN, prepare, prepare_step
from vjepa_ros.runtime.memory import (
    OutOfMemory,
    SMALLER,
    is_out_of_memory,
    release_memory,
    stored_bytes,
)
from vjepa_ros.runtime.prediction import Pass, checked, reading
from vjepa_ros.runtime.streaming import Keys, StreamEncoder, Work, why_not

# Runs the pass, the slots of its tubelets in the cache (None: it has none), and what it reads of
# each clip.
Plan = tuple[Work, list[int] | None, slice]


class DeviceClip:
    """A clip of frames (S, S, 3) uint8, contiguous, that are on the device of the model already.

    They are there after `ready`; `used` is called with the event after which they may go.
    """

    dtype = np.dtype(np.uint8)

    def __init__(self, frames: Sequence[Tensor], ready: torch.cuda.Event | None = None,
                 used: Callable[[torch.cuda.Event], None] = lambda event: None):
        self.shape = (len(frames), *frames[0].shape)
        self.frames, self.ready, self.used = frames, ready, used


# (T, S, S, 3) uint8, oldest frame first: an array, or its frames; or on the device.
Clip = np.ndarray | Sequence[np.ndarray] | DeviceClip


class Runner:
    """An encoder and its heads on a device. Passes are over when `start` returns.

    The methods are called by one thread at once. `clip_shape`: (T, S, S, 3).
    """

    captured, reason = False, ''     # whether passes are CUDA graphs, and why not if they could be
    eager = True    # whether each pass runs from Python

    def __init__(self, encoder: Encoder, heads: Heads | None, calibration: Calibration,
                 choice: DeviceChoice, clip_shape: tuple[int, ...]):
        encoder.set_branch_precision(choice.branches)
        try:
            self.encoder: Encoder | None = encoder.to(choice.device).eval()
            self.heads = None if heads is None else heads.to(choice.device).eval().fix()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            for part in filter(None, (encoder, heads)):
                part.cpu()  # what did fit
            release_memory(choice.device)
            raise OutOfMemory(f'the weights do not fit into the memory of {choice.device}; '
                              f'{SMALLER}') from error
        self.choice, self.clip_shape = choice, clip_shape
        self._clock = _settled if choice.device.type == 'mps' else time.perf_counter
        self.specs = () if heads is None else heads.specs
        self.stream: StreamEncoder | None = None    # None: all clips are encoded as a whole
        self.not_streaming = why_not(encoder, clip_shape[0])
        forward = prepare(encoder, choice, Normalise(choice.device), clip_shape)
        self.normalise, self._forward = forward.normalise, forward.run
        self._kind, self._note = forward.kind, forward.note
        branch = self._open(choice.device)
        read = checked if heads is None else reading(heads, calibration, branch)
        self._read: Work = Traced(read, 'reading of heads') if heads and self.eager else read
        if not self.not_streaming:
            self._begin_stream(encoder)

    def _open(self, device: torch.device) -> Branch:
        """Prepare the device; return what lets heads work beside each other."""
        return IN_TURN

    def _begin_stream(self, encoder: Encoder) -> None:
        side = self.clip_shape[1]
        try:
            step, kind = prepare_step(encoder, self.choice, self.normalise, side)
            self.stream = StreamEncoder(encoder, self.normalise, side, self.eager, step)
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            raise OutOfMemory(f'what a stream remembers does not fit into the memory of '
                              f'{self.choice.device}; {SMALLER}') from error
        if kind == FUSED:
            self._kind = kind

    @property
    def execution(self) -> str:
        words = ([] if self._kind == PLAIN else [self._kind]) + ['graph'] * self.captured
        return ' '.join(words) or 'eager'

    @property
    def execution_reason(self) -> str:
        """Why there are no graphs, and how much is in float8 or int8; ''."""
        return '; '.join(filter(None, (self.reason, self._note)))

    @property
    def nbytes(self) -> int:
        """Bytes of weights and of the cache of a stream; 0 when closed."""
        # Diagnostics ask while another thread closes it.
        parts = [part for part in (self.encoder, self.heads) if part is not None]
        weights = sum(stored_bytes(p) for part in parts for p in part.parameters())
        stream = self.stream
        return weights + (0 if stream is None else stream.cache.nbytes)

    @torch.inference_mode()
    def start(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, features: bool,
              valid: Sequence[np.ndarray] | None = None,
              stamps: Sequence[np.ndarray] | None = None) -> Pass:
        """Run a pass over clips, see `Model.run`; `valid` has no effect off CUDA."""
        begin = time.perf_counter()
        forward, slots, read = self._plan(keys, stamps)
        return self._pass(forward, slots, stamps, self._pixels(clips, read), features, begin)

    def _plan(self, keys: Sequence[Keys] | None, stamps: Sequence[np.ndarray] | None) -> Plan:
        """Decide how a pass runs, and find the slots of its tubelets."""
        stream = self.stream
        if stream is None or keys is None or stamps is None:
            return self._forward, None, slice(None)
        if stream.ready(keys):
            return stream.decode, stream.find(keys), slice(-stream.step_frames, None)
        return stream.prefill, stream.find(keys), slice(None)

    @staticmethod
    def _pixels(clips: Sequence[Clip], read: slice) -> Tensor:
        """Copy what a pass reads of clips (B, T, S, S, 3)."""
        frames = np.stack([frame for clip in clips for frame in (
            clip.frames if isinstance(clip, DeviceClip) else clip)[read]])
        return torch.from_numpy(frames.reshape(len(clips), -1, *frames.shape[1:]))

    def _pass(self, forward: Work, slots: list[int] | None,
              stamps: Sequence[np.ndarray] | None, pixels: Tensor, features: bool, begin: float
              ) -> Pass:
        """Upload, compute and download; `begin` is when it began."""
        if slots is not None and stamps is not None and self.stream is not None:
            self.stream.send(slots, stamps)
        pixels = pixels.to(self.choice.device)
        uploaded = self._clock()
        found = forward(pixels)
        encoded = self._clock()
        values = self._read(found)
        read = self._clock()
        arrays = found.float().cpu().numpy() if features else None
        said = values.cpu().numpy()
        return Pass(said, arrays, {
            'upload': 1e3 * (uploaded - begin), 'encode': 1e3 * (encoded - uploaded),
            'heads': 1e3 * (read - encoded), 'download': 1e3 * (time.perf_counter() - read)})

    @torch.inference_mode()
    def apply(self, clips: Sequence[Clip], function: Work) -> np.ndarray:
        """Apply a function to the pixels (B, T, S, S, 3) uint8; its result as float32."""
        pixels = self._pixels(clips, slice(None)).to(self.choice.device)
        return function(pixels).float().cpu().numpy()

    def trim(self) -> None:
        """Free what can be made again."""
        if self.stream is not None:
            self.stream.cache.forget()

    def close(self) -> None:
        """Wait for what runs, then drop the networks."""
        self.encoder = self.heads = self.stream = None
        self._forward = self._read = self.normalise = closed


def closed(pixels: Tensor) -> Tensor:
    raise SessionError('the model is closed')


def _settled() -> float:
    torch.mps.synchronize()
    return time.perf_counter()


class QueuedPass(Pass):
    """A pass in the thread of a `QueuedRunner`."""

    def __init__(self, future: Future[Pass]):
        self._future = future

    def arrived(self) -> bool:
        return self._future.done()

    def wait(self) -> None:
        vars(self).update(vars(self._future.result()))


class QueuedRunner(Runner):
    """Passes in a thread of their own, which alone gives the device work, one at a time.

    The first pass of a kind is over when `start` returns, so that lack of memory is known there.
    """

    def _open(self, device: torch.device) -> Branch:
        self._thread = ThreadPoolExecutor(1, 'passes')
        self._running: list[Future[Pass]] = []
        self._proven: set[tuple[Any, ...]] = set()   # kinds of passes that have run
        self._failed = False
        return super()._open(device)

    def start(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, features: bool,
              valid: Sequence[np.ndarray] | None = None,
              stamps: Sequence[np.ndarray] | None = None) -> Pass:
        """Copy the clips, and queue a pass over them."""
        wait(self._running)
        if self._failed:
            self.trim()
        begin = time.perf_counter()
        forward, slots, read = self._plan(keys, stamps)
        given = forward, slots, stamps, self._pixels(clips, read), features, begin
        future = self._thread.submit(self._try, *given)
        self._running = [future]
        kind = forward, len(clips), features
        if kind not in self._proven:
            future.result()
            self._proven.add(kind)
        return QueuedPass(future)

    @torch.inference_mode()
    def _try(self, *given: Any) -> Pass:
        try:
            return self._pass(*given)
        except BaseException as error:
            self._failed = True
            traceback.clear_frames(error.__traceback__)    # they keep what was allocated
            raise

    def apply(self, clips: Sequence[Clip], function: Work) -> np.ndarray:
        return self._thread.submit(super().apply, clips, function).result()

    def trim(self) -> None:
        wait(self._running)
        self._failed = False
        self._proven.clear()
        super().trim()

    def close(self) -> None:
        self._thread.shutdown()
        super().close()
