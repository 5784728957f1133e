# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a benchmark measures: a model, its input, and where it runs."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from safetensors.torch import save_file

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.encoder import VERSIONS
from vjepa_ros.model.variants import PATCH, TUBELET, VARIANTS, find_variant

TORCH, ONNX = 'torch', 'onnx'
NO_ONNX = ("engine is 'onnx', but the engine runs torch alone: onnxruntime was slower on a CPU "
           'without bf16 instructions, and on one with them 5 to 8 % faster in fp32, where bf16 '
           'is faster still; docs/notebook/cpu.md has the figures')
ABOUT = {
    'model_size': f'one of {", ".join(VARIANTS)}', 'model_version': ' or '.join(VERSIONS),
    'num_frames': 'frames in a clip', 'image_size': 'side of a frame in pixels',
    'cameras': 'clips in one forward pass', 'device': 'auto, cpu, cuda, cuda:N or mps',
    'precision': 'auto, fp32, fp16, bf16, fp8 or int8, as far as the device has it',
    'compile': "off, auto or on: whether torch.compile is used (default: the engine's)",
    'engine': 'what runs the model: torch; onnx was measured and is refused, with the reason',
    'weights': "checkpoint; 'random' for none (default: the package's, else random)",
    'cpu_threads': 'threads of PyTorch on the CPU; 0 leaves them as they are',
    'saved_weights': 'save random weights to a temporary file and load that: the start is then '
                     'that of a model with weights',
    'source': 'width and height of the images, such as 1280x720',
    'geometry': 'where frames are resized and looming is measured: auto, host or device'}


@dataclass(frozen=True)
class Case:
    """One configuration to measure; `ABOUT` explains the fields, each an option.

    Sizes without weights run with random ones: speed does not depend on them. Raises ValueError
    for an unknown size or engine and for less than one camera.
    """

    model_size: str = 'tiny'
    model_version: str = '2.0'
    num_frames: int = 8
    image_size: int = 192
    cameras: int = 1
    device: str = 'auto'
    precision: str = 'auto'
    compile: str = ''
    engine: str = TORCH
    weights: str = ''
    cpu_threads: int = 0
    saved_weights: bool = False
    source: tuple[int, int] = (640, 480)
    geometry: str = 'auto'

    def __post_init__(self) -> None:
        find_variant(self.model_size)
        if self.cameras < 1:
            raise ValueError(f'cameras is {self.cameras}, but must be at least 1')
        if self.engine != TORCH:
            raise ValueError(NO_ONNX if self.engine == ONNX else
                             f"engine is '{self.engine}', but must be {TORCH}")

    @property
    def tokens(self) -> int:
        """Tokens of one clip."""
        return self.num_frames // TUBELET * (self.image_size // PATCH) ** 2

    def engine_options(self) -> dict[str, Any]:
        """Arguments of `EngineConfig`."""
        options: dict[str, Any] = {name: getattr(self, name) for name in (
            'model_size', 'model_version', 'num_frames', 'image_size', 'device', 'precision',
            'weights', 'cpu_threads')}
        # A fallback to the CPU would be measured as if it were the device.
        options.update(allow_random_weights=True, require_device=True)
        return {**options, 'compile': self.compile} if self.compile else options


def option(name: str) -> str:
    """The option that sets a field."""
    return '--' + name.replace('_', '-')


def add_options(parser: argparse.ArgumentParser, without: Sequence[str] = ()) -> None:
    """Add the options of a case to a command line."""
    for name in (f.name for f in fields(Case) if f.name not in without):
        value = getattr(Case, name)
        if value is False:
            parser.add_argument(option(name), action='store_true', help=ABOUT[name])
            continue
        kind = image_size if name == 'source' else type(value)
        shown = 'x'.join(map(str, value)) if name == 'source' else value
        tail = '' if name in ('compile', 'weights') else f' (default: {shown})'
        parser.add_argument(option(name), type=kind, default=value, metavar='VALUE',
                            help=ABOUT[name] + tail)


def case_of(args: argparse.Namespace) -> Case:
    """The case that a command line names; ValueError for one that cannot be."""
    return Case(**{f.name: getattr(args, f.name) for f in fields(Case) if hasattr(args, f.name)})


def image_size(text: str) -> tuple[int, int]:
    """Width and height [px] of a word such as 1280x720, for argparse."""
    match = re.fullmatch(r'(\d+)x(\d+)', text)
    if match is None or min(int(match[1]), int(match[2])) < PATCH:
        raise argparse.ArgumentTypeError(f"'{text}' is no width and height such as 1280x720, "
                                         f'each at least {PATCH}')
    return int(match[1]), int(match[2])


@contextmanager
def loadable(case: Case) -> Iterator[Case]:
    """The case, with its random weights in a file as long as the block lasts when it says so."""
    if not case.saved_weights:
        yield case
        return
    encoder, _ = load_encoder(case.model_size, case.model_version, 'random', True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / 'random.safetensors'
        save_file(encoder.state_dict(), path)
        del encoder
        yield replace(case, weights=str(path))
