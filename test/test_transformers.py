# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The transformers library computes the same from the same weights.

Needs requirements/test.txt, which `make test` installs; skipped without it.
"""

import pytest
import torch
from golden.cases import fill, noise

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.variants import Variant, find_variant

vjepa2 = pytest.importorskip('transformers.models.vjepa2', reason='transformers is not installed')

pytestmark = pytest.mark.usefixtures('one_thread')


def built(kind, variant, pixels, frames, **more):
    """One of their networks, without the time that their start values take."""
    config = vjepa2.VJEPA2Config(
        crop_size=pixels, frames_per_clip=frames, hidden_size=variant.dim,
        num_hidden_layers=variant.depth, num_attention_heads=variant.heads,
        mlp_ratio=(variant.mlp + 0.5) / variant.dim, pred_hidden_size=96,
        pred_num_attention_heads=3, pred_num_hidden_layers=2, pred_num_mask_tokens=3, **more)
    with torch.device('meta'):
        network = kind(config)
    return fill(network.to_empty(device='cpu'))


def assert_features_are_the_same(encoder, theirs, frames, side):
    clip = 4.0 * noise(1, 3, frames, side, side)
    expected = theirs(clip.transpose(1, 2)).last_hidden_state
    error = (encoder(clip).flatten(1, 3) - expected).abs().max()
    assert error / expected.square().mean().sqrt() < 1e-5


@pytest.mark.parametrize(('variant', 'frames', 'pixels'), [
    (Variant('large', 1024, 1, 16, 4096), 2, 256), (Variant('huge', 1280, 1, 16, 5120), 16, 64)],
    ids=['large', 'huge'])
@torch.inference_mode()
def test_features_of_every_size_and_length_are_the_same(tmp_path, variant, frames, pixels):
    theirs = built(vjepa2.VJEPA2Model, variant, pixels, frames)
    theirs.save_pretrained(tmp_path)
    encoder, _ = load_encoder(variant, weights=tmp_path)
    assert_features_are_the_same(encoder, theirs.encoder, frames, pixels)


@torch.inference_mode()
def test_we_read_the_files_of_the_library(tmp_path):
    model = built(vjepa2.VJEPA2ForVideoClassification, find_variant('tiny'), 64, 4, num_labels=7)
    model.save_pretrained(tmp_path / 'theirs')
    encoder, report = load_encoder('tiny', weights=tmp_path / 'theirs')
    assert (report.layout, report.profile.image_size, report.profile.num_frames) == (
        'Hugging Face', 64, 4)
    assert_features_are_the_same(encoder, model.vjepa2.encoder, 4, 64)
