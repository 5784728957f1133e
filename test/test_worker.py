# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the worker of the node and its decoder in process: real model and messages, fake topics."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

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
from vjepa_ros.ros.perception_node.statistics import Rate
from vjepa_ros.ros.perception_node.worker import Worker
from vjepa_ros.runtime.model import Model, ModelConfig

pytestmark = [pytest.mark.ros, pytest.mark.any_distro, pytest.mark.usefixtures('one_thread')]

NS = 1_000_000_000
# The engine only says that it is on a GPU.
TRACK = TrackConfig(num_frames=4, image_size=64, clip_fps=10.0, geometry='host')
CONFIG = SimpleNamespace(settings=Settings(max_frame_age=3600.0), max_rate=1000.0,
                         overlay_width=320, max_image_pixels=4096 * 4096, max_image_aspect=8.0)
PATIENCE_S = 20.0
CLOCK = SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=time.time_ns()))
PICTURE = texture((96, 64))
QUIET = SimpleNamespace(notify=lambda: None)      # a worker that nobody wakes
NO_DEVICE = RuntimeError('the device is lost')


def failing(error: Exception):
    def fail(*_, **__):
        raise error
    return fail


class Gate:
    """Holds who comes to it until the test opens it."""

    def __init__(self) -> None:
        self._entered, self._opened = threading.Event(), threading.Event()
        self.open = self._opened.set

    def enter(self) -> None:
        self._entered.set()
        assert self._opened.wait(PATIENCE_S), 'the test does not open the gate'

    def await_entry(self) -> None:
        assert self._entered.wait(PATIENCE_S), 'nobody came'

    def before(self, work, when=lambda message: True):
        """The same work, that waits before what it is given, where that is so."""
        def held(message, *more):
            if when(message):
                self.enter()
            return work(message, *more)
        return held


class Camera:
    """A camera without a topic, of 10 images a second."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.queue = FrameQueue()
        self.counts = Counter()
        self.rate = Rate()
        self.silent_s = 0.0
        self.imu = self.distortion = None
        self.sent = 0
        self.images = SimpleNamespace(judge=lambda readable: None)

    def intrinsics_for(self, size):
        return None

    def send(self, worker, count: int = 1) -> None:
        for _ in range(count):
            self.sent += 1
            stamp = 100 * NS + self.sent * NS // 10
            message = message_conversion.image(make_header(stamp, self.name), PICTURE, 'rgb8')
            self.queue.put(Waiting(message, stamp, time.time_ns(), len(message.data)))
            worker.notify()


class Topics:
    """Outputs with subscribers; `stamps` are the numbers of the newest images of results."""

    def __init__(self, *more: str, wait=lambda: None) -> None:
        self.topics = {'assessment', *more}
        self.results, self.deadlines = [], []
        self._wait = wait

    def wanted(self) -> frozenset[str]:
        return frozenset(self.topics)

    def publish(self, result, wanted, how) -> None:
        self.results.append(result)

    def publish_late(self, result, wanted, optics, overlay, until_s) -> None:
        self._wait()
        self.deadlines.append(until_s)

    @property
    def stamps(self) -> list[int]:
        return [round((r.assessment.stamp_ns - 100 * NS) / NS * 10) for r in self.results]


class Log:
    def __init__(self) -> None:
        self.errors = []

    def error(self, text, **more) -> None:
        self.errors.append(text)

    def info(self, text, **more) -> None:
        pass

    def is_enabled_for(self, severity) -> bool:
        return False

    warning = debug = info


@pytest.fixture(scope='module')
def loaded():
    made = Model.load(ModelConfig(weights='random', allow_random_weights=True, num_frames=4,
                                    image_size=64, device='cpu'))
    made.noise_floor()      # not in a worker, which a gate may hold
    yield made
    made.close()


@pytest.fixture
def engine(loaded, monkeypatch):
    """The engine, which its worker does not close, and which says that it is on a GPU."""
    monkeypatch.setattr(loaded, 'close', lambda: None)
    monkeypatch.setattr(loaded, 'choice', replace(loaded.choice, device=torch.device('cuda')))
    return loaded


@pytest.fixture
def device(engine, monkeypatch) -> Gate:
    """What an accelerator does: passes begin at once and end when the gate is open."""
    gate, wait = Gate(), engine.wait
    monkeypatch.setattr(engine, 'wait', lambda *args: gate.enter() or wait(*args))
    return gate


def on_cpu(engine, monkeypatch) -> None:
    monkeypatch.setattr(engine, 'choice', replace(engine.choice, device=torch.device('cpu')))


class Bench:
    """A worker with cameras and outputs; `camera`, `topic` and `ring` are those of the first."""

    def __init__(self, engine: Model, *names: str) -> None:
        self.cameras = {name: Camera(name) for name in names}
        self.topics = {name: Topics() for name in names}
        self.camera, self.topic = self.cameras[names[0]], self.topics[names[0]]
        self.log = Log()
        self.worker = Worker(Perception(engine, TRACK, names), CONFIG, self.cameras, self.topics,
                             CLOCK, self.log)
        self.worker.start()
        self.worker.resume()

    def send(self, count: int, *names: str) -> None:
        """Send images of these cameras, or of all."""
        for name in names or self.cameras:
            self.cameras[name].send(self.worker, count)

    def until(self, holds) -> None:
        end = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < end, f'did not come true; log: {self.log.errors}'
            time.sleep(0.002)

    def until_assessed(self, number: int, *names: str) -> None:
        self.until(lambda: all(number in self.topics[name].stamps for name in names
                               or self.topics))

    def track(self, name: str = 'cam'):
        return self.worker.perception.tracks[name]


@pytest.fixture
def bench(engine):
    made = []

    def make(*names: str) -> Bench:
        made.append(Bench(engine, *names or ('cam',)))
        return made[-1]

    yield make
    for each in made:
        each.worker.stop()
        assert each.worker.join(PATIENCE_S)


@pytest.mark.parametrize('kind', ['cpu', 'cuda'])
def test_the_next_frames_are_decoded_while_a_gpu_computes_but_not_beside_a_cpu_model(
        bench, engine, device, monkeypatch, kind):
    threads, decode = [], decoder.read
    monkeypatch.setattr(decoder, 'read', lambda message, *limits: threads.append(
        threading.current_thread().name) or decode(message, *limits))
    if kind == 'cpu':
        on_cpu(engine, monkeypatch)
    b = bench()
    b.send(4)
    device.await_entry()
    before = len(threads)
    b.send(2)
    if kind == 'cuda':
        b.until(lambda: threads[before:] == ['vjepa_decoder'] * 2)
        assert b.topic.stamps == []                                     # the pass goes on
        assert b.track().ring.newest_ns == 100 * NS + 4 * NS // 10      # its clip is left alone
    device.open()
    b.until_assessed(6)
    assert b.topic.stamps == [4, 6]                                     # the newest wins
    assert len(threads) == 6                                            # each was decoded once
    assert kind == 'cuda' or set(threads) == {'vjepa_worker'}


def test_a_pass_so_slow_that_the_queue_is_thinned_is_told_as_slow_inference(bench, device, caplog):
    b = bench()
    b.send(4)
    device.await_entry()
    assert b.worker.stats['cam'].pass_s > 0
    b.send(1200)                        # two minutes: of the oldest one in 16 is left
    device.open()
    b.until(lambda: 'max_frame_gap' in caplog.text)
    told, *_ = (text for text in caplog.messages if 'max_frame_gap' in text)
    assert 'inference is slower' in told and 'each 0.10 s' in told and 'model_size' in told
    b.until(lambda: math.isnan(b.worker.stats['cam'].pass_s))
    resets = b.track().ring.resets
    assert resets['slow_inference'] >= 3 and 'gap' not in resets


@pytest.mark.parametrize('hz', [0.1, 0.3, 1.0, 30.0])
def test_a_rate_is_told_until_the_next_event_is_overdue(hz):
    rate = Rate()
    assert rate.hz(0.0) == 0
    for k in range(100):
        rate.tick(k / hz)
        assert rate.hz((k + 0.9) / hz) == pytest.approx(hz if k else 0)
    assert rate.hz(99 / hz + max(3.0, 2 / hz) + 0.1) == 0
    assert rate.total == 100


def test_an_unforeseen_error_of_decoding_costs_one_image_of_one_camera(bench, monkeypatch):
    b, decode = bench('bad', 'good'), decoder.read
    broken = failing(MemoryError('no room for the picture'))
    monkeypatch.setattr(decoder, 'read', lambda message, *limits: (
        broken if message.header.frame_id == 'bad' else decode)(message, *limits))
    b.send(1, 'bad')
    b.until(lambda: b.worker.errors == 1 and b.log.errors)
    bad, good = b.worker.stats['bad'], b.worker.stats['good']
    assert (bad.errors, good.errors) == (1, 0)
    assert bad.trouble == 'decoding: MemoryError: no room for the picture'
    assert "camera 'bad': decoding" in b.worker.last_error
    assert 'no room for the picture' in b.log.errors[0]
    b.send(4, 'good')
    b.until(lambda: b.topics['good'].stamps)
    monkeypatch.setattr(decoder, 'read', decode)
    b.send(4, 'bad')
    b.until(lambda: b.topics['bad'].stamps)
    assert (bad.trouble, bad.errors) == ('', 1)          # good again, but not forgotten


@pytest.mark.parametrize('kind', ['cpu', 'cuda'])
def test_an_image_that_takes_long_holds_up_no_other_camera(bench, engine, monkeypatch, kind):
    if kind == 'cpu':
        on_cpu(engine, monkeypatch)
    b, gate = bench('slow', 'good', 'too'), Gate()
    monkeypatch.setattr(decoder, 'read', gate.before(
        decoder.read, lambda message: message.header.frame_id == 'slow'))
    b.send(4, 'slow')
    for number in range(4, 10):
        b.send(4 if number == 4 else 1, 'good', 'too')
        b.until_assessed(number, 'good', 'too')
    assert b.topic.stamps == []
    gate.open()
    b.until(lambda: b.topic.stamps == [4])               # without another message
    b.send(1, 'slow')
    b.until_assessed(5, 'slow')
    assert b.worker.errors == 0


def test_an_image_that_is_being_decoded_at_a_reset_is_thrown_away(bench, device, monkeypatch):
    b, gate = bench(), Gate()
    b.send(4)
    device.await_entry()
    monkeypatch.setattr(decoder, 'read', gate.before(decoder.read))
    b.send(1)
    gate.await_entry()
    b.worker.request_reset('clock_jump')                 # does not wait for the image
    gate.open()
    device.open()
    stats = b.worker.stats['cam']
    b.until(lambda: stats.memory.get('resets.clock_jump') == 1 and stats.skipped == 1)
    assert len(b.track().ring) == 0


def test_both_threads_end_and_a_stuck_image_does_not_hold_up_the_end(bench, device, monkeypatch):
    b, gate = bench(), Gate()
    b.send(4)
    device.await_entry()
    monkeypatch.setattr(decoder, 'read', gate.before(failing(MemoryError('gave up'))))
    b.send(1)
    gate.await_entry()
    device.open()
    begin = time.monotonic()
    b.worker.stop()
    assert not b.worker.join(0.2)
    assert time.monotonic() - begin < 5.0
    gate.open()
    assert b.worker.join(PATIENCE_S)
    assert not [t.name for t in threading.enumerate() if t.name.startswith('vjepa_')]


def test_a_pass_that_fails_is_told_of_every_camera_in_it(bench, engine, monkeypatch):
    b = bench('one', 'two', 'quiet')
    stats = b.worker.stats
    with monkeypatch.context() as patch:
        patch.setattr(engine, 'submit', failing(NO_DEVICE))
        for name in ('one', 'two'):
            b.cameras[name].send(QUIET, 4)
        b.worker.notify()
        b.until(lambda: stats['one'].trouble and stats['two'].trouble)
    told = 'inference: RuntimeError: the device is lost'
    assert [stats[name].trouble for name in b.cameras] == [told, told, '']
    b.send(1, 'one')
    b.until(lambda: b.topic.stamps == [5] and stats['one'].trouble == '')
    assert stats['two'].trouble


def test_a_model_is_not_closed_while_a_frame_is_pushed_to_it(bench, engine):
    b, closed, gate = bench(), [], Gate()
    b.send(4)
    b.until_assessed(4)
    candidate = Perception(engine, TRACK, ['cam'])
    candidate.engine = SimpleNamespace(close=lambda: closed.append(True))

    def push(*_):
        assert not closed, 'closed under the hands of the worker'
        return Push.ACCEPTED

    candidate.tracks['cam'].push = gate.before(push)
    b.worker.offer(candidate)
    b.send(1)
    gate.await_entry()
    loader = threading.Thread(target=b.worker.withdraw)
    loader.start()
    b.worker.notify()                    # the executor waits for none of it
    b.worker.report_silence('cam', 1.0)
    loader.join(0.1)
    assert not closed
    gate.open()
    loader.join(PATIENCE_S)
    assert closed == [True]
    assert not b.worker.swapping and b.worker.errors == 0


def test_a_clip_of_one_activation_is_not_assessed_in_the_next(bench, monkeypatch):
    b = bench()
    b.topic.topics.clear()               # nobody listens: the clip waits
    b.send(4)
    b.until(lambda: len(b.track().ring) == 4)
    b.worker.stop()
    assert b.worker.join(PATIENCE_S)
    b.topic.topics.add('assessment')
    admission = b.worker._admission
    # The executor comes in between.
    monkeypatch.setattr(b.worker, '_admission', lambda: b.worker.resume() or admission())
    b.worker._step()
    assert b.topic.stamps == []
    assert len(b.track().ring) == 0


def test_an_error_of_the_geometry_of_one_camera_costs_no_camera_its_clip(bench):
    b = bench('bad', 'good')
    b.send(3)
    b.until(lambda: all(len(b.track(name).ring) == 3 for name in b.cameras))
    estimator = b.track('bad')._geometry._estimator
    estimate = estimator.estimate
    estimator.estimate = failing(ArithmeticError('the flow of this picture can not be computed'))
    b.send(1)
    b.until(lambda: b.topics['bad'].results and b.topics['good'].results)
    bad, good = (b.topics[name].results[-1].assessment for name in ('bad', 'good'))
    assert Quality.GEOMETRY_FAILED | Quality.LOOMING_UNKNOWN in bad.flags
    assert bad.level is Level.UNKNOWN
    assert Quality.GEOMETRY_FAILED not in good.flags
    assert b.worker.errors == b.worker.stats['bad'].errors == 1
    assert b.worker.stats['good'].errors == 0
    assert 'geometry: ArithmeticError: the flow' in b.worker.stats['bad'].last_error
    estimator.estimate = estimate
    b.send(1, 'bad')
    b.until(lambda: len(b.topic.results) == 2)
    assert Quality.GEOMETRY_FAILED not in b.topic.results[-1].assessment.flags


def test_the_wait_for_tf_of_one_camera_holds_up_no_assessment(bench, device, monkeypatch):
    monkeypatch.setattr(decoder, 'PATIENCE_S', PATIENCE_S)      # also on a busy machine
    b, gate = bench('one', 'two', 'first'), Gate()
    outputs = {name: Topics('obstacle_points', wait=gate.enter) for name in ('one', 'two')}
    b.worker._outputs.update(outputs)
    b.send(4, 'first')
    device.await_entry()
    b.send(4, *outputs)                  # so both clips are in the next pass
    device.open()
    gate.await_entry()
    told = {name: out.stamps for name, out in outputs.items()}
    gate.open()
    assert told == {'one': [4], 'two': [4]}
    b.until(lambda: all(out.deadlines for out in outputs.values()))
    assert outputs['one'].deadlines == outputs['two'].deadlines     # one for the pass
    assert b.worker.errors == 0


@pytest.mark.parametrize('end', ['closed', 'taken back'])
def test_no_model_is_left_over_when_a_change_is_not_wanted_any_more(bench, engine, monkeypatch,
                                                                    end):
    b, closed, gate = bench(), [], Gate()
    other = SimpleNamespace(engine=ModelConfig(seed=7), track=TRACK)
    b.worker.config = SimpleNamespace(**vars(CONFIG), engine=engine.config, track=TRACK)
    swapper = Swapper(b.worker, b.log)
    monkeypatch.setattr(Model, 'load', gate.before(lambda config: SimpleNamespace(
        config=config, noise_floor=lambda: None, close=lambda: closed.append(config))))
    monkeypatch.setattr(model_swapper, 'Perception', lambda engine, track, names: (
        SimpleNamespace(engine=engine, config=track, close=engine.close)))
    swapper.request(other)
    gate.await_entry()
    if end == 'closed':
        swapper.close()
    else:
        swapper.request(b.worker.config)
    gate.open()
    b.until(lambda: closed == [other.engine])
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
            {name: sample.frames[-1].key for name, sample in samples.items()})
        if number > late:
            waits.append(0.0 if samples else wait_s)
    assert waits.count(0.0) == pytest.approx(served, abs=2)
    # A faster camera has frames to spare; others are never held up.
    assert rate > 15 or not any(waits)


def test_a_frame_that_was_assessed_is_not_assessed_again_by_another_model(bench, engine):
    b = bench()
    b.send(4)
    b.until_assessed(4)
    b.worker.offer(Perception(engine, TRACK, ['cam']))
    for number in range(5, 9):                     # the last one fills the clip of both
        b.send(1)
        b.until_assessed(number)
    b.worker.notify()
    b.until(lambda: not b.worker.swapping)
    b.send(1)
    b.until_assessed(9)
    assert b.topic.stamps == [4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize('adopted', [True, False])
def test_a_model_that_goes_lets_go_of_its_frames_on_the_device(bench, engine, monkeypatch,
                                                               adopted):
    on_cpu(engine, monkeypatch)
    b, there = bench(), replace(TRACK, geometry='device')
    first, second = (Perception(engine, there, ['cam']) for _ in range(2))
    b.worker.offer(first)
    b.send(4)
    b.until(lambda: b.worker.perception is first and b.track().on_device)
    b.worker.offer(second)
    b.send(1)
    b.until(lambda: second.tracks['cam'].on_device)
    if adopted:
        b.send(4)
        b.until(lambda: b.worker.perception is second)
    else:
        b.worker.withdraw()
    old, new = (first, second) if adopted else (second, first)
    b.until(lambda: not old.tracks['cam'].on_device)
    assert new.tracks['cam'].on_device
    assert b.worker.errors == 0
