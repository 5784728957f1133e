# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A block-causal encoder computes the same of a stream as of the whole clip."""

import numpy as np
import pytest
import torch

from vjepa_ros.lab.training.network import block_causal
from vjepa_ros.lab.training.tubelets import stream_frames
from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import find_variant
from vjepa_ros.runtime.forward.cpu import speed_up

WINDOW, SIDE = 3, 48


@pytest.fixture
def encoder():
    made = Encoder(find_variant('tiny'), '2.1', WINDOW)
    made.init_random(0)
    with torch.no_grad():       # so that tokens matter to each other
        for parameter in made.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3)
        made.interval_embed.normal_(generator=torch.Generator().manual_seed(1))
    return made.eval().requires_grad_(False)


def stream(encoder, clip, stamps):
    """Encode tubelet by tubelet."""
    seen, features = [], []
    for at in range(0, clip.shape[2], 2):
        memory = []
        for layer in range(encoder.variant.depth):
            memory.append(LayerMemory([tubelet[layer].own
                                       for tubelet in seen[-(encoder.window - 1):]]))
        features.append(encoder.step(clip[:, :, at:at + 2], stamps[:, at:at + 2], memory))
        seen.append(memory)
    return torch.cat(features, 1)


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('fast', [False, True])
def test_a_stream_gives_what_the_whole_clip_gives(encoder, seed, fast):
    random = torch.Generator().manual_seed(seed)
    frames = 2 * int(torch.randint(1, 7, (), generator=random))
    clip = torch.randn(2, 3, frames, SIDE, SIDE, generator=random)
    stamps = (0.3 + torch.rand(2, frames, generator=random, dtype=torch.float64)).cumsum(1)
    whole = encoder(clip, stamps=stamps)
    if fast:
        speed_up(encoder)
    # Long after the start: only differences of time matter.
    assert torch.allclose(stream(encoder, clip, stamps + 1e6), whole, atol=1e-4)


def test_only_the_window_and_the_past_count(encoder):
    clip = torch.randn(1, 3, 14, SIDE, SIDE)
    features = encoder(clip)

    def differs(changed):
        other = clip.clone()
        other[:, :, changed] = 0
        return ((encoder(other) - features).abs().amax((0, 2, 3, 4)) > 1e-4).tolist()

    assert differs(slice(12, 14)) == [False] * 6 + [True]
    # Each of 12 layers reaches `WINDOW` - 1 tubelets back.
    assert differs(slice(0, 2)) == [True] * 7
    encoder.blocks = encoder.blocks[:2]
    encoder.variant = type(encoder.variant)('short', 192, 2, 3, 768)
    encoder._norm = lambda layer: encoder.norms_block[-1]
    features = encoder(clip)
    assert differs(slice(0, 2)) == [True] * 5 + [False] * 2


def test_true_times_count(encoder):
    clip = torch.randn(1, 3, 6, SIDE, SIDE)
    even = torch.arange(6, dtype=torch.float64)[None]
    assert torch.allclose(encoder(clip, stamps=even), encoder(clip), atol=1e-5)
    late = even + torch.tensor([0, 0, 0, 0, 1.0, 1.0])
    slow = even + torch.tensor([0, 0, 0, 0, 0, 1.0])
    for stamps in (late, slow):
        assert (encoder(clip, stamps=stamps) - encoder(clip))[:, -1].abs().max() > 1e-3


def test_tokens_left_out_see_the_same_past(encoder):
    clip, places = torch.randn(2, 3, 8, SIDE, SIDE), SIDE // 16 * (SIDE // 16)
    stamps = torch.arange(8, dtype=torch.float64).expand(2, -1)
    keep = torch.arange(4 * places).expand(2, -1)
    assert torch.allclose(encoder(clip, keep, stamps), encoder(clip, stamps=stamps).flatten(1, 3),
                          atol=1e-4)
    assert encoder(clip, keep[:, ::2].contiguous(), stamps).shape == (2, 2 * places, 192)


def test_version_2_0_cannot_stream():
    with pytest.raises(ValueError, match=r'window of 4 .* 2\.0'):
        Encoder(find_variant('tiny'), '2.0', 4)


def test_a_block_causal_start_keeps_what_it_can():
    plain = Encoder(find_variant('tiny'))
    plain.init_random(0)
    made = block_causal(plain, 4)
    again = block_causal(made, 6)
    assert (made.version, made.window, again.window) == ('2.1', 4, 6)
    for name, value in made.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    assert torch.equal(made.norms_block[3].weight, plain.norm.weight)
    assert torch.equal(made.blocks[5].mlp.fc1.weight, plain.blocks[5].mlp.fc1.weight)


@pytest.mark.parametrize(('stamps', 'expected'), [
    ([0, 1, 2, 3, 4, 5, 6, 7], [2, 3, 4, 5, 6, 7]),
    ([1, 1, 3, 3, 5, 5, 7, 7], [0, 2, 2, 4, 4, 6]),         # each frame shown twice
    ([0, .5, 1, 1.5, 2, 2.5, 3, 3.5], [1, 3, 1, 3, 5, 7]),  # a camera twice as fast
    ([0, 1.6, 3.2, 4.8, 6.4, 8, 9.6, 11.2], [4, 5, 5, 6, 6, 7]),
    ([0, 5], [0, 1, 0, 1, 0, 1]),                           # no more than one tubelet
])
def test_tubelets_are_chosen_by_stamps(stamps, expected):
    stamps = torch.tensor([stamps], dtype=torch.float64)
    chosen = stream_frames(stamps, 3)[0].tolist()
    values = stamps[0].numpy()
    assert np.array_equal(values[chosen], values[expected])
