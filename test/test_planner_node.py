# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The action planner over real DDS."""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip('rclpy')

from checkpoints import meta_ac
from geometry_msgs.msg import PoseStamped, TwistStamped
from guard_rig import parameters
from nav_msgs.msg import Odometry
from node_fixtures import Node, now_ns, raw, stamped
from ros_harness import ros_session
from sensor_msgs.msg import CameraInfo, Image, JointState, PointCloud2
from std_srvs.srv import Trigger
from test_base_world import Room

from vjepa_ros.planning.base_world import FRAMES
from vjepa_ros.ros.action_planner.parameters import SCHEMA
from vjepa_ros.ros.planner_read import records

pytestmark = pytest.mark.ros

NAME = '/action_planner'
SMALL = {'weights': 'random', 'model_size': 'tiny', 'image_size': 32, 'random_predictor.width': 48,
         'random_predictor.depth': 2, 'random_predictor.heads': 2, 'allow_random_weights': True,
         'device': 'cpu', 'precision': 'fp32', 'samples': 20, 'elites': 4, 'iterations': 3,
         'gap.repetitions': 3, 'gap.plans': 4, 'max_age': 3600.0, 'time_budget': 600.0}


def picture(seed):
    return np.random.default_rng(seed).integers(0, 256, (48, 64, 3), dtype=np.uint8)


class Planner(Node):
    """The node under test, and a robot that gives it what it asks for."""

    def __init__(self, ros, process, name=NAME):
        super().__init__(ros, process, name)
        self.heard = {}
        for topic, kind in (('candidates', PointCloud2), ('best_action', PointCloud2),
                            ('target_pose', PoseStamped), ('twist', TwistStamped)):
            self.heard[topic] = []
            ros.node.create_subscription(kind, f'{name}/{topic}', self.heard[topic].append, 5)
        make = ros.node.create_publisher
        self.image = make(Image, 'camera/image_raw', 1)
        self.goal = make(Image, 'goal/image_raw', 1)
        self.pose = make(PoseStamped, 'state', 1)
        self.joints = make(JointState, 'joint_states', 1)
        self.publishers = (self.image, self.goal, self.pose, self.joints)
        self.gone = set()

    def do(self, *transitions):
        if 'deactivate' in transitions:
            self.gone |= set().union(*map(self.readers, self.publishers))
        super().do(*transitions)

    def readers(self, publisher):
        """Who reads what a publisher sends, as far as is known here."""
        found = self.ros.node.get_subscriptions_info_by_topic(publisher.topic_name)
        return {tuple(info.endpoint_gid) for info in found}

    def send(self, publisher, msg):
        """Publish once the node has found the publisher; readers of before may still be known."""
        def met():
            readers = self.readers(publisher)
            return (readers and readers.isdisjoint(self.gone)
                    and publisher.get_subscription_count() == len(readers))

        assert self.ros.spin_until(met, 60.0)
        publisher.publish(msg)
        self.ros.spin_for(0.15)

    def send_image(self, stamp=None):
        self.send(self.image, stamped(raw(picture(1)), stamp or now_ns()))

    def send_goal(self, msg=None):
        since = self.written
        self.send(self.goal, stamped(msg or raw(picture(2)), now_ns()))
        self.wait_for_log('new goal', since)

    def send_pose(self):
        msg = stamped(PoseStamped(), now_ns(), 'base')
        msg.pose.orientation.w, msg.pose.position.x = 1.0, 0.4
        self.send(self.pose, msg)

    def ready(self):
        self.send_image()
        self.send_goal()
        self.send_pose()

    def forget(self):
        for heard in self.heard.values():
            heard.clear()

    def plan(self):
        return self.ros.call(Trigger, f'{self.name}/plan')


@contextmanager
def planner_running(kind='compose', **params):
    with ros_session() as ros, getattr(ros, kind)(
            'vjepa_ros.ros.action_planner', {**SMALL, **parameters(params)}) as served:
        yield Planner(ros, served)


@pytest.fixture(scope='module')
def node():
    with planner_running() as planner:
        yield planner


def test_a_plan_from_nothing_to_the_best_action(node):
    assert 'unconfigured' in node.plan().message
    node.do('configure', 'activate')
    assert '/goal/image_raw' in node.plan().message
    node.send_goal()
    assert 'image' in node.plan().message
    node.send_image()
    assert 'PoseStamped' in node.plan().message
    node.send_pose()
    answer = node.plan()
    assert answer.success and answer.message.startswith('UNTRAINED'), answer.message
    (cloud,) = node.some(node.heard['candidates'])
    rows = records(cloud)
    assert sorted(rows['rank']) == list(range(20))
    assert rows['energy'][rows['rank'].argmin()] == rows['energy'].min()
    assert not rows['trained'].any() and rows['accepted'].all()
    assert max(np.abs(rows[f'd{axis}_{step}']).max() for axis in 'xyz' for step in (0, 1)) <= .05
    (cloud,) = node.some(node.heard['best_action'])
    best = records(cloud)
    assert list(best['step']) == [0, 1] and not best['trained'].any()
    assert (best['gap'] > 3 * best['gap_sigma']).all()
    assert cloud.header.frame_id == 'base'
    # These messages have no place to say that the weights are random.
    assert not node.heard['target_pose']


@pytest.mark.any_distro
def test_equal_inputs_give_equal_plans_and_another_seed_another(node):
    def best():
        node.heard['best_action'].clear()
        assert node.plan().success
        (msg,) = node.some(node.heard['best_action'])
        return records(msg)['dx'].tolist()

    node.begin_anew()
    node.ready()
    first = best()
    assert best() == first
    node.set(search_seed=5)
    assert best() != first


@pytest.mark.any_distro
def test_a_gap_that_is_noise_is_refused_and_shows_no_action(node):
    node.begin_anew(gap__pixel_noise=90.0, gap__least=50.0)
    node.ready()
    node.forget()
    answer = node.plan()
    assert not answer.success and 'energies' in answer.message
    (msg,) = node.some(node.heard['candidates'])
    assert not records(msg)['accepted'].any()
    assert not node.heard['best_action']
    assert 'energies' in node.report('planner').message


@pytest.mark.any_distro
def test_what_is_late_old_or_no_picture_fails_one_plan_with_the_reason(node):
    node.begin_anew(time_budget=0.01, samples=2000, max_age=5.0)
    node.ready()
    assert 'time budget' in node.plan().message
    node.send_image(stamp=now_ns() - 60 * 10**9)
    assert 'max_age is 5 s' in node.plan().message
    node.begin_anew()
    node.ready()
    bad = raw(picture(3))
    bad.encoding = 'smell8'
    node.send_goal(bad)
    assert 'smell8' in node.plan().message
    assert 'smell8' in node.values('planner')['last_error']
    node.send_goal()
    assert node.plan().success


def test_a_plan_under_way_can_be_cancelled_and_blocks_nothing(node):
    node.begin_anew(iterations=1000, samples=2000)
    node.ready()
    client = node.ros.client(Trigger, f'{NAME}/plan')
    pending = client.call_async(Trigger.Request())
    node.wait_for('planner', lambda values: values['busy'] == 'True')
    assert node.state == 'active'                     # services answer meanwhile
    assert not node.plan().success
    assert not pending.done()
    node.forget()
    assert node.ros.call(Trigger, f'{NAME}/cancel').success
    assert node.ros.spin_until(pending.done, 30.0)
    assert 'cancelled' in pending.result().message
    node.wait_for('planner', lambda values: values['busy'] == 'False')
    assert not any(node.heard.values())
    assert not node.ros.call(Trigger, f'{NAME}/cancel').success
    # Deactivation ends a plan, too.
    pending = client.call_async(Trigger.Request())
    node.wait_for('planner', lambda values: values['busy'] == 'True')
    node.do('deactivate')
    assert node.ros.spin_until(pending.done, 30.0)
    assert 'deactivated' in pending.result().message


@pytest.mark.any_distro
def test_twists_and_joints(node):
    node.begin_anew(action_space='twist', state_source='joints', steps=1,
                    state_joints=['x', 'y', '', '', '', 'yaw', ''])
    node.send_image()
    node.send_goal()
    msg = stamped(JointState(name=['y', 'x'], position=[1.0, 2.0]), now_ns())
    node.send(node.joints, msg)
    assert "'yaw'" in node.plan().message
    msg = stamped(JointState(name=['yaw', 'y', 'x'], position=[0.5, 1.0, 2.0]), now_ns(), 'odom')
    node.send(node.joints, msg)
    node.heard['best_action'].clear()
    assert node.plan().success
    (cloud,) = node.some(node.heard['best_action'])
    best = records(cloud)
    assert best.dtype.names[:3] == ('vx', 'vy', 'omega')
    assert cloud.header.frame_id == 'odom'
    assert 0.0 <= best['vx'][0] <= 0.5
    assert best['vy'][0] == 0.0


@pytest.mark.any_distro
class Base(Planner):
    """The node with its defaults, and a base that stands in a rendered room."""

    def __init__(self, ros, process, name=NAME):
        super().__init__(ros, process, name)
        self.room, self.next_ns = Room(0), now_ns() - 60 * 10**9
        make = ros.node.create_publisher
        self.odom = make(Odometry, 'odom', 1)
        self.info = make(CameraInfo, 'camera/camera_info', 1)

    def look(self, count=FRAMES, **where):
        """Show what the camera sees from a place, four times a second by its stamps."""
        shown = raw(self.room.picture(**where))
        width, height = shown.width, shown.height
        view = self.room.view
        info = CameraInfo(width=width, height=height)
        info.k[0], info.k[4], info.k[8] = width / 2 / view.across, height / 2 / view.down, 1.0
        info.k[2], info.k[5] = (width - 1) / 2, (height - 1) / 2
        self.send(self.info, info)
        for _ in range(count):
            self.send(self.image, stamped(shown, self.next_ns))
            self.next_ns += 250_000_000

    def stand(self):
        self.send(self.odom, stamped(Odometry(), now_ns(), 'odom'))

    def aim(self, **where):
        self.send_goal(raw(self.room.picture(**where)))

    def turn(self):
        """The turn rate of the newest twist."""
        return self.heard['twist'][-1].twist.angular.z if self.heard['twist'] else 0.0


@pytest.mark.any_distro
def test_the_bundled_model_turns_a_base_to_a_goal_picture_by_default_and_stops_there(monkeypatch):
    monkeypatch.setitem(globals(), 'SMALL', {'device': 'cpu', 'max_age': 3600.0, 'samples': 48,
                                             'gap.repetitions': 2})
    monkeypatch.setitem(globals(), 'Planner', Base)
    with planner_running() as base:
        base.do('configure', 'activate')
        base.aim(left=0.35)
        base.look(count=1)
        assert 'Odometry' in base.plan().message
        base.stand()
        assert '8 pictures' in base.plan().message       # refused, and not an error
        assert base.values('planner')['errors'] == '0'
        base.look()
        answer = base.plan()
        assert answer.success and 'UNTRAINED' not in answer.message, answer.message
        (cloud,) = base.some(base.heard['best_action'])
        assert records(cloud)['trained'].all() and (records(cloud)['omega'] > 0).any()
        assert base.ros.spin_until(lambda: base.turn() > 0)
        base.look(left=0.35)
        assert 'the goal is reached' in base.plan().message
        assert base.ros.spin_until(lambda: base.turn() == 0)
        values = base.values('planner')
        assert values['trained'] == 'True' and values['model'] == 'tiny, for a base'


def test_a_base_plans_by_itself_at_a_rate_and_stops_when_it_cannot(monkeypatch):
    monkeypatch.setitem(globals(), 'SMALL', {
        'device': 'cpu', 'max_age': 3600.0, 'samples': 48, 'gap.repetitions': 0, 'plan_rate': 2.0})
    monkeypatch.setitem(globals(), 'Planner', Base)
    with planner_running() as base:
        base.do('configure', 'activate')
        base.stand()
        base.look()
        base.aim(left=0.35)
        assert base.ros.spin_until(lambda: base.turn() > 0, 30.0)
        base.set(max_age=0.01)
        assert base.ros.spin_until(lambda: base.turn() == 0, 30.0)
        base.wait_for('planner', lambda values: 'max_age' in values['last_refusal'])
        base.set(max_age=3600.0)
        assert base.ros.spin_until(lambda: base.turn() > 0, 30.0)
        base.wait_for('planner', lambda values: values['last_refusal'] == 'none')
        assert base.ros.call(Trigger, f'{base.name}/clear_goal').success
        assert base.ros.spin_until(lambda: base.turn() == 0, 30.0)
        base.ros.spin_for(1.0)
        assert base.turn() == 0


@pytest.mark.parametrize(('values', 'reason'), [
    ({'action_space': 'arm'}, 'action_space'), ({'steps': 6}, 'steps')])
def test_what_does_not_fit_a_base_is_refused_with_the_name(values, reason):
    rows = {row.name: row.default for row in SCHEMA.rows}
    with pytest.raises(ValueError, match=reason):
        SCHEMA.read({**rows, **values})


def test_without_trained_weights_configure_fails_with_the_reason():
    with planner_running(allow_random_weights=False) as planner:
        assert not planner.change('configure')
        planner.wait_for_log("`weights` is 'random'.*allow_random_weights: true")
        assert planner.state == 'unconfigured'
        assert 'allow_random_weights' in planner.report('planner').message
        planner.set(allow_random_weights=True)
        planner.do('configure')


@pytest.mark.any_distro
def test_weights_of_a_file_also_publish_the_target_pose(tmp_path):
    path = meta_ac(tmp_path / 'ac.pt')
    with planner_running(weights=str(path), allow_random_weights=False,
                         gap__least=0.0) as planner:
        planner.do('configure', 'activate')
        planner.ready()
        assert planner.plan().success
        (cloud,) = planner.some(planner.heard['best_action'])
        (target,) = planner.some(planner.heard['target_pose'])
        best = records(cloud)
        assert best['trained'].all()
        assert target.pose.position.x == pytest.approx(0.4 + best['dx'][0], abs=1e-6)
        assert target.header == cloud.header
        values = planner.values('planner')
        assert values['trained'] == 'True'
        assert float(values['last_plan_total_s']) > 0


@pytest.mark.parametrize('kind', ['compose', pytest.param('spawn', marks=pytest.mark.slow)])
def test_the_last_twist_is_taken_back_by_a_zero_when_the_node_stops(tmp_path, kind):
    path = meta_ac(tmp_path / 'ac.pt')
    with planner_running(kind, weights=str(path), allow_random_weights=False, gap__least=0.0,
                         action_space='twist') as planner:
        def moves():
            return any(msg.twist.linear.x for msg in planner.heard['twist'][-1:])

        def drive():
            planner.ready()
            assert planner.plan().success
            assert planner.ros.spin_until(moves)

        planner.do('configure', 'activate')
        drive()
        planner.do('deactivate')
        assert planner.ros.spin_until(lambda: not moves())
        planner.do('activate')
        drive()
        if kind == 'compose':
            planner.process.close()
        else:                   # a signal ends the process also in the middle of a plan
            planner.set(samples=20000, iterations=1000)
            planner.ready()
            planner.ros.client(Trigger, f'{NAME}/plan').call_async(Trigger.Request())
            planner.wait_for('planner', lambda values: values['busy'] == 'True')
            planner.process.terminate_and_check()
        assert planner.ros.spin_until(lambda: not moves(), 5.0)
