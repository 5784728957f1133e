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

from vjepa_ros.model.encoder import Encoder, Normalise
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.matching import CELLS, Matching, REACH, _around
from vjepa_ros.model.variants import MOST_WINDOW, find_variant
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import TrackConfig, Wants
from vjepa_ros.runtime.cuda.runner import CudaRunner
from vjepa_ros.runtime.forward import cuda
from vjepa_ros.runtime.forward.select import prepare_step
from vjepa_ros.runtime.runner import QueuedRunner

WINDOW, SIDE = MOST_WINDOW, 48
RUNNERS = {'graphs': CudaRunner, 'queue': QueuedRunner}


def engine_of(encoder, choice=None, frames=2 * WINDOW, **more):
    return serve(encoder, choice, (frames, SIDE, SIDE, 3), **more)


@pytest.fixture
def encoder(request):
    made = Encoder(find_variant('tiny'), '2.1', WINDOW, getattr(request, 'param', False))
    made.init_random(0)
    with torch.no_grad():       # so that tokens matter to each other
        for parameter in made.parameters():
            if parameter.ndim == 2:
                parameter.mul_(3)
        made.interval_embed.normal_(generator=torch.Generator().manual_seed(1))
    return made.eval().requires_grad_(False)


FRAMES = 40


def film_of(seed):
    """Frames of a camera, and when they were taken: long after the start, with jitter."""
    random = np.random.default_rng(seed)
    return (random.integers(0, 256, (FRAMES, SIDE, SIDE, 3), np.uint8),
            1e6 + np.cumsum(random.uniform(0.03, 0.3, FRAMES)))


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


@pytest.mark.parametrize('encoder', [False, True], indirect=True, ids=['plain', 'matching'])
@pytest.mark.parametrize('device', ['cpu', 'graphs', 'queue', pytest.param(
    'cuda', marks=pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device'))])
def test_streams_give_what_whole_films_give(encoder, device, monkeypatch, caplog):
    caplog.set_level('INFO')
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
    assert 'operator by operator' not in caplog.text


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


def test_an_encoder_is_told_positions_steps_and_spacings_by_stamps_in_seconds(encoder):
    told = encoder.times(torch.tensor([[9.9, 10.0, 10.4, 10.5]], dtype=torch.float64))[0]
    assert told[:, 0].tolist() == pytest.approx([np.cos(20), np.cos(21)])   # in tubelets of 0.5 s
    # Steps in 1/15 s and spacings in 0.25 s; the first tubelet has none before it.
    assert told[:, -2:].exp().flatten().tolist() == pytest.approx([1.5, 0.4, 1.5, 2.0])


@pytest.mark.parametrize(('level', 'cells'), enumerate(CELLS))
def test_matching_finds_a_shifted_picture_where_it_was(level, cells):
    matching, generator = Matching(8), torch.Generator().manual_seed(0)
    matching.init_random(generator)
    before = torch.randn(1, 3, 96, 96, generator=generator)
    newest, other = (matching.maps(picture)[level] for picture in (
        before.roll((8, -8), (2, 3)), before))
    beyond, places = REACH // cells, torch.eye((cells + 2 * REACH) ** 2)
    found = _around(newest, other, places, torch.tensor(50.0), cells)[0, 2:4, 2:4].unflatten(
        -1, (-1, len(places))).argmax(-1).numpy()
    around = 2 * beyond + 1
    down, right, row, col = np.unravel_index(found, (around, around, cells, cells))
    here = np.arange(cells ** 2)
    moved = 8 * cells // 16     # cells of the shift
    assert (cells * (down - beyond) + row == here // cells - moved).all()
    assert (cells * (right - beyond) + col == here % cells + moved).all()


def test_features_are_of_the_times_that_are_told_which_must_rise(encoder):
    session, given = engine_of(encoder), clips_from(0, [film_of(0)])
    (served,), stamps = session.run(**given), given['stamps']
    found, even = (session.features(given['clips'], stamps=when)[0] for when in (stamps, None))
    assert np.abs(found - served.features).max() < 1e-4 < np.abs(even - served.features).max()
    session.forget()
    for wrong, problem in (([1, 2, 3], r'stamps for \[3\] frames, expected 4'),
                           ([0, 1, 2, 2], 'do not rise'), ([0, 1, 2, np.nan], 'rise')):
        with pytest.raises(ValueError, match=problem):
            session.run(**given | {'stamps': [np.array(wrong)]})
    assert not session.remembered()


@pytest.mark.parametrize(('window', 'frames', 'reason'), [
    (0, 6, 'bidirectional'), (WINDOW, 8, 'num_frames is 8'),
    (WINDOW + 1, 2 * WINDOW + 2, 'a window of')])
def test_what_cannot_stream_says_why(window, frames, reason):
    made = Encoder(find_variant('tiny'), '2.1', window)
    session = engine_of(made, frames=frames)
    assert reason in session.not_streaming


def test_what_a_camera_no_longer_holds_is_forgotten(encoder):
    engine = engine_of(encoder, heads=Heads.for_variant(encoder.variant))
    perception = Perception(engine, TrackConfig(2 * WINDOW, SIDE, 10.0), ['cam'])
    weights, most = engine.memory_bytes(), 6     # frames that the ring holds
    picture, seen = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8), []
    for number in range(48):        # a gap after half of them
        stamp_ns = 10**9 + number * 10**8 + number // 24 * 3 * 10**9
        perception.tracks['cam'].push(np.roll(picture, number, 1), stamp_ns)
        clips = perception.pending()
        if clips:
            perception.observe(clips, {'cam': Wants()})
            seen.append((len(engine.remembered()), engine.memory_bytes() - weights))
    each = seen[0][1] // WINDOW
    assert max(seen)[0] <= most
    assert seen[0][1] < seen[-1][1] <= each * most
    assert len(seen) == 44 and [n for n, _ in seen[-22:]] == [n for n, _ in seen[:22]]
    perception.reset('test')
    assert not engine.remembered()


@pytest.mark.parametrize(('wrong', 'kind'), [(False, 'fused'), (True, 'plain')])
def test_kernels_encode_a_tubelet_only_where_they_agree(encoder, monkeypatch, wrong, kind):
    """The device claims to be CUDA, but computes here; PyTorch stands for the kernels."""
    monkeypatch.setattr(cuda, 'build', lambda dim, head_dim, *_: PlainKernels(head_dim, wrong))
    monkeypatch.setattr(torch.cuda, 'device', lambda device: nullcontext())
    encoder.set_branch_precision(torch.bfloat16)
    choice = choice_of('bf16', torch.device('cuda:0'))
    assert prepare_step(encoder, choice, Normalise(CPU), SIDE)[1] == kind
