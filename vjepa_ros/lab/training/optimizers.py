# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What a trainer needs besides the network: optimiser, target encoder, precision."""

from __future__ import annotations

import torch
from torch import nn

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.ema import Average
from vjepa_ros.lab.training.muon import Muon, Together
from vjepa_ros.lab.training.network import Network

FUSED = {'attn.qkv.weight': 3}   # end of a name: matrices of one size in one parameter


def make_optimizer(network: Network, config: TrainConfig) -> torch.optim.AdamW | Together:
    """AdamW over what is trained, or Muon for the matrices of the blocks and AdamW for the rest.

    Weights of matrices decay, the rest does not.
    """
    trained = [p for p in network.parameters() if p.requires_grad]
    inner: dict[str, nn.Parameter] = {}
    if config.optimizer == 'muon':
        inner = {name: p for name, p in network.named_parameters()
                 if 'blocks.' in name and p.requires_grad and p.ndim == 2}
    chosen = {id(p) for p in inner.values()}
    outer = [p for p in trained if id(p) not in chosen]
    groups = [{'params': [p for p in outer if p.ndim > 1], 'weight_decay': config.weight_decay},
              {'params': [p for p in outer if p.ndim <= 1], 'weight_decay': 0.0}]
    adamw = torch.optim.AdamW([g for g in groups if g['params']], lr=config.lr,
                              betas=(0.9, 0.98), fused=True)
    if not inner:
        return adamw
    matrices = {'params': list(inner.values()), 'parts': list(map(matrices_in, inner))}
    return Together(adamw, Muon([matrices], config.lr, weight_decay=config.weight_decay))


def matrices_in(name: str) -> int:
    """How many matrices of one size a parameter of this name holds, one below the other."""
    return next((count for end, count in FUSED.items() if name.endswith(end)), 1)


def target_encoder(network: Network, average: Average) -> Network:
    """A network for features alone whose encoder is the average of the trained one."""
    encoder = type(network.encoder)(network.encoder.variant, network.encoder.version)
    encoder.load_state_dict(network.encoder.state_dict())
    average.share(encoder.to(next(network.parameters()).device), 'encoder.')
    return Network(encoder.eval(), network.heads)


def autocast_type(precision: str, device: torch.device) -> torch.dtype:
    """Type of the matrix products while training.

    `auto` is bf16 where it is fast: on GPUs that have it, and on CPUs with AVX512-BF16 or AMX.
    """
    if precision != 'auto':
        return torch.bfloat16 if precision == 'bf16' else torch.float32
    if device.type == 'cuda':
        fast = torch.cuda.get_device_capability(device) >= (8, 0)
    else:
        # PyTorch says "supported" also where it only emulates bf16; these ask the processor.
        fast = any(getattr(torch.cpu, name, bool)()
                   for name in ('_is_avx512_bf16_supported', '_is_amx_tile_supported'))
    return torch.bfloat16 if fast else torch.float32
