# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The encoder computes what the published V-JEPA 2 encoder computes."""

import math

import pytest
import torch

from vjepa_ros.model.encoder import Encoder, token_grid
from vjepa_ros.model.rope import rope_tables
from vjepa_ros.model.variants import VARIANTS, Variant

pytestmark = pytest.mark.usefixtures('one_thread')

# Outputs of facebookresearch/vjepa2 at commit c2963a47433ecca0ad4f06ec28bcfa8cb5b5cefb for the
# parameters of `fill` and the clip of `wave`: a 2-block encoder on a 3 x 3 x 2 token grid. Norm of
# all features, then the values at GOLDEN_AT (token, channel).
GOLDEN_AT = ((0, 0), (4, 20), (7, 41), (11, 63), (13, 85), (17, 120))
GOLDEN = {
    64: (49.26910, (-1.48258, -0.56133, -0.24086, 0.01824, 0.52432, -0.99357)),
    80: (54.58646, (-1.17071, -0.87070, 0.07219, 0.42711, 1.35450, -0.87679)),
}


def small(head_dim=64):
    return Variant('test', 2 * head_dim, 2, 2, 4 * head_dim)


def small_2_1():
    return fill(Encoder(Variant('test', 64, 12, 1, 128), '2.1').requires_grad_(False))


def fill(encoder):
    """Numbers that every platform computes alike."""
    for number, (name, parameter) in enumerate(sorted(encoder.state_dict().items())):
        index = torch.arange(parameter.numel(), dtype=torch.float64)
        value = (43758.5453 * torch.sin(12.9898 * index + number)).remainder(1.0) - 0.5
        offset = 1.0 if 'norm' in name and name.endswith('weight') else 0.0
        parameter.copy_((offset + 0.4 * value).reshape(parameter.shape))
    return encoder


def wave(*shape):
    index = torch.arange(math.prod(shape), dtype=torch.float64)
    return (torch.sin(0.113 * index) + torch.cos(0.0071 * index)).reshape(shape).float()


@pytest.mark.parametrize('variant', [VARIANTS[name] for name in ('tiny', 'large', 'giant')],
                         ids=lambda variant: variant.name)
def test_every_variant_has_the_published_shape(variant):
    with torch.device('meta'):
        encoder = Encoder(variant)
        features = encoder(torch.zeros(2, 3, 4, 32, 48))
    millions = sum(p.numel() for p in encoder.parameters()) / 1e6
    published = {'tiny': 5.6, 'small': 22, 'base': 86.8, 'large': 303.9, 'huge': 631.6,
                 'giant': 1012, 'gigantic': 1840}
    assert features.shape == (2, 2, 2, 3, variant.dim)
    assert millions == pytest.approx(published[variant.name], rel=0.02)


def test_the_patch_embedding_is_the_convolution_its_weights_describe():
    embed = fill(Encoder(small()).patch_embed.requires_grad_(False))
    clip = wave(2, 3, 4, 32, 48)
    expected = embed.proj(clip).flatten(2).transpose(1, 2)
    torch.testing.assert_close(embed(clip), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize('shape', [(1, 3, 3, 32, 32), (1, 3, 4, 40, 32), (1, 3, 4, 32, 8),
                                   (1, 4, 4, 32, 32), (3, 4, 32, 32), (1, 3, 0, 32, 32)])
def test_a_clip_that_cannot_be_cut_into_tubelets_is_refused(shape):
    with pytest.raises(ValueError, match='clip'):
        token_grid(shape)


def test_position_tables_do_not_depend_on_where_they_are_first_asked_for():
    with torch.device('meta'), torch.inference_mode():
        cos, _ = rope_tables(2, 7, 11, 64)
    assert cos.device.type == 'cpu'
    assert not cos.is_inference()


def test_an_encoder_used_for_inference_can_still_be_trained():
    encoder = fill(Encoder(small()).requires_grad_(False)).requires_grad_(True)
    clip = wave(1, 3, 2, 32, 32)
    with torch.inference_mode():
        encoder(clip)
    encoder(clip).square().mean().backward()
    assert encoder.patch_embed.proj.weight.grad.abs().sum() > 0


# -- version 2.1 ----------------------------------------------------------------------------------


def test_dense_features_are_the_taps_side_by_side_and_the_last_is_the_output():
    encoder, clip = small_2_1(), wave(1, 3, 4, 48, 32)
    with torch.inference_mode():
        dense, taps = encoder.dense(clip), encoder.layers(clip, (2, 5, 8, 11))
        assert torch.equal(dense, torch.cat(taps, dim=-1))
        assert torch.equal(taps[-1], encoder(clip))
        assert torch.equal(encoder.dense(clip, levels=1), encoder(clip))
        assert dense.shape == (1, 2, 3, 2, 256)
        keep = torch.tensor([[7, 2]])
        assert encoder.dense(clip, 3, keep).shape == (1, 2, 192)
    assert not torch.equal(taps[0], taps[1])


def test_blocks_behind_the_last_chosen_layer_do_not_run():
    encoder, ran = Encoder(Variant('test', 48, 4, 1, 96)), []
    for number, block in enumerate(encoder.blocks):
        block.register_forward_hook(lambda *_, number=number: ran.append(number))
    encoder.layers(wave(1, 3, 2, 32, 32), (1,))
    assert ran == [0, 1]


# -- training -------------------------------------------------------------------------------------

def some_tokens(count, grid=(2, 3, 2)):
    total = math.prod(grid)
    return torch.stack([torch.randperm(total, generator=torch.Generator().manual_seed(seed))
                        for seed in range(2)])[:, :count]


def test_dropped_tokens_are_not_seen():
    encoder, clip, keep = fill(Encoder(small())), wave(2, 3, 4, 48, 32), some_tokens(5)
    changed = clip.clone()
    with torch.inference_mode():
        before = encoder(clip, keep)
        for number, index in enumerate(keep):
            for token in set(range(12)) - set(index.tolist()):
                t, row, col = token // 6, token // 2 % 3, token % 2
                changed[number, :, 2 * t:2 * t + 2, 16 * row:16 * row + 16,
                        16 * col:16 * col + 16] = 9.0
        assert (changed == 9.0).float().mean() > 0.5
        assert before.shape == (2, 5, 128)
        torch.testing.assert_close(encoder(changed, keep), before, rtol=0, atol=0)
        assert (encoder(changed) - encoder(clip)).abs().max() > 0.1


@pytest.mark.parametrize('tokens', [None, 6])
def test_half_precision_training_keeps_the_residual_stream_exact(tokens):
    encoder, clip = fill(Encoder(small()).requires_grad_(False)), wave(2, 3, 4, 48, 32)
    keep = None if tokens is None else some_tokens(tokens)
    with torch.inference_mode():
        exact = encoder(clip, keep)
    encoder.requires_grad_(True)
    with torch.autocast('cpu', torch.bfloat16):
        features = encoder(clip, keep)
        features.square().mean().backward()
    assert features.dtype == torch.float32
    assert 0 < (features - exact).norm() / exact.norm() < 0.02
    for name, parameter in encoder.named_parameters():
        assert parameter.dtype == torch.float32
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


def test_queries_and_keys_reach_the_attention_as_its_backward_wants_them(monkeypatch):
    seen = []

    def attention(q, k, v):
        seen.append([(x.dtype, x.is_contiguous()) for x in (q, k)] + [(v.dtype,)])
        return v

    monkeypatch.setattr(torch.nn.functional, 'scaled_dot_product_attention', attention)
    encoder = fill(Encoder(small()).requires_grad_(False)).requires_grad_(True)
    with torch.autocast('cpu', torch.bfloat16):
        encoder(wave(1, 3, 4, 32, 32))
    assert seen == 2 * [[(torch.bfloat16, True), (torch.bfloat16, True), (torch.bfloat16,)]]


@pytest.mark.slow
@pytest.mark.parametrize(('version', 'depth'), [('2.0', 2), ('2.1', 12)])
def test_an_encoder_can_be_traced_in_one_piece_once_its_tables_are_made(version, depth):
    clip, keep = wave(2, 3, 4, 48, 32), some_tokens(6)
    encoder = Encoder(Variant('test', 64, depth, 1, 128), version)
    encoder.prepare(clip.shape, clip.device)
    for arguments in ((clip,), (clip, keep)):
        explained = torch._dynamo.explain(encoder)(*arguments)
        assert (explained.graph_count, explained.graph_break_count) == (1, 0)
