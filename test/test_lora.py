# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Low-rank adapters change an encoder a little, and only what they are put on."""

import copy

import pytest
import torch

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.lora import (
    PARTS,
    AdaptedLinear,
    adapter_state,
    add_adapters,
    merge_adapters,
    merge_state,
)
from vjepa_ros.model.variants import Variant

SIZE = Variant('test', 48, 2, 1, 96)


def encoder():
    built = Encoder(SIZE)
    built.init_random(0)
    return built.requires_grad_(False)


def clip():
    return torch.randn(1, 3, 4, 32, 32, generator=torch.Generator().manual_seed(1))


def adapted():
    """An encoder whose adapters are not zero, as after training."""
    built = encoder()
    generator = torch.Generator().manual_seed(2)
    for parameter in add_adapters(built, 3):
        parameter.data.copy_(0.2 * torch.randn(parameter.shape, generator=generator))
    return built


def test_only_the_adapters_are_trained():
    built = encoder()
    trained = add_adapters(built, 4, parts=('attn.qkv', 'mlp.fc2'))
    assert torch.equal(built(clip()), encoder()(clip()))        # new adapters change nothing
    assert sum(p.numel() for p in trained) == 2 * 4 * (48 + 144 + 96 + 48)
    assert {id(p) for p in trained} == {id(p) for p in built.parameters() if p.requires_grad}
    trained[1].data.normal_(generator=torch.Generator().manual_seed(0))
    with torch.autocast('cpu', torch.bfloat16):
        built(clip()).square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in trained)


def test_merged_adapters_compute_the_same_in_a_plain_encoder():
    built = adapted()
    expected = built(clip())
    assert (expected - encoder()(clip())).abs().max() > 0.01
    merge_adapters(built)
    assert not any(isinstance(m, AdaptedLinear) for m in built.modules())
    assert built.state_dict().keys() == encoder().state_dict().keys()
    torch.testing.assert_close(built(clip()), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('break_it', [
    lambda s: s.pop('blocks.0.attn.qkv.up'),
    lambda s: s.update({'blocks.7.attn.qkv.down': torch.zeros(3, 48)}),
    lambda s: s.update({'blocks.0.attn.qkv.up': torch.zeros(144, 5)})])
def test_adapters_that_do_not_fit_are_refused_and_change_nothing(break_it):
    state = dict(adapter_state(adapted()))
    break_it(state)
    fresh = encoder()
    before = copy.deepcopy(fresh.state_dict())
    with pytest.raises(ValueError, match=r'adapters do not fit.*blocks\.'):
        merge_state(fresh, state)
    for key, value in fresh.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize(('rank', 'parts'), [(0, PARTS), (4, ()), (4, ('attn.k',))])
def test_an_impossible_rank_or_layer_is_refused(rank, parts):
    with pytest.raises(ValueError, match='rank must be at least 1'):
        add_adapters(encoder(), rank, parts=parts)
