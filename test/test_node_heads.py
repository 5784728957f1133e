# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the node with learned heads: what it publishes, says and falls back to."""

from __future__ import annotations

import math
from itertools import count

import numpy as np
import pytest

pytest.importorskip('rclpy')

from bundles import save_constant_bundle, save_constant_heads
from node_fixtures import EXACT, NS, START_S, Camera, exact, node_running, now_ns
from ros_harness import ros_session

from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros import read

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

CAMERA = 'camera camera'


@pytest.fixture(scope='module')
def files(tmp_path_factory) -> dict[str, str]:
    """Weights whose heads see everything closing in at 0.8 /s (at 10 frames a second).

    And heads alone that see twice that, for these weights and for others.
    """
    folder = tmp_path_factory.mktemp('heads')
    weights = save_constant_bundle(folder / 'tiny.safetensors', expansion=0.08, course=0.9,
                                   moving=1 / 3, contact=16.0)
    other = save_constant_bundle(folder / 'other.safetensors', seed=1)
    return {'weights': weights,
            'faster': save_constant_heads(folder / 'faster.safetensors', weights,
                                          expansion=0.16, course=0.9),
            'foreign': save_constant_heads(folder / 'foreign.safetensors', other)}


@pytest.fixture(scope='module')
def node(files):
    """An active node with heads that hold, and a camera that looks at a still picture.

    Stamps are even and no image is lost, however busy the machine is: else the heads would be
    out of their range, and rightly so.
    """
    start, number = now_ns(), count()
    with ros_session() as session, node_running(
            session, autostart=True, weights=files['weights'], smoothing__method='none',
            level_hold=0.0, hysteresis=0.0, max_frame_age=3600.0, **exact()) as running, \
            Camera(session, rate=10.0, qos=EXACT,
                   stamp=lambda _: start + next(number) * NS // 10) as camera:
        running.camera = camera
        assert running.ros.spin_until(lambda: running.state == 'active', START_S)
        yield running


def after(node, **values):
    """The first assessment of a frame that was taken after these parameters were set."""
    node.set(**values)
    set_at = node.camera.stamps[-1]
    with node.listen('assessment') as got:
        assert node.ros.spin_until(lambda: got and read.stamp_ns(got[-1]) > set_at)
        return read.assessment(got[-1])


def test_what_moves_by_itself_is_published_on_the_patch_grid(node):
    with node.listen('moving_map') as got, node.listen('assessment') as seen:
        node.some(got, 3)
        node.some(seen, 3)
    msg, assessment = got[-1], read.assessment(seen[-1])
    assert (msg.height, msg.width, msg.encoding) == (4, 4, '32FC1')
    assert msg.header.frame_id == 'optical'
    np.testing.assert_allclose(read.grid(msg), 1 / 3, rtol=1e-2)
    assert assessment.motion_score == pytest.approx(1 / 3, rel=0.01)
    assert not assessment.flags & (Quality.UNTRAINED | Quality.HEADS_OUT_OF_RANGE)


def test_the_method_acts_on_the_next_result(node):
    assert 'learned' in node.try_set('looming.method', 'magic').reason
    learned = after(node, looming__method='learned')
    assert learned.time_to_contact == pytest.approx(1.25, rel=0.1)
    assert learned.level is Level.WARNING
    assert Quality.DISAGREEMENT not in learned.flags
    geometric = after(node, looming__method='geometric')
    assert geometric.time_to_contact == math.inf
    assert geometric.level is Level.CLEAR
    fused = after(node, looming__method='fused')
    assert fused.level is Level.WARNING             # the heads are sure, and so believed
    assert Quality.DISAGREEMENT in fused.flags


def test_diagnostics_tell_what_the_heads_do(node, files):
    with node.listen('assessment') as got:
        node.some(got, 3)
        values = node.wait_for(CAMERA, lambda v: int(v['disagreements']) > 0
                               and v['looming_method'] == 'fused')
    assert values['heads'] == 'hold'
    assert values['motion_score'] == 'what moves by itself'
    model = node.values('model')
    assert files['weights'] in model['heads']
    assert (model['trained'], model['looming_method']) == ('True', 'fused')


def test_other_heads_are_taken_while_the_node_runs_and_foreign_ones_refused(node, files):
    assert after(node, looming__method='learned').time_to_contact == pytest.approx(1.25, rel=0.1)
    node.set(heads=files['faster'])
    node.wait_for('model', lambda v: files['faster'] in v['heads'])
    assert after(node).time_to_contact == pytest.approx(0.625, rel=0.1)
    since = node.written
    node.set(heads=files['foreign'])
    node.wait_for_log('foreign.safetensors', since)
    assert after(node).time_to_contact == pytest.approx(0.625, rel=0.1)
    node.set(heads='', looming__method='fused')
    node.wait_for('model', lambda v: files['weights'] in v['heads']
                  and v['model_change'] == 'none')


def test_heads_out_of_range_give_way_to_geometry_and_the_node_says_so(node):
    since = node.written
    node.set(image_size=96)
    node.wait_for('model', lambda v: (v['image_size'], v['model_change']) == ('96', 'none'))
    with node.listen('moving_map') as got:
        seen = after(node)
        node.some(got)
    assert Quality.HEADS_OUT_OF_RANGE in seen.flags
    assert seen.time_to_contact == math.inf and seen.level is Level.CLEAR
    assert np.isnan(read.grid(got[-1])).all()
    node.wait_for_log('heads.*image_size is 96.*set image_size: 64', since)
    with node.listen('assessment'):
        values = node.wait_for(CAMERA, lambda v: v['heads'].startswith('out of range'))
    assert 'trained on 64' in values['heads']
    assert (values['looming_method'], values['motion_score']) == ('geometric', 'all change')
    assert 'heads_out_of_range' in node.report(CAMERA).message
    node.set(image_size=64)
    node.wait_for('model', lambda v: (v['image_size'], v['model_change']) == ('64', 'none'))
    assert Quality.HEADS_OUT_OF_RANGE not in after(node).flags


def test_the_time_to_contact_needs_the_encoder_only_where_heads_have_a_say(node):
    node.begin_anew(looming__method='geometric')
    with node.listen('time_to_contact') as got:
        node.some(got, 5)
        values = node.values(CAMERA)
        assert 'stage_ms.looming' in values and 'stage_ms.encode' not in values
        node.set(looming__method='learned')
        node.wait_for(CAMERA, lambda v: 'stage_ms.encode' in v)
        assert node.ros.spin_until(
            lambda: got[-1].data == pytest.approx(1.25, rel=0.1)), got[-1].data


def test_by_default_a_node_runs_the_weights_of_the_package_and_says_so():
    start, number = now_ns(), count()
    unset = {'weights': '', 'allow_random_weights': False, 'num_frames': 8, 'image_size': 192}
    with ros_session() as session, node_running(
            session, autostart=True, max_frame_age=3600.0, **unset, **exact()) as node, \
            Camera(session, rate=10.0, qos=EXACT, stamp=lambda _: start + next(number) * NS // 10):
        seen = node.assess()
        assert not seen.flags & (Quality.UNTRAINED | Quality.HEADS_OUT_OF_RANGE)
        model = node.wait_for('model', lambda v: v['trained'] == 'True')
        assert model['weights'].endswith('vjepa_ros/weights/tiny.safetensors')
        assert model['weights'] in model['heads']
        assert 'untrained' not in node.report().message
        assert node.wait_for(CAMERA, lambda v: v['heads'] == 'hold')['motion_score'] == \
            'what moves by itself'
        assert 'RANDOM' not in node.process.output
        node.set(model_size='small')
        node.wait_for_log("model size 'small'.*Hugging Face hub", 0)
        assert not node.assess().untrained
