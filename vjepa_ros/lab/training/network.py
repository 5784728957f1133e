# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Everything that is trained, as one module: encoder, heads and, for JEPA, the predictor.

B clips, T' tubelets, n places (patches) that the encoder sees, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from vjepa_ros.lab.training.auxiliary import Auxiliary
from vjepa_ros.lab.training.data.masking import tokens_of
from vjepa_ros.lab.training.losses import head_losses, prediction
from vjepa_ros.lab.world.targets import Targets, constant
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import HeadOutputs
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.predictor import Predictor
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, PATCH, TUBELET

OBJECTIVES = ('supervised', 'jepa', 'both')


@dataclass(frozen=True)
class Batch:
    """Clips with what is known about them.

    Attributes
    ----------
    frames : Tensor
        (B, T, H, W, 3) uint8 RGB, oldest frame first.
    targets : Targets
        Of the newest frame.
    kept : Tensor or None
        (B, n) int64 ascending places the encoder sees; None for all.
    hidden : Tensor or None
        (B, m) int64 ascending places whose features are predicted; None without JEPA.
    features : Tensor or None
        (B, T', Hp, Wp, D) where a frozen encoder has seen the clips already; `frames` is then
        not looked at.
    """

    frames: Tensor
    targets: Targets
    kept: Tensor | None = None
    hidden: Tensor | None = None
    features: Tensor | None = None

    def __len__(self) -> int:
        return self.targets.interval_s.shape[0]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tubelets, patch rows and patch columns."""
        _, t, h, w, _ = self.frames.shape
        return t // TUBELET, h // PATCH, w // PATCH

    def all_places(self) -> Batch:
        """The same clips with nothing left out."""
        return replace(self, kept=None, hidden=None)


class Network(nn.Module):
    """Encoder and heads with their losses.

    Parameters
    ----------
    encoder : Encoder
        Trained unless it was frozen before.
    heads : Heads
        Of the width of the encoder.
    objective : str
        ``supervised``: the losses of the heads train encoder and heads. ``jepa``: the encoder
        learns to predict hidden features alone, and the heads learn on features of the target
        encoder. ``both``: the sum; the heads see what the encoder sees.
    predictor : Predictor or None
        Needed for ``jepa`` and ``both``.
    auxiliary : bool
        Ask the dense heads more than what they are kept for, see `Auxiliary`.
    """

    def __init__(self, encoder: Encoder, heads: Heads, objective: str = 'supervised',
                 predictor: Predictor | None = None, auxiliary: bool = False):
        super().__init__()
        if objective not in OBJECTIVES:
            raise ValueError(f"objective '{objective}' is unknown: {', '.join(OBJECTIVES)}")
        if (objective == 'supervised') != (predictor is None):
            raise ValueError(f"objective '{objective}' "
                             f'{"takes no" if predictor else "needs a"} predictor')
        self.encoder = encoder
        self.heads = heads
        self.predictor = predictor
        self.auxiliary = Auxiliary(heads.hidden) if auxiliary else None
        self.objective = objective
        self.frozen = not any(p.requires_grad for p in encoder.parameters())

    def forward(self, batch: Batch, target: Tensor | None = None) -> dict[str, Tensor]:
        """Losses by name, each a scalar.

        Parameters
        ----------
        batch : Batch
            With `hidden` for the JEPA objectives.
        target : Tensor or None
            (B, T', Hp, Wp, D) features of the target encoder for the JEPA objectives.
        """
        features = self.features(batch)
        if self.objective == 'jepa':
            seen, asked = target, batch.targets
        else:
            seen = features
            asked = batch.targets if batch.kept is None else batch.targets.at(batch.kept)
        outputs, known = self.heads.read(seen)
        losses = head_losses(outputs, asked)
        if self.auxiliary is not None:
            losses |= self.auxiliary(known, asked)
        if self.predictor is not None:
            losses['jepa'] = self._jepa(batch, features, target)
        return losses

    def features(self, batch: Batch) -> Tensor:
        """Features (B, T', Hp, Wp, D), or (B, T', n, 1, D) when places are left out."""
        if batch.features is not None:
            return batch.features
        clip = normalised(batch.frames)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            if batch.kept is None:
                return self.encoder(clip)
            t, rows, cols = batch.grid
            keep = tokens_of(batch.kept, t, rows * cols)
            return self.encoder(clip, keep=keep).unflatten(1, (t, -1, 1))

    def answers(self, features: Tensor) -> HeadOutputs:
        """What the heads say about features."""
        return self.heads(features)

    def _jepa(self, batch: Batch, features: Tensor, target: Tensor) -> Tensor:
        if batch.hidden is None:
            # Nothing is hidden, as at the end of a run; parallel training still wants to see
            # every parameter in every step.
            return 0.0 * sum(p.sum() for p in self.predictor.parameters())
        t, rows, cols = batch.grid
        keep = tokens_of(batch.kept, t, rows * cols)
        mask = tokens_of(batch.hidden, t, rows * cols)
        predicted = self.predictor(features.flatten(1, 3), keep, mask, batch.grid)
        flat = target.flatten(1, 3)
        wanted = flat.gather(1, mask[..., None].expand(-1, -1, flat.shape[-1]))
        return prediction(predicted, wanted)


def normalised(frames: Tensor) -> Tensor:
    """Clips (B, T, H, W, 3) uint8 as input of the encoder, (B, 3, T, H, W) float32."""
    scale = constant(tuple(1 / (255 * s) for s in IMAGENET_STD), frames.device)
    shift = constant(tuple(m / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)),
                     frames.device)
    return (frames * scale - shift).permute(0, 4, 1, 2, 3)
