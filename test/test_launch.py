# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tests of the launch files: what they offer, and what they start.

The nodes are started by the stand-in beside this file, which also tells the commands.
"""

from __future__ import annotations

import itertools
import logging
import os
import re
import signal
import sys
from pathlib import Path

import pytest
import stand_in_launch
import yaml
from ros_harness import NodeProcess, QUIET, class_of, logged, ros_env, ros_session

from vjepa_ros.ros.common.processes import free_domain
from vjepa_ros.ros.sim.parameters import SOURCE

REPOSITORY = Path(__file__).resolve().parents[1]
LAUNCH = REPOSITORY / 'launch'
FILES = sorted(LAUNCH.glob('*.launch.py'))
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


@pytest.fixture
def recorded(tmp_path, monkeypatch, caplog):
    """Function that tells how a launch file would start its nodes, by the stand-in."""
    pytest.importorskip('ament_index_python')
    prefix = make_prefix(tmp_path / 'prefix', {})
    whole = launch_env(prefix, 0)
    whole.pop('FASTDDS_BUILTIN_TRANSPORTS', None)   # the harness has a choice of its own

    def run(file: str, *arguments: str, code: int = 0, cwd: Path | None = None, **env: str
            ) -> dict[str, dict]:
        caplog.clear()
        found, problem = {}, ''
        with monkeypatch.context() as patch, caplog.at_level(logging.INFO):
            for name, module in stand_in_launch.modules().items():
                patch.setitem(sys.modules, name, module)
            patch.setattr(os, 'environ', {**whole, **env})
            patch.chdir(cwd or REPOSITORY)
            try:
                for words, env_of, _ in stand_in_launch.commands(
                        LAUNCH / file, stand_in_launch.given_by(arguments), tmp_path):
                    files = [b for a, b in itertools.pairwise(words) if a == '--params-file']
                    name = Path(words[0]).name
                    found[name if name not in found else f'{name}, standby'] = {
                        'argv': words[1:], 'env': env_of,
                        'params': [Path(one).read_text() for one in files]}
            except RuntimeError as error:
                found, problem = {}, str(error)
        assert bool(problem) == bool(code), problem
        return {'output': caplog.text + problem, **found}
    return run


def parameters_of(record: dict) -> dict:
    """Merge the parameter files of a process, as its node would, into one dictionary."""
    merged = {}
    for text in record['params']:
        for content in yaml.safe_load(text).values():
            merged.update(content['ros__parameters'])
    return merged


def remappings_of(record: dict) -> list[str]:
    return [rule for flag, rule in itertools.pairwise(record['argv'])
            if flag == '-r' and not rule.startswith('__')]


def in_namespace(record: dict, name: str) -> bool:
    return any(word in (f'__ns:={name}', f'__ns:=/{name}') for word in record['argv'])


def config(name: str) -> dict:
    return yaml.safe_load((REPOSITORY / 'config' / name).read_text())['/**']['ros__parameters']


def test_without_arguments_the_default_file_holds(recorded):
    node = recorded('vjepa.launch.py', MALLOC_TRIM_THRESHOLD_='1')['vjepa_node']
    assert parameters_of(node) == {
        **config('default.yaml'), 'autostart': True, 'use_sim_time': False}
    assert '__node:=vjepa_node' in node['argv']
    assert {config(name)['precision'] for name in ('cpu.yaml', 'apple.yaml')} == {'auto'}
    # It suits large images, unless the user says otherwise.
    assert node['env']['FASTDDS_BUILTIN_TRANSPORTS'].startswith('DEFAULT?max_msg_size=64KB')
    assert int(node['env']['MALLOC_MMAP_THRESHOLD_']) == 32 << 20   # the largest glibc takes
    assert node['env']['MALLOC_TRIM_THRESHOLD_'] == '1'
    assert node['env']['MALLOC_ARENA_MAX'] == '1'


def test_arguments_override_the_file_with_the_right_types(recorded):
    node = recorded('vjepa.launch.py', 'params_file:=cpu.yaml', 'cameras:=front, rear',
                    'device:=cuda:1', 'model_size:=base', 'num_frames:=16', 'weights:=1234',
                    'image_size:=192', 'clip_fps:=5', 'mount_height:=0.4',
                    'allow_random_weights:=True', 'use_sim_time:=true', 'autostart:=false',
                    'namespace:=robot', 'log_level:=warn', 'enclaves:=true')['vjepa_node']
    wanted = {'cameras': ['front', 'rear'], 'device': 'cuda:1', 'model_size': 'base',
              'num_frames': 16, 'image_size': 192, 'clip_fps': 5.0, 'rear.mount.height': 0.4,
              'weights': '1234', 'allow_random_weights': True,
              'use_sim_time': True, 'autostart': False, 'precision': 'auto'}
    got = parameters_of(node)
    assert {name: got[name] for name in wanted} == wanted
    assert in_namespace(node, 'robot')
    # Of the node, and not of the libraries of ROS.
    assert node['argv'][node['argv'].index('--log-level') + 1] == 'robot.vjepa_node:=warn'
    assert node['argv'][node['argv'].index('--enclave') + 1] == '/robot/vjepa_node'


def test_a_camera_can_be_led_to_any_topic_also_to_a_compressed_one(recorded):
    node = recorded('vjepa.launch.py', 'cameras:=left,front=/robot/color/image_rect,'
                    'rear=/cam/image_raw/compressed')['vjepa_node']
    assert remappings_of(node) == [
        'front/image_raw:=/robot/color/image_rect', 'front/camera_info:=/robot/color/camera_info',
        'rear/image_raw:=/cam/image_raw', 'rear/camera_info:=/cam/camera_info']
    got = parameters_of(node)
    assert got['cameras'] == ['left', 'front', 'rear']
    assert got['rear.transport'] == 'compressed' and 'left.transport' not in got


@pytest.mark.parametrize(('argument', 'words'), [
    ('params_file:=mine.yaml', r"params_file is 'mine.yaml'.*write \./mine.yaml"),
    ('params_file:=nothing.yaml', "'nothing.yaml'.*cpu.yaml.*multi_camera.yaml"),
    ('cameras:=a,a', "cameras is 'a,a'"), ('num_frames:=many', "num_frames is 'many'.*whole"),
    ('autostart:=maybe', 'maybe')])
def test_a_wrong_argument_ends_the_launch_with_the_reason(recorded, tmp_path, argument, words):
    (tmp_path / 'mine.yaml').touch()
    result = recorded('vjepa.launch.py', argument, code=1, cwd=tmp_path)
    assert 'vjepa_node' not in result
    assert re.search(words, result['output'])


def test_the_demo_starts_camera_and_node_together(recorded):
    result = recorded('demo.launch.py', 'source:=0', 'camera:=front', 'rate:=5', 'loop:=false',
                      'device:=cpu', 'namespace:=robot')
    source, node = parameters_of(result['camera_source']), parameters_of(result['vjepa_node'])
    wanted = {'source': '0', 'camera': 'front', 'rate': 5.0, 'loop': False, 'truth': True}
    assert {name: source[name] for name in wanted} == wanted
    rows = {row.name: row for row in SOURCE.rows}
    assert all(rows[name].check(value)[1] == '' for name, value in source.items())
    assert (node['cameras'], node['allow_random_weights'], node['device']) == (
        ['front'], False, 'cpu')
    assert all(in_namespace(result[name], 'robot') for name in ('camera_source', 'vjepa_node'))


def test_guarded_starts_perception_and_guard_and_a_planner_before_it_when_asked(recorded):
    given = ('cmd_vel_in:=/nav/cmd_vel', 'cmd_vel_out:=/cmd_vel', 'message:=twist_stamped',
             'namespace:=robot', 'respawn:=false', 'cameras:=front=/x/image')
    got = recorded('guarded.launch.py', *given)
    assert not {'local_planner', 'command_watchdog'} & got.keys()
    values = parameters_of(got['collision_guard'])
    assert values['heartbeat'] == 0 and not values['watchdog']
    assert (values['message'], values['autostart']) == ('twist_stamped', True)
    assert values['min_time_to_contact'] == config('collision_guard.yaml')['min_time_to_contact']
    assert in_namespace(got['collision_guard'], 'robot')
    assert remappings_of(got['collision_guard']) == [
        'cmd_vel_in:=/nav/cmd_vel', 'cmd_vel_out:=/cmd_vel']
    assert parameters_of(got['vjepa_node'])['model_size'] == 'tiny'
    got = recorded('guarded.launch.py', *given, 'planner:=true', 'watchdog:=true')
    assert remappings_of(got['local_planner']) == [
        'cmd_vel_in:=/nav/cmd_vel', 'cmd_vel_out:=cmd_vel_planned', 'cmd_vel_sent:=/cmd_vel']
    assert remappings_of(got['collision_guard']) == [
        'cmd_vel_in:=cmd_vel_planned', 'cmd_vel_out:=/cmd_vel']
    assert parameters_of(got['local_planner'])['message'] == 'twist_stamped'
    assert parameters_of(got['collision_guard'])['heartbeat'] == 0.4
    assert parameters_of(got['collision_guard'])['watchdog'] is True
    assert parameters_of(got['command_watchdog'])['message'] == 'twist_stamped'
    assert remappings_of(got['command_watchdog']) == [
        'heartbeat:=collision_guard/heartbeat', 'cmd_vel:=/cmd_vel']
    assert in_namespace(got['command_watchdog'], 'robot')
    for name, cameras in (('vjepa_node', 'cameras'), ('collision_guard', 'sources'),
                          ('local_planner', 'sources')):
        assert parameters_of(got[name])[cameras] == ['front']


def test_a_guard_that_would_wait_for_a_camera_that_nobody_runs_is_not_started(recorded, tmp_path):
    # By the argument, and by the parameter file of the perception node.
    for argument in ('cameras:=front,rear', 'params_file:=multi_camera.yaml'):
        got = recorded('guarded.launch.py', argument, 'respawn:=false', code=1)
        assert 'collision_guard' not in got
        assert re.search('collision_guard would listen to camera .* the perception node runs front'
                         '.*: give a guard_params_file with sources', got['output'])
    file = tmp_path / 'mine.yaml'
    file.write_text('/**:\n  ros__parameters:\n    sources: [front, rear]\n'
                    '    rear.direction: backward\n')
    got = recorded('guarded.launch.py', 'cameras:=front,rear', f'guard_params_file:={file}',
                   'respawn:=false')
    assert parameters_of(got['collision_guard'])['sources'] == ['front', 'rear']


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
    nodes.pop('output')
    with ros_session() as ros, logged() as lines:
        for name, started in nodes.items():
            make = class_of(name.partition(',')[0])
            node = make(context=ros.context, cli_args=[*QUIET, *started['argv']])
            if name in ('collision_guard', 'local_planner'):
                node.trigger_configure()
            node.destroy_node()
    assert not [line for line in lines if '[INFO]' not in line]


# As setup.py has them: name of the executable, module, function.
EXECUTABLES = {
    name: f'import sys\nfrom vjepa_ros.{module} import {function}\nsys.exit({function}())\n'
    for name, module, function in re.findall(r"f'([\w-]+) = {NAME}\.([\w.]+):(\w+)'",
                                             (REPOSITORY / 'setup.py').read_text())}
STARTS = {   # launch file: arguments, and what the log then says
    'vjepa.launch.py': (('device:=cpu',), ('[vjepa_node]: active',)),
    'demo.launch.py': ((), ('[vjepa_node]: active', '[camera_source]: playing')),
    'guarded.launch.py': (('planner:=true', 'namespace:=robot'), (
        '[robot.vjepa_node]: active', '[robot.collision_guard]: active',
        '[robot.local_planner]: active')),
}


@pytest.mark.slow
@pytest.mark.ros
@pytest.mark.parametrize('file', [file.name for file in FILES])
def test_every_launch_file_starts_its_nodes(tmp_path, file):
    pytest.importorskip('rclpy')
    arguments, said = STARTS[file]
    with free_domain() as domain:
        launch = NodeProcess([sys.executable, str(STAND_IN), str(LAUNCH / file), *arguments],
                             launch_env(make_prefix(tmp_path / 'prefix', EXECUTABLES), domain))
        try:
            for words in said:
                launch.wait_for_output(words, timeout=180)
            launch.terminate_and_check(signal.SIGINT, 60.0)
        finally:
            launch.kill()
