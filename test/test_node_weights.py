# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test weights and learned heads of a running node, and when it may fetch them by name."""

from __future__ import annotations

import math
import sys
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from bundles import save_constant_bundle, save_constant_heads

pytest.importorskip('rclpy')

from node_fixtures import Camera, EXACT, NS, START_S, exact, node_running, now_ns
from ros_harness import ros_session

from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros import read

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

CAMERA = 'camera camera'


def even_camera(session) -> Camera:
    """One with even stamps and no image lost: else heads would be out of range, and rightly so."""
    start, number = now_ns(), count()
    return Camera(session, rate=10.0, qos=EXACT,
                  stamp=lambda _: start + next(number) * NS // 10)


# -- heads ----------------------------------------------------------------------------------------

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
    with ros_session() as session, node_running(
            session, autostart=True, weights=files['weights'], max_frame_age=3600.0,
            **exact()) as running, \
            even_camera(session) as camera:
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
        values = node.wait_for(CAMERA, lambda v: v['heads'].startswith('out of range'))
    assert 'trained on 64' in values['heads']
    assert (values['looming_method'], values['motion_score']) == ('geometric', 'all change')
    node.set(image_size=64)
    node.wait_for('model', lambda v: (v['image_size'], v['model_change']) == ('64', 'none'))
    assert Quality.HEADS_OUT_OF_RANGE not in after(node).flags


def test_a_checkpoint_that_is_wrong_is_named_and_the_old_model_keeps_serving(node):
    before, old, since = after(node), node.values('model'), node.written
    node.set(weights=__file__)
    log = node.wait_for_log(r'the old one keeps serving: [^\n]*\n', since)
    assert 'test_node_weights.py' in log
    assert after(node).time_to_contact == pytest.approx(before.time_to_contact, rel=0.1)
    # It is in the diagnostics until something else is asked for.
    report, values, since = node.report(), node.values('model'), node.written
    after(node, max_frame_age=50.0)             # does not try the failing load again
    assert 'keeps serving' not in node.process.output[since:]
    assert report.level == b'\x01' and 'test_node_weights.py' in report.message
    for key in ('weights', 'weights_sha256', 'trained', 'state', 'errors'):
        assert values[key] == old[key]


def test_a_name_on_the_hub_that_is_set_while_the_node_runs_is_not_fetched(monkeypatch):
    calls = []

    def snapshot_download(name, allow_patterns, local_files_only=False):
        calls.append((name, local_files_only))
        raise FileNotFoundError(name)

    monkeypatch.setitem(sys.modules, 'huggingface_hub',
                        SimpleNamespace(snapshot_download=snapshot_download))
    monkeypatch.delenv('HF_HUB_OFFLINE', raising=False)
    with ros_session() as session, node_running(session) as node:
        node.do('configure')
        node.set(weights='a/other')
        log = node.wait_for_log('the old one keeps serving: WeightsError: .*allow_download')
        assert "weights 'a/other'" in log and '`vjepa-ros download a/other`' in log
        assert calls == [('a/other', True)]
        refused = node.try_set('allow_download', True)
        assert not refused.successful and 'restart' in refused.reason
