# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A loaded model and its heads compute clips, refuse what is none, and bound their memory."""

import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from sessions import SIZE, clips_of, lively_heads, serve, session

from vjepa_ros.model.checkpoint.load import load_encoder
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.variants import IMAGENET_MEAN, IMAGENET_STD
from vjepa_ros.runtime import memory
from vjepa_ros.runtime import model as served
from vjepa_ros.runtime.device import OperatorError, SessionError
from vjepa_ros.runtime.model import Model, ModelConfig

pytestmark = pytest.mark.usefixtures('one_thread')
SMALL = ModelConfig(weights='random', allow_random_weights=True, num_frames=4, image_size=64,
                     device='cpu')


def normalised(clips):
    pixels = (np.stack(clips) / 255.0 - IMAGENET_MEAN) / IMAGENET_STD
    return torch.from_numpy(pixels).float().permute(0, 4, 1, 2, 3)


@torch.inference_mode()
def test_one_pass_gives_features_and_what_the_heads_say():
    clips, runner = clips_of(3), session()
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    for clip, found, features in zip(clips, runner.run(clips), encoder(normalised(clips)),
                                     strict=True):
        assert found.features.shape == (2, 2, 2, 48) and found.features.dtype == np.float32
        np.testing.assert_allclose(found.features, features, rtol=1e-4, atol=1e-5)
        single = runner.run([clip])[0].heads
        for name, array in vars(found.heads).items():
            assert array.shape == {'contact': (21,), 'clearance': (13,)}.get(name, (2, 2))
            np.testing.assert_allclose(array, getattr(single, name), rtol=1e-3, atol=1e-5)
    assert session(heads=False).run(clips)[0].heads is None


@torch.inference_mode()
def test_features_come_from_the_layers_that_are_asked_for_and_are_pooled():
    encoder, _ = load_encoder('tiny', '2.1', 'random', allow_random_weights=True)
    made, clips = serve(encoder), clips_of(2, 1)
    pixels = normalised(clips)

    def close(got, expected):
        return np.allclose(np.stack(got), expected.numpy(), atol=1e-4)

    assert all(map(np.array_equal, made.features(clips), made.encode(clips)))
    some = encoder.layers(pixels, (5, 2))
    assert close(made.features(clips, layers=(5, 2)), torch.stack(some, dim=1))
    assert close(made.features(clips, levels=3), encoder.dense(pixels, 3))
    for per, axes in (('tubelet', (2, 3)), ('clip', (1, 2, 3))):
        got = made.features(clips, layers=(5, 2), per=per)
        assert close(got, torch.stack([one.mean(axes) for one in some], dim=1))
    found = made.features(clips, layers=(5,), newest=1)     # which knows no other tubelet
    assert close(found, torch.stack(encoder.layers(pixels[:, :, -2:], (5,)), dim=1))


@pytest.mark.parametrize(('wanted', 'problem'), [
    ({'layers': (3,)}, 'layer 3.*choose from 0 to 1'), ({'newest': 3}, 'newest 3 tubelets'),
    ({'per': 'frame'}, "per 'frame'.*grid, tubelet, clip")])
def test_features_that_do_not_exist_are_refused(wanted, problem):
    with pytest.raises(ValueError, match=problem):
        session().features(clips_of(1), **wanted)


@pytest.mark.parametrize(('change', 'named'), [
    (lambda frames: frames[:3], r'uint8 \(3, 32, 32, 3\)'),
    (lambda frames: [], 'empty'),
    (lambda frames: [*frames[:3], frames[3].astype(np.float32)], 'float32'),
    (lambda frames: [*frames[:3], frames[3][:16]], r'\(4, 16, 32, 3\)')])
def test_frames_that_are_no_clip_are_refused(change, named):
    with pytest.raises(ValueError, match=named):
        session().encode([change(list(clips_of(1)[0]))])
    with pytest.raises(ValueError, match='expected 4 for each of 2 clips'):
        session().run(clips_of(2), keys=[range(4), range(3)])


def test_closing_waits_for_the_clip_that_is_being_encoded_and_frees_the_encoder():
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    runner, gone = serve(encoder), weakref.ref(encoder)
    assert runner.memory_bytes() == sum(4 * p.numel() for p in encoder.parameters())
    inside, go_on = threading.Event(), threading.Event()
    encoder.norm.register_forward_hook(lambda *_: (inside.set(), go_on.wait(20), None)[-1])
    del encoder
    with ThreadPoolExecutor(2) as threads:
        encoding = threads.submit(runner.encode, clips_of(1))
        assert inside.wait(20)
        closing = threads.submit(runner.close)
        assert not wait([closing], 0.2).done
        go_on.set()
        assert len(encoding.result(20)) == 1
        closing.result(20)
    runner.close()
    assert gone() is None and runner.memory_bytes() == 0
    with pytest.raises(SessionError, match='closed'):
        runner.encode(clips_of(1))


@pytest.mark.parametrize(('field', 'value'), [
    ('num_frames', 7), ('image_size', 16), ('cpu_threads', -1), ('model_size', 'colossal')])
def test_an_impossible_configuration_is_refused_by_field_and_value(field, value):
    with pytest.raises(ValueError, match=f'{field} is {value}'):
        ModelConfig(**{field: value})


def test_clips_that_do_not_fit_run_in_halves_and_the_size_is_remembered(caplog):
    encoder, _ = load_encoder(SIZE, allow_random_weights=True)
    engine, fits, batches = serve(encoder), 99, []

    def count(_, inputs):
        if len(inputs[0]) > fits:
            raise torch.cuda.OutOfMemoryError('CUDA out of memory. Tried to allocate 2 GiB')
        batches.append(len(inputs[0]))

    encoder.patch_embed.register_forward_pre_hook(count)    # the engine has exchanged the module
    expected = engine.run(clips_of(7))
    batches.clear()
    fits = 2
    found = engine.run(clips_of(7))
    assert batches == [1] * 7       # 7 and 3 did not fit
    for got, want in zip(found, expected, strict=True):
        np.testing.assert_allclose(got.features, want.features, atol=1e-5)
    assert '7 clips of 4 frames of 32 px in fp32' in caplog.text
    fits = 0
    for call in (engine.run, engine.encode, engine.features):
        with pytest.raises(SessionError, match=r'cpu has no memory for one clip of 4 frames of '
                           r'32 px in fp32.*Tried to allocate.*smaller model_size.*precision'):
            call(clips_of(2))
    fits = 99
    assert len(engine.run(clips_of(2))) == 2


@pytest.mark.parametrize(('error', 'lack'), [
    (RuntimeError('MPS backend out of memory (MPS allocated: 5 GB)'), True), (MemoryError(), True),
    (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried"), True),
    (RuntimeError('CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate()`'), True),
    (RuntimeError('cuDNN error: CUDNN_STATUS_EXECUTION_FAILED'), False)])
def test_lack_of_memory_is_told_from_other_errors_on_every_backend(error, lack):
    assert memory.is_out_of_memory(error) is lack


def test_where_a_device_lacks_an_operator_the_cpu_takes_over_unless_it_is_required(
        monkeypatch, caplog):
    lacks = OperatorError("mps has no operator 'aten::erfinv'; set `device: cpu`")
    outcomes = iter((lacks, None, lacks))

    @contextmanager
    def trial(device):
        if (error := next(outcomes)) is not None:
            raise error
        yield

    monkeypatch.setattr(served, 'all_operators_on', trial)
    loaded = Model.load(SMALL)
    assert loaded.choice.fell_back and 'aten::erfinv' in loaded.choice.reason
    assert 'running on cpu instead' in caplog.text
    with pytest.raises(OperatorError, match='erfinv'):
        Model.load(replace(SMALL, require_device=True))


def head_inputs():
    return torch.randn((2, 3, 4, 5, SIZE.dim), generator=torch.Generator().manual_seed(1))


def test_what_follows_from_the_weights_alone_changes_nothing_when_it_is_computed_once():
    heads, seen = lively_heads(), head_inputs()
    with torch.no_grad():
        exact = vars(heads(seen))
        names = set(heads.state_dict())
        fixed = vars(heads.fix()(seen))
        assert set(heads.state_dict()) == names         # a file would have nothing more
    assert all(torch.equal(fixed[name], wanted) for name, wanted in exact.items())


def test_calibration_changes_what_it_names_and_nothing_else():
    raw = lively_heads()(head_inputs())
    out = Calibration({'contact': (2.0, 0.7), 'moving': (1.5, -0.25), 'course': (0.5, 1.0),
                       'expansion': (3.0,), 'clearance': (0.8, -0.4)}).apply(raw)
    assert torch.equal(out.expansion, raw.expansion)
    torch.testing.assert_close(out.log_scale.exp(), 3.0 * raw.log_scale.exp())
    torch.testing.assert_close(out.moving, 1.5 * raw.moving - 0.25)
    torch.testing.assert_close(out.course, 0.5 * raw.course + 1.0)
    torch.testing.assert_close(out.contact[:, :-1], raw.contact[:, :-1] / 2)
    torch.testing.assert_close(out.contact[:, -1], raw.contact[:, -1] / 2 + 0.7)
    torch.testing.assert_close(out.clearance[:, :-1], raw.clearance[:, :-1] / 0.8)
    torch.testing.assert_close(out.clearance[:, -1], raw.clearance[:, -1] / 0.8 - 0.4)
