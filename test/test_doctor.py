# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The doctor: what is wrong with machine, graph and parameters is found, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from vjepa_ros.cli import doctor as machine
from vjepa_ros.parameter import schemas
from vjepa_ros.ros.doctor import (
    ERROR,
    Graph,
    NOTE,
    NodeSeen,
    OK,
    Topic,
    WARNING,
    judge,
    judge_file,
)

SCHEMAS = schemas()
IMAGE, ASSESSMENT = 'sensor_msgs/msg/Image', '/vjepa_node/front/assessment'


@pytest.mark.parametrize(('lines', 'named'), [
    (('stop_distanse: 1.0', 'braking: -1.0'), ('stop_distance', 'braking')),
    (('thresholds.danger_ttc: 9.0',), ('danger',)),
    (('cameras: [front]',), ())])
def test_a_parameter_file_is_judged_by_the_node_that_it_is_for(tmp_path, lines, named):
    file = tmp_path / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n' + ''.join(f'    {line}\n' for line in lines))
    problems = [each for each in judge_file(file, SCHEMAS) if each.level == ERROR]
    assert len(problems) == len(named)
    for problem, name in zip(problems, named, strict=True):
        assert name in problem.text + problem.remedy


def healthy() -> Graph:
    """A node with one camera, all well."""
    topic = Topic((IMAGE,), ('/driver',), ('/vjepa_node',), (), True, 40, 10.0, 0.02)
    node = NodeSeen('model', ('/front/image_raw',), {
        'use_sim_time': False, 'max_rate': 15.0})
    heard = Topic(('sensor_msgs/msg/PointCloud2',), ('/vjepa_node',), ('/guard',))
    return Graph(4.0, 2, {'/front/image_raw': topic, ASSESSMENT: heard}, {'/vjepa_node': node}, {
        ('vjepa_node', 'model'): {'level': 'ok', 'message': 'active', 'values': {
            'state': 'active'}},
        ('vjepa_node', 'camera front'): {'level': 'ok', 'message': 'running', 'values': {
            'rate_in_hz': 10.0, 'rate_out_hz': 10.0, 'flags': 'none', 'image_topic': '',
            'latency_ms_median': 60.0, 'stage_ms.encode': 40.0}}})


def camera(graph: Graph, **changes) -> None:
    graph.statuses['vjepa_node', 'camera front']['values'].update(changes)


def topic(graph: Graph, **changes) -> None:
    vars(graph.topics['/front/image_raw']).update(changes)


ILLS = {
    'slow': (lambda g: camera(g, rate_out_hz=2.0), WARNING, 'encode'),
    'no clock': (lambda g: g.nodes['/vjepa_node'].parameters.update(use_sim_time=True), ERROR,
                 '/clock'),
    'hangs': (lambda g: vars(g.nodes['/vjepa_node']).update(parameters=None), WARNING,
              'not answer'),
    'no stamps': (lambda g: topic(g, unstamped=True), ERROR, 'stamp 0'),
    'other clock': (lambda g: topic(g, age_s=-3.0), ERROR, 'future'),
    'two cameras': (lambda g: topic(g, publishers=('/a', '/b')), WARNING, '2 publishers'),
    'unheard': (lambda g: vars(g.topics[ASSESSMENT]).update(subscribers=()), NOTE,
                f'nobody subscribes to {ASSESSMENT}'),
    'uncalibrated': (lambda g: camera(g, flags='warming_up assumed_intrinsics',
                                      camera_info='it is of 640 x 480'), WARNING, '640 x 480'),
    'silent': (lambda g: topic(g, count=0), ERROR, 'silent'),
}


@pytest.mark.parametrize('ill', ILLS)
def test_each_ill_of_a_healthy_graph_is_named_with_a_remedy(ill):
    graph = healthy()
    assert {each.level for each in judge(graph)} == {OK}
    change, level, word = ILLS[ill]
    change(graph)
    named = [each for each in judge(graph) if word in each.text and each.level == level]
    assert named and all(each.remedy for each in named if level != NOTE)


@pytest.mark.parametrize(('environ', 'word'), [
    ({}, 'default transports'), ({'FASTDDS_BUILTIN_TRANSPORTS': 'SHM'}, '')])
def test_transport_settings_are_judged(environ, word):
    found = [each.text for each in machine.middleware(environ, 'rmw_fastrtps_cpp')
             if each.level == WARNING]
    assert len(found) == bool(word)
    assert not word or word in found[0]


def test_it_works_without_ros_and_says_so():
    hidden = ('import sys, importlib.util as u; find = u.find_spec; '
              'u.find_spec = lambda name, *a: None if name == "rclpy" else find(name, *a); '
              'from vjepa_ros.cli.doctor import main; sys.exit(main([]))')
    run = subprocess.run([sys.executable, '-c', hidden], capture_output=True, text=True)
    assert run.returncode == 0 and 'works without it: rclpy is missing' in run.stdout


@pytest.mark.ros
def test_wrong_qos_a_missing_camera_and_a_silent_topic_are_found_over_dds(monkeypatch):
    pytest.importorskip('rclpy')
    from guard_rig import Every
    from rclpy.qos import QoSProfile, ReliabilityPolicy
    from ros_harness import ros_session
    from sensor_msgs.msg import Image

    from vjepa_ros.ros.graph import observe

    parameters = {'cameras': ['well', 'wrong', 'missing', 'mute'], 'autostart': True,
                  'qos_overrides./wrong/image_raw.subscription.reliability': 'reliable'}
    with ros_session() as ros, ros.compose('vjepa_ros.ros.perception_node', parameters) as node:
        best = QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT)
        sent = {name: ros.node.create_publisher(Image, f'{name}/image_raw', best)
                for name in ('well', 'wrong', 'mute', 'elsewhere')}
        monkeypatch.setenv('ROS_DOMAIN_ID', str(ros.domain_id))
        node.wait_for_output(': active')

        def publish() -> None:
            image = Image(height=48, width=64, step=192, encoding='rgb8')
            image.data.frombytes(bytes(48 * 192))
            image.header.stamp = ros.node.get_clock().now().to_msg()
            for name in ('well', 'wrong', 'elsewhere'):
                sent[name].publish(image)

        with Every(0.1, publish):
            time.sleep(2.5)          # diagnostics tell rates over three seconds
            graph = observe(2.0)
    assert graph.nodes['/vjepa_node'].parameters['max_rate'] == 15.0
    assert 1.0 < graph.topics['/well/image_raw'].rate_hz < 15.0     # 10 on an idle machine
    assert graph.topics['/well/image_raw'].age_s < 1.0
    wrong = {(each.about, word) for each in judge(graph) if each.level == ERROR
             for word in ('QoS', 'nobody publishes', 'silent') if word in each.text}
    assert wrong == {('/wrong/image_raw', 'QoS'), ('/vjepa_node', 'nobody publishes'),
                     ('/mute/image_raw', 'silent')}
    missing = next(each for each in judge(graph) if 'nobody' in each.text)
    assert '/missing/image_raw:=/elsewhere/image_raw' in missing.remedy
