# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the life of the node: a transition completes or leaves no trace, and an end is orderly."""

from __future__ import annotations

import importlib.util
import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

pytest.importorskip('rclpy')

import rclpy
from node_fixtures import (
    KINDS,
    NS,
    SERVICES,
    SMALL,
    START_S,
    Camera,
    Node,
    node_process,
    node_running,
    now_ns,
    slow_node_running,
)
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.node import NodeNameNonExistentError
from rclpy.parameter import Parameter
from ros_harness import ros_session

from vjepa_ros.ros import read
from vjepa_ros.ros.common.spin import serve
from vjepa_ros.ros.perception_node import node as node_module
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.node import VjepaNode

pytestmark = pytest.mark.ros

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


@pytest.fixture
def ros():
    with ros_session() as session:
        yield session


def graph(node: Node) -> tuple[list, list, list]:
    """Publishers, subscriptions and services of the node as others see them."""
    name, me = node.name[1:], node.ros.node
    try:
        return (sorted(me.get_publisher_names_and_types_by_node(name, '/')),
                sorted(me.get_subscriber_names_and_types_by_node(name, '/')),
                sorted(me.get_service_names_and_types_by_node(name, '/')))
    except NodeNameNonExistentError:           # not discovered yet
        return [], [], []


def settled_graph(node: Node, expected: tuple | None = None) -> tuple[list, list, list]:
    """The graph once it is what is expected, or has not changed for a while."""
    if expected is not None:
        node.ros.spin_until(lambda: graph(node) == expected)
        return graph(node)
    assert node.ros.spin_until(lambda: {f'{node.name}/{s}' for s in SERVICES} <= {
        name for name, _ in graph(node)[2]})
    while True:
        seen = graph(node)
        if not node.ros.spin_until(lambda seen=seen: graph(node) != seen, 1.0):
            return seen


# -- nothing is left behind -----------------------------------------------------------------------

@pytest.mark.slow
def test_ten_lives_leave_nothing_behind(ros):
    warm, lives = 3, 10
    # More than one thread per operation, so that threads left over by PyTorch would be seen.
    threaded = {'OMP_NUM_THREADS': '2', 'OMP_WAIT_POLICY': 'PASSIVE'}
    with node_process(ros, env=threaded) as node, Camera(ros), \
            node.listen('assessment') as got, node.listen('overlay/compressed'):
        threads, memory = [], []
        assert node.state == 'unconfigured'
        before = settled_graph(node)
        node.do('configure')
        outputs = {f'{node.name}/camera/{topic}' for topic in KINDS}
        assert ros.spin_until(lambda: outputs <= {name for name, _ in graph(node)[0]})
        inactive = settled_graph(node)
        node.do('cleanup')
        for _ in range(lives):
            node.do('configure', 'activate')
            node.next(got, 3)
            node.do('deactivate', 'cleanup')
            assert settled_graph(node, before) == before
            if len(threads) >= warm:     # threads of PyTorch end a moment after their worker
                ros.spin_until(lambda: node.threads <= threads[warm - 1], 30.0)
            else:
                ros.spin_for(0.5)
            threads.append(node.threads)
            memory.append(node.memory_mb)
        assert max(threads[warm:]) <= threads[warm - 1], threads
        assert memory[-1] - memory[warm - 1] < 15.0, memory
        node.do('configure')
        assert settled_graph(node, inactive) == inactive


@contextmanager
def made(context: rclpy.Context, *transitions: str, **params) -> Iterator[VjepaNode]:
    """A node that nobody serves, after some transitions."""
    node = VjepaNode(context=context, parameter_overrides=[
        Parameter(name, value=value) for name, value in {**SMALL, **params}.items()])
    try:
        for transition in transitions:
            assert getattr(node, f'trigger_{transition}')() == SUCCESS
        yield node
    finally:
        node.destroy_node()


def broken(text: str):
    def fail(*_, **__):
        raise RuntimeError(text)
    return fail


def entities(node) -> dict[str, int]:
    """How many entities of each kind a node of this process holds."""
    return {**{kind: len(list(getattr(node, kind))) for kind in (
        'publishers', 'subscriptions', 'clients', 'services', 'timers', 'guards', 'waitables')},
        'managed': len(node._managed_entities), 'threads': threading.active_count()}


def test_entities_inside_the_node_do_not_grow(ros):
    with made(ros.context) as node:
        unconfigured, active = entities(node), None
        for _ in range(2):
            assert node.trigger_configure() == SUCCESS
            assert node.trigger_activate() == SUCCESS
            active = active or entities(node)
            assert entities(node) == active
            assert node.trigger_deactivate() == SUCCESS
            assert node.trigger_activate() == SUCCESS
            assert entities(node) == active
            assert node.trigger_deactivate() == SUCCESS
            assert node.trigger_cleanup() == SUCCESS
            # On a busy machine the worker's thread may end a moment later.
            ros.spin_until(lambda: entities(node) == unconfigured, 30.0)
            assert entities(node) == unconfigured
        assert active['managed'] == unconfigured['managed'] + 15
        assert active['threads'] == unconfigured['threads'] + 1


@pytest.mark.parametrize('part', ['CameraInput', 'Outputs'])
def test_a_failed_configure_leaves_no_entity_behind(ros, monkeypatch, part):
    params = {'cameras': ['a', 'b']}
    if importlib.util.find_spec('nav_msgs') is not None:
        params['obstacles.odometry'] = 'odom'
    with made(ros.context, **params) as node:
        before, make = entities(node), getattr(node_module, part)

        def fail_for_b(node, name, *more):
            if name == 'b':
                raise RuntimeError('out of order')
            return make(node, name, *more)

        with monkeypatch.context() as patch:
            patch.setattr(node_module, part, fail_for_b)
            for _ in range(2):
                assert node.trigger_configure() == FAILURE
                assert node.state == 'unconfigured' and 'out of order' in node.last_failure
                assert entities(node) == before
        assert node.trigger_configure() == SUCCESS


def test_a_failed_activate_is_taken_back(ros, monkeypatch):
    with made(ros.context, 'configure') as node:
        inactive = entities(node)
        with monkeypatch.context() as patch:
            patch.setattr(CameraInput, 'open', broken('no subscription today'))
            assert node.trigger_activate() == FAILURE
        assert node.state == 'inactive'
        assert entities(node) == inactive
        assert 'no subscription today' in node.last_failure
        assert not any(p.is_activated for p in node._managed_entities)
        assert node.trigger_activate() == SUCCESS
        assert node.last_failure == ''


def test_what_can_not_be_closed_does_not_keep_the_rest(ros, monkeypatch):
    with made(ros.context, cameras=['a', 'b']) as node:
        unconfigured = entities(node)
        assert node.trigger_configure() == SUCCESS
        assert node.trigger_activate() == SUCCESS
        worker, close = node.parts.worker, CameraInput.close
        with monkeypatch.context() as patch:
            patch.setattr(CameraInput, 'close', lambda camera: close(camera)
                          if camera.name == 'b' else broken('camera a can not be closed')())
            # Deactivation fails, so everything is released as far as possible, and that fails too.
            assert node.trigger_deactivate() == TransitionCallbackReturn.ERROR
        assert node.state == 'finalized'
        assert 'camera a can not be closed' in node.last_failure
        assert worker.join(60.0)
        left = {kind: count - unconfigured[kind] for kind, count in entities(node).items()}
        assert left['subscriptions'] == 2        # of the camera that can not be closed
        assert [left[kind] for kind in ('publishers', 'managed', 'timers', 'threads')] == [0] * 4
        assert node.parts is None


def test_a_failed_transition_that_can_not_be_undone_tells_both_reasons(ros, monkeypatch):
    with made(ros.context, 'configure') as node:
        told = []
        with monkeypatch.context() as patch:
            patch.setattr(node.parts.worker, 'resume', broken('no work today'))
            patch.setattr(node, 'undo_activate', broken('and no way back'))
            patch.setattr(type(node.get_logger()), 'error',
                          lambda self, text, **more: told.append(text))
            assert node.trigger_activate() == TransitionCallbackReturn.ERROR
        assert node.state == 'unconfigured'
        assert 'no work today' in node.last_failure
        assert any('and no way back' in text for text in told)
        assert node.trigger_configure() == SUCCESS


@pytest.mark.parametrize('path', [(), ('configure',), ('configure', 'activate')])
def test_shutdown_releases_everything_from_every_state(ros, path):
    with made(ros.context) as node:
        before = entities(node)
        for transition in (*path, 'shutdown'):
            assert getattr(node, f'trigger_{transition}')() == SUCCESS
        assert node.state == 'finalized'
        ros.spin_until(lambda: entities(node) == before, 30.0)
        assert entities(node) == before


def test_a_callback_that_fails_does_not_end_the_node(ros):
    calls, signals = [], SimpleNamespace(received=False)

    def fail():
        calls.append('failed')
        raise RuntimeError('not my day')

    def go_on():
        signals.received = bool(calls and node.failure)

    with made(ros.context) as node:
        node.create_timer(0.01, fail)
        node.create_timer(0.05, go_on)
        assert serve(node, signals)      # ends the domain of the test, too
        assert 'RuntimeError: not my day' in node.failure
        assert node.callbacks_failed >= 1


# -- failed configure, then success ---------------------------------------------------------------

FAULTS = {
    'a missing file of weights': (
        {'weights': '/nowhere/vitl.safetensors'}, {'weights': 'random'},
        r'/nowhere/vitl\.safetensors'),
    'a file that holds no weights': (
        {'weights': __file__}, {'weights': 'random'}, r'test_node_lifecycle\.py'),
    'no weights and not allowed to run without': (
        {'allow_random_weights': False}, {'allow_random_weights': True},
        r'allow_random_weights: true'),
    'a required device that is missing': (
        {'device': 'cuda:63', 'require_device': True}, {'device': 'cpu', 'require_device': False},
        r'cuda:63.*(found|available)'),
}


@pytest.fixture(scope='module')
def unconfigured():
    with ros_session() as session, node_running(session) as node:
        assert node.state == 'unconfigured'
        yield node


@pytest.mark.parametrize('fault', FAULTS)
def test_configure_fails_with_reason_and_works_once_the_cause_is_gone(unconfigured, fault):
    node = unconfigured
    bad, good, reason = FAULTS[fault]
    before = graph(node)
    node.set(**bad)
    written = node.written
    assert not node.change('configure')
    assert node.state == 'unconfigured'
    node.wait_for_log(reason, written)
    assert 'Traceback' not in node.process.output[written:]     # whoever set it needs words
    assert node.ros.spin_until(lambda: graph(node) == before)
    report = node.report()
    assert report.level == b'\x01'
    assert re.search(reason, report.message)
    node.set(**good)
    node.do('configure')
    assert node.report().message.startswith('untrained')
    node.do('cleanup')


def test_wrong_requests_do_not_harm_the_node(unconfigured):
    node = unconfigured
    for transition in ('activate', 'deactivate', 'cleanup', 'active_shutdown'):
        assert not node.change(transition)
        assert node.state == 'unconfigured'
    node.do('configure')
    assert not node.change('configure')
    assert node.state == 'inactive'
    node.do('cleanup')


def test_illegal_values_at_the_start_are_named_and_can_be_corrected(ros):
    wrong = {'clip_fps': 'fast', 'num_frames': 7, 'model_size': 'enormous', 'roi': [0.0, 2.0]}
    with node_running(ros, **wrong) as node:
        assert not node.change('configure')
        assert node.state == 'unconfigured'
        for name, value in wrong.items():
            node.wait_for_log(rf"parameter '{name}' is {re.escape(repr(value))}")
        message = node.report().message
        assert all(f"'{name}'" in message for name in wrong)
        for name, value in (('clip_fps', 10.0), ('num_frames', 4), ('model_size', 'tiny')):
            assert node.try_set(name, value).successful
            assert not node.change('configure')          # one fault is left
        assert node.try_set('roi', [0.0, 0.0, 1.0, 1.0]).successful
        node.do('configure', 'activate')
        assert node.state == 'active'


# -- autostart ------------------------------------------------------------------------------------

def test_autostart_configures_and_activates(ros):
    with node_running(ros, autostart=True) as node, Camera(ros):
        node.process.wait_for_output('active', START_S)
        assert node.state == 'active'
        assert node.assess().untrained


def test_a_failed_autostart_says_why_and_leaves_the_node_to_be_corrected(ros):
    with node_running(ros, autostart=True, allow_random_weights=False) as node:
        node.process.wait_for_output('autostart ended', START_S)
        assert re.search('configure failed.*allow_random_weights', node.process.output)
        assert node.state == 'unconfigured'
        node.set(allow_random_weights=True)
        node.do('configure', 'activate')
        assert node.state == 'active'


# -- activation -----------------------------------------------------------------------------------

def test_a_new_activation_begins_with_a_new_clip(ros):
    with node_running(ros) as node, Camera(ros), node.listen('assessment') as got:
        node.do('configure', 'activate')
        node.next(got, 2)
        node.do('deactivate')
        # Short enough that the frames of before would still fit to those to come.
        ros.spin_for(0.3)
        got.clear()
        again = now_ns()
        node.do('activate')
        first = read.assessment(node.next(got)[0])
        # All frames of its clip are of this activation; one may just have been on its way.
        assert (first.stamp_ns - again) / NS > first.clip_span_s - 0.1


def test_nothing_is_published_once_deactivate_has_returned(ros):
    with node_running(ros) as node, Camera(ros, rate=60.0) as camera, \
            node.listen('assessment') as got, node.listen('overlay') as pictures:
        node.do('configure')
        for _ in range(3):
            node.do('activate')
            node.next(got, 2)
            node.do('deactivate')
            returned, sent = now_ns(), len(camera.stamps)
            assert ros.spin_until(lambda sent=sent: len(camera.stamps) > sent + 10)
            assert all(sent_ns <= returned for sent_ns in got.sent_ns + pictures.sent_ns)


def test_a_node_that_was_shut_down_still_answers_and_ends_in_order(ros):
    with node_running(ros) as node:
        node.do('configure', 'activate', 'active_shutdown')
        assert node.state == 'finalized'
        assert node.report().values[0].value == 'finalized'


# -- while an inference runs ----------------------------------------------------------------------

@pytest.mark.parametrize('how', ['torch', 'wait'])
def test_services_answer_while_an_inference_runs(ros, how):
    with slow_node_running(ros, how=how) as node, Camera(ros), node.listen('assessment') as got:
        node.do('configure', 'activate')
        node.next(got, 2)
        with node.stuck_inference():
            before = now_ns()
            for _ in range(3):
                assert node.state == 'active'
                assert node.ask('list_parameters')
                assert node.try_set('max_frame_age', 2.0).successful
            # All of them were answered while one inference ran, and none took its time.
            assert not any(sent > before for sent in got.sent_ns)


def test_transitions_do_not_wait_for_an_inference(ros):
    with slow_node_running(ros) as node, Camera(ros), node.listen('assessment') as got:
        node.do('configure')
        before = settled_graph(node)
        for _ in range(2):
            node.do('activate')
            node.next(got)
            with node.stuck_inference():
                node.do('deactivate')
                returned = now_ns()
                assert settled_graph(node, before) == before
            ros.spin_for(0.3)          # now its result could come
            assert all(sent <= returned for sent in got.sent_ns)
        node.do('activate')
        node.next(got)
        with node.stuck_inference():
            node.do('deactivate', 'cleanup')
            node.do('configure', 'activate')
            assert node.state == 'active'
        node.next(got)


def test_a_result_of_an_old_activation_is_not_published_in_a_new_one(ros):
    with slow_node_running(ros) as node, Camera(ros), node.listen('assessment') as got:
        node.do('configure', 'activate')
        node.next(got)
        for _ in range(2):
            with node.stuck_inference():
                node.do('deactivate')
                again = now_ns()
                node.do('activate')
                assert all(sent < again for sent in got.sent_ns)
                before = len(got)
            node.next(got, 2)                 # by now the old inference has ended, too
            assert all(read.stamp_ns(m) > again for m in got[before:])


# -- the end of the process -----------------------------------------------------------------------

SLOWLY = pytest.mark.slow


@pytest.mark.parametrize(('path', 'number'), [
    pytest.param((), signal.SIGINT, marks=SLOWLY), pytest.param((), signal.SIGTERM, marks=SLOWLY),
    pytest.param(('configure', 'activate'), signal.SIGINT, marks=SLOWLY),
    (('configure', 'activate'), signal.SIGTERM)])
def test_a_signal_ends_the_process_quickly_and_cleanly(ros, path, number):
    with node_process(ros) as node, Camera(ros), node.listen('assessment') as got:
        node.do(*path)
        if path:
            node.next(got, 2)
        else:
            assert node.state == 'unconfigured'
        node.process.terminate_and_check(number)


@SLOWLY
@pytest.mark.parametrize(('how', 'cleanup'), [('torch', False), ('wait', False), ('wait', True)])
def test_a_signal_during_a_long_inference_ends_the_process_cleanly(ros, how, cleanup):
    with slow_node_running(ros, how=how, process=True) as node, Camera(ros), \
            node.listen('assessment') as got:
        node.do('configure', 'activate')
        node.next(got)
        with node.stuck_inference():
            if cleanup:
                node.do('deactivate', 'cleanup')
            node.process.terminate_and_check(signal.SIGINT)


def test_a_signal_while_the_model_loads_ends_the_process_quickly_and_cleanly(ros):
    # Held in time: the process has to import PyTorch first.
    with slow_node_running(ros, process=True, autostart=True) as node, node.held('load'):
        node.wait_for_log('a load is held')
        node.process.terminate_and_check(signal.SIGINT)
