# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Random scenes and clips of the world: possible geometry, and the same ones for a seed."""

from __future__ import annotations

import pytest
import torch

from vjepa_ros.lab.world.clips import ClipWorld
from vjepa_ros.lab.world.scenes.sampler import SceneSampler
from vjepa_ros.lab.world.scenes.scene_spec import WorldConfig
from vjepa_ros.lab.world.textures.bank import GROUPS, Materials, TextureBank

# Of six clips of a seed: mean depths [m], greys of all pictures, and first stamps [s].
KEPT = {
    WorldConfig(): ([30.336, 2.3441, 10.315, 4.9009, 0.62391, 1.395],
                    [123.0, 154.8, 90.0, 59.2, 44.8, 107.1],
                    [-0.136, -0.175, -0.402, -0.372, -0.370, -0.241]),
    WorldConfig('rough', training=True): ([0.80191, 1.001, 30.563, 1.2491, 34.709, 2.2875],
                                          [53.6, 142.1, 201.0, 113.7, 117.5, 82.0],
                                          [-0.145, -0.392, -0.713, -0.372, -0.766, -0.861])}
WALKS = tuple(tuple(range(200 + 8 * i, 208 + 8 * i)) for i in range(3))
MATERIALS = Materials({name: (3 * i, 3 * i + 1, 3 * i + 2) for name, i in GROUPS.items()}, WALKS)


def test_no_camera_is_within_a_shape_or_under_the_ground():
    s = SceneSampler(MATERIALS, 96, 8, WorldConfig()).sample(7, 1000).scenes
    assert (s.camera_position[..., 1] < 0).all()
    sine, cosine = s.yaw.sin(), s.yaw.cos()
    offset = s.camera_position.unsqueeze(2) - s.position
    own = torch.stack((offset[..., 0] * cosine - offset[..., 2] * sine, offset[..., 1],
                       offset[..., 0] * sine + offset[..., 2] * cosine), -1)
    for part in torch.linspace(0, 1, 9):
        between = own[:, :-1] + part * (own[:, 1:] - own[:, :-1])
        inside = (between.abs() <= s.half[:, None]).all(-1) & s.alive[:, None]
        assert not inside.any()


@pytest.mark.parametrize('config', KEPT, ids=lambda config: config.name)
def test_the_clips_of_a_seed_never_change(config):
    bank = TextureBank.procedural(0, count=30, size=32)
    clips = ClipWorld(32, 4, bank=bank, config=config).clips(9, 6)
    depths, greys, stamps = KEPT[config]
    # Not a hash: another machine may round the last bit differently.
    assert clips.truth.depth.clamp(max=50).mean((1, 2)).tolist() == pytest.approx(depths, 1e-3)
    assert clips.frames.float().mean((1, 2, 3, 4)).tolist() == pytest.approx(greys, abs=0.1)
    assert clips.stamps_s[:, 0].tolist() == pytest.approx(stamps, abs=1e-3)
