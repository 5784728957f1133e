# SPDX-License-Identifier: Apache-2.0
"""The encoder computes what the published V-JEPA 2 encoder computes."""

import math

import pytest
import torch

from vjepa_ros.model.encoder import Encoder, token_grid
from vjepa_ros.model.rope import axis_width, rope_tables, rotate
from vjepa_ros.model.variants import VARIANTS, Variant, find_variant

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


@pytest.mark.parametrize('head_dim', GOLDEN)
def test_features_equal_those_of_the_reference_implementation(head_dim):
    with torch.inference_mode():
        features = fill(Encoder(small(head_dim)))(wave(1, 3, 6, 48, 32)).flatten(1, 3)[0]
    norm, values = GOLDEN[head_dim]
    assert features.norm().item() == pytest.approx(norm, rel=1e-5)
    assert [features[at].item() for at in GOLDEN_AT] == pytest.approx(values, abs=3e-5)


@pytest.mark.parametrize('variant', VARIANTS.values(), ids=VARIANTS)
def test_every_variant_has_the_published_shape(variant):
    with torch.device('meta'):
        encoder = Encoder(variant)
        features = encoder(torch.zeros(2, 3, 4, 32, 48))
    millions = sum(p.numel() for p in encoder.parameters()) / 1e6
    published = {'tiny': 5.6, 'small': 22, 'base': 86.8, 'large': 303.9, 'huge': 631.6,
                 'giant': 1012, 'gigantic': 1840}
    assert features.shape == (2, 2, 2, 3, variant.dim)
    assert millions == pytest.approx(published[variant.name], rel=0.02)


def test_parameter_names_are_those_of_published_checkpoints():
    names = Encoder(small()).state_dict().keys()
    parts = ('norm1', 'attn.qkv', 'attn.proj', 'norm2', 'mlp.fc1', 'mlp.fc2')
    layers = ['patch_embed.proj', 'norm']
    layers += [f'blocks.{number}.{part}' for number in (0, 1) for part in parts]
    assert names == {f'{layer}.{kind}' for layer in layers for kind in ('weight', 'bias')}


def test_every_norm_uses_the_epsilon_of_the_published_models():
    norms = [m for m in Encoder(small()).modules() if isinstance(m, torch.nn.LayerNorm)]
    assert [norm.eps for norm in norms] == 5 * [1e-6]


def test_the_patch_embedding_is_the_convolution_its_weights_describe():
    embed = fill(Encoder(small()).patch_embed.requires_grad_(False))
    clip = wave(2, 3, 4, 32, 48)
    expected = embed.proj(clip).flatten(2).transpose(1, 2)
    torch.testing.assert_close(embed(clip), expected, rtol=1e-5, atol=1e-4)


def test_clips_of_a_batch_do_not_influence_each_other():
    encoder = fill(Encoder(small()))
    a, b = wave(1, 3, 4, 32, 32), wave(1, 3, 4, 32, 32).flip(-1)
    with torch.inference_mode():
        both = encoder(torch.cat([a, b]))
        torch.testing.assert_close(both, torch.cat([encoder(a), encoder(b)]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('shape', [(1, 3, 3, 32, 32), (1, 3, 4, 40, 32), (1, 3, 4, 32, 8),
                                   (1, 4, 4, 32, 32), (3, 4, 32, 32), (1, 3, 0, 32, 32)])
def test_a_clip_that_cannot_be_cut_into_tubelets_is_refused(shape):
    with pytest.raises(ValueError, match='clip'):
        token_grid(shape)


def test_versions_that_are_not_implemented_are_refused_by_name():
    with pytest.raises(ValueError, match=r"'2\.1' is not implemented.*2\.0"):
        Encoder(small(), version='2.1')


def test_an_unknown_size_is_refused_with_the_known_ones():
    with pytest.raises(ValueError, match=r'medium.*tiny, small'):
        find_variant('medium')


@pytest.mark.parametrize(('head_dim', 'width'), [(32, 10), (64, 20), (80, 26)])
def test_each_axis_gets_an_even_third_of_a_head(head_dim, width):
    assert axis_width(head_dim) == width
    cos, sin = rope_tables(3, 4, 5, head_dim)
    assert cos.shape == sin.shape == (60, head_dim)
    assert (cos[:, 3 * width:] == 1).all() and (sin[:, 3 * width:] == 0).all()


def rope_by_hand(x, position, head_dim, version):
    """Encode one vector in plain Python floats."""
    width, out = axis_width(head_dim), list(x)
    for axis, p in enumerate(position):
        for i in range(width):
            frequency = i % (width // 2) if version == '2.0' else i // 2
            angle = p * 10000.0 ** (-frequency / (width / 2))
            at = axis * width + i
            partner = -x[at + 1] if i % 2 == 0 else x[at - 1]
            out[at] = x[at] * math.cos(angle) + partner * math.sin(angle)
    return out


@pytest.mark.parametrize('version', ['2.0', '2.1'])
@pytest.mark.parametrize('head_dim', [64, 80])
def test_rotation_follows_the_formula_at_every_position(version, head_dim):
    t, h, w = 3, 4, 2
    x = wave(t * h * w, head_dim)
    got = rotate(x, *rope_tables(t, h, w, head_dim, version))
    for token in range(t * h * w):
        row, col = float(token // w % h), float(token % w)
        if version == '2.1':  # stretched to the grid of 16 it was trained with
            row, col = row * 15 / (h - 1), col * 15 / (w - 1)
        expected = rope_by_hand(x[token].tolist(), (token // (h * w), row, col), head_dim, version)
        assert got[token].tolist() == pytest.approx(expected, abs=1e-5)


def test_only_version_2_1_keeps_lengths_when_it_rotates():
    x = wave(8, 64)
    for version, keeps in (('2.0', False), ('2.1', True)):
        length = rotate(x, *rope_tables(8, 1, 1, 64, version)).norm(dim=-1)
        assert torch.allclose(length, x.norm(dim=-1), rtol=1e-4) == keeps


def test_a_single_row_of_patches_has_finite_positions_in_both_versions():
    for version in ('2.0', '2.1'):
        assert all(table.isfinite().all() for table in rope_tables(2, 1, 1, 64, version))


def test_position_tables_do_not_depend_on_where_they_are_first_asked_for():
    with torch.device('meta'), torch.inference_mode():
        cos, _ = rope_tables(2, 7, 11, 64)
    assert cos.device.type == 'cpu'
    assert not cos.is_inference()


def test_position_tables_are_built_once_per_shape():
    assert rope_tables(4, 5, 6, 64)[0] is rope_tables(4, 5, 6, 64)[0]
    encoder = fill(Encoder(small()))
    with torch.inference_mode():
        encoder(wave(1, 3, 4, 32, 32))
        first = next(iter(encoder._tables.values()))[0]
        encoder(wave(1, 3, 4, 32, 32))
        assert next(iter(encoder._tables.values()))[0] is first
        for height in range(16, 16 * 8, 16):
            encoder(wave(1, 3, 2, height, 16))
    assert len(encoder._tables) <= 4


def test_an_encoder_used_for_inference_can_still_be_trained():
    encoder = fill(Encoder(small()).requires_grad_(False)).requires_grad_(True)
    clip = wave(1, 3, 2, 32, 32)
    with torch.inference_mode():
        encoder(clip)
    encoder(clip).square().mean().backward()
    assert encoder.patch_embed.proj.weight.grad.abs().sum() > 0


def test_half_precision_branches_stay_close_to_float32():
    clip = wave(1, 3, 4, 32, 32)
    encoder = fill(Encoder(small()))
    with torch.inference_mode():
        exact = encoder(clip)
        encoder.set_branch_precision(torch.bfloat16)
        rounded = encoder(clip)
    assert rounded.dtype == torch.float32
    assert encoder.norm.weight.dtype == encoder.patch_embed.proj.weight.dtype == torch.float32
    assert 0 < (rounded - exact).norm() / exact.norm() < 0.02
