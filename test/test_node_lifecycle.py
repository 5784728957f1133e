# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the life of the node: transitions, parameters and weights while it runs, and its end."""

from __future__ import annotations

import math
import re
import signal
import threading
import time
from itertools import count, pairwise

import numpy as np
import pytest
from bundles import save_constant_bundle, save_constant_heads

pytest.importorskip('rclpy')

from node_fixtures import Camera, EXACT, NODE, NS, SMALL, START_S, exact, node_running, now_ns
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from ros_harness import ros_session

from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros import read
from vjepa_ros.ros.perception_node import node as node_module
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.node import VjepaNode
from vjepa_ros.runtime.model import Model

pytestmark = pytest.mark.ros

SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


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

    node = VjepaNode(context=ros.context, parameter_overrides=[
        Parameter(name, value=value) for name, value in SMALL.items()])
    try:
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
    finally:
        node.destroy_node()


@pytest.mark.parametrize(('bad', 'reason'), [
    ({'weights': '/nowhere/vitl.safetensors'}, r'/nowhere/vitl\.safetensors'),
    ({'allow_random_weights': False}, 'allow_random_weights: true'),
    ({'device': 'cuda:63', 'require_device': True}, r'cuda:63.*(found|available)')])
def test_configure_fails_with_reason_and_works_once_the_cause_is_gone(ros, bad, reason):
    with node_running(ros) as node:
        good = {name: node.get(name) for name in bad}
        node.set(**bad)
        assert not node.change('configure')
        assert node.state == 'unconfigured'
        assert 'Traceback' not in node.wait_for_log(reason)     # whoever set it needs words
        assert re.search(reason, node.report().message)
        node.set(**good)
        node.do('configure')


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


@pytest.fixture
def shared(again):
    """A node for tests that leave it as they found it, with a camera that runs."""
    with Camera(again.ros):
        yield again


@pytest.mark.parametrize(('name', 'value', 'reason'), [
    ('model_size', 'enormous', 'model_size.*tiny, small'),
    ('max_rate', float('nan'), 'max_rate'),
    ('cameras', ['front'], 'cameras.*active'),
    ('clip_fps', None, 'clip_fps.*double'),          # deletes it, where that is allowed
])
def test_an_illegal_value_is_refused_with_the_reason_and_changes_nothing(shared, name, value,
                                                                         reason):
    before = shared.get(name)
    result = shared.try_set(name, value)
    assert not result.successful
    assert re.search(reason, result.reason), result.reason
    assert shared.get(name) == before


def test_a_live_parameter_acts_on_the_next_result(shared):
    for speed in (0.5, 2.0, 0.5):
        shared.set(approach_speed=speed)
        assert shared.assess().approach_speed == speed


@pytest.mark.any_distro
@pytest.mark.parametrize(('values', 'span_s'), [
    ({'image_size': 96}, 0.3), ({'clip_fps': 5.0}, 0.6)])
def test_a_structural_change_does_not_interrupt_the_results(again, monkeypatch, values, span_s):
    again.begin_anew()
    load = Model.load

    def slow(config):
        time.sleep(2.0)
        return load(config)

    monkeypatch.setattr(Model, 'load', slow)
    with Camera(again.ros), again.listen('assessment') as got:
        again.some(got, 5)
        since = again.written
        again.set(**values)
        again.wait_for_log('now serving', since)
        assert again.ros.spin_until(
            lambda: abs(read.assessment(got[-1]).clip_span_s - span_s) < 0.1)
        gaps = [(b - a) / NS for a, b in pairwise(got.sent_ns)]
        assert max(gaps) < 3 * span_s + 0.5, gaps         # no clip had to fill meanwhile
    assert again.values('model')['model_change'] == 'none'


def test_cameras_can_change_between_two_configures(again):
    again.begin_anew()
    ros = again.ros
    with Camera(ros, 'front/image_raw'), Camera(ros, 'side/image_raw'):
        assert not again.try_set('cameras', ['front', 'side']).successful
        again.do('deactivate', 'cleanup')
        again.set(cameras=['front', 'side'])
        # Parameters of new cameras exist at once, so that they can be set before configure.
        assert ros.spin_until(lambda: again.get('side.transport') == 'auto')
        again.set(side__transport='raw')
        again.do('configure', 'activate')
        for name in ('front', 'side'):
            assert again.assess(name).untrained
        assert again.values('camera side')['transport'] == 'raw'


@pytest.fixture(scope='module')
def files(tmp_path_factory) -> dict[str, str]:
    """Weights whose heads see everything closing in at 0.8 /s (at 10 frames a second).

    And heads alone that see twice that, for these weights and for others.
    """
    folder = tmp_path_factory.mktemp('heads')
    weights = save_constant_bundle(folder / 'tiny.safetensors', expansion=0.08, course=0.9,
                                   contact=16.0)
    other = save_constant_bundle(folder / 'other.safetensors', seed=1)
    return {'weights': weights,
            'faster': save_constant_heads(folder / 'faster.safetensors', weights,
                                          expansion=0.16, course=0.9),
            'foreign': save_constant_heads(folder / 'foreign.safetensors', other)}


@pytest.fixture(scope='module')
def node(files):
    """An active node with heads that hold, and a camera that looks at a still picture."""
    start, number = now_ns(), count()
    with ros_session() as session, node_running(
            session, autostart=True, weights=files['weights'], max_frame_age=3600.0,
            **exact()) as running, Camera(
                session, rate=10.0, qos=EXACT,
                # Even: else heads would be out of range, and rightly so.
                stamp=lambda _: start + next(number) * NS // 10) as camera:
        running.camera = camera
        assert running.ros.spin_until(lambda: running.state == 'active', START_S)
        yield running


def after(node, **values):
    """An assessment a second after these parameters were set: smoothing has settled by then."""
    node.set(**values)
    set_at = node.camera.stamps[-1] + NS
    with node.listen('assessment') as got:
        assert node.ros.spin_until(lambda: got and read.stamp_ns(got[-1]) > set_at)
        return read.assessment(got[-1])


def test_other_heads_are_taken_while_the_node_runs_and_foreign_ones_refused(node, files):
    assert after(node).time_to_contact == pytest.approx(1.25, rel=0.1)
    node.set(heads=files['faster'])
    node.wait_for('model', lambda v: files['faster'] in v['heads'])
    assert after(node).time_to_contact == pytest.approx(0.625, rel=0.1)
    since = node.written
    node.set(heads=files['foreign'])
    node.wait_for_log('foreign.safetensors', since)
    assert after(node).time_to_contact == pytest.approx(0.625, rel=0.1)
    node.set(heads='')
    node.wait_for('model', lambda v: files['weights'] in v['heads']
                  and v['model_change'] == 'none')


def test_heads_out_of_range_leave_contact_unknown_and_the_node_says_so(node):
    since = node.written
    node.set(image_size=96)
    node.wait_for('model', lambda v: (v['image_size'], v['model_change']) == ('96', 'none'))
    with node.listen('moving_map') as got:
        seen = after(node)
        node.some(got)
        assert Quality.HEADS_OUT_OF_RANGE in seen.flags
        assert math.isnan(seen.time_to_contact) and seen.level is Level.UNKNOWN
        assert np.isnan(read.grid(got[-1])).all()
        node.wait_for_log('level are unknown: image_size is 96.*set image_size: 64', since)
        values = node.wait_for('camera camera', lambda v: v['heads'].startswith('not valid'))
    assert 'trained on 64' in values['heads']
    assert values['motion_score'] == 'all change'
    node.set(image_size=64)
    node.wait_for('model', lambda v: (v['image_size'], v['model_change']) == ('64', 'none'))
    assert Quality.HEADS_OUT_OF_RANGE not in after(node).flags


def test_a_checkpoint_that_is_wrong_is_named_and_the_old_model_keeps_serving(node):
    before, old, since = after(node), node.values('model'), node.written
    node.set(weights=__file__)
    log = node.wait_for_log(r'the old one keeps serving: [^\n]*\n', since)
    assert 'test_node_lifecycle.py' in log
    assert after(node).time_to_contact == pytest.approx(before.time_to_contact, rel=0.1)
    # It is in the diagnostics until something else is asked for.
    report, values, since = node.report(), node.values('model'), node.written
    after(node, max_frame_age=50.0)             # does not try the failing load again
    assert 'keeps serving' not in node.process.output[since:]
    assert report.level == b'\x01' and 'test_node_lifecycle.py' in report.message
    for key in ('weights', 'weights_sha256', 'trained', 'state', 'errors'):
        assert values[key] == old[key]
