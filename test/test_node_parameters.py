# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test parameters while the node runs: live ones at once, structural ones without a gap."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

pytest.importorskip('rclpy')

from node_fixtures import Camera, NS, slow_node_running
from ros_harness import ros_session

from vjepa_ros.perception.types import Level
from vjepa_ros.ros import read

pytestmark = pytest.mark.ros


@pytest.fixture(scope='module')
def again():
    """A node whose loads can be held, for tests that begin with a new activation."""
    with ros_session() as session, slow_node_running(session, autostart=True) as node:
        node.wait_for_log('active')
        yield node


@pytest.fixture
def shared(again):
    """The same for tests that leave it as they found it, with a camera that runs."""
    with Camera(again.ros):
        yield again


# -- refused --------------------------------------------------------------------------------------

@pytest.mark.parametrize(('name', 'value', 'reason'), [
    ('model_size', 'enormous', 'model_size.*tiny, small'),
    ('thresholds.danger_ttc', 3.0, 'danger < warning < caution'),
    ('max_rate', float('nan'), 'max_rate'),
    ('cameras', ['front'], 'cameras.*active'),
    ('camera.transport', 'compressed', 'camera.transport.*active'),
    ('autostart', False, 'autostart.*start'),
    ('clip_fps', None, 'clip_fps.*double'),          # deletes it, where that is allowed
])
def test_an_illegal_value_is_refused_with_the_reason_and_changes_nothing(shared, name, value,
                                                                         reason):
    before = shared.get(name)
    result = shared.try_set(name, value)
    assert not result.successful
    assert re.search(reason, result.reason), result.reason
    assert shared.get(name) == before


# -- live -----------------------------------------------------------------------------------------

def test_a_threshold_acts_on_the_next_result(shared):
    for oldest, level in ((60.0, Level.CLEAR), (0.01, Level.UNKNOWN), (60.0, Level.CLEAR)):
        shared.set(max_frame_age=oldest)
        assert shared.assess().level is level


# -- structural, while active ---------------------------------------------------------------------

@pytest.mark.any_distro
@pytest.mark.parametrize(('values', 'span_s'), [
    ({'image_size': 96}, 0.3), ({'clip_fps': 5.0}, 0.6)])
def test_a_structural_change_does_not_interrupt_the_results(again, values, span_s):
    again.begin_anew()
    with Camera(again.ros), again.listen('assessment') as got:
        again.some(got, 5)
        since = again.written
        with again.held('load') as held:
            again.set(**values)
            if 'image_size' in values:       # the other one keeps the model
                assert again.ros.spin_until(held.is_set)
            again.next(got, 5)
        again.wait_for_log('now serving', since)
        assert again.ros.spin_until(
            lambda: abs(read.assessment(got[-1]).clip_span_s - span_s) < 0.1)
        gaps = [(b - a) / NS for a, b in pairwise(got.sent_ns)]
        assert max(gaps) < 3 * span_s + 0.5, gaps         # no clip had to fill meanwhile
    assert again.values('model')['model_change'] == 'none'


@pytest.mark.any_distro
def test_a_change_is_adopted_although_one_camera_is_dead(again):
    again.begin_anew(cameras=['alive', 'dying'])
    ros = again.ros
    with Camera(ros, 'alive/image_raw'), again.listen('features', 'alive') as got:
        with Camera(ros, 'dying/image_raw'):
            again.wait_for('camera dying', lambda v: v['clip_fill'] == '4/4')
        again.some(got)
        again.set(image_size=96)
        assert ros.spin_until(lambda: read.features(got[-1]).shape == (6, 6, 192))


# -- structural, while not active -----------------------------------------------------------------


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
