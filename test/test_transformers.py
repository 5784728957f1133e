# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The transformers library computes the same from the same weights.

Needs requirements/test.txt, which `make test` installs; skipped without it.
"""

import pytest
import torch
from golden.cases import fill, noise

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.variants import Variant

vjepa2 = pytest.importorskip('transformers.models.vjepa2', reason='transformers is not installed')

pytestmark = pytest.mark.usefixtures('one_thread')


@pytest.mark.parametrize(('variant', 'frames', 'pixels'), [
    (Variant('large', 1024, 1, 16, 4096), 2, 256), (Variant('huge', 1280, 1, 16, 5120), 16, 64)],
    ids=['large', 'huge'])
@torch.inference_mode()
def test_features_of_every_size_and_length_are_the_same(tmp_path, variant, frames, pixels):
    config = vjepa2.VJEPA2Config(
        crop_size=pixels, frames_per_clip=frames, hidden_size=variant.dim,
        num_hidden_layers=variant.depth, num_attention_heads=variant.heads,
        mlp_ratio=(variant.mlp + 0.5) / variant.dim, pred_hidden_size=96,
        pred_num_attention_heads=3, pred_num_hidden_layers=2, pred_num_mask_tokens=3)
    with torch.device('meta'):      # without the time that start values take
        theirs = vjepa2.VJEPA2Model(config)
    fill(theirs.to_empty(device='cpu')).save_pretrained(tmp_path)
    encoder, _ = load_encoder(variant, weights=tmp_path)
    clip = 4.0 * noise(1, 3, frames, pixels, pixels)
    expected = theirs.encoder(clip.transpose(1, 2)).last_hidden_state
    error = (encoder(clip).flatten(1, 3) - expected).abs().max()
    assert error / expected.square().mean().sqrt() < 1e-5
