# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tests of the launch files: what they offer, and what they start.

The nodes are started by the stand-in beside this file, which also tells the commands.
"""

from __future__ import annotations

import itertools
import os
import re
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import stand_in_launch
import yaml
from ros_harness import NodeProcess, QUIET, class_of, logged, ros_env, ros_session

from vjepa_ros.ros.common.processes import free_domain

REPOSITORY = Path(__file__).resolve().parents[1]
LAUNCH = REPOSITORY / 'launch'
STAND_IN = Path(__file__).with_name('stand_in_launch.py')


def make_prefix(prefix: Path, executables: dict[str, str]) -> Path:
    """Lay out an installation whose executables run the given Python code."""
    index = prefix / 'share/ament_index/resource_index/packages'
    index.mkdir(parents=True)
    (index / 'vjepa_ros').touch()
    share = prefix / 'share/vjepa_ros'
    share.mkdir()
    for folder in ('launch', 'config'):
        (share / folder).symlink_to(REPOSITORY / folder)
    lib = prefix / 'lib/vjepa_ros'
    lib.mkdir(parents=True)
    for name, code in executables.items():
        (lib / name).write_text(f'#!{sys.executable}\n{code}')
        (lib / name).chmod(0o755)
    return prefix


def launch_env(prefix: Path, domain: int) -> dict[str, str]:
    path = os.pathsep.join(p for p in (str(prefix), os.environ.get('AMENT_PREFIX_PATH', '')) if p)
    return ros_env(domain, {'AMENT_PREFIX_PATH': path})


@dataclass
class Started:
    """How a launch file would start a node."""

    argv: list[str]
    env: dict[str, str]

    @property
    def parameters(self) -> dict:
        """The parameter files merged, as the node would."""
        merged = {}
        for flag, file in itertools.pairwise(self.argv):
            if flag == '--params-file':
                for content in yaml.safe_load(Path(file).read_text()).values():
                    merged.update(content['ros__parameters'])
        return merged

    @property
    def remappings(self) -> list[str]:
        return [rule for flag, rule in itertools.pairwise(self.argv)
                if flag == '-r' and not rule.startswith('__')]


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Function that tells how a launch file would start its nodes, by the stand-in."""
    pytest.importorskip('ament_index_python')
    whole = launch_env(make_prefix(tmp_path / 'prefix', {}), 0)
    whole.pop('FASTDDS_BUILTIN_TRANSPORTS', None)   # the harness has a choice of its own

    def run(file: str, *arguments: str, cwd: Path = REPOSITORY, **env: str) -> dict[str, Started]:
        found = {}
        with monkeypatch.context() as patch:
            for name, module in stand_in_launch.modules().items():
                patch.setitem(sys.modules, name, module)
            patch.setattr(os, 'environ', {**whole, **env})
            patch.chdir(cwd)
            for words, env_of, _ in stand_in_launch.commands(
                    LAUNCH / file, stand_in_launch.given_by(arguments), tmp_path):
                name = Path(words[0]).name
                found[name if name not in found else f'{name}, standby'] = Started(
                    words[1:], env_of)
        return found
    return run


def config(name: str) -> dict:
    return yaml.safe_load((REPOSITORY / 'config' / name).read_text())['/**']['ros__parameters']


def test_without_arguments_the_default_file_holds(recorded):
    node = recorded('vjepa.launch.py', MALLOC_TRIM_THRESHOLD_='1')['vjepa_node']
    assert node.parameters == {
        **config('default.yaml'), 'autostart': True, 'use_sim_time': False}
    assert '__node:=vjepa_node' in node.argv
    # It suits large images, unless the user says otherwise.
    assert node.env['FASTDDS_BUILTIN_TRANSPORTS'].startswith('DEFAULT?max_msg_size=64KB')
    assert int(node.env['MALLOC_MMAP_THRESHOLD_']) == 32 << 20   # the largest glibc takes
    assert node.env['MALLOC_TRIM_THRESHOLD_'] == '1'


def test_arguments_override_the_file_with_the_right_types(recorded):
    node = recorded('vjepa.launch.py', 'params_file:=cpu.yaml',
                    'cameras:=left,front=/robot/color/image_rect,rear=/cam/image_raw/compressed',
                    'device:=cuda:1', 'num_frames:=16', 'weights:=1234', 'clip_fps:=5',
                    'mount_height:=0.4', 'allow_random_weights:=True', 'autostart:=false',
                    'namespace:=robot', 'log_level:=warn', 'enclaves:=true')['vjepa_node']
    wanted = {'cameras': ['left', 'front', 'rear'], 'device': 'cuda:1', 'num_frames': 16,
              'clip_fps': 5.0, 'rear.mount.height': 0.4, 'weights': '1234', 'autostart': False,
              'allow_random_weights': True, 'precision': 'auto', 'rear.transport': 'compressed'}
    got = node.parameters
    assert {name: got[name] for name in wanted} == wanted and 'left.transport' not in got
    assert node.remappings == [
        'front/image_raw:=/robot/color/image_rect', 'front/camera_info:=/robot/color/camera_info',
        'rear/image_raw:=/cam/image_raw', 'rear/camera_info:=/cam/camera_info']
    # Of the node, and not of the libraries of ROS.
    assert node.argv[node.argv.index('--log-level') + 1] == 'robot.vjepa_node:=warn'
    assert node.argv[node.argv.index('--enclave') + 1] == '/robot/vjepa_node'
    assert '__ns:=/robot' in node.argv


@pytest.mark.parametrize(('argument', 'words'), [
    ('params_file:=mine.yaml', r"params_file is 'mine.yaml'.*write \./mine.yaml"),
    ('params_file:=nothing.yaml', "'nothing.yaml'.*cpu.yaml.*multi_camera.yaml"),
    ('cameras:=a,a', "cameras is 'a,a'"), ('num_frames:=many', "num_frames is 'many'.*whole"),
    ('autostart:=maybe', 'maybe')])
def test_a_wrong_argument_ends_the_launch_with_the_reason(recorded, tmp_path, argument, words):
    (tmp_path / 'mine.yaml').touch()
    with pytest.raises(RuntimeError, match=words):
        recorded('vjepa.launch.py', argument, cwd=tmp_path)


def test_the_demo_starts_camera_and_node_together(recorded):
    result = recorded('demo.launch.py', 'source:=0', 'camera:=front', 'rate:=5', 'loop:=false',
                      'device:=cpu', 'namespace:=robot')
    source, node = result['camera_source'], result['vjepa_node']
    wanted = {'source': '0', 'camera': 'front', 'rate': 5.0, 'loop': False, 'truth': True}
    assert {name: source.parameters[name] for name in wanted} == wanted
    assert (node.parameters['cameras'], node.parameters['device']) == (['front'], 'cpu')
    assert '__ns:=/robot' in source.argv and '__ns:=/robot' in node.argv


def test_guarded_starts_perception_and_guard_and_a_planner_before_it_when_asked(recorded):
    given = ('cmd_vel_in:=/nav/cmd_vel', 'cmd_vel_out:=/cmd_vel', 'message:=twist_stamped',
             'namespace:=robot', 'respawn:=false', 'cameras:=front=/x/image')
    got = recorded('guarded.launch.py', *given)
    assert got.keys() == {'vjepa_node', 'collision_guard'}
    guard = got['collision_guard']
    assert guard.parameters.items() >= {
        'heartbeat': 0, 'watchdog': False, 'message': 'twist_stamped', 'autostart': True,
        'min_time_to_contact': config('collision_guard.yaml')['min_time_to_contact']}.items()
    assert guard.remappings == ['cmd_vel_in:=/nav/cmd_vel', 'cmd_vel_out:=/cmd_vel']
    got = recorded('guarded.launch.py', *given, 'planner:=true', 'watchdog:=true')
    assert got['local_planner'].remappings == [
        'cmd_vel_in:=/nav/cmd_vel', 'cmd_vel_out:=cmd_vel_planned', 'cmd_vel_sent:=/cmd_vel']
    assert got['collision_guard'].remappings == [
        'cmd_vel_in:=cmd_vel_planned', 'cmd_vel_out:=/cmd_vel']
    assert got['collision_guard'].parameters.items() >= {
        'heartbeat': 0.4, 'watchdog': True}.items()
    assert got['command_watchdog'].remappings == [
        'heartbeat:=collision_guard/heartbeat', 'cmd_vel:=/cmd_vel']
    for name in ('local_planner', 'command_watchdog'):
        assert got[name].parameters['message'] == 'twist_stamped'
    for name, cameras in (('vjepa_node', 'cameras'), ('collision_guard', 'sources'),
                          ('local_planner', 'sources')):
        assert got[name].parameters[cameras] == ['front']


# By the argument, and by the parameter file of the perception node.
@pytest.mark.parametrize('argument', ['cameras:=front,rear', 'params_file:=multi_camera.yaml'])
def test_a_guard_that_would_wait_for_a_camera_that_nobody_runs_is_not_started(recorded, tmp_path,
                                                                              argument):
    with pytest.raises(RuntimeError, match='collision_guard would listen to camera .* the '
                       r'perception node runs front.*: give a guard_params_file with sources'):
        recorded('guarded.launch.py', argument, 'respawn:=false')
    file = tmp_path / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n    sources: [front, rear]\n'
                    '    rear.direction: backward\n')
    got = recorded('guarded.launch.py', argument, f'guard_params_file:={file}', 'respawn:=false')
    assert got['collision_guard'].parameters['sources'] == ['front', 'rear']


README = re.findall(r'^ros2 launch vjepa_ros (.*)$', re.sub(
    r' *\\\n *', ' ', (REPOSITORY / 'README.md').read_text()), re.MULTILINE)
FRONT_CAMERA = 'cameras:=front=/camera/image_raw'


@pytest.mark.ros
@pytest.mark.parametrize('command', [
    *README, f'{README[1]} planner:=true watchdog:=true',
    f'guarded.launch.py {FRONT_CAMERA} planner:=true',
    *(f'vjepa.launch.py params_file:={name}.yaml {FRONT_CAMERA}' for name in (
        'cpu', 'apple', 'jetson')), 'vjepa.launch.py params_file:=multi_camera.yaml',
    'demo.launch.py camera:=front'])
def test_no_node_of_a_command_of_the_readme_warns_when_it_starts(recorded, command):
    pytest.importorskip('rclpy')
    nodes = recorded(*command.split())
    with ros_session() as ros, logged() as lines:
        for name, started in nodes.items():
            make = class_of(name.partition(',')[0])
            node = make(context=ros.context, cli_args=[*QUIET, *started.argv])
            if name in ('collision_guard', 'local_planner'):
                node.trigger_configure()
            node.destroy_node()
    assert not [line for line in lines if '[INFO]' not in line]


# As setup.py has them: name of the executable, module, function.
EXECUTABLES = {
    name: f'import sys\nfrom vjepa_ros.{module} import {function}\nsys.exit({function}())\n'
    for name, module, function in re.findall(r"f'([\w-]+) = {NAME}\.([\w.]+):(\w+)'",
                                             (REPOSITORY / 'setup.py').read_text())}


@pytest.mark.slow
@pytest.mark.ros
def test_the_nodes_of_a_launch_file_become_active_and_end_with_it(tmp_path):
    pytest.importorskip('rclpy')
    with free_domain() as domain:
        launch = NodeProcess(
            [sys.executable, str(STAND_IN), str(LAUNCH / 'guarded.launch.py'), 'planner:=true',
             'namespace:=robot'],
            launch_env(make_prefix(tmp_path / 'prefix', EXECUTABLES), domain))
        try:
            for name in ('vjepa_node', 'collision_guard', 'local_planner'):
                launch.wait_for_output(f'[robot.{name}]: active', timeout=180)
            launch.terminate_and_check(signal.SIGINT, 60.0)
        finally:
            launch.kill()
