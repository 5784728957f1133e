# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Features from any depth of an encoder, as grids or pooled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from vjepa_ros.model.encoder import Encoder, pooled

PER = ('grid', 'tubelet', 'clip')  # what one feature vector may stand for


def check_wanted(layers: Sequence[int] | None, levels: int, per: str) -> None:
    """Refuse what no encoder has (ValueError), see `EncoderSession.features`."""
    if layers is not None and (levels or not len(layers)):
        raise ValueError(f'features of the layers {tuple(layers)} and of {levels} levels are '
                         'asked for; choose some layers or levels')
    if per not in PER:
        raise ValueError(f"features per '{per}' are asked for; choose {', '.join(PER)}")


def deep_features(encoder: Encoder, normalise: Callable[[Tensor], Tensor],
                  layers: Sequence[int] | None, levels: int, per: str
                  ) -> Callable[[Tensor], Tensor]:
    """uint8 pixels (B, T, S, S, 3) to what `EncoderSession.features` gives of each clip."""

    def look(pixels: Tensor) -> Tensor:
        clip = normalise(pixels)
        if layers is not None:
            found = encoder.layers(clip, layers)
        else:
            found = (encoder.dense(clip, levels) if levels else encoder(clip),)
        if per != 'grid':
            found = tuple(pooled(one, per == 'tubelet') for one in found)
        return found[0] if layers is None else torch.stack(found, dim=1)

    return look
