# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Put encoder, heads, auxiliary heads and predictor together as one module with its losses.

B clips, T' tubelets, n places (patches) that the encoder sees, Hp x Wp patches, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vjepa_ros.lab.training.config import OBJECTIVES, TrainConfig
from vjepa_ros.lab.training.losses import head_losses, masked_mean, prediction
from vjepa_ros.lab.world.seeds import derive
from vjepa_ros.lab.world.targets import Targets, constant
from vjepa_ros.lab.world.tubelets import stream_frames
from vjepa_ros.model.checkpoint.load import WeightsReport, load_model
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import CONTACT_BINS, HeadOutputs, contact_bin
from vjepa_ros.model.heads import Heads, full_precision
from vjepa_ros.model.lora import add_adapters
from vjepa_ros.model.predictor import Predictor
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, PATCH, TUBELET, find_variant

DEPTH_WEIGHT, FLOW_WEIGHT, ENTER_WEIGHT = 0.25, 0.5, 0.5


class Auxiliary(nn.Module):
    """Entry time, depth and flow of every patch from what the dense heads know of it.

    Parameters
    ----------
    hidden : int
        Width of that, `Heads.hidden`.
    """

    def __init__(self, hidden: int):
        super().__init__()
        self.read = nn.Linear(hidden, CONTACT_BINS + 1 + 3)
        nn.init.zeros_(self.read.weight)
        nn.init.zeros_(self.read.bias)

    def forward(self, known: Tensor, targets: Targets) -> dict[str, Tensor]:
        """Compute the losses by name, each a scalar.

        `known`: (B, Hp, Wp, hidden) float32; `targets`: targets Their dense fields in the same
        (B, Hp, Wp).
        """
        with full_precision(known.device):
            said = self.read(known.float())
        bins, (depth, right, down) = said[..., :-3], said[..., -3:].unbind(-1)
        when = contact_bin(targets.enter_s / targets.interval_s[:, None, None])
        late = F.cross_entropy(bins.flatten(0, 2), when.flatten(), reduction='none')
        flow = (F.smooth_l1_loss(right, targets.flow_x, reduction='none', beta=0.1)
                + F.smooth_l1_loss(down, targets.flow_y, reduction='none', beta=0.1))
        far = F.smooth_l1_loss(depth, targets.log_depth, reduction='none', beta=0.1)
        known_here = targets.scene_known
        return {'enter': ENTER_WEIGHT * masked_mean(late.view_as(depth), known_here),
                'depth': DEPTH_WEIGHT * masked_mean(far, known_here),
                'flow': FLOW_WEIGHT * masked_mean(flow, known_here)}


@dataclass(frozen=True)
class Batch:
    """Clips with what is known about them."""

    frames: Tensor  # (B, T, H, W, 3) uint8 RGB, oldest frame first
    targets: Targets  # of the newest frame
    kept: Tensor | None = None  # (B, n) int64 ascending places the encoder sees; None for all
    # (B, m) int64 ascending places whose features are predicted; None without JEPA
    hidden: Tensor | None = None
    # (B, T) float64, time of each frame in frame intervals; even where None
    stamps: Tensor | None = None
    tubelets: int = 0  # how many a block-causal encoder sees
    # (B, T', Hp, Wp, D) where a frozen encoder has seen the clips already; `frames` is then not
    # looked at
    features: Tensor | None = None

    def __len__(self) -> int:
        return self.targets.interval_s.shape[0]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Tubelets, patch rows and patch columns."""
        _, t, h, w, _ = self.frames.shape
        return t // TUBELET, h // PATCH, w // PATCH

    def all_places(self) -> Batch:
        """Return the same clips with nothing left out."""
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
        """Compute the losses by name, each a scalar.

        `target`: (B, T', Hp, Wp, D) features of the target encoder for the JEPA objectives.
        """
        if self.predictor is not None and target is None:
            raise ValueError(f"objective '{self.objective}' needs features of a target encoder")
        features = self.features(batch)
        seen, asked = features, batch.targets
        if self.objective == 'jepa' and target is not None:
            seen = target
        else:
            asked = batch.targets if batch.kept is None else batch.targets.at(batch.kept)
        outputs, known = self.heads.read(seen)
        losses = head_losses(outputs, asked)
        if self.auxiliary is not None:
            losses |= self.auxiliary(known, asked)
        if self.predictor is not None and target is not None:
            losses['jepa'] = _jepa_loss(self.predictor, batch, features, target)
        return losses

    def features(self, batch: Batch) -> Tensor:
        """Compute features (B, T', Hp, Wp, D), or (B, T', n, 1, D) when places are left out."""
        if batch.features is not None:
            return batch.features
        frames, times = self._streamed(batch)
        clip = normalised(frames)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            if batch.kept is None:
                features = self.encoder(clip, times=times)
            else:
                t, rows, cols = frames.shape[1] // TUBELET, *batch.grid[1:]
                keep = tokens_of(batch.kept, t, rows * cols)
                features = self.encoder(clip, keep, times).unflatten(1, (t, -1, 1))
        return features[:, -self.encoder.window:]

    def _streamed(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the frames that the encoder sees, and their times if it is block-causal."""
        if not self.encoder.window:
            return batch.frames, None
        stamps = batch.stamps
        if stamps is None:
            count = batch.frames.shape[1]
            stamps = torch.arange(count, dtype=torch.float64, device=batch.frames.device)
            stamps = stamps.expand(len(batch.frames), -1)
        chosen = stream_frames(stamps, batch.tubelets or batch.grid[0] - 1)
        clips = torch.arange(len(chosen), device=chosen.device)[:, None]
        return batch.frames[clips, chosen], self.encoder.times(stamps.gather(1, chosen))

    def answers(self, features: Tensor) -> HeadOutputs:
        """Return the outputs of the heads for features."""
        return self.heads(features)


def _jepa_loss(predictor: Predictor, batch: Batch, features: Tensor, target: Tensor) -> Tensor:
    if batch.kept is None or batch.hidden is None:
        # Nothing is hidden, as at the end of a run; parallel training still has to reach every
        # parameter in every step.
        return 0.0 * torch.stack([p.sum() for p in predictor.parameters()]).sum()
    t, rows, cols = batch.grid
    keep = tokens_of(batch.kept, t, rows * cols)
    mask = tokens_of(batch.hidden, t, rows * cols)
    predicted = predictor(features.flatten(1, 3), keep, mask, batch.grid)
    flat = target.flatten(1, 3)
    wanted = flat.gather(1, mask[..., None].expand(-1, -1, flat.shape[-1]))
    return prediction(predicted, wanted)


def tokens_of(places: Tensor, tubelets: int, total: int) -> Tensor:
    """Return row-major token numbers (B, tubelets * n) of places (B, n) among `total`."""
    time = torch.arange(tubelets, device=places.device) * total
    return (time[None, :, None] + places[:, None, :]).flatten(1)


def normalised(frames: Tensor) -> Tensor:
    """Turn clips (B, T, H, W, 3) uint8 into input of the encoder, (B, 3, T, H, W) float32."""
    scale = constant(tuple(1 / (255 * s) for s in IMAGENET_STD), frames.device)
    shift = constant(tuple(m / s for m, s in zip(IMAGENET_MEAN, IMAGENET_STD, strict=True)),
                     frames.device)
    return (frames * scale - shift).permute(0, 4, 1, 2, 3)


PREDICTOR_DEPTH = 6        # half of the published one: it is thrown away after training
PREDICTOR_WIDTH = 384      # at most; never wider than the encoder


def build(config: TrainConfig) -> tuple[Network, WeightsReport]:
    """Build the network on the CPU, and report where its weights come from.

    The same configuration gives the same numbers. Heads that the weights file holds are the
    start of training; otherwise they are random.
    """
    variant = find_variant(config.model_size)
    if config.weights:
        encoder, heads, report = load_model(variant, weights=config.weights)
        if config.window:
            encoder = block_causal(encoder, config.window)
    else:
        encoder, heads = Encoder(variant, '2.1' if config.window else '2.0', config.window), None
        encoder.init_random(derive(config.seed, 'encoder'))
        report = WeightsReport('', '', False, 0, 'float32', variant.name, encoder.version)
    if heads is None:
        heads = Heads.for_variant(variant, derive(config.seed, 'heads'))
    heads.complete()
    heads.requires_grad_(True)
    if config.lora_rank:
        add_adapters(encoder, config.lora_rank, derive(config.seed, 'adapters'))
    else:
        encoder.requires_grad_(not config.heads_only)
    # What the features of a clip never reach: processes that train together would wait for it.
    if encoder.version == '2.1':
        encoder.img_mod_embed.requires_grad_(False)
        for part in (encoder.patch_embed_img, *list(encoder.norms_block)[:-1]):
            part.requires_grad_(False)
    predictor = None
    if config.objective != 'supervised':
        predictor = _predictor(encoder, derive(config.seed, 'predictor'))
    return Network(encoder, heads, config.objective, predictor, config.auxiliary), report


@torch.no_grad()
def block_causal(encoder: Encoder, window: int) -> Encoder:
    """Make a block-causal encoder of version 2.1 that starts from the weights of another.

    Weights of version 2.0 have other positions: they are a start that has to be trained on.
    """
    made = Encoder(encoder.variant, '2.1', window)
    state = encoder.state_dict()
    if encoder.version == '2.0':
        for kind in ('weight', 'bias'):
            norm = state.pop(f'norm.{kind}')
            state |= {f'norms_block.{tap}.{kind}': norm for tap in range(len(made.norms_block))}
        state['patch_embed_img.proj.weight'] = state['patch_embed.proj.weight'].sum(2, True)
        state['patch_embed_img.proj.bias'] = state['patch_embed.proj.bias']
    missing, unexpected = made.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= {'img_mod_embed', 'video_mod_embed',
                                               'interval_embed'}
    return made


def _predictor(encoder: Encoder, seed: int) -> Predictor:
    variant = encoder.variant
    # The published predictor has heads of 32 channels.
    width = min(PREDICTOR_WIDTH, variant.dim)
    predictor = Predictor(variant.dim, width, min(PREDICTOR_DEPTH, variant.depth),
                          max(1, width // 32))
    predictor.init_random(seed)
    return predictor
