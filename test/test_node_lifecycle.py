# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the life of the node: a transition completes or leaves no trace, and an end is orderly."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip('rclpy')

import rclpy
from node_fixtures import Camera, NODE, NS, SMALL, START_S, node_running, now_ns
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from ros_harness import ros_session

from vjepa_ros.ros import read
from vjepa_ros.ros.perception_node import node as node_module
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.node import VjepaNode

pytestmark = pytest.mark.ros

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


@contextmanager
def made(context: rclpy.Context, **params) -> Iterator[VjepaNode]:
    """A node that nobody serves."""
    node = VjepaNode(context=context, parameter_overrides=[
        Parameter(name, value=value) for name, value in {**SMALL, **params}.items()])
    try:
        yield node
    finally:
        node.destroy_node()


def entities(node) -> dict[str, int]:
    """How many entities of each kind a node of this process holds."""
    return {**{kind: len(list(getattr(node, kind))) for kind in (
        'publishers', 'subscriptions', 'clients', 'services', 'timers', 'guards', 'waitables')},
        'managed': len(node._managed_entities), 'threads': threading.active_count()}


@pytest.mark.parametrize(('module', 'name', 'before', 'transition'), [
    (node_module, 'Outputs', (), 'configure'), (CameraInput, 'open', ('configure',), 'activate')])
def test_a_failed_transition_is_taken_back(ros, monkeypatch, module, name, before, transition):
    def fail(*_, **__):
        raise RuntimeError('out of order')

    with made(ros.context, cameras=['a', 'b']) as node:
        empty = entities(node)
        for each in before:
            assert getattr(node, f'trigger_{each}')() == SUCCESS
        held, state = entities(node), node.state
        with monkeypatch.context() as patch:
            patch.setattr(module, name, fail)
            assert getattr(node, f'trigger_{transition}')() == FAILURE
        assert node.state == state and 'out of order' in node.last_failure
        assert entities(node) == held
        assert not any(p.is_activated for p in node._managed_entities)
        assert getattr(node, f'trigger_{transition}')() == SUCCESS
        assert node.trigger_shutdown() == SUCCESS
        # On a busy machine the worker's thread may end a moment later.
        assert ros.spin_until(lambda: entities(node) == empty, 30.0), entities(node)


@pytest.fixture(scope='module')
def unconfigured():
    with ros_session() as session, node_running(session) as node:
        assert node.state == 'unconfigured'
        yield node


@pytest.mark.parametrize(('bad', 'reason'), [
    ({'weights': '/nowhere/vitl.safetensors'}, r'/nowhere/vitl\.safetensors'),
    ({'allow_random_weights': False}, 'allow_random_weights: true'),
    ({'device': 'cuda:63', 'require_device': True}, r'cuda:63.*(found|available)')])
def test_configure_fails_with_reason_and_works_once_the_cause_is_gone(unconfigured, bad, reason):
    node = unconfigured
    good = {name: node.get(name) for name in bad}
    node.set(**bad)
    written = node.written
    assert not node.change('configure')
    assert node.state == 'unconfigured'
    node.wait_for_log(reason, written)
    assert 'Traceback' not in node.process.output[written:]     # whoever set it needs words
    assert re.search(reason, node.report().message)
    node.set(**good)
    node.do('configure', 'cleanup')


def test_activations_share_no_frames_and_nothing_is_published_once_deactivate_has_returned(ros):
    with node_running(ros) as node, Camera(ros, rate=60.0) as camera, \
            node.listen('assessment') as got, node.listen('overlay') as pictures:
        node.do('configure')
        for _ in range(3):
            again = now_ns()
            node.do('activate')
            first = read.assessment(node.next(got, 2)[0])
            # All frames of its clip are of this activation; one may just have been on its way.
            assert (first.stamp_ns - again) / NS > first.clip_span_s - 0.1
            node.do('deactivate')
            returned, sent = now_ns(), len(camera.stamps)
            # Short enough that the frames of before would still fit to those to come.
            assert ros.spin_until(lambda sent=sent: len(camera.stamps) > sent + 10)
            assert all(sent_ns <= returned for sent_ns in got.sent_ns + pictures.sent_ns)



@pytest.mark.parametrize(('params', 'line', 'number'), [
    ({'model_size': 'large', 'num_frames': 64}, 'was asked for', signal.SIGINT),
    ({}, 'active', signal.SIGTERM)], ids=['loading', 'active'])
def test_a_signal_ends_the_process_quickly_and_cleanly(ros, params, line, number):
    with ros.spawn(NODE, {**SMALL, 'autostart': True, **params}) as process, Camera(ros):
        process.wait_for_output(line, START_S)
        process.terminate_and_check(number, 15.0)
