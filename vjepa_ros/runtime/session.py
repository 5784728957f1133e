# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run an encoder and its heads on clips of images."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.encoder import Encoder, pooled
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import PATCH, TUBELET
from vjepa_ros.runtime.cuda.frame_upload import Clip, DeviceClip, Keys
from vjepa_ros.runtime.cuda.graph_replay import Fork, MOST_GRAPHS
from vjepa_ros.runtime.cuda.runner import CudaRunner
from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.forward.base import (
    FUSED,
    Forward,
    Normalise,
    PLAIN,
    Work,
    closed,
)
from vjepa_ros.runtime.forward.compilation import (
    Toolchain,
    allow_shapes,
    choose_compile,
    compile_blocks,
)
from vjepa_ros.runtime.forward.fused_step import prepare_step
from vjepa_ros.runtime.forward.select import prepare
from vjepa_ros.runtime.host_runner import HostRunner
from vjepa_ros.runtime.memory import (
    OutOfMemory,
    Parts,
    SMALLER,
    is_out_of_memory,
    release_memory,
)
from vjepa_ros.runtime.noise_floor import Change
from vjepa_ros.runtime.outputs import Flight, Landed, Output, Pending, reading, unpack
from vjepa_ros.runtime.queued_runner import QueuedRunner
from vjepa_ros.runtime.streaming import StreamEncoder, why_not

__all__ = ['EncoderSession', 'NotFinite', 'SessionError']

UNCALIBRATED = Calibration()
Item = TypeVar('Item')
# Clips of a pass, and their keys, valid patches and stamps, see `EncoderSession.run`.
Given = tuple[Sequence[Clip], Sequence[Keys] | None, Sequence[np.ndarray] | None,
              Sequence[np.ndarray] | None]
PER = ('grid', 'tubelet', 'clip')  # what a feature vector may stand for


class NotFinite(SessionError):
    """The model computes values that are not finite."""


class EncoderSession:
    """An encoder on its device, fed with uint8 clips of one fixed shape.

    All methods may be called from any thread; passes are queued one after the other.

    Parameters
    ----------
    encoder : Encoder
        Moved to the device and precision of `choice`; owned by the session from then on.
    choice : DeviceChoice
        Device and precision.
    num_frames, image_size : int
        Frames per clip and pixels per side of a frame.
    heads : Heads, optional
        Moved to the device in float32; owned by the session from then on, see also `Heads.fix`.
    calibration : Calibration
        Of the heads. It is applied here and nowhere else.
    compile : str
        Whether torch.compile is used: 'off', 'auto' or 'on', see `choose_compile`.

    Raises
    ------
    SessionError
        When the device has no room for the weights, `compile` is 'on' and impossible, or fp8
        does not run here.

    Attributes
    ----------
    timings : dict of str to float
        Milliseconds of the stages upload, encode, download and, where they ran, heads of the
        last `encode`, `run`, `Pending.early` or `Pending.result`; on CUDA by events of the
        device, with the time in which the host handed the frames over in `upload`, and with the
        change of the features in `heads`, or without heads in `change`.
    not_streaming : str
        Why clips are encoded as a whole; '' where each tubelet is encoded once.

    """

    def __init__(self, encoder: Encoder, choice: DeviceChoice, num_frames: int, image_size: int,
                 heads: Heads | None = None, calibration: Calibration = UNCALIBRATED,
                 compile: str = 'off'):
        self.choice = choice
        self.clip_shape = (num_frames, image_size, image_size, 3)
        self.timings: dict[str, float] = {}
        self._lock = threading.Lock()
        encoder.set_branch_precision(choice.branches)
        try:
            self._encoder: Encoder | None = encoder.to(choice.device).eval()
            self._heads = None if heads is None else heads.to(choice.device).eval().fix()
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            for part in filter(None, (encoder, heads)):
                part.cpu()  # what did fit
            release_memory(choice.device)
            raise OutOfMemory(f'the weights do not fit into the memory of {choice.device}; '
                              f'{SMALLER}') from error
        self._specs = () if heads is None else heads.specs
        forward = prepare(encoder, choice, Normalise(choice.device), self.clip_shape,
                          fuse=compile != 'on')
        self._normalise: Callable[[Tensor], Tensor] = forward.normalise
        self._kind, self._note, self._own_bytes = forward.kind, forward.note, forward.nbytes
        read = None if heads is None else reading(heads, calibration, Fork(choice.device))
        self._stream: StreamEncoder | None = None
        self._step_kind = PLAIN
        self.not_streaming = "'streaming' is off"
        self._runner = _runner(forward, read, choice.device, self.clip_shape)
        self._parts = Parts(choice, self.clip_shape, self._runner.trim)
        try:
            self._not_compiled = self._compile(compile, encoder)
        except BaseException:
            self.close()
            raise

    @property
    def execution(self) -> str:
        """How passes run: eager, compiled, fused or steps; with graph if captured."""
        kind = self._kind if self._stream is None else self._step_kind
        kind = kind if self._not_compiled else 'compiled'
        words = ([] if kind == PLAIN else [kind]) + (['graph'] if self._runner.captured else [])
        return ' '.join(words) or 'eager'

    @property
    def execution_reason(self) -> str:
        """Why there are no graphs or compiled kernels, and how much is in float8 or int8; ''."""
        return '; '.join(filter(None, (self._runner.reason, self._not_compiled, self._note)))

    def warm(self, clips: int = 1, change: bool = False) -> None:
        """Run passes of up to `clips` clips, so that none is slow later; may raise NotFinite.

        With `change` as passes with `valid` run, see `run`.

        Where passes are CUDA graphs, every number of clips is captured, the largest first;
        elsewhere one clip alone is run.
        """
        grey = np.random.default_rng(0).integers(0, 256, self.clip_shape, dtype=np.uint8)
        everything = np.ones((self.clip_shape[1] // PATCH, self.clip_shape[2] // PATCH), bool)
        least = max(clips - MOST_GRAPHS, 0)
        finite = True
        for count in range(clips, least, -1) if self._runner.captured else (1,):
            given = [grey] * count
            valid = [everything] * count if change else None
            finite = self.run(given, valid=valid)[0].finite
            if self._stream is not None:    # as a whole, then a step
                keys = [[(n, at) for at in range(len(grey))] for n in range(count)]
                stamps = [np.arange(len(grey), dtype=np.float64)] * count
                for _ in range(2):
                    finite &= self.run(given, True, keys, valid, stamps)[0].finite
        self.forget()
        if not finite:
            raise self._not_finite()

    def encode(self, clips: Sequence[Clip]) -> list[np.ndarray]:
        """Compute features of clips, see `run`; the heads do not run."""
        return [_present(output.features)
                for output in self._sound(self._submit(clips, None, True, False).result())]

    def run(self, clips: Sequence[Clip], features: bool = True,
            keys: Sequence[Keys] | None = None,
            valid: Sequence[np.ndarray] | None = None,
            stamps: Sequence[np.ndarray] | None = None) -> list[Output]:
        """Compute features and heads of clips in one forward pass.

        Parameters
        ----------
        clips : sequence of clips
            Each (num_frames, image_size, image_size, 3) uint8 RGB, oldest frame first, as one
            array, as a list of frames (only those that must be uploaded are read), or as a
            `DeviceClip` of that shape.
        features : bool
            Whether to download the features.
        keys : sequence of sequence of hashable, optional
            For each clip the identity of each of its frames; None for a frame that never comes
            again. Frames with the same key must be equal. A frame that is still on a GPU is not
            uploaded again; on the CPU keys have no effect.
        valid : sequence of ndarray, optional
            For each clip (Hp, Wp) bool, patches that show the image. On CUDA the change of the
            features is then computed as well; elsewhere this has no effect.
        stamps : sequence of ndarray, optional
            For each clip (num_frames,) float64, when its frames were taken, in frame intervals
            since a moment that is always the same for a camera. A session that streams then
            encodes only the newest tubelet of a clip whose others it remembers, see `remembered`;
            it needs keys for that. Elsewhere this has no effect.

        Returns
        -------
        list of Output
            For each clip; features (num_frames/2, image_size/16, image_size/16, D) float32.

        Raises
        ------
        ValueError
            For a clip of another shape or type, or another number of keys or stamps than frames.
        SessionError
            If the session is closed, or the device has no memory for a single clip. If it has
            none for all of them, they run in several passes, and so do later ones.

        Notes
        -----
        A clip for which the model computes a value that is not finite gets an `Output` that says
        so and has nothing else, and what streams remember of it is forgotten. `encode` and
        `features` raise NotFinite for it.

        """
        return self.submit(clips, features, keys, valid, stamps).result()

    def submit(self, clips: Sequence[Clip], features: bool = True,
               keys: Sequence[Keys] | None = None,
               valid: Sequence[np.ndarray] | None = None,
               stamps: Sequence[np.ndarray] | None = None) -> Pending:
        """Start a pass and return a handle on its results, see `run`.

        On a GPU this returns when the clips are copied and their pass is queued, so that one pass
        is prepared while another computes; with two under way it waits for the older one. On the
        CPU the pass is over when this returns. The clips may then be changed. Arguments and
        errors are those of `run`; later errors of the device are raised by `Pending.result`.
        """
        return self._submit(clips, keys, features, self._heads is not None, valid, stamps)

    def stream(self) -> None:
        """Encode each tubelet once from now on, if possible; else `not_streaming` says why not."""
        with self._lock:
            assert self._encoder is not None
            frames, side = self.clip_shape[:2]
            self.not_streaming = why_not(self._encoder, frames)
            if not self._not_compiled:
                self.not_streaming = 'torch.compile is used'
            if self.not_streaming:
                return
            try:
                step = prepare_step(self._encoder, self.choice, self._normalise, side)
                self._step_kind = self._kind if step is None else FUSED
                self._stream = StreamEncoder(self._encoder, self._normalise, side,
                                             isinstance(self._runner, HostRunner), step)
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
                raise OutOfMemory(f'what a stream remembers does not fit into the memory of '
                                  f'{self.choice.device}; {SMALLER}') from error
            self._runner.stream = self._stream

    def forget(self) -> None:
        """Forget all tubelets."""
        with self._lock:
            if self._stream is not None:
                self._stream.forget()

    def keep(self, frames: Set[Hashable]) -> None:
        """Forget the tubelets that end in no frame of these, which cameras still hold.

        On MPS all other frames are forgotten, too.
        """
        with self._lock:
            self._runner.keep(frames)

    @property
    def stream_reach(self) -> int:
        """See `StreamEncoder.reach`; 0 where clips are encoded as a whole."""
        return 0 if self._stream is None else self._stream.reach

    def remembered(self) -> Set[Hashable]:
        """Return the frames in which tubelets end that need not be encoded again."""
        return frozenset() if self._stream is None else self._stream.remembered

    def features(self, clips: Sequence[Clip], layers: Sequence[int] | None = None,
                 levels: int = 0, per: str = 'grid', newest: int = 0,
                 stamps: Sequence[np.ndarray] | None = None) -> list[np.ndarray]:
        """Compute features of clips from any depth, as grids or pooled."""
        check_wanted(layers, levels, per)
        if not 0 <= newest <= self.clip_shape[0] // TUBELET:
            raise ValueError(f'features of the newest {newest} tubelets are asked for; a clip has '
                             f'{self.clip_shape[0] // TUBELET}')
        with self._lock:
            encoder = self._ready(clips, None)
            times = None
            if stamps is not None and encoder.window:
                _check_stamps(stamps, len(clips), self.clip_shape[0])
                times = encoder.times(torch.from_numpy(np.stack(stamps)))[:, -newest:]
            look = partial(deep_features, encoder, self._normalise, layers, levels, per, newest)
            parts = self._parts.run(len(clips), lambda part: self._runner.apply(
                clips[part], look(None if times is None else times[part])))
        found = [array for part in parts for array in part]
        if not all(np.isfinite(array).all() for array in found):
            raise self._not_finite()
        return found

    def memory_bytes(self) -> int:
        """Return the bytes of weights and of what streams remember (0 if closed).

        On CUDA of frames, buffers and graphs as well.
        """
        # No lock: diagnostics ask while an inference holds it.
        parts = [part for part in (self._encoder, self._heads) if part is not None]
        weights = sum(p.numel() * p.element_size() for part in parts for p in part.parameters())
        remembered = 0 if self._stream is None else self._stream.nbytes
        return weights + self._runner.nbytes + remembered + (self._own_bytes if parts else 0)

    def close(self) -> None:
        """Wait for a running call, then free the memory. May be called twice.

        Results of clips that were submitted before stay available.
        """
        with self._lock:
            if self._encoder is None:
                return
            self._encoder = self._heads = self._stream = None
            self._normalise = closed
            self._runner.close()
        release_memory(self.choice.device)

    def _compile(self, wanted: str, encoder: Encoder) -> str:
        """Compile the encoder, if so decided; '' or why not."""
        instead = ('kernels' if self._kind != PLAIN else 'streams' if encoder.window else '')
        choice = choose_compile(wanted, self.choice.device.type, instead, Toolchain.here())
        grey = [np.full(self.clip_shape, 128, np.uint8)]

        def trial() -> None:
            self._parts.run(1, lambda part: self._runner.start(grey[part], None, False, False))

        return compile_blocks(encoder.blocks, choice, wanted == 'on', trial)

    def _submit(self, clips: Sequence[Clip], keys: Sequence[Keys] | None, features: bool,
                heads: bool, valid: Sequence[np.ndarray] | None = None,
                stamps: Sequence[np.ndarray] | None = None) -> Pending:
        with self._lock:
            self._ready(clips, keys)
            passes: list[Given] = [(clips, keys, valid, stamps)]
            order: list[int] = []
            if self._stream is not None and keys is not None and stamps is not None:
                _check_stamps(stamps, len(clips), self.clip_shape[0])
                groups = self._stream.groups(keys)
                if len(groups) > 1:
                    passes = [([clips[at] for at in group], _chosen(keys, group),
                               _chosen(valid, group), _chosen(stamps, group))
                              for group in groups]
                    order = [at for group in groups for at in group]
            flights: list[Flight] = []
            try:
                for given in passes:
                    flights += self._parts.run(len(given[0]),
                                               partial(self._start, features, heads, given))
            except BaseException:
                if self._stream is not None:
                    self._stream.forget()       # what was to be remembered is not
                raise
        told = iter(key for given in passes for key in given[1] or ())
        return Pending(flights, partial(self._outputs, told), self._report, order)

    def _start(self, features: bool, heads: bool, given: Given, part: slice) -> Flight:
        clips, keys, valid, stamps = given
        return self._runner.start(
            clips[part], None if keys is None else keys[part], features, heads,
            None if valid is None else valid[part], None if stamps is None else stamps[part])

    def _ready(self, clips: Sequence[Clip], keys: Sequence[Keys] | None) -> Encoder:
        """Return the encoder; refuse clips that it cannot encode."""
        check_clips(clips, keys, self.clip_shape)
        if self._encoder is None:
            raise SessionError('the encoder session is closed')
        if not self._not_compiled:
            allow_shapes()
        return self._encoder

    def _outputs(self, keys: Iterator[Keys], landed: Landed) -> list[Output]:
        """Return the outputs of a pass, of whose clips come the next keys, if they have any."""
        side = self.clip_shape[1] // PATCH
        features, packed = landed.features, landed.packed
        finite = np.isfinite(packed[:, -1]).tolist()
        nothing = [None] * landed.clips
        said = nothing if packed.shape[1] == 1 else unpack(packed, side, side, self._specs)
        brought = nothing if features is None else list(features)
        changed = nothing if landed.change is None else map(Change.unpack, landed.change)
        outputs = [Output(*each, landed.arrival) if sound else Output(finite=False)
                   for sound, each in zip(finite, zip(brought, said, changed, strict=True),
                                          strict=True)]
        broken = [key for sound, key in zip(finite, keys, strict=False) if not sound]
        if broken:
            with self._lock:
                if self._stream is not None:
                    self._stream.drop(broken)   # later tubelets would attend to them
        return outputs

    def _sound(self, outputs: list[Output]) -> list[Output]:
        if not all(output.finite for output in outputs):
            raise self._not_finite()
        return outputs

    def _not_finite(self) -> NotFinite:
        remedy = ('set `weights` to another file' if self.choice.dtype == torch.float32 else
                  'set `precision: fp32`')
        return NotFinite(f'{not_finite(self.choice)}; {remedy}')

    def _report(self, timings: dict[str, float]) -> None:
        self.timings = timings


def not_finite(choice: DeviceChoice) -> str:
    """Say that a model which runs so computes values that are not finite."""
    return (f'the model computes values that are not finite on {choice.device} in '
            f'{choice.precision}')


def _runner(forward: Forward, read: Work | None, device: torch.device, shape: tuple[int, ...]
            ) -> CudaRunner | HostRunner:
    if device.type == 'cuda':
        return CudaRunner(forward, read, device, shape)
    return (QueuedRunner if device.type == 'mps' else HostRunner)(forward, read, device)


def check_clips(clips: Sequence[Clip], keys: Sequence[Keys] | None,
                shape: tuple[int, ...]) -> None:
    """Raise ValueError for a clip of another shape or type, or another number of keys."""
    for clip in clips:
        forms = ({(clip.dtype, clip.shape)} if isinstance(clip, np.ndarray | DeviceClip)
                 else {(frame.dtype, (len(clip), *frame.shape)) for frame in clip})
        if forms != {(np.dtype(np.uint8), shape)}:
            found = ' and '.join(f'{kind} {size}' for kind, size in sorted(forms, key=str))
            raise ValueError(f"a clip is {found or 'empty'}, expected uint8 {shape}")
    if keys is not None and [len(each) for each in keys] != [shape[0]] * len(clips):
        raise ValueError(f'there are keys for {[len(each) for each in keys]} frames, expected '
                         f'{shape[0]} for each of {len(clips)} clips')


def _check_stamps(stamps: Sequence[np.ndarray], clips: int, frames: int) -> None:
    shapes = [np.shape(each) for each in stamps]
    if shapes != [(frames,)] * clips:
        raise ValueError(f'stamps have the shapes {shapes}, expected {(frames,)} for each of '
                         f'{clips} clips')
    # NaN is not above anything.
    if not all((each[1::TUBELET] > each[::TUBELET]).all() for each in stamps):
        raise ValueError('stamps do not rise within each tubelet; leave out clips in which a '
                         'frame goes with itself')


def _chosen(values: Sequence[Item] | None, places: Sequence[int]) -> list[Item] | None:
    return None if values is None else [values[place] for place in places]


def _present(features: np.ndarray | None) -> np.ndarray:
    assert features is not None     # they were asked for
    return features


def check_wanted(layers: Sequence[int] | None, levels: int, per: str) -> None:
    """Raise ValueError for what no encoder has, see `EncoderSession.features`."""
    if layers is not None and (levels or not len(layers)):
        raise ValueError(f'features of the layers {tuple(layers)} and of {levels} levels are '
                         'asked for; choose some layers or levels')
    if per not in PER:
        raise ValueError(f"features per '{per}' are asked for; choose {', '.join(PER)}")


def deep_features(encoder: Encoder, normalise: Callable[[Tensor], Tensor],
                  layers: Sequence[int] | None, levels: int, per: str, newest: int = 0,
                  times: Tensor | None = None) -> Callable[[Tensor], Tensor]:
    """Make the function from uint8 pixels (B, T, S, S, 3) to `EncoderSession.features`."""

    def look(pixels: Tensor) -> Tensor:
        clip = normalise(pixels[:, -TUBELET * newest:])
        when = None if times is None else times.to(pixels.device)
        if layers is not None:
            found = encoder.layers(clip, layers, times=when)
        else:
            found = (encoder.dense(clip, levels, times=when) if levels
                     else encoder(clip, times=when),)
        if per != 'grid':
            found = tuple(pooled(one, per == 'tubelet') for one in found)
        return found[0] if layers is None else torch.stack(found, dim=1)

    return look
