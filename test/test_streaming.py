# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A block-causal encoder computes the same of a stream as of the whole clip."""

import copy
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from fake_cuda import install
from plain_kernels import PlainKernels
from sessions import CPU, choice_of, serve
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vjepa_ros.lab.world.clips import stream_frames
from vjepa_ros.model.blocks import LayerMemory
from vjepa_ros.model.encoder import Encoder, Normalise
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import find_variant
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import TrackConfig, Wants
from vjepa_ros.runtime.cuda.compiler import KernelsMissing
from vjepa_ros.runtime.cuda.runner import CudaRunner
from vjepa_ros.runtime.device import DeviceChoice
from vjepa_ros.runtime.forward import cuda
from vjepa_ros.runtime.forward.cpu import speed_up
from vjepa_ros.runtime.forward.select import prepare_step
from vjepa_ros.runtime.runner import QueuedRunner
from vjepa_ros.runtime.streaming import LEAST_CLIPS

WINDOW, SIDE = 3, 48
RUNNERS = {'graphs': CudaRunner, 'queue': QueuedRunner}


def engine_of(encoder, choice=None, frames=2 * WINDOW, **more):
    return serve(encoder, choice, (frames, SIDE, SIDE, 3), **more)


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
    times = encoder.times(stamps)
    seen, features = [], []
    for at in range(0, clip.shape[2], 2):
        memory = []
        for layer in range(encoder.variant.depth):
            memory.append(LayerMemory([tubelet[layer].own
                                       for tubelet in seen[-(encoder.window - 1):]]))
        features.append(encoder.step(clip[:, :, at:at + 2], times[:, at // 2:at // 2 + 1], memory))
        seen.append(memory)
    return torch.cat(features, 1)


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('fast', [False, True])
def test_a_stream_gives_what_the_whole_clip_gives(encoder, seed, fast):
    random = torch.Generator().manual_seed(seed)
    frames = 2 * int(torch.randint(1, 7, (), generator=random))
    clip = torch.randn(2, 3, frames, SIDE, SIDE, generator=random)
    stamps = (0.3 + torch.rand(2, frames, generator=random, dtype=torch.float64)).cumsum(1)
    whole = encoder(clip, times=encoder.times(stamps))
    if fast:
        speed_up(encoder)
    # Long after the start: only differences of time matter.
    assert torch.allclose(stream(encoder, clip, stamps + 1e6), whole, atol=1e-4)


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


FRAMES = 40


def film_of(seed):
    """Frames of a camera, and when they were taken: long after the start, with jitter."""
    random = np.random.default_rng(seed)
    return (random.integers(0, 256, (FRAMES, SIDE, SIDE, 3), np.uint8),
            1e6 + np.cumsum(random.uniform(0.3, 3, FRAMES)))


def whole(encoder, frames, stamps):
    """Features of each tubelet, encoded with all that was before it."""
    clip = Normalise(CPU)(torch.from_numpy(frames)[None])
    return encoder(clip, times=encoder.times(torch.from_numpy(stamps)[None]))[0].numpy()


def clips_from(first, films):
    """What a session is given of films: clips, keys and stamps."""
    part = slice(first, first + 2 * WINDOW)
    return {'clips': [frames[part] for frames, _ in films],
            'keys': [[(n, at) for at in range(first, first + 2 * WINDOW)]
                     for n in range(len(films))],
            'stamps': [stamps[part] for _, stamps in films]}


@pytest.mark.parametrize('device', ['cpu', 'graphs', 'queue', pytest.param(
    'cuda', marks=pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device'))])
def test_streams_give_what_whole_films_give(encoder, device, monkeypatch):
    plain, on = copy.deepcopy(encoder), torch.device(device if device == 'cuda' else 'cpu')
    if device == 'graphs':      # stand-ins, which repeat what was done when they were captured
        install(monkeypatch)
    session = engine_of(encoder, choice_of(device=on), runner=RUNNERS.get(device))
    assert session.not_streaming == ''
    films, starts = [film_of(0), film_of(1)], [0, 0]
    wanted = [whole(plain, *film) for film in films]
    for first in range(0, FRAMES - 2 * WINDOW + 1, 2):
        if first == FRAMES // 2:        # the second camera starts anew, beside a step of the first
            session.keep({(0, at) for at in range(FRAMES)})
            starts[1], wanted[1] = first, whole(plain, *(part[first:] for part in films[1]))
        for n, found in enumerate(session.run(**clips_from(first, films))):
            at = (first - starts[n]) // 2
            assert np.abs(found.features - wanted[n][at:at + WINDOW]).max() < 1e-4


def test_a_stream_in_bf16_stays_near_the_one_in_fp32(encoder):
    """What is remembered is rounded, which must not add up along the stream."""
    session, film = engine_of(copy.deepcopy(encoder), choice_of('bf16')), film_of(0)
    exact = whole(encoder, *film)[WINDOW - 1:]
    rounded = np.array([session.run(**clips_from(first, [film]))[0].features[-1]
                        for first in range(0, FRAMES - 2 * WINDOW + 1, 2)])
    error = np.sqrt(np.square(rounded - exact).mean((1, 2, 3)) / np.square(exact).mean((1, 2, 3)))
    assert error.min() > 1e-4 and error.max() < 0.01
    assert error[-5:].mean() < 1.5 * error[0]


class NoFloat64(TorchDispatchMode):
    """The meta device plays one that has no float64, as MPS has none."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs, out)):
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                assert tensor.dtype != torch.float64, func
        return out


def test_no_float64_reaches_the_device(encoder, monkeypatch):
    monkeypatch.setattr(torch.Tensor, 'cpu', lambda one: torch.zeros(one.shape, dtype=one.dtype))
    with NoFloat64():
        with pytest.raises(AssertionError, match='aten'):
            torch.zeros(1, dtype=torch.float64).to('meta')
        session = engine_of(encoder, choice_of(device=torch.device('meta')),
                            heads=Heads.for_variant(encoder.variant))
        assert session.not_streaming == ''
        session.warm()      # a clip, a clip that is remembered, and a step


def test_more_cameras_than_it_has_room_for_are_several_passes(encoder, monkeypatch):
    monkeypatch.setattr('vjepa_ros.runtime.streaming.MOST_TUBELETS', 1)
    plain, session = copy.deepcopy(encoder), engine_of(encoder)
    films = [film_of(seed) for seed in range(LEAST_CLIPS + 1)]
    for found, film in zip(session.run(**clips_from(0, films)), films, strict=True):
        assert np.abs(found.features - whole(plain, *film)[:WINDOW]).max() < 1e-4


def test_features_are_of_the_times_that_are_told_which_must_rise(encoder):
    session, given = engine_of(encoder), clips_from(0, [film_of(0)])
    (served,), stamps = session.run(**given), given['stamps']
    found, even = (session.features(given['clips'], stamps=when)[0] for when in (stamps, None))
    assert np.abs(found - served.features).max() < 1e-4 < np.abs(even - served.features).max()
    session.forget()
    for wrong, problem in (([1, 2, 3], r'stamps for \[3\] frames, expected 6'),
                           ([0, 1, 2, 2, 4, 5], 'do not rise'), ([0, 1, 2, np.nan, 4, 5], 'rise')):
        with pytest.raises(ValueError, match=problem):
            session.run(**given | {'stamps': [np.array(wrong)]})
    assert not session.remembered()


@pytest.mark.parametrize(('window', 'frames', 'reason'), [
    (0, 6, 'bidirectional'), (WINDOW, 8, 'num_frames is 8')])
def test_what_cannot_stream_says_why(window, frames, reason):
    made = Encoder(find_variant('tiny'), '2.1', window)
    session = engine_of(made, frames=frames)
    assert reason in session.not_streaming


def test_what_a_camera_no_longer_holds_is_forgotten(encoder):
    engine = engine_of(encoder, heads=Heads.for_variant(encoder.variant))
    perception = Perception(engine, TrackConfig(2 * WINDOW, SIDE, 10.0), ['cam'])
    weights, most = engine.memory_bytes(), 2 * WINDOW + 2     # frames that the ring holds
    picture, seen = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8), []
    for number in range(48):        # a gap after each twelfth frame
        stamp_ns = 10**9 + number * 10**8 + number // 12 * 3 * 10**9
        perception.tracks['cam'].push(np.roll(picture, number, 1), stamp_ns)
        clips = perception.pending()
        if clips:
            perception.observe(clips, {'cam': Wants()})
            seen.append((len(engine.remembered()), engine.memory_bytes() - weights))
    each = seen[0][1] // WINDOW
    assert max(seen)[0] <= most
    assert seen[0][1] < seen[-1][1] <= each * most
    assert len(seen) == 28 and [n for n, _ in seen[-7:]] == [n for n, _ in seen[:7]]
    perception.reset('test')
    assert not engine.remembered()


@pytest.mark.parametrize(('build', 'precision', 'wrong', 'kind', 'said'), [
    ('plain', torch.bfloat16, False, 'fused', ''),
    ('plain', torch.bfloat16, True, 'plain', 'they differ by'),
    ('missing', torch.bfloat16, False, 'plain', 'no compiler'),
    ('missing', torch.float32, False, 'plain', '')])
def test_kernels_encode_a_tubelet_only_where_they_agree(encoder, monkeypatch, caplog, build,
                                                        precision, wrong, kind, said):
    """The device claims to be CUDA, but computes here; PyTorch stands for the kernels."""
    def kernels(dim, head_dim, grid, dtype):
        if build == 'missing':
            raise KernelsMissing('no compiler')
        return PlainKernels(head_dim, wrong)

    caplog.set_level('INFO', 'vjepa_ros')
    monkeypatch.setattr(cuda, 'build', kernels)
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    encoder.set_branch_precision(precision)
    choice = DeviceChoice(torch.device('cuda:0'), precision, 'test')
    assert prepare_step(encoder, choice, Normalise(CPU), SIDE)[1] == kind
    assert said in caplog.text
