# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write encoder and heads as one ONNX graph, and check it with onnxruntime.

B clips, T frames, T' tubelets, Hp x Wp patches, D width, S pixels per side.
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

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import Calibration, array_names, to_arrays
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD

OPSET = 18
TOLERANCE = 1e-4    # of the largest value of an output
MOST_BYTES = 2e9    # of a file; the weights of larger networks lie beside it
INPUT, FEATURES = 'pixels', 'features'
NEEDED = ('onnx', 'onnxscript', 'onnxruntime')


class ExportError(RuntimeError):
    """A graph cannot be written, or does not compute what the model does."""


@dataclass(frozen=True)
class Exported:
    """A graph that was written and checked.

    Attributes
    ----------
    files : tuple of Path
        The graph, and where it is larger than 2 GB the file with its weights.
    opset : int
        Version of the operators.
    inputs, outputs : dict of str to tuple of int
        Shapes by name.
    errors : dict of str to float
        Largest deviation of each output from PyTorch, relative to its largest value.

    """

    files: tuple[Path, ...]
    opset: int
    inputs: dict[str, tuple[int, ...]]
    outputs: dict[str, tuple[int, ...]]
    errors: dict[str, float]


class Graph(nn.Module):
    """What is exported: pixels to features and calibrated outputs of the heads, in float32.

    Parameters
    ----------
    encoder : Encoder
        In float32 on the CPU.
    heads : Heads, optional
        Likewise.
    calibration : Calibration
        Of the heads.

    """

    pixel_mean: Tensor
    pixel_gain: Tensor

    def __init__(self, encoder: Encoder, heads: Heads | None = None,
                 calibration: Calibration | None = None):
        super().__init__()
        self.encoder, self.heads = encoder, heads
        self.calibration = calibration or Calibration()
        # Buffers and outputs share the names of one graph.
        self.register_buffer('pixel_mean', 255.0 * torch.tensor(IMAGENET_MEAN))
        self.register_buffer('pixel_gain', 1 / (255.0 * torch.tensor(IMAGENET_STD)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return (FEATURES, *array_names(() if self.heads is None else self.heads.specs))

    def forward(self, pixels: Tensor) -> tuple[Tensor, ...]:
        """Compute features and head arrays of (B, T, S, S, 3) uint8 RGB."""
        clip = ((pixels.float() - self.pixel_mean) * self.pixel_gain).permute(0, 4, 1, 2, 3)
        features = self.encoder(clip)
        if self.heads is None:
            return (features,)
        return features, *to_arrays(self.calibration.apply(self.heads(features))).values()


def export(graph: Graph, path: Path, frames: int, size: int, clips: int = 1) -> Exported:
    """Write a graph for one shape of clips, checked on noise.

    Parameters
    ----------
    graph : Graph
        What to write.
    path : Path
        File to write; an old one is replaced, but only when the new one is right.
    frames, size, clips : int
        T, S and B.

    Raises
    ------
    ExportError
        When a package is missing, or an output deviates by more than `TOLERANCE`.

    """
    runtime = packages()['onnxruntime']
    graph.eval()
    pixels = torch.from_numpy(np.random.default_rng(0).integers(
        0, 256, (clips, frames, size, size, 3), dtype=np.uint8))
    path.parent.mkdir(parents=True, exist_ok=True)
    # A large graph names the file of its weights, so it is made under its final name.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, torch.no_grad():
        draft = Path(folder) / path.name
        # Before the export: it also makes the position tables, which cannot be traced.
        expected = graph(pixels)
        with _quiet():
            torch.onnx.export(
                graph, (pixels,), str(draft), dynamo=True, opset_version=OPSET,
                input_names=[INPUT], output_names=list(graph.names),
                external_data=4 * sum(p.numel() for p in graph.parameters()) > MOST_BYTES)
        session = runtime.InferenceSession(str(draft), providers=['CPUExecutionProvider'])
        found = session.run(None, {INPUT: pixels.numpy()})
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
                          f"needs: pip install 'vjepa_ros[export]', or pip install "
                          f'{" ".join(NEEDED)}')
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
