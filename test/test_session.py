# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A loaded model encodes clips, refuses what it cannot encode, and gives its memory back."""

import threading
import weakref

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from vjepa_ros.model.checkpoint.load import WeightsError, load_encoder
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD, Variant
from vjepa_ros.runtime.device import DeviceChoice, DeviceError
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.session import EncoderSession, SessionError

pytestmark = pytest.mark.usefixtures('one_thread')
SIZE = Variant('test', 48, 2, 1, 96)
ON_CPU = DeviceChoice(torch.device('cpu'), torch.float32, 'test')
SMALL = EngineConfig(weights='random', allow_random_weights=True, num_frames=4, image_size=64,
                     device='cpu')


def session(frames=4, size=32):
    return EncoderSession(load_encoder(SIZE, allow_random_weights=True)[0], ON_CPU, frames, size)


def headed(calibration=Calibration(), choice=ON_CPU):  # noqa: B008
    """A session whose heads are as lively as after training."""
    heads = Heads.for_variant(SIZE)
    generator = torch.Generator().manual_seed(0)
    for layer in (heads.dense[-1], heads.contact, heads.clearance):
        layer.weight.data.normal_(std=0.1, generator=generator)
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    return EncoderSession(encoder, choice, 4, 32, heads, calibration)


def random_clip(seed, shape=(4, 32, 32, 3)):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def test_encoding_normalises_and_keeps_the_order_of_frames_rows_and_columns():
    clip = random_clip(0, (4, 32, 48, 3))[:, :, :32]
    x = (clip / 255.0 - np.array(IMAGENET_MEAN)) / np.array(IMAGENET_STD)
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    with torch.inference_mode():
        expected = encoder(torch.from_numpy(x).float().permute(3, 0, 1, 2)[None])[0].numpy()
    features = session().encode([clip])[0]
    assert features.shape == (2, 2, 2, 48)
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, expected, rtol=1e-4, atol=1e-5)


def test_one_pass_gives_features_and_what_the_heads_say():
    clips = [random_clip(i) for i in range(3)]
    outputs, alone = headed().run(clips), session()
    for clip, output in zip(clips, outputs, strict=True):
        # Products of other shapes round otherwise on some processors.
        np.testing.assert_allclose(output.features, headed().run([clip])[0].features, rtol=1e-4,
                                   atol=1e-5)
        np.testing.assert_allclose(output.features, alone.encode([clip])[0], rtol=1e-4, atol=1e-5)
        single = headed().run([clip])[0].heads
        for name, array in vars(output.heads).items():
            assert array.shape == {'contact': (21,), 'clearance': (13,)}.get(name, (2, 2))
            assert array.dtype == np.float32
            np.testing.assert_allclose(array, getattr(single, name), rtol=1e-3, atol=1e-5)
        assert output.heads.contact.sum() == pytest.approx(1, abs=1e-5)
        assert output.heads.clearance.sum() == pytest.approx(1, abs=1e-5)
        assert (output.heads.scale > 0).all()
    assert not np.array_equal(outputs[0].heads.expansion, outputs[1].heads.expansion)


def test_only_what_is_wanted_is_brought_from_the_device():
    runner = headed()
    output = runner.run([random_clip(0)], features=False)[0]
    assert output.features is None and output.heads is not None
    assert set(runner.timings) == {'upload', 'encode', 'heads', 'download'}
    assert session().run([random_clip(0)])[0].heads is None
    assert headed().run([]) == []


@pytest.fixture(scope='module')
def deep():
    """A session of version 2.1, its encoder, and two clips with what they look like to it."""
    encoder, _ = load_encoder('tiny', '2.1', 'random', allow_random_weights=True)
    made = EncoderSession(encoder, ON_CPU, 4, 32)
    clips = [random_clip(seed) for seed in (1, 2)]
    pixels = np.stack(clips) / 255.0
    pixels = torch.from_numpy((pixels - IMAGENET_MEAN) / IMAGENET_STD).float()
    yield made, encoder, clips, pixels.permute(0, 4, 1, 2, 3)
    made.close()


def close(got, expected):
    return np.allclose(np.stack(got), expected.numpy(), atol=1e-4)


@torch.inference_mode()
def test_features_come_from_the_layers_that_are_asked_for(deep):
    made, encoder, clips, pixels = deep
    last = made.features(clips)
    assert [one.shape for one in last] == [(2, 2, 2, 192)] * 2
    assert all(np.array_equal(*pair) for pair in zip(last, made.encode(clips), strict=True))
    some = made.features(clips, layers=(5, 2))
    assert close(some, torch.stack(encoder.layers(pixels, (5, 2)), dim=1))
    dense = made.features(clips, levels=3)
    assert dense[0].shape == (2, 2, 2, 3 * 192)
    assert close(dense, encoder.dense(pixels, 3))


@torch.inference_mode()
@pytest.mark.parametrize(('per', 'axes', 'shape'), [('tubelet', (2, 3), (2, 2, 192)),
                                                    ('clip', (1, 2, 3), (2, 192))])
def test_features_are_pooled_for_each_layer(deep, per, axes, shape):
    made, encoder, clips, pixels = deep
    got = made.features(clips, layers=(8, 11), per=per)
    assert got[0].shape == shape
    assert close(got, torch.stack([one.mean(axes) for one in encoder.layers(pixels, (8, 11))],
                                  dim=1))
    assert close(made.features(clips, per=per), encoder(pixels).mean(axes))


@pytest.mark.parametrize(('wanted', 'problem'), [
    ({'layers': (3,)}, 'layer 3.*choose from 2, 5, 8, 11'),
    ({'layers': ()}, 'choose some layers or levels'),
    ({'layers': (2,), 'levels': 2}, r'layers \(2,\) and of 2 levels.*choose'),
    ({'levels': 5}, '5 levels.*1 to 4'),
    ({'per': 'frame'}, "per 'frame'.*grid, tubelet, clip")])
def test_features_that_do_not_exist_are_refused(deep, wanted, problem):
    with pytest.raises(ValueError, match=problem):
        deep[0].features(deep[2], **wanted)


@pytest.mark.parametrize(('change', 'named'), [
    (lambda frames: frames[:3], r'uint8 \(3, 32, 32, 3\)'),
    (lambda frames: [], 'empty'),
    (lambda frames: [*frames[:3], frames[3].astype(np.float32)], 'float32'),
    (lambda frames: [*frames[:3], frames[3][:16]], r'\(4, 16, 32, 3\)')])
def test_frames_that_are_no_clip_are_refused(change, named):
    with pytest.raises(ValueError, match=named):
        session().encode([change(list(random_clip(0)))])


def test_a_closed_session_frees_the_encoder_and_refuses_to_encode():
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    runner = EncoderSession(encoder, ON_CPU, 4, 32)
    assert runner.memory_bytes() == sum(4 * p.numel() for p in encoder.parameters())
    gone = weakref.ref(encoder)
    del encoder
    runner.close()
    runner.close()
    assert gone() is None
    assert runner.memory_bytes() == 0
    with pytest.raises(SessionError, match='closed'):
        runner.encode([random_clip(0)])


def test_closing_waits_for_the_clip_that_is_being_encoded():
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    runner = EncoderSession(encoder, ON_CPU, 4, 32)
    inside, go_on, results = threading.Event(), threading.Event(), []
    encoder.norm.register_forward_hook(lambda *_: (inside.set(), go_on.wait(20), None)[-1])
    worker = threading.Thread(target=lambda: results.extend(runner.encode([random_clip(0)])))
    closer = threading.Thread(target=runner.close)
    worker.start()
    assert inside.wait(20)
    closer.start()
    closer.join(0.2)
    assert closer.is_alive()
    go_on.set()
    worker.join(20)
    closer.join(20)
    assert len(results) == 1
    assert not closer.is_alive()


@pytest.mark.parametrize(('field', 'value'), [
    ('num_frames', 2), ('num_frames', 7), ('image_size', 100), ('image_size', 16),
    ('cpu_threads', -1)])
def test_an_impossible_configuration_is_refused_by_field_and_value(field, value):
    with pytest.raises(ValueError, match=f'{field} is {value}'):
        EngineConfig(**{field: value})


def test_an_engine_reports_what_it_runs():
    engine = Engine.load(SMALL)
    try:
        assert not engine.report.trained
        assert engine.choice.device.type == 'cpu'
        assert engine.noise_floor.offset.shape == (1,)
        assert engine.memory_bytes() > 10e6
        assert engine.encode([random_clip(1, (4, 64, 64, 3))])[0].shape == (2, 4, 4, 192)
        assert engine.timings['encode'] > 0
        clip = random_clip(1, (4, 64, 64, 3))
        assert engine.features([clip], layers=(0, 11), per='clip')[0].shape == (2, 192)
    finally:
        engine.close()
    assert engine.memory_bytes() == 0


@pytest.mark.parametrize(('change', 'error'), [
    ({'allow_random_weights': False}, WeightsError),
    ({'model_version': '3.0'}, ValueError),
    ({'model_size': 'huge', 'model_version': '2.1'}, ValueError),
    ({'model_size': 'colossal'}, ValueError),
    ({'device': 'cuda:99', 'require_device': True}, DeviceError)])
def test_a_failed_load_raises_and_a_corrected_one_succeeds(change, error):
    with pytest.raises(error):
        Engine.load(EngineConfig(**{**vars(SMALL), **change}))
    Engine.load(SMALL).close()


def test_a_model_that_fails_while_warming_does_not_stay_loaded(tmp_path):
    state = load_encoder('tiny', weights='random', allow_random_weights=True)[0].state_dict()
    state['norm.weight'][:] = 3e38  # a number, but what it multiplies becomes infinite
    save_file(state, tmp_path / 'huge.safetensors')
    config = EngineConfig(weights=str(tmp_path / 'huge.safetensors'), num_frames=4, image_size=64,
                          device='cpu')
    with pytest.raises(SessionError, match='not finite') as failure:
        Engine.load(config)
    # The traceback keeps the session alive, as a log record would.
    sessions = [entry.frame.f_locals['session'] for entry in failure.traceback
                if 'session' in entry.frame.f_locals]
    assert [s.memory_bytes() for s in sessions] == [0]


def test_threads_are_those_asked_for_in_the_thread_that_computes():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        torch.rand(256, 256) @ torch.rand(256, 256)       # from now on it keeps its own number
        loaded = []
        loader = threading.Thread(target=lambda: loaded.append(
            Engine.load(EngineConfig(**{**vars(SMALL), 'cpu_threads': 1}))))
        loader.start()
        loader.join()
        size = SMALL.image_size
        loaded[0].run([np.zeros((SMALL.num_frames, size, size, 3), np.uint8)])
        assert torch.get_num_threads() == 1
        loaded[0].close()
    finally:
        torch.set_num_threads(before)
