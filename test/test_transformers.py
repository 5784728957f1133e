# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The transformers library computes the same from the same weights, where it is right.

Needs requirements/test.txt, which `make test` installs; skipped without it. Errors are relative
to the mean size of the numbers of an output.
"""

import re
from functools import cache

import pytest
import torch
from golden.cases import fill, noise, some_tokens

from vjepa_ros.model.checkpoint.conversion import convert
from vjepa_ros.model.checkpoint.inspection import load_network
from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.predictor import Predictor
from vjepa_ros.model.variants import Variant, find_variant

vjepa2 = pytest.importorskip('transformers.models.vjepa2', reason='transformers is not installed')

pytestmark = pytest.mark.usefixtures('one_thread')

TOLERANCE = 1e-5
SMALL = Variant('test', 128, 2, 2, 512)
NAMES = {
    r'embeddings\.patch_embeddings\.': 'patch_embed.',
    r'embeddings\.predictor_embeddings': 'predictor_embed',
    r'\battention\.': 'attn.',
}
# What is one layer for us: our name, then those of its parts.
FUSED = {'attn.qkv': ('attn.query', 'attn.key', 'attn.value')}


def ours(theirs, blocks='blocks.', **names):
    """The state of one of their networks under our names."""
    state = {}
    for key, value in theirs.state_dict().items():
        for old, new in {**NAMES, r'^layer\.': blocks, **names}.items():
            key = re.sub(old, new, key)
        state[key] = value
    for whole, parts in FUSED.items():
        for first in [key for key in state if re.search(rf'\b{parts[0]}\.', key)]:
            pieces = [state.pop(first.replace(parts[0], part)) for part in parts]
            state[first.replace(parts[0], whole)] = torch.cat(pieces)
    return state


def built(kind, variant, pixels, frames=64, **more):
    """One of their networks, without the time that their start values take."""
    config = vjepa2.VJEPA2Config(
        crop_size=pixels, frames_per_clip=frames, hidden_size=variant.dim,
        num_hidden_layers=variant.depth, num_attention_heads=variant.heads,
        mlp_ratio=(variant.mlp + 0.5) / variant.dim, pred_hidden_size=96,
        pred_num_attention_heads=3, pred_num_hidden_layers=2, pred_num_mask_tokens=3, **more)
    with torch.device('meta'):
        network = kind(config)
    return network.to_empty(device='cpu')


def clip_of(frames, side):
    return 4.0 * noise(1, 3, frames, side, side)


def error(got, expected):
    return ((got - expected).abs().max() / expected.square().mean().sqrt()).item()


def features(theirs, clip):
    return theirs(clip.transpose(1, 2)).last_hidden_state


@cache
def pair(size):
    """Theirs and ours of the shape of a published encoder, two blocks deep."""
    full = find_variant(size)
    variant = Variant(size, full.dim, 2, full.heads, full.mlp)
    theirs = fill(built(vjepa2.VJEPA2Model, variant, 256).encoder)
    with torch.device('meta'):
        encoder = Encoder(variant)
    encoder.load_state_dict(ours(theirs, layernorm='norm'), assign=True)
    return theirs, encoder


@pytest.mark.parametrize(('frames', 'pixels'), [(2, 256), (16, 64)])
@pytest.mark.parametrize('size', ['large', 'huge'])
@torch.inference_mode()
def test_features_of_every_size_and_length_are_the_same(size, frames, pixels):
    theirs, encoder = pair(size)
    for module in theirs.modules():
        if hasattr(module, 'grid_size'):  # all in which networks for two sizes differ
            module.grid_size = pixels // 16
    clip = clip_of(frames, pixels)
    assert error(encoder(clip).flatten(1, 3), features(theirs, clip)) < TOLERANCE


@torch.inference_mode()
def test_predictions_are_the_same():
    theirs = fill(built(vjepa2.VJEPA2Model, SMALL, 64, 8).predictor)
    state = ours(theirs, 'predictor_blocks.', layernorm='predictor_norm')
    for number, token in enumerate(state.pop('embeddings.mask_tokens')):
        state[f'mask_tokens.{number}'] = token
    state = {re.sub(r'^proj', 'predictor_proj', key): value for key, value in state.items()}
    predictor = Predictor(128, 96, 2, 3, masks=3).requires_grad_(False)
    predictor.load_state_dict(state)
    whole, keep = noise(2, 64, 128), some_tokens(2, 64, 40)
    wanted = some_tokens(2, 64, 24, start=40)
    expected = theirs(whole, [keep], [wanted]).last_hidden_state
    context = torch.stack([tokens[index] for tokens, index in zip(whole, keep, strict=True)])
    got = predictor(context, keep, wanted, (4, 4, 4), mask=1)  # the mask token they always use
    assert error(got, expected) < TOLERANCE


@torch.inference_mode()
def test_we_read_the_files_of_the_library_and_it_reads_ours(tmp_path):
    kind = vjepa2.VJEPA2ForVideoClassification
    tiny = find_variant('tiny')
    model = fill(built(kind, tiny, 64, 4, num_labels=7))
    model.save_pretrained(tmp_path / 'theirs')
    encoder, report = load_encoder('tiny', weights=tmp_path / 'theirs')
    assert (report.layout, report.profile.image_size, report.profile.num_frames) == (
        'Hugging Face', 64, 4)
    clip = clip_of(4, 64)
    assert error(encoder(clip).flatten(1, 3), features(model.vjepa2.encoder, clip)) < TOLERANCE
    predictor, _ = load_network(tmp_path / 'theirs', 'predictor')
    assert predictor.predictor_blocks[0].attn.heads == 3

    convert(tmp_path / 'theirs', tmp_path / 'ours.safetensors')
    convert(tmp_path / 'ours.safetensors', tmp_path / 'back', 'huggingface')
    again, found = vjepa2.VJEPA2Model.from_pretrained(tmp_path / 'back', output_loading_info=True)
    assert not any(found.values()), found
    torch.testing.assert_close(dict(again.state_dict()), dict(model.vjepa2.state_dict()), rtol=0,
                               atol=0)
