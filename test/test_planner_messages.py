# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the planner reads from messages about a robot, and what it writes of plans."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import cv2
import numpy as np
import pytest

pytest.importorskip('rclpy')

import torch
from geometry_msgs.msg import PoseStamped
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Header

from vjepa_ros.planning.action_space import to_matrix
from vjepa_ros.planning.energy_test import Gap
from vjepa_ros.planning.goal_planner import Plan
from vjepa_ros.ros.action_planner.inputs import PlannerInputs
from vjepa_ros.ros.action_planner.outputs import PlannerOutputs, pack_best, pack_candidates
from vjepa_ros.ros.action_planner.parameters import SCHEMA, make_config
from vjepa_ros.ros.action_planner.robot_state import StateError, pose_of, state_of
from vjepa_ros.ros.action_planner.worker import Job, PlannerWorker
from vjepa_ros.ros.common.message_conversion import cloud
from vjepa_ros.ros.planner_read import records

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

DEFAULTS = make_config({**{row.name: row.default for row in SCHEMA.rows}, 'weights': 'random'})


def pose(state):
    return PoseStamped(header=Header(frame_id='base'), pose=pose_of(np.asarray(state)))


@pytest.mark.parametrize('angles', [(0.3, -0.8, 2.9), (math.pi, 0.0, 0.0), (0.0, 0.0, math.pi),
                                    (0.1, 1.5, 0.2)])
def test_a_pose_becomes_a_state_and_back(angles):
    state = state_of(DEFAULTS, pose([1.0, -2.0, 0.5, *angles, 0.0]), None)
    assert state[:3].tolist() == [1.0, -2.0, 0.5]
    np.testing.assert_allclose(to_matrix(torch.from_numpy(state[3:6])),
                               to_matrix(torch.tensor(angles, dtype=torch.float64)), atol=1e-9)
    assert state[6] == 0.0


@pytest.mark.parametrize(('position', 'closedness'), [(0.08, 0.0), (0.02, 0.75), (-1.0, 1.0)])
def test_the_gripper_is_read_from_its_joint(position, closedness):
    config = replace(DEFAULTS, gripper_joint='finger', gripper_range=(0.08, 0.0))
    joints = JointState(name=['other', 'finger'], position=[9.0, position])
    assert state_of(config, pose(np.zeros(7)), joints)[6] == pytest.approx(closedness)
    with pytest.raises(StateError, match='gripper'):
        state_of(config, pose(np.zeros(7)), None)


def test_joints_are_taken_by_name():
    config = replace(DEFAULTS, state_source='joints',
                     state_joints=('a', 'b', 'c', 'd', 'e', 'f', ''))
    joints = JointState(name=list('fedcba'), position=[6.0, 5.0, 4.0, 3.0, 2.0, 1.0])
    assert state_of(config, None, joints).tolist() == [1, 2, 3, 4, 5, 6, 0]
    joints.position = joints.position[:1]
    with pytest.raises(StateError, match="no position for the joint 'a'"):
        state_of(config, None, joints)
    with pytest.raises(StateError, match='JointState'):
        state_of(config, None, None)


@pytest.mark.parametrize(('part', 'field', 'value', 'reason'), [
    ('orientation', 'w', 0.0, 'rotation'), ('position', 'x', math.nan, 'finite')])
def test_what_is_no_state_is_refused_with_the_reason(part, field, value, reason):
    msg = pose(np.zeros(7))
    setattr(getattr(msg.pose, part), field, value)
    with pytest.raises(StateError, match=reason):
        state_of(DEFAULTS, msg, None)


def plan(**more):
    rng = np.random.default_rng(0)
    return Plan(**{
        'refusal': '', 'trained': True, 'names': ('vx', 'vy', 'omega'),
        'actions': rng.random((2, 3), np.float32), 'pose_changes': np.zeros((2, 7), np.float32),
        'samples': rng.random((5, 2, 3), np.float32), 'energies': rng.random(5, np.float32),
        'history': rng.random((1, 5), np.float32), 'iterations': 1, 'wanted': 1, 'stopped': '',
        'gap': Gap(0.2, 0.01, 0.4, 3.0), 'energy_now': 0.9, **more})


def test_candidates_and_the_best_action_survive_their_clouds():
    given = plan()
    rows = records(cloud(Header(), pack_candidates(given)))
    for number, name in enumerate(given.names):
        for step in range(2):
            assert np.array_equal(rows[f'{name}_{step}'], given.samples[:, step, number])
    assert np.array_equal(rows['energy'], given.energies)
    assert np.array_equal(rows['rank'], given.ranks)
    assert rows['trained'].all() and rows['accepted'].all()
    refused = records(cloud(Header(), pack_candidates(plan(refusal='x', trained=False))))
    assert not refused['trained'].any() and not refused['accepted'].any()
    best = records(cloud(Header(), pack_best(given)))
    assert np.array_equal(best['omega'], given.actions[:, 2])
    assert (best['energy_now'][1], best['gap'][0], best['energy'][0]) == pytest.approx(
        (0.9, 0.2, 0.4))
    without = records(cloud(Header(), pack_best(plan(gap=None))))
    assert np.isnan(without['gap']).all()
    assert without['energy'][0] == given.energies.min()
    other = np.zeros(2, np.dtype([('feature', '<f4', (3,))]))
    with pytest.raises(ValueError, match=r"not one of the action planner: it has \['feature'\]"):
        records(cloud(Header(), other))


def test_a_twist_names_no_frame_as_it_is_told_along_the_base():
    """In the frame of the state, say a map, the same numbers would be another motion."""
    sent = {}
    node = SimpleNamespace(create_lifecycle_publisher=lambda kind, name, *more, **how:
                           SimpleNamespace(publish=lambda msg: sent.update({name: msg})))
    header = Header(frame_id='map')
    PlannerOutputs(node, 'twist').publish(plan(), header, np.zeros(7))
    assert sent['~/twist'].twist.linear.x == pytest.approx(float(plan().actions[0, 0]))
    assert sent['~/twist'].header.frame_id == ''
    assert sent['~/best_action'].header.frame_id == 'map'


def test_an_image_without_a_stamp_is_as_old_as_its_arrival():
    now = [50 * 10**9]
    node = SimpleNamespace(
        resolve_topic_name=lambda name: '/' + name,
        get_clock=lambda: SimpleNamespace(now=lambda: SimpleNamespace(nanoseconds=now[0])))
    inputs = PlannerInputs(node, DEFAULTS)
    inputs.goal = Image()
    inputs.camera._on_image(Image())
    assert inputs.problem(1.0) == ''
    for now[0], words in ((52 * 10**9, 'is 2.00 s old'), (49 * 10**9, 'is 1.00 s in the future'),
                          (0, 'is of unknown age')):
        assert words in inputs.problem(1.0)


@contextmanager
def working(errors=None, set_goal=lambda rgb: None):
    """A worker whose planner finds a plan at once."""
    log = SimpleNamespace(error=[].append if errors is None else errors.append,
                          info=lambda text: None)
    worker = PlannerWorker(SimpleNamespace(
        set_goal=set_goal, plan=lambda *what, **how: plan(),
        world=SimpleNamespace(close=lambda: None)), log)
    worker.start()
    worker.resume()
    try:
        yield worker
    finally:
        worker.stop()
        assert worker.join(30)


def job_of(publish):
    picture = Image(width=1, height=1, encoding='rgb8', step=3, data=b'abc')
    return Job(picture, picture, np.zeros(7), DEFAULTS, publish)


def test_a_cancel_during_publication_waits_and_finds_nothing_to_cancel():
    begun, go_on = threading.Event(), threading.Event()

    def publish(found):
        begun.set()
        assert go_on.wait(30)

    with working() as worker, ThreadPoolExecutor(1) as other:
        job = job_of(publish)
        worker.submit(job)
        assert begun.wait(30)
        cancel = other.submit(worker.cancel, 'it was cancelled')
        time.sleep(0.1)
        assert not cancel.done()
        go_on.set()
        assert not cancel.result(30)
        assert job.done.wait(30) and job.answer[0]


def test_what_is_cancelled_in_time_is_not_published():
    def cancelled_meanwhile(*what, **how):
        assert worker.cancel('it was cancelled')
        return plan()

    published = []
    with working() as worker:
        worker.planner.plan = cancelled_meanwhile
        job = job_of(published.append)
        worker.submit(job)
        assert job.done.wait(30)
        assert job.answer == (False, 'refused: it was cancelled')
    assert not published


@pytest.mark.parametrize(('part', 'error'), [
    ('publish', AssertionError('a field has another type')),
    ('goal', cv2.error('Insufficient memory'))])
def test_an_error_costs_one_plan_and_not_the_planner(part, error):
    def fail(given):
        if worker.errors == 0:
            raise error

    def nothing(given):
        pass

    told = []
    publish, goal = (fail, nothing) if part == 'publish' else (nothing, fail)
    with working(told, goal) as worker:
        jobs = [job_of(publish), job_of(publish)]
        for job in jobs:
            worker.submit(job)
            assert job.done.wait(30)
        assert [job.answer[0] for job in jobs] == [False, True]
        assert str(error) in jobs[0].answer[1] and worker.alive
    assert len(told) == 1
