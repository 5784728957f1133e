# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Models of the self-test, and the execution paths they can take on a device.

Models without bundled weights get random ones under which an error anywhere in the network shows
in the features. With the start values of training, branches hardly change the residual stream, and
a wrong rotation of queries and keys would stay below the limits of low precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

from vjepa_ros.model.checkpoint.load import bundled_file
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import find_variant
from vjepa_ros.runtime.device import DeviceError, choose_device
from vjepa_ros.runtime.engine import EngineConfig
from vjepa_ros.runtime.forward.compilation import Toolchain

CANDIDATES = ('fp32', 'fp16', 'bf16', 'int8', 'fp8')
# Largest rms error of features relative to their rms in float32 on the CPU. Plain networks have
# errors below 0.002 in fp16 and 0.016 in bf16 (docs/notebook/numerics.md).
LIMITS = {'fp32': 1e-4, 'fp16': 4e-3, 'bf16': 0.03, 'fp8': 0.03, 'int8': 0.03}
SHARPNESS = 1.5     # of queries and keys, so that attention is far from uniform
BIAS, SPREAD = 0.1, 0.4
SEED = 3


@dataclass(frozen=True)
class Model:
    """A network, the shape of its clips, and its weights ('' for the bundled ones)."""

    size: str = 'tiny'
    version: str = 'auto'
    num_frames: int = EngineConfig.num_frames
    image_size: int = EngineConfig.image_size
    weights: str = ''

    @property
    def name(self) -> str:
        """Size, version and clip in words."""
        return f'{self.size} {self.version}, {self.num_frames} x {self.image_size} px'


# Bundled weights at their own size, which the limits of heads are for, and random ones.
USUAL = (Model(), Model('tiny', '2.0', 4, 96))
# Another head width, a grid unseen in pretraining, and the size for robots with a GPU.
FULL = (*USUAL, Model('large', '2.0', 16, 256), Model('huge', '2.0', 4, 64),
        Model('base', '2.1', 4, 224))


@dataclass(frozen=True)
class ExecutionPath:
    """One way to run a model: a precision, and whether ``torch.compile`` is used."""

    precision: str
    compile: str = 'off'

    @property
    def name(self) -> str:
        """Precision and compilation in words."""
        return f'{self.precision}, compile {self.compile}'

    def config(self, model: Model, device: str) -> EngineConfig:
        """Return the configuration to load."""
        return EngineConfig(
            model_size=model.size, model_version=model.version, num_frames=model.num_frames,
            image_size=model.image_size, weights=model.weights, device=device,
            precision=self.precision, require_device=True, compile=self.compile)


def find_paths(device: str, compiled: str = 'auto') -> tuple[list[ExecutionPath], dict[str, str]]:
    """Return the paths to test on a device, and why others are left out."""
    left_out: dict[str, str] = {}
    precisions = []
    for precision in CANDIDATES:
        try:
            choose_device(device, True, precision)
        except DeviceError as error:
            left_out[precision] = str(error)
        else:
            precisions.append(precision)
    paths = [ExecutionPath(precision, 'off') for precision in precisions]
    if compiled == 'off':
        left_out['compile'] = 'left out by --compile off'
    elif compiled == 'auto' and not device.startswith('cuda'):
        left_out['compile'] = 'used on this device on request only; test it with --compile on'
    elif why := compile_problem(device):
        left_out['compile'] = why
    else:
        paths += [ExecutionPath(precision, 'on') for precision in _compiled(device, precisions)]
    return paths, left_out


def compile_problem(device: str) -> str:
    """Return why ``torch.compile`` cannot work for a device here; '' when it can."""
    if device == 'mps':
        return 'is not used on MPS'
    lacks = ' and '.join(Toolchain.here().missing(device.partition(':')[0]))
    return f'needs {lacks}, which this machine lacks' if lacks else ''


def _compiled(device: str, precisions: Sequence[str]) -> list[str]:
    """Return the precisions to compile for: the automatic choice; fp8 is never compiled."""
    return [p for p in precisions if p == choose_device(device, True, 'auto').precision]


def limits(precision: str) -> Mapping[str, float]:
    """Return the largest allowed errors of a precision by name of the check."""
    most = LIMITS[precision]
    return {
        'features': most,
        'worst token': 4 * most,        # one wrong token among thousands hardly moves the mean
        'heads': 4 * most,              # probabilities, absolute, and looming relative to its rms
        'repeated': 0.1 * most,         # the same clip again, after another
        'kept': 0.0,                    # a result must not change when the next one is made
        'together': most}               # two clips in one pass against each alone


def weights_of(model: Model, folder: Path) -> str:
    """Return the weights file of a model: '' for bundled weights, else one made in `folder`."""
    if bundled_file(model.size, model.version):
        return ''
    path = folder / f'{model.size}_{model.version}.safetensors'
    if not path.is_file():
        save_file(lively(model).state_dict(), path)
    return str(path)


@torch.no_grad()
def lively(model: Model) -> Encoder:
    """Make an encoder whose branches are as large as its residual stream, always the same."""
    with torch.device('meta'):
        encoder = Encoder(find_variant(model.size), model.version)
    encoder.to_empty(device='cpu').requires_grad_(False)
    generator = torch.Generator().manual_seed(SEED)
    for name, values in encoder.named_parameters():
        if values.dim() == 1 or 'mod_embed' in name:
            values.normal_(0, BIAS, generator=generator)
        else:
            values.normal_(0, values[0].numel() ** -0.5, generator=generator)
        if name.endswith('qkv.weight'):
            values[:2 * encoder.variant.dim] *= SHARPNESS
    for part in encoder.modules():
        if isinstance(part, nn.LayerNorm):
            part.weight.mul_(SPREAD / BIAS).exp_()
    return encoder
