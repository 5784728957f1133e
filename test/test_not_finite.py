# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A model that computes values that are not finite: nothing is known, and fp32 may help."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from bundles import constant_heads, meta
from fake_cuda import install
from safetensors.torch import save_file
from scenes import texture
from sessions import choice_of, serve

from vjepa_ros import Level, ObstacleDetector, Quality
from vjepa_ros.model.checkpoint.files import tensors_sha256
from vjepa_ros.model.checkpoint.layouts import KEY
from vjepa_ros.model.checkpoint.load import load_model
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import find_variant
from vjepa_ros.runtime import device as devices
from vjepa_ros.runtime.cuda.runner import CudaRunner
from vjepa_ros.runtime.model import NotFinite
from vjepa_ros.runtime.runner import QueuedRunner, Runner

pytestmark = pytest.mark.usefixtures('one_thread')
FRAMES, SIDE = 4, 64
PICTURE = texture((160, 120))
RED = PICTURE.copy()
RED[..., 0] = 200 + RED[..., 0] // 5
RED[..., 1:] = RED[..., 1:] // 10
WEAK, STRONG = 1.31e4, 6.8e37     # overflow in fp16; and in anything


def write(path, window=0, strength=WEAK):
    """Write an encoder that overflows before its first MLP where a patch is red, only there."""
    encoder = Encoder(find_variant('tiny'), '2.1' if window else '2.0', window)
    encoder.init_random(0)
    block = encoder.blocks[0]
    with torch.no_grad():
        red = torch.tensor((0.02, -0.01, -0.01))
        encoder.patch_embed.proj.weight[0] = red[:, None, None, None]
        encoder.patch_embed.proj.bias[0] = 0.0
        encoder.patch_embed.proj.bias[1] = 50.0     # so that it does not depend on the others
        block.norm2.weight[0] = strength
        block.mlp.fc1.weight[:, 0] = 0.0
    state = encoder.state_dict()
    about = meta(version=encoder.version, window=window, has_encoder=True,
                 backbone_sha256=tensors_sha256(state))
    said = constant_heads(clearance=5.0).state_dict()
    save_file({**{f'encoder.{k}': v for k, v in state.items()},
               **{f'heads.{k}': v.contiguous() for k, v in said.items()}}, path,
              metadata={KEY: about.to_json()})
    return str(path)


def clip_of(picture, seed=0):
    noise = np.random.default_rng(seed).integers(0, 5, (FRAMES, SIDE, SIDE, 3), np.uint8)
    return picture[:SIDE, :SIDE] // 2 + picture[:SIDE, :SIDE] // 3 + noise


@pytest.fixture
def half(monkeypatch):
    """A CPU that offers fp16, which PyTorch computes there."""
    real = devices.formats
    monkeypatch.setattr(devices, 'formats', lambda device: (
        (*real(device)[0], torch.float16), *real(device)[1:]))


RUNNERS = {'host': Runner, 'graphs': CudaRunner, 'queue': QueuedRunner}


@pytest.mark.parametrize('window', [0, 2])
@pytest.mark.parametrize('runner', RUNNERS)
def test_only_the_clip_that_overflows_is_lost_and_a_stream_begins_anew(
        tmp_path, monkeypatch, runner, window):
    if runner == 'graphs':
        install(monkeypatch)
    encoder, made, _ = load_model('tiny', weights=write(tmp_path / 'x', window))
    session = serve(encoder, choice_of('fp16'), (FRAMES, SIDE, SIDE, 3), made, RUNNERS[runner])
    assert bool(session.not_streaming) == (not window)
    films = [np.concatenate([clip_of(PICTURE, seed) for seed in (n, n + 3)]) for n in range(3)]
    films[1][2:4] = RED[:SIDE, :SIDE]
    for first in (0, 2, 4):
        shown = slice(first, first + FRAMES)
        keys = [[f'{n} {at}' for at in range(first, first + FRAMES)] for n in range(3)]
        stamps = [np.arange(first, first + FRAMES, dtype=float)] * 3
        outputs = session.run([film[shown] for film in films], True, keys, None, stamps)
        spoilt = first < 4
        assert [output.finite for output in outputs] == [True, not spoilt, True]
        for output in outputs:
            assert output.has_features is output.finite
            assert (output.heads is not None) is output.finite
            assert not output.finite or np.isfinite(output.features).all()
        assert not spoilt or not any(key[0] == '1' for key in session.remembered())
    # The red frames have left no trace.
    anew = session.run([films[1][4:]], True, [[None] * FRAMES], None, stamps[:1])[0]
    np.testing.assert_allclose(outputs[1].features, anew.features, atol=1e-2)
    for encode in (session.encode, session.features):
        with pytest.raises(NotFinite, match='set `precision: fp32`'):
            encode([films[0][:4], films[1][:4]])


def show(detector, picture, start):
    for number in range(6):
        detector.add_frame(picture, start + number / 10)
        seen = detector.result()
    return seen


def test_fp32_is_kept_where_it_helps_and_said_once(half, tmp_path, caplog):
    path = write(tmp_path / 'x.safetensors', 2)
    with ObstacleDetector(weights=path, img_size=SIDE, num_frames=FRAMES, device='cpu',
                          precision='fp16') as detector:
        assert show(detector, PICTURE, 1.0).assessment.level is Level.CLEAR
        assert detector.engine.choice.precision == 'fp16' and not detector.engine.trouble
        for start in (2.0, 3.0):
            seen = show(detector, RED, start)
            assert not seen.assessment.flags & Quality.NOT_FINITE
            assert np.isfinite(seen.features).all()
            assert math.isfinite(seen.assessment.motion_score)
        assert detector.engine.choice.precision == 'fp32'
        assert 'fp16' in detector.engine.trouble and 'precision: fp32' in detector.engine.trouble
    assert caplog.text.count('not finite') == 1


@pytest.mark.ros
@pytest.mark.any_distro
def test_the_other_camera_of_a_node_goes_on_and_diagnostics_tell(tmp_path):
    pytest.importorskip('rclpy')
    from node_fixtures import Camera, node_running
    from ros_harness import ros_session

    from vjepa_ros.ros import read

    path = write(tmp_path / 'x.safetensors', strength=STRONG)
    with ros_session() as ros, node_running(ros, cameras=['good', 'bad'], weights=path,
                                            precision='bf16', autostart=True) as node, \
            Camera(ros, 'good/image_raw'), \
            Camera(ros, 'bad/image_raw', picture=lambda i: RED), \
            node.listen('assessment', camera='good') as good, \
            node.listen('assessment', camera='bad') as bad, \
            node.listen('features', camera='bad') as features:
        said = node.wait_for('camera bad', lambda values: int(values['not_finite']) > 3)
        assert 'not_finite' in said['flags'] and said['level'] == 'unknown'
        assert int(said['errors']) == 0 and not features
        assert {read.assessment(msg).level for msg in bad} == {Level.UNKNOWN}
        seen = read.assessment(node.next(good, 3)[-1])
        assert not seen.flags & Quality.NOT_FINITE and math.isfinite(seen.motion_score)
        node.report('model', lambda status: 'fp32 does not help' in status.message)
