# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The baseline: V-JEPA 2 of the transformers library, as its users run it.

The network has the shape of the case and random weights. Clips are normalised and on the device
already, so that neither preprocessing nor transfer counts.
"""

from __future__ import annotations

from importlib.util import find_spec
from itertools import cycle
from typing import Any

import torch
from torch import nn

from vjepa_ros.cli.benchmark.case import Case
from vjepa_ros.cli.benchmark.clock import device_ms
from vjepa_ros.cli.benchmark.floor import random_patches
from vjepa_ros.model.variants import find_variant

INPUTS = 4
WARM_RUNS = {'eager': 2, 'compiled': 5}     # compiled: compile, record the graph, replay


def problem() -> str:
    """Why this baseline cannot be measured here; '' when it can."""
    if find_spec('transformers') is None:
        return ('--baseline hf needs the transformers library, which is not installed here: '
                'pip install transformers')
    return ''


def make_model(case: Case, device: torch.device, dtype: torch.dtype) -> nn.Module:
    """`VJEPA2Model` of the shape of a case on a device, with random weights."""
    from transformers.models.vjepa2 import VJEPA2Config, VJEPA2Model
    variant = find_variant(case.model_size)
    config = VJEPA2Config(
        crop_size=case.image_size, frames_per_clip=case.num_frames, hidden_size=variant.dim,
        num_hidden_layers=variant.depth, num_attention_heads=variant.heads,
        mlp_ratio=(variant.mlp + 0.5) / variant.dim,    # the library rounds down
        pred_num_hidden_layers=1)                       # the predictor does not run
    with torch.device('meta'):      # its own start values take long on the CPU
        model = VJEPA2Model(config)
    model = model.to(dtype).to_empty(device=device).eval()
    with torch.no_grad():
        for module in model.modules():
            for name, values in module.named_parameters(recurse=False):
                if isinstance(module, nn.LayerNorm):
                    values.fill_(1.0 if name == 'weight' else 0.0)
                else:
                    values.normal_(std=0.02)
    return model


class HuggingFace:
    """`VJEPA2Model` without its predictor, ready to run.

    Parameters
    ----------
    model
        From `make_model`; shared by several contenders.
    case, device, dtype
        As for `make_model`.
    compiled
        With ``torch.compile(mode='reduce-overhead')``, which also replays a CUDA graph.
    """

    def __init__(self, model: nn.Module, case: Case, device: torch.device, dtype: torch.dtype,
                 compiled: bool) -> None:
        self._device, self._compiled = device, compiled
        self._call: Any = torch.compile(model, mode='reduce-overhead') if compiled else model
        self._clips = cycle(random_patches(case, device, dtype, INPUTS))
        self._static = next(self._clips).clone()
        for _ in range(WARM_RUNS['compiled' if compiled else 'eager']):
            self.step()

    @torch.inference_mode()
    def step(self) -> dict[str, float]:
        """Run once; the time [ms] is called encode."""
        self._static.copy_(next(self._clips))
        if self._compiled:
            torch.compiler.cudagraph_mark_step_begin()
        return {'encode': device_ms(
            self._device, lambda: self._call(self._static, skip_predictor=True))}
