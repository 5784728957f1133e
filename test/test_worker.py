# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the worker of the node and its decoder in process: real model and messages, fake topics."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip('rclpy')

from scenes import texture

from vjepa_ros.clip.ring import Push
from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.perception.settings import Settings, TrackConfig
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros.common import message_conversion
from vjepa_ros.ros.common.message_conversion import make_header
from vjepa_ros.ros.perception_node import decoder, model_swapper
from vjepa_ros.ros.perception_node import worker as worker_module
from vjepa_ros.ros.perception_node.camera_input import FrameQueue, Waiting
from vjepa_ros.ros.perception_node.model_swapper import Swapper
from vjepa_ros.ros.perception_node.outputs import SCALARS, Outputs, Publishing
from vjepa_ros.ros.perception_node.statistics import Rate
from vjepa_ros.ros.perception_node.worker import Worker
from vjepa_ros.runtime.engine import Engine, EngineConfig

pytestmark = [pytest.mark.ros, pytest.mark.any_distro, pytest.mark.usefixtures('one_thread')]

NS = 1_000_000_000
# The engine only says that it is on a GPU.
TRACK = TrackConfig(num_frames=4, image_size=64, clip_fps=10.0, geometry='host')
CONFIG = SimpleNamespace(settings=Settings(max_frame_age=3600.0), max_rate=1000.0,
                         features_reduce='none', overlay_width=320,
                         max_image_pixels=4096 * 4096)
PATIENCE_S = 20.0
CLOCK = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=time.time_ns()))
PICTURE = texture((96, 64))


class Camera:
    """A camera without a topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue = FrameQueue()
        self.counts = Counter()
        self.rate = Rate()
        self.silent_s = 0.0
        self._stamp = 100 * NS
        self.sent = 0
        self.period_ns = NS // 10

    def refuse(self, error) -> None:
        self.counts[error.kind] += 1

    def intrinsics_for(self, size):
        return None

    def send(self, worker: Worker, count: int = 1, *, data: np.ndarray = PICTURE,
             broken: bool = False) -> None:
        for _ in range(count):
            self.sent += 1
            stamp = self._stamp = self._stamp + self.period_ns
            message = message_conversion.image(make_header(stamp, self.name), data, 'rgb8')
            if broken:
                message.step = 1
            self.queue.put(Waiting(message, stamp, time.time_ns(), len(message.data)))
            worker.notify()


class Quiet:
    """A worker that nobody wakes."""

    @staticmethod
    def notify() -> None:
        pass


class Topics:
    """Outputs with subscribers."""

    def __init__(self, *more: str) -> None:
        self.more = more
        self.results = []

    def wanted(self) -> frozenset[str]:
        return frozenset({'assessment', *self.more})

    def publish(self, result, wanted, how) -> None:
        self.results.append(result)

    def publish_late(self, *_) -> None:
        pass

    @property
    def stamps(self) -> list[int]:
        return [round((r.assessment.stamp_ns - 100 * NS) / NS * 10) for r in self.results]


class Metres(Topics):
    """Outputs of obstacles in metres, which wait for tf."""

    def __init__(self, waits: Callable[[], None]) -> None:
        super().__init__('obstacle_points')
        self._waits = waits
        self.late = []                   # deadline of each

    def publish_late(self, result, wanted, optics, overlay, until_s) -> None:
        self._waits()
        self.late.append(until_s)


class Log:
    """A logger that keeps errors."""

    def __init__(self) -> None:
        self.errors = []

    def error(self, text, **more) -> None:
        self.errors.append(text)

    def info(self, text, **more) -> None:
        pass

    def is_enabled_for(self, severity) -> bool:
        return False

    warning = debug = info


class Device:
    """What an accelerator does: passes begin at once and end when the test lets them."""

    def __init__(self, engine: Engine, monkeypatch) -> None:
        self.begun = threading.Semaphore(0)
        self.end = threading.Event()
        submit = engine.submit

        def late(*args, **more):
            pending = submit(*args, **more)
            early = pending.early

            def wait():
                self.begun.release()
                assert self.end.wait(PATIENCE_S), 'the test does not let the pass end'
                return early()

            pending.early = wait
            return pending

        monkeypatch.setattr(engine, 'submit', late)

    def await_pass(self) -> None:
        assert self.begun.acquire(timeout=PATIENCE_S), 'no pass began'


@pytest.fixture(scope='module')
def loaded():
    made = Engine.load(EngineConfig(weights='random', allow_random_weights=True, num_frames=4,
                                    image_size=64, device='cpu'))
    yield made
    made.close()


@pytest.fixture
def engine(loaded, monkeypatch):
    """The engine, which its worker does not close, and which says that it is on a GPU."""
    monkeypatch.setattr(loaded, 'close', lambda: None)
    monkeypatch.setattr(loaded, 'choice', replace(loaded.choice, device=torch.device('cuda')))
    return loaded


class Bench:
    """A worker with cameras and outputs."""

    def __init__(self, engine: Engine, *names: str) -> None:
        self.cameras = {name: Camera(name) for name in names}
        self.topics = {name: Topics() for name in names}
        self.log = Log()
        self.worker = Worker(Perception(engine, TRACK, names), CONFIG, self.cameras, self.topics,
                             CLOCK, self.log)
        self.worker.start()
        self.worker.resume()

    def until(self, holds) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, f'did not come true; log: {self.log.errors}'
            time.sleep(0.002)

    def tracks(self, name: str):
        return self.worker.perception.tracks[name]


@pytest.fixture
def bench(engine):
    made = []

    def make(*names: str) -> Bench:
        made.append(Bench(engine, *names))
        return made[-1]

    yield make
    for each in made:
        each.worker.stop()
        assert each.worker.join(PATIENCE_S)


@pytest.fixture
def decoded(monkeypatch):
    """Names of the threads that decoded an image."""
    threads, decode = [], decoder.decode
    monkeypatch.setattr(decoder, 'decode', lambda message, limit: threads.append(
        threading.current_thread().name) or decode(message, limit))
    return threads


def test_the_next_frames_are_decoded_while_a_pass_computes(bench, engine, decoded, monkeypatch):
    device, b = Device(engine, monkeypatch), bench('cam')
    b.cameras['cam'].send(b.worker, 4)
    device.await_pass()
    before = len(decoded)
    b.cameras['cam'].send(b.worker, 2)
    b.until(lambda: len(decoded) == before + 2)
    assert b.topics['cam'].stamps == []                      # the pass goes on
    assert decoded[before:] == ['vjepa_decoder'] * 2
    assert b.tracks('cam').ring.newest_ns == 100 * NS + 4 * NS // 10   # its clip is left alone
    device.end.set()
    b.until(lambda: 6 in b.topics['cam'].stamps)
    assert b.topics['cam'].stamps == [4, 6]                  # the newest wins
    assert len(decoded) == 6                                 # each was decoded once


def test_on_a_cpu_the_decoder_leaves_the_cores_to_the_model(bench, engine, decoded, monkeypatch):
    monkeypatch.setattr(engine, 'choice', replace(engine.choice, device=torch.device('cpu')))
    device, b = Device(engine, monkeypatch), bench('cam')
    b.cameras['cam'].send(b.worker, 4)
    device.await_pass()
    b.cameras['cam'].send(b.worker, 2)
    device.end.set()
    b.until(lambda: 6 in b.topics['cam'].stamps)
    assert set(decoded) == {'vjepa_worker'}


def test_frames_that_wait_decoded_are_bounded_and_drops_are_counted(bench, engine, decoded,
                                                                    monkeypatch):
    device, b = Device(engine, monkeypatch), bench('cam')
    queue = b.cameras['cam'].queue = FrameQueue(limit=8)
    b.cameras['cam'].send(b.worker, 4)
    device.await_pass()
    before = len(decoded)
    for _ in range(40):
        b.cameras['cam'].send(b.worker)
        b.until(lambda: queue.newest_ns is None)
    b.until(lambda: len(decoded) == before + 40)
    assert len(queue) <= 9
    device.end.set()
    b.until(lambda: 44 in b.topics['cam'].stamps)
    stats, ring = b.worker.stats['cam'], b.tracks('cam').ring
    b.until(lambda: queue.dropped + stats.skipped + ring.counts['accepted'] == 44)


def test_no_more_is_decoded_ahead_than_a_clip_can_use(bench, engine, monkeypatch):
    seen, decode = [], decoder.decode
    monkeypatch.setattr(decoder, 'decode', lambda message, limit: seen.append(
        message.header.stamp.nanosec) or decode(message, limit))
    device, b = Device(engine, monkeypatch), bench('cam')
    camera = b.cameras['cam']
    camera.send(b.worker, 4)
    device.await_pass()
    seen.clear()
    camera.period_ns = NS // 100         # clips need a frame every 25 ms at most
    for number in range(10):
        camera.send(b.worker)
        if number % 3 == 0:
            b.until(lambda wanted=number // 3 + 1: len(seen) == wanted)
    assert seen == [NS * (40 + step) // 100 for step in (1, 4, 7, 10)]
    camera.send(b.worker)                # the newest is never left out
    device.end.set()
    b.until(lambda: 510 in [(r.assessment.stamp_ns - 100 * NS) * 1000 // NS
                            for r in b.topics['cam'].results])


@pytest.mark.parametrize('ahead', [False, True])
def test_a_malformed_image_is_counted_for_its_camera_alone(bench, engine, ahead, monkeypatch):
    device, b = Device(engine, monkeypatch), bench('good', 'bad')
    if ahead:
        b.cameras['good'].send(b.worker, 4)
        device.await_pass()
    b.cameras['bad'].send(b.worker, broken=True)
    b.until(lambda: sum(b.cameras['bad'].counts.values()) == 1)
    device.end.set()
    b.cameras['good'].send(b.worker, 4)
    b.cameras['bad'].send(b.worker, 4)
    b.until(lambda: b.topics['good'].stamps and b.topics['bad'].stamps)
    assert not b.cameras['good'].counts
    assert b.worker.errors == 0


@pytest.mark.parametrize('ahead', [False, True])
def test_an_unforeseen_error_of_decoding_costs_one_image_of_one_camera(bench, engine, ahead,
                                                                       monkeypatch):
    decode = decoder.decode

    def fail(message, limit):
        if message.header.frame_id == 'bad':
            raise MemoryError('no room for the picture')
        return decode(message, limit)

    monkeypatch.setattr(decoder, 'decode', fail)
    device, b = Device(engine, monkeypatch), bench('bad', 'good')
    if ahead:
        b.cameras['good'].send(b.worker, 4)
        device.await_pass()
    b.cameras['bad'].send(b.worker)
    b.until(lambda: b.worker.errors == 1 and b.log.errors)
    device.end.set()
    stats = b.worker.stats
    assert (stats['bad'].errors, stats['good'].errors) == (1, 0)
    assert stats['bad'].trouble == 'decoding: MemoryError: no room for the picture'
    assert "camera 'bad': decoding" in b.worker.last_error
    assert 'no room for the picture' in b.log.errors[0]
    b.cameras['good'].send(b.worker, 4)
    b.until(lambda: b.topics['good'].stamps)
    monkeypatch.setattr(decoder, 'decode', decode)
    b.cameras['bad'].send(b.worker, 4)
    b.until(lambda: b.topics['bad'].stamps)
    assert stats['bad'].trouble == ''          # good again, but not forgotten
    assert stats['bad'].errors == 1


@pytest.mark.parametrize('kind', ['cpu', 'cuda'])
def test_an_image_that_takes_long_holds_up_no_other_camera(bench, engine, monkeypatch, kind):
    monkeypatch.setattr(engine, 'choice', replace(engine.choice, device=torch.device(kind)))
    b = bench('slow', 'good', 'too')
    go_on, decode = threading.Event(), decoder.decode

    def hold(message, limit):
        if message.header.frame_id == 'slow':
            assert go_on.wait(PATIENCE_S)
        return decode(message, limit)

    monkeypatch.setattr(decoder, 'decode', hold)
    b.cameras['slow'].send(b.worker, 4)
    for number in range(4, 10):
        for name in ('good', 'too'):
            b.cameras[name].send(b.worker, 4 if number == 4 else 1)
        b.until(lambda wanted=number: all(wanted in b.topics[name].stamps
                                          for name in ('good', 'too')))
    assert b.topics['slow'].stamps == []
    go_on.set()
    b.until(lambda: b.topics['slow'].stamps == [4])     # without another message
    b.cameras['slow'].send(b.worker)
    b.until(lambda: 5 in b.topics['slow'].stamps)
    assert b.worker.errors == 0


def test_cameras_that_are_quick_are_served_in_one_pass(bench, engine, monkeypatch):
    b, passes, submit = bench('left', 'right'), [], engine.submit
    monkeypatch.setattr(engine, 'submit', lambda clips, **more: passes.append(
        len(clips)) or submit(clips, **more))
    monkeypatch.setattr(decoder, 'PATIENCE_S', PATIENCE_S)
    device = Device(engine, monkeypatch)
    for camera in b.cameras.values():
        camera.send(Quiet, 4)
    b.worker.notify()
    device.await_pass()
    for camera in b.cameras.values():
        camera.send(Quiet, 1)
    b.worker.notify()
    device.end.set()
    b.until(lambda: all(5 in topic.stamps for topic in b.topics.values()))
    assert passes == [2, 2]


def test_an_image_that_is_being_decoded_at_a_reset_is_thrown_away(bench, engine, monkeypatch):
    device, b = Device(engine, monkeypatch), bench('cam')
    entered, go_on, decode = threading.Event(), threading.Event(), decoder.decode

    def hold(message, limit):
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return decode(message, limit)

    b.cameras['cam'].send(b.worker, 4)
    device.await_pass()
    monkeypatch.setattr(decoder, 'decode', hold)
    b.cameras['cam'].send(b.worker)
    assert entered.wait(PATIENCE_S)
    b.worker.request_reset('clock_jump')      # does not wait for the image
    go_on.set()
    device.end.set()
    b.until(lambda: b.worker.stats['cam'].memory.get('resets.clock_jump') == 1)
    b.until(lambda: b.worker.stats['cam'].skipped == 1)
    assert len(b.tracks('cam').ring) == 0


def test_both_threads_end_and_a_stuck_image_does_not_hold_up_the_end(bench, engine, monkeypatch):
    device, b = Device(engine, monkeypatch), bench('cam')
    entered, go_on = threading.Event(), threading.Event()

    def hold(message, limit):
        entered.set()
        assert go_on.wait(PATIENCE_S)
        raise MemoryError('gave up')

    b.cameras['cam'].send(b.worker, 4)
    device.await_pass()
    monkeypatch.setattr(decoder, 'decode', hold)
    b.cameras['cam'].send(b.worker)
    assert entered.wait(PATIENCE_S)
    device.end.set()
    begin = time.monotonic()
    b.worker.stop()
    assert not b.worker.join(0.2)
    assert time.monotonic() - begin < 5.0
    go_on.set()
    assert b.worker.join(PATIENCE_S)
    left = [t.name for t in threading.enumerate() if t.name.startswith('vjepa_')]
    assert left == []


def test_a_model_that_waits_for_its_clips_gets_the_same_frames(bench, engine, monkeypatch):
    device, b = Device(engine, monkeypatch), bench('cam')
    b.cameras['cam'].send(b.worker, 4)
    device.await_pass()
    other = replace(TRACK, clip_fps=5.0)
    b.worker.offer(Perception(engine, other, ['cam']))
    b.cameras['cam'].send(b.worker, 1)
    device.end.set()
    for _ in range(9):
        b.cameras['cam'].send(b.worker)
        time.sleep(0.01)
    b.until(lambda: not b.worker.swapping)
    b.until(lambda: 14 in b.topics['cam'].stamps)
    assert b.worker.perception.config == other
    assert b.worker.errors == 0


def test_a_frame_that_was_assessed_is_not_assessed_again_by_another_model(bench, engine):
    b, camera = bench('cam'), 'cam'
    b.cameras[camera].send(b.worker, 4)
    b.until(lambda: b.topics[camera].stamps == [4])
    b.worker.offer(Perception(engine, TRACK, [camera]))
    for number in range(5, 9):                     # the last one fills the clip of both
        b.cameras[camera].send(b.worker)
        b.until(lambda number=number: number in b.topics[camera].stamps)
    b.worker.notify()
    b.until(lambda: not b.worker.swapping)
    b.cameras[camera].send(b.worker)
    b.until(lambda: 9 in b.topics[camera].stamps)
    assert b.topics[camera].stamps == [4, 5, 6, 7, 8, 9]


def test_a_pass_that_fails_is_told_of_every_camera_in_it(bench, engine, monkeypatch):
    b = bench('one', 'two', 'quiet')
    with monkeypatch.context() as patch:
        def fail(*args, **more):
            raise RuntimeError('the device is lost')

        patch.setattr(engine, 'submit', fail)
        for name in ('one', 'two'):
            b.cameras[name].send(Quiet, 4)
        b.worker.notify()
        stats = b.worker.stats
        b.until(lambda: stats['one'].trouble and stats['two'].trouble)
    assert {name: s.trouble for name, s in stats.items()} == {
        'one': 'inference: RuntimeError: the device is lost',
        'two': 'inference: RuntimeError: the device is lost', 'quiet': ''}
    b.cameras['one'].send(b.worker)
    b.until(lambda: b.topics['one'].stamps == [5])
    b.until(lambda: stats['one'].trouble == '')
    assert stats['two'].trouble


def test_a_model_is_not_closed_while_a_frame_is_pushed_to_it(bench, engine):
    b, closed = bench('cam'), []
    b.cameras['cam'].send(b.worker, 4)
    b.until(lambda: b.topics['cam'].results)
    candidate = Perception(engine, TRACK, ['cam'])
    candidate.engine = SimpleNamespace(close=lambda: closed.append(True))
    entered, go_on = threading.Event(), threading.Event()

    def hold(*args):
        entered.set()
        assert go_on.wait(PATIENCE_S)
        assert not closed, 'closed under the hands of the worker'
        return Push.ACCEPTED

    candidate.tracks['cam'].push = hold
    b.worker.offer(candidate)
    b.cameras['cam'].send(b.worker)
    assert entered.wait(PATIENCE_S)
    loader = threading.Thread(target=b.worker.withdraw)
    loader.start()
    b.worker.notify()                    # the executor waits for none of it
    b.worker.report_silence('cam', 1.0)
    loader.join(0.1)
    assert not closed
    go_on.set()
    loader.join(PATIENCE_S)
    assert closed == [True]
    assert not b.worker.swapping
    assert b.worker.errors == 0


@pytest.mark.parametrize('adopted', [True, False])
def test_frames_on_a_device_are_let_go_of_though_the_model_stays(bench, engine, monkeypatch,
                                                                 adopted):
    monkeypatch.setattr(engine, 'choice', replace(engine.choice, device=torch.device('cpu')))
    b, there = bench('cam'), replace(TRACK, geometry='device')
    first, second = (Perception(engine, there, ['cam']) for _ in range(2))
    b.worker.offer(first)
    b.cameras['cam'].send(b.worker, 4)
    b.until(lambda: b.worker.perception is first and b.tracks('cam').on_device)
    b.worker.offer(second)
    b.cameras['cam'].send(b.worker, 1)
    b.until(lambda: second.tracks['cam'].on_device)
    if adopted:
        b.cameras['cam'].send(b.worker, 4)
        b.until(lambda: b.worker.perception is second)
    else:
        b.worker.withdraw()
    old, new = (first, second) if adopted else (second, first)
    b.until(lambda: not old.tracks['cam'].on_device)
    assert new.tracks['cam'].on_device
    done = b.topics['cam'].stamps
    b.cameras['cam'].send(b.worker, 1)
    b.until(lambda: len(b.topics['cam'].stamps) > len(done))
    assert b.worker.errors == 0


@pytest.mark.parametrize('back', [False, True])
def test_a_camera_that_has_come_back_is_not_drawn_as_silent(bench, engine, monkeypatch, back):
    device, b = Device(engine, monkeypatch), bench('cam', 'other')
    drawn = []
    for topics in b.topics.values():
        topics.more = ('overlay',)
    monkeypatch.setattr(b.worker, '_publish_state',
                        lambda name, wanted, silent_s, *_: drawn.append((name, silent_s)))
    device.end.set()
    b.cameras['cam'].send(b.worker, 4)
    b.until(lambda: b.topics['cam'].stamps == [4])
    device.end.clear()
    b.cameras['cam'].send(b.worker)
    for _ in range(2):
        device.await_pass()              # of the first clip, and of the second
    drawn.clear()
    b.worker.report_silence('cam', 3.0)
    if back:
        b.cameras['cam'].send(Quiet)
    b.cameras['other'].send(Quiet)       # is drawn in the same step
    device.end.set()
    b.until(lambda: ('other', None) in drawn)
    assert (('cam', 3.0) in drawn) is not back


def test_a_clip_of_one_activation_is_not_assessed_in_the_next(bench, engine, monkeypatch):
    b, wanted = bench('cam'), []
    b.topics['cam'].wanted = lambda: frozenset(wanted)
    b.cameras['cam'].send(b.worker, 4)   # nobody listens: the clip waits
    b.until(lambda: len(b.tracks('cam').ring) == 4)
    b.worker.stop()
    assert b.worker.join(PATIENCE_S)
    wanted.append('assessment')
    worker, admission = b.worker, b.worker._admission

    def late():
        worker.resume()                  # the executor comes in between
        return admission()

    monkeypatch.setattr(worker, '_admission', late)
    worker._step()
    assert b.topics['cam'].stamps == []
    assert len(b.tracks('cam').ring) == 0


def test_an_error_of_the_geometry_of_one_camera_costs_no_camera_its_clip(bench):
    b = bench('bad', 'good')

    def fail(*args, **more):
        raise ArithmeticError('the flow of this picture can not be computed')

    for camera in b.cameras.values():
        camera.send(b.worker, 3)
    b.until(lambda: all(len(b.tracks(name).ring) == 3 for name in b.cameras))
    estimator = b.tracks('bad')._geometry._estimator
    estimate, estimator.estimate = estimator.estimate, fail
    for camera in b.cameras.values():
        camera.send(b.worker)
    b.until(lambda: b.topics['bad'].results and b.topics['good'].results)
    bad, good = (b.topics[name].results[-1].assessment for name in ('bad', 'good'))
    assert Quality.GEOMETRY_FAILED | Quality.LOOMING_UNKNOWN in bad.flags
    assert bad.level is Level.UNKNOWN
    assert Quality.GEOMETRY_FAILED not in good.flags
    assert b.worker.errors == b.worker.stats['bad'].errors == 1
    assert b.worker.stats['good'].errors == 0
    assert 'geometry: ArithmeticError: the flow' in b.worker.stats['bad'].last_error
    estimator.estimate = estimate
    b.cameras['bad'].send(b.worker)
    b.until(lambda: len(b.topics['bad'].results) == 2)
    assert Quality.GEOMETRY_FAILED not in b.topics['bad'].results[-1].assessment.flags


def test_the_wait_for_tf_of_one_camera_holds_up_no_assessment(bench, engine, monkeypatch):
    device, b = Device(engine, monkeypatch), bench('one', 'two', 'first')
    entered, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        assert go_on.wait(PATIENCE_S)

    outputs = {name: Metres(wait) for name in ('one', 'two')}
    b.worker._outputs.update(outputs)
    b.cameras['first'].send(b.worker, 4)
    device.await_pass()
    for name in outputs:                 # so both clips are in the next pass
        b.cameras[name].send(b.worker, 4)
    device.end.set()
    assert entered.wait(PATIENCE_S)
    told = {name: out.stamps for name, out in outputs.items()}
    go_on.set()
    assert told == {'one': [4], 'two': [4]}
    b.until(lambda: all(out.late for out in outputs.values()))
    assert outputs['one'].late == outputs['two'].late        # one deadline for the pass
    assert b.worker.errors == 0


def test_the_assessment_is_published_first_and_detections_wait_for_nothing(bench):
    b, sent = bench('cam'), []

    def publisher(kind, topic, *_, **more):
        return SimpleNamespace(publish=lambda _: sent.append(topic.removeprefix('~/cam/')))

    outputs = Outputs(SimpleNamespace(create_lifecycle_publisher=publisher), 'cam')
    outputs.obstacles = SimpleNamespace(
        publish_detections=lambda *_: sent.append('detections'),
        publish=lambda *_: sent.append('obstacle_points'))
    b.cameras['cam'].send(b.worker, 4)
    b.until(lambda: b.topics['cam'].results)
    result, optics = b.topics['cam'].results[0], b.tracks('cam').optics()
    wanted = frozenset({'assessment', 'detections', 'obstacle_points', 'looming_map', 'map_info',
                        'overlay', *SCALARS})
    outputs.publish(result, wanted, Publishing('none', 0.0, optics))
    assert sent[0] == 'assessment'
    assert set(sent) == wanted - {'obstacle_points', 'overlay'}
    outputs.publish_late(result, wanted, optics, lambda: PICTURE, 0.0)
    assert sent[-2:] == ['obstacle_points', 'overlay']


def test_a_worker_that_outlives_its_node_ends_without_an_error(bench, engine, monkeypatch):
    device, b = Device(engine, monkeypatch), bench('cam', 'new')
    b.topics['new'].wanted = lambda: frozenset({'overlay'})
    b.cameras['cam'].send(b.worker, 3)
    b.until(lambda: len(b.tracks('cam').ring) == 3)
    b.cameras['new'].send(Quiet)              # its state is drawn after the pass
    b.cameras['cam'].send(b.worker)
    device.await_pass()
    assert len(b.tracks('new').ring) == 1
    b.worker.stop()
    b.cameras.clear()         # as the node does when it cannot wait any longer
    b.topics.clear()
    device.end.set()
    assert b.worker.join(PATIENCE_S)
    assert (b.worker.errors, b.log.errors) == (0, [])


def test_a_listener_needs_neither_pictures_nor_subscribers(bench):
    b, heard = bench('cam'), []
    b.topics['cam'].wanted = lambda: frozenset()
    b.worker.listener = heard.append
    b.cameras['cam'].send(b.worker, 4)
    b.until(lambda: heard)
    assert heard[0].image is None and heard[0].motion_map is not None
    assert np.isfinite(heard[0].assessment.motion_score)


def test_a_change_that_is_ready_survives_the_failure_of_the_next(bench, engine, monkeypatch):
    b = bench('cam')
    b.cameras['cam'].send(b.worker, 4)
    b.until(lambda: b.topics['cam'].stamps == [4])
    b.worker.config = SimpleNamespace(**vars(CONFIG), engine=engine.config, track=TRACK)
    swapper = Swapper(b.worker, b.log)
    shorter = replace(TRACK, clip_fps=5.0)
    swapper.request(SimpleNamespace(engine=engine.config, track=shorter))
    assert swapper.join(PATIENCE_S)
    assert b.worker.swapping                            # until its clips are full

    def fail(config):
        raise RuntimeError('the device is lost')

    monkeypatch.setattr(Engine, 'load', fail)
    swapper.request(SimpleNamespace(engine=EngineConfig(seed=7), track=shorter))
    b.until(lambda: 'the device is lost' in swapper.error)
    assert swapper.join(PATIENCE_S)
    assert b.worker.swapping
    assert 'the change before it is still made' in b.log.errors[0]
    b.cameras['cam'].send(b.worker, 8)
    b.until(lambda: b.worker.perception.config == shorter)
    assert 'the device is lost' in swapper.error        # and is still told of


@pytest.mark.parametrize('end', ['closed', 'taken back'])
def test_no_model_is_left_over_when_a_change_is_not_wanted_any_more(bench, engine, monkeypatch,
                                                                    end):
    b, closed = bench('cam'), []
    b.worker.config = SimpleNamespace(**vars(CONFIG), engine=engine.config, track=TRACK)
    swapper = Swapper(b.worker, b.log)
    entered, go_on = threading.Event(), threading.Event()
    other = EngineConfig(seed=7)

    def load(config):
        entered.set()
        assert go_on.wait(PATIENCE_S)
        return SimpleNamespace(config=config, close=lambda: closed.append(config))

    monkeypatch.setattr(Engine, 'load', load)
    monkeypatch.setattr(model_swapper, 'Perception', lambda engine, track, names: (
        SimpleNamespace(engine=engine, config=track, close=engine.close)))
    swapper.request(SimpleNamespace(engine=other, track=TRACK))
    assert entered.wait(PATIENCE_S)
    if end == 'closed':
        swapper.close()
    else:
        swapper.request(SimpleNamespace(engine=engine.config, track=TRACK))
    go_on.set()
    b.until(lambda: closed == [other])
    assert swapper.join(PATIENCE_S)
    assert not b.worker.swapping
    assert not b.log.errors


@pytest.mark.parametrize(('rate', 'served'), [(15.0, 45), (30.0, 45), (10.0, 30)])
def test_a_camera_of_the_greatest_rate_does_not_wait_for_ever_after_a_late_result(
        engine, monkeypatch, rate, served):
    config = SimpleNamespace(**{**vars(CONFIG), 'max_rate': 15.0})
    now, late = 0.0, round(rate)
    worker = Worker(Perception(engine, TRACK, ['one']), config, {'one': Camera('one')},
                    {'one': Topics()}, CLOCK, Log())
    monkeypatch.setattr(worker_module, 'time', SimpleNamespace(monotonic=lambda: now))
    track, wanted = worker.perception.tracks['one'], {'one': frozenset({'assessment'})}
    # Messages travel 5 ms; the worker is late for one of them, and the next travels 8 ms.
    delay = {late: 1 / rate + 0.007, late + 1: 0.008}
    waits = []
    for number in range(late + 1 + round(3 * rate)):
        track.push(PICTURE, 100 * NS + round(number * NS / rate))
        now = 50.0 + number / rate + delay.get(number, 0.005)
        if track.sample() is None:
            continue
        samples, wait_s = worker._choose(wanted)
        worker.perception._done.update(
            {name: track.ring.keys(sample)[-1] for name, sample in samples.items()})
        if number > late:
            waits.append(0.0 if samples else wait_s)
    assert waits.count(0.0) == pytest.approx(served, abs=2)
    # A faster camera has frames to spare; others are never held up.
    assert rate > 15 or not any(waits)
