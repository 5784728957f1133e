# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The predictor computes what the published V-JEPA 2 predictor computes."""

import pytest
import torch
from test_model import fill, wave

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.predictor import DensePredictor, Predictor
from vjepa_ros.model.variants import Variant, find_variant

pytestmark = pytest.mark.usefixtures('one_thread')

# Outputs of facebookresearch/vjepa2 at commit c2963a47433ecca0ad4f06ec28bcfa8cb5b5cefb for the
# parameters of `fill` with two mask tokens, the second of which is used: 2 blocks, 20 tokens of
# context and 15 wanted on a grid of 3 x 4 x 4. Norm, then values at GOLDEN_AT (clip, token,
# channel).
GRID = (3, 4, 4)
GOLDEN_NORM = 35.71682
GOLDEN_AT = ((0, 0, 0), (0, 7, 21), (0, 14, 47), (1, 0, 5), (1, 8, 30), (1, 14, 40))
GOLDEN = (-0.57390, 0.09545, -0.18079, -1.06884, -1.92583, -0.45949)


def predictor():
    return fill(Predictor(48, 64, 2, 2, masks=2).requires_grad_(False))


def tokens():
    order = torch.tensor([[(7 * i + 3) % 48 for i in range(48)],
                          [(11 * i + 5) % 48 for i in range(48)]])
    return order[:, :20], order[:, 20:35]


@pytest.mark.parametrize(('size', 'depth', 'reads', 'out'), [
    ('base', 12, 768, 1664), ('large', 12, 1024, 1664),
    ('giant', 24, 4 * 1408, 4 * 1408), ('gigantic', 24, 4 * 1664, 4 * 1664)])
def test_the_predictor_of_2_1_has_the_published_geometry(size, depth, reads, out):
    with torch.device('meta'):
        model = DensePredictor.for_variant(find_variant(size))
        guess, seen = model(torch.zeros(2, 20, reads), *tokens(), GRID)
    assert len(model.predictor_blocks) == depth
    assert guess.shape == (2, 15, out)
    assert seen.shape == (2, 20, out)


def test_start_values_depend_on_the_seed_alone_and_mask_tokens_start_at_zero():
    one, same, other = (Predictor(48, 64, 2, 2) for _ in range(3))
    for built, seed in ((one, 1), (same, 1), (other, 2)):
        built.init_random(seed)
    for key, value in one.state_dict().items():
        assert torch.equal(value, same.state_dict()[key]), key
    assert not torch.equal(one.predictor_proj.weight, other.predictor_proj.weight)
    assert (one.mask_tokens[0] == 0).all()


def test_it_can_be_traced_in_one_piece_once_its_tables_are_made():
    model = predictor().requires_grad_(True)
    model.prepare(GRID, torch.device('cpu'))
    explained = torch._dynamo.explain(model)(wave(2, 20, 48), *tokens(), GRID)
    assert (explained.graph_count, explained.graph_break_count) == (1, 0)


def test_encoder_and_predictor_learn_to_fill_a_gap():
    """Half of a clip of stripes tells the rest: the loss falls far below that of the mean."""
    generator = torch.Generator().manual_seed(0)
    encoder = Encoder(Variant('test', 48, 1, 1, 96))
    model = Predictor(48, 32, 2, 2)
    encoder.init_random(0)
    model.init_random(1)
    target = torch.randn(8, 1, 48, generator=generator).expand(-1, 8, -1)
    clip = torch.randn(8, 3, 1, 1, 1, generator=generator).expand(-1, -1, 4, 32, 32).contiguous()
    order = torch.rand(8, 8, generator=generator).argsort(1)
    keep, wanted = order[:, :4], order[:, 4:]
    optimiser = torch.optim.AdamW([*encoder.parameters(), *model.parameters()], 3e-3)
    losses = []
    for _ in range(80):
        with torch.autocast('cpu', torch.bfloat16):
            guess = model(encoder(clip, keep), keep, wanted, (2, 2, 2))
        loss = (guess.float() - target[:, :4]).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]
