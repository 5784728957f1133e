# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write encoder and heads as one ONNX graph, and check it with onnxruntime.

B clips, T frames, T' tubelets, Hp x Wp patches, P of them, D width, S pixels per side. In a stream
W tubelets, L layers, H heads of attention, C channels of a head.
"""

from __future__ import annotations

import importlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder, Normalise
from vjepa_ros.model.head_specs import Calibration, array_names, to_arrays
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.rope import rotate
from vjepa_ros.model.variants import PATCH
from vjepa_ros.runtime.streaming import why_not

OPSET = 18
TOLERANCE = 1e-4    # of the largest value of an output
MOST_BYTES = 2e9    # of a file; the weights of larger networks lie beside it
PIXELS, FEATURES = 'pixels', 'features'
NEEDED = ('onnx', 'onnxscript', 'onnxruntime')


class ExportError(RuntimeError):
    """A graph cannot be written, or does not compute what the model does."""


@dataclass(frozen=True)
class Exported:
    """A graph that was written and checked."""

    files: tuple[Path, ...]  # the graph, and where it is larger than 2 GB its weights
    opset: int  # version of the operators
    inputs: dict[str, tuple[int, ...]]  # shapes
    outputs: dict[str, tuple[int, ...]]
    errors: dict[str, float]  # deviation of each output from PyTorch, see `deviation`


class Graph(nn.Module):
    """What is exported: features and calibrated outputs of the heads, in float32 on the CPU."""

    def __init__(self, encoder: Encoder, heads: Heads | None = None,
                 calibration: Calibration | None = None):
        super().__init__()
        self.encoder, self.heads = encoder, heads
        self.calibration = calibration or Calibration()
        self._clip = Normalise(torch.device('cpu'))

    @property
    def names(self) -> tuple[str, ...]:
        return (FEATURES, *array_names(() if self.heads is None else self.heads.specs))

    def noise(self, frames: int, size: int, clips: int) -> dict[str, Tensor]:
        """Make an input of `forward`, by name, for clips of T frames of S pixels."""
        return {PIXELS: torch.from_numpy(np.random.default_rng(0).integers(
            0, 256, (clips, frames, size, size, 3), dtype=np.uint8))}

    def _answers(self, features: Tensor) -> Sequence[Tensor]:
        if self.heads is None:
            return ()
        return [*to_arrays(self.calibration.apply(self.heads(features))).values()]


class ClipGraph(Graph):
    """Pixels of clips to features and head arrays."""

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        features = self.encoder(self._clip(pixels))
        return features, *self._answers(features)


class StreamGraph(Graph):
    """One step of a stream: the newest tubelet, and what is remembered of those before it.

    Keys are remembered as of time zero and turned by their age: no number grows with the stream.
    """

    @property
    def names(self) -> tuple[str, ...]:
        return *super().names, 'memory'

    def noise(self, frames: int, size: int, clips: int) -> dict[str, Tensor]:
        """Make an input of `forward`, see `Graph.noise`; ExportError where none streams."""
        encoder, side = self.encoder, size // PATCH
        problem = why_not(encoder, frames)
        if problem:
            raise ExportError(f'these weights cannot stream: {problem}')
        past, variant = encoder.window - 1, encoder.variant
        random = torch.Generator().manual_seed(0)

        def normal(*shape: int) -> Tensor:
            return torch.randn(clips, *shape, generator=random)

        ages = (normal(past).abs() + 0.1).cumsum(1).flip(1)
        return {**super().noise(encoder.step_frames, size, clips),
                'interval': 0.07 * normal().exp(), 'ages': ages,
                'known': normal(past) < 1,
                'past_features': normal(past, side, side, variant.dim),
                'past_memory': normal(past, variant.depth, 2, variant.heads, side ** 2,
                                      variant.head_dim)}

    def forward(self, pixels: Tensor, interval: Tensor, ages: Tensor, known: Tensor,
                past_features: Tensor, past_memory: Tensor) -> tuple[Tensor, ...]:
        """Compute features, head arrays and new memory; docs/export.md has the inputs."""
        # The first tubelet is told its interval twice.
        ends = -torch.where(known, ages, interval[:, None])
        ends = torch.cat((ends, torch.zeros_like(ages[:, :1])), 1)
        times = self.encoder.times(torch.stack((ends - interval[:, None], ends), 2).flatten(1))
        cos, sin = times[:, :-1, None, None, None, :-2].chunk(2, -1)    # B W-1 1 1 1 w
        keys, values = past_memory.unbind(3)                            # B W-1 L H P C
        turning, still = keys.split((cos.shape[-1], keys.shape[-1] - cos.shape[-1]), -1)
        keys = torch.cat((rotate(turning, cos, sin), still), -1)
        keys, values = (each.permute(2, 0, 3, 1, 4, 5).flatten(3, 4) for each in (keys, values))
        memory = [LayerMemory([layer]) for layer in zip(keys, values, strict=True)]
        here = torch.ones_like(known[:, :1])
        allowed = torch.cat((known, here), 1).repeat_interleave(past_memory.shape[5], 1)
        features = self.encoder.step(self._clip(pixels), times[:, -1:], memory,
                                     allowed[:, None, None])
        own = torch.stack([torch.stack(layer.own or (), 1) for layer in memory], 1)
        return (features, *self._answers(torch.cat((past_features, features), 1)),
                own[:, None])


def export(graph: Graph, path: Path, frames: int, size: int, clips: int = 1) -> Exported:
    """Write a graph for one shape of clips, checked on noise."""
    runtime = packages()['onnxruntime']
    graph.eval()
    given = graph.noise(frames, size, clips)
    path.parent.mkdir(parents=True, exist_ok=True)
    # A large graph names the file of its weights, so it is made under its final name.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, torch.no_grad():
        draft = Path(folder) / path.name
        # Before the export: it also makes the position tables, which cannot be traced.
        expected = graph(*given.values())
        with _quiet():
            torch.onnx.export(
                graph, tuple(given.values()), str(draft), dynamo=True, opset_version=OPSET,
                input_names=list(given), output_names=list(graph.names),
                external_data=4 * sum(p.numel() for p in graph.parameters()) > MOST_BYTES)
        session = runtime.InferenceSession(str(draft), providers=['CPUExecutionProvider'])
        found = session.run(None, {name: value.numpy() for name, value in given.items()})
        errors = {name: deviation(got, wanted.numpy()) for name, got, wanted
                  in zip(graph.names, found, expected, strict=True)}
        check(errors)
        shapes = _shapes(session.get_inputs()), _shapes(session.get_outputs())
        del session
        files = tuple(one.replace(path.parent / one.name)
                      for one in sorted(Path(folder).iterdir()))
    return Exported(files, OPSET, *shapes, errors)


def packages() -> dict[str, ModuleType]:
    """Import the packages that exporting needs; ExportError with the remedy without them."""
    if 'external_data' not in signature(torch.onnx.export).parameters:
        raise ExportError(f'PyTorch {torch.__version__} is too old for the export; install 2.6 or '
                          'newer')
    found, missing = {}, []
    for name in NEEDED:
        try:
            found[name] = importlib.import_module(name)
        except ImportError:
            missing.append(name)
    if missing:
        raise ExportError(f'{" and ".join(missing)} cannot be imported; install what the export '
                          f'needs: pip install {" ".join(NEEDED)}')
    return found


def deviation(got: np.ndarray, wanted: np.ndarray) -> float:
    """Return the largest difference over the largest value; inf if one is not finite."""
    gap = np.abs(got - wanted).max() / max(np.abs(wanted).max(), 1e-30)
    return float(gap) if np.isfinite(gap) else float('inf')


def check(errors: dict[str, float]) -> None:
    """Raise ExportError when an output deviates by more than `TOLERANCE`."""
    wrong = [f'{name} by {error:.1e}' for name, error in errors.items() if error > TOLERANCE]
    if wrong:
        raise ExportError(f'onnxruntime deviates from PyTorch in {", ".join(wrong)} of the '
                          f'largest value, more than {TOLERANCE:.0e}; nothing was written')


def _shapes(values: Sequence[Any]) -> dict[str, tuple[int, ...]]:
    return {value.name: tuple(value.shape) for value in values}


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress and the advice that the exporter of PyTorch prints."""
    exporter = logging.getLogger('torch.onnx')
    level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), redirect_stdout(io.StringIO()):
            warnings.simplefilter('ignore')
            yield
    finally:
        exporter.setLevel(level)
