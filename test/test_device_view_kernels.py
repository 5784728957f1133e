# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The CUDA kernels that resize images give the bytes of the plain path; they run on the CPU here.

On a GPU they are looked at in `test_cuda_geometry`.
"""

from __future__ import annotations

import shutil
import subprocess
from math import gcd

import cv2
import numpy as np
import pytest
import torch
from fake_cuda import Stream, _Recorder, install
from scenes import texture
from test_device_view import RARE, SIZES, differs, picture
from warp_on_host import COMPILER, compiled

from vjepa_ros.clip.gpu import kernels as device_view_kernels
from vjepa_ros.clip.gpu.kernel_source import SOURCES
from vjepa_ros.clip.gpu.kernels import Resizer, choose_resizer, disagreement, prepare_resizing
from vjepa_ros.clip.gpu.resize import DeviceGrey, DeviceView
from vjepa_ros.clip.gpu.weights import halvings, is_half
from vjepa_ros.clip.resize import MODES, View
from vjepa_ros.perception import gpu_frames
from vjepa_ros.perception.gpu_frames import DeviceFrames, Upload
from vjepa_ros.runtime.cuda.graph_replay import Queue
from vjepa_ros.runtime.forward.kernels import KernelsMissing

pytestmark = [pytest.mark.slow,
              pytest.mark.skipif(COMPILER is None, reason='no g++ to compile the kernels with'),
              pytest.mark.usefixtures('one_thread')]
CPU = torch.device('cpu')
# Source, side of the model's input, grey image. Of the last ones: two and three halvings (of a
# part of the image, with crop), exact halves, an axis that stays as it is, and an odd small one.
CASES = [*((size, 256, (384, 288)) for size in SIZES if min(size) >= 288),
         ((1280, 720), 256, (443, 249)), ((1280, 720), 192, (384, 216)),
         ((640, 480), 192, (384, 288)), ((1226, 370), 256, (606, 183)),
         ((331, 277), 192, (331, 277)), ((640, 360), 64, (221, 125)),
         ((1032, 768), 64, (384, 286)), ((512, 480), 256, (256, 240)),
         ((256, 300), 256, (256, 299)), ((97, 61), 32, (13, 7))]
# Where the sum of weights is even, means are often just half a byte; that falls to the even side
# here, and to where its rounding leads to in OpenCV's float32.
HALVES = 5e-3


def rare(size, wanted):
    """Part of the bytes of an area average that may be other than the host's."""
    if is_half(size, wanted):
        return 0.0
    return RARE if all(n // gcd(n, m) % 2 for n, m in zip(size, wanted, strict=True)) else HALVES


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp('kernels')
    return {name: compiled(source, name, folder) for name, source in SOURCES.items()}


@pytest.fixture
def served(monkeypatch, made):
    """Devices are of a kind that has these kernels, on which everything runs on the CPU."""
    def serve(kernels=made):
        pending = pending_build(monkeypatch, lambda device: kernels)
        monkeypatch.setattr(device_view_kernels, 'prepare_resizing', lambda device: pending)

    return serve


def pending_build(monkeypatch, build):
    monkeypatch.setattr(device_view_kernels, 'build', build)
    # Not out of the cache, and not into it.
    return prepare_resizing.__wrapped__(torch.device('cuda:7'))


@pytest.mark.parametrize('mode', MODES)
@pytest.mark.parametrize(('size', 'side', 'small'), CASES)
def test_both_images_are_those_of_the_plain_path_and_of_the_host(made, mode, size, side, small):
    view = View(mode, size, side, 16)
    inputs = torch.full((3, side, side, 3), 7, dtype=torch.uint8)
    greys = torch.full((3, *small[::-1]), 7, dtype=torch.uint8)
    resizer, plain, grey = (Resizer(made, view, small, CPU), DeviceView(view, CPU),
                            DeviceGrey(size, small, CPU))
    for row, seed in ((2, 0), (0, 1)):
        image = picture(size, seed)
        data = torch.from_numpy(image)
        resizer(torch.tensor([row, data.data_ptr()]), inputs, greys)
        wanted, wanted_grey = torch.empty_like(inputs[0]), torch.empty_like(greys[0])
        plain.apply(data, wanted)
        grey.apply(data, wanted_grey)
        assert torch.equal(inputs[row], wanted)
        assert torch.equal(greys[row], wanted_grey)
        # Integer arithmetic on both sides leaves no doubt.
        limit = 0.0
        if mode not in ('hf', 'meta'):
            whole = (min(size),) * 2 if mode == 'crop' else size
            limit = rare(halvings(whole, view.resized)[1], view.resized)
        assert differs(inputs[row], view.apply(image)) <= limit
        dim = image if small == size else cv2.resize(image, small, interpolation=cv2.INTER_AREA)
        assert differs(greys[row], cv2.cvtColor(dim, cv2.COLOR_RGB2GRAY)) <= rare(size, small)
    assert (inputs[1] == 7).all() and (greys[1] == 7).all()
    assert disagreement(resizer, view, small, CPU) == ''


def test_the_common_case_is_a_launch_for_each_result(made):
    calls = []
    counted = {name: lambda *given, name=name: calls.append(name) for name in made}
    for size, expected in (((1280, 720), ['shrink'] * 2), ((640, 480), ['shrink'] * 2),
                           ((2560, 1440), ['halve', 'shrink', 'shrink'])):
        calls.clear()
        Resizer(counted, View('squash', size, 256), (443, 249), CPU)(
            torch.zeros(2, dtype=torch.int64), torch.empty(0), torch.empty(0))
        assert calls == expected


# Of the nodes one brings the numbers and one makes the grey image.
@pytest.mark.parametrize(('mode', 'size', 'nodes'), [('squash', (320, 180), 3),
                                                     ('letterbox', (320, 240), 4)])
def test_frames_are_resized_by_kernels_in_a_graph_of_few_nodes(served, made, monkeypatch, mode,
                                                               size, nodes):
    fake = install(monkeypatch)
    served({name: fake.recorded(kernel) for name, kernel in made.items()})
    queue = Queue(CPU)
    queue.stream = Stream()
    view = View(mode, size, 64)
    ours = DeviceFrames(queue, view, (160, 120), 4, mirror=True)
    monkeypatch.setattr(gpu_frames, 'choose_resizer', lambda *_: (None, ''))
    plain = DeviceFrames(Queue(CPU), view, (160, 120), 4, mirror=True)
    assert (ours.how, plain.how) == ('graph of kernels', 'eager')
    assert len(ours._made._graph.calls) == nodes
    for number, row in enumerate((2, 0, 3, 2, 1)):
        for frames in (ours, plain):
            frames.put(texture(size, number), row)
    assert torch.equal(ours.grey, plain.grey)
    assert torch.equal(ours._rgb, plain._rgb)
    np.testing.assert_array_equal(ours.pixels(range(4)), plain.pixels(range(4)))
    assert ours.nbytes < plain.nbytes


def test_a_frame_is_queued_in_one_go(served, made, monkeypatch):
    fake = install(monkeypatch)
    served({name: fake.recorded(kernel) for name, kernel in made.items()})
    queue = Queue(CPU)
    queue.stream = Stream()
    frames = DeviceFrames(queue, View('squash', (320, 180), 64), (160, 90), 4, mirror=False)
    # On a slow host each of these takes as long as the kernels.
    done, graph = [], frames._made._graph

    def watch(owner, name):
        own = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda: done.append(name) or own())

    watch(queue, 'here')
    watch(queue, 'mark')
    watch(graph, 'replay')
    monkeypatch.setattr(torch.Tensor, 'record_stream', lambda *_: None)
    image = torch.from_numpy(texture((320, 180), 3))
    with _Recorder(calls := []):
        frames.put(image.numpy(), 1, Upload(image, None))
    assert done == ['here', 'replay', 'mark']
    # Nothing is copied but the numbers, which is a node of the graph.
    assert ['copy_' in str(call[0]) for call in calls].count(True) == 1
    assert frames.grey[1].any()


def test_an_image_that_was_uploaded_is_read_where_it_is(served):
    served()
    frames = DeviceFrames(Queue(CPU), View('squash', (320, 240), 64), (160, 120), 4, mirror=False)
    image = texture((320, 240), 5)
    expected = image.copy()
    upload = frames.upload(image)
    frames.put(image, 3, upload)
    assert not frames._raw.any()
    wanted = torch.empty((64, 64, 3), dtype=torch.uint8)
    DeviceView(View('squash', (320, 240), 64), CPU).apply(torch.from_numpy(expected), wanted)
    np.testing.assert_array_equal(frames.pixels([3])[0], wanted)
    # One that comes without does not meet the address of the one before.
    upload.image.zero_()
    frames.put(image, 1)
    np.testing.assert_array_equal(frames.pixels([1])[0], wanted)


@pytest.mark.parametrize(('name', 'mode', 'size', 'said'), [
    ('shrink', 'squash', (320, 240), 'bytes of the input are wrong'),
    ('halve', 'squash', (256, 256), 'bytes of the input are wrong'),
    ('shrink', 'hf', (320, 240), 'bytes of the grey image are wrong'),
    ('triangle', 'hf', (320, 240), 'bytes of the input are wrong'),
    ('linear', 'meta', (320, 240), 'bytes of the input are wrong')])
def test_kernels_that_are_wrong_are_not_used_and_that_is_told(served, made, caplog, name, mode,
                                                              size, said):
    def wrong(grid, block, given):
        made[name](grid, block, given)
        next(part for part in given if part.dtype == torch.uint8).view(-1)[-1] += 4

    served({**made, name: wrong})
    resizer, reason = choose_resizer(View(mode, size, 64), (160, 120), CPU)
    assert resizer is None
    assert said in reason
    assert f'the kernels that resize images are wrong on cpu: {reason}' in caplog.text
    served()
    assert choose_resizer(View(mode, size, 64), (160, 120), CPU)[1] == ''


def test_a_store_of_which_another_row_changes_is_noticed(served, made):
    def wrong(grid, block, given):
        made['shrink'](grid, block, given)
        given[2][0] = given[2][1]

    served({**made, 'shrink': wrong})
    assert choose_resizer(View('squash', (320, 240), 64), (160, 120), CPU)[0] is None


@pytest.mark.parametrize('error', [KernelsMissing('no compiler'), RuntimeError('CUDA error: bad')])
def test_without_kernels_the_plain_path_says_why(monkeypatch, error):
    def fail(device):
        raise error

    pending = pending_build(monkeypatch, fail)
    monkeypatch.setattr(device_view_kernels, 'prepare_resizing', lambda device: pending)
    frames = DeviceFrames(Queue(CPU), View('squash', (320, 240), 64), (160, 120), 2, mirror=False)
    assert frames.how.startswith('eager without kernels: ')
    assert str(error) in frames.how
    frames.put(texture((320, 240), 0), 1)
    assert frames.grey[1].any()


def test_lack_of_memory_is_no_fault_of_the_kernels(served, made):
    def full(grid, block, given):
        raise RuntimeError('CUDA out of memory')

    served({**made, 'shrink': full})
    with pytest.raises(RuntimeError, match='out of memory'):
        choose_resizer(View('squash', (320, 240), 64), (160, 120), CPU)


def test_off_cuda_nothing_is_compiled():
    assert choose_resizer(View('squash', (320, 240), 64), (160, 120), CPU) == (None, '')


@pytest.mark.skipif(shutil.which('nvcc') is None, reason='no nvcc here')
def test_the_compiler_of_cuda_takes_every_kernel(tmp_path):
    for name, source in SOURCES.items():
        (tmp_path / f'{name}.cu').write_text(source, encoding='utf-8')
    done = subprocess.run(['nvcc', '-ptx', '-arch=sm_80', *(f'{name}.cu' for name in SOURCES)],
                          cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
