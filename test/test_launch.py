# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tests of the launch files: what they offer, and what they start.

launch and launch_ros have no wheels. What the launch files use of them is here, and does as
launch_ros does: it makes the same commands.
"""

from __future__ import annotations

import itertools
import json
import logging
import os
import re
import runpy
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from ros_harness import QUIET, class_of, logged, ros_session

REPOSITORY = Path(__file__).resolve().parents[1]
LAUNCH = REPOSITORY / 'launch'


class Entity:
    """What a launch file makes: its arguments, by their names as well."""

    def __init__(self, *given: Any, **named: Any) -> None:
        self.given, self.named = given, named

    def perform(self, context: SimpleNamespace) -> str:
        """The value of a LaunchConfiguration."""
        return context.launch_configurations[self.given[0]]


class StandIn(ModuleType):
    """A module of launch: each of its names is a class of entities."""

    def __getattr__(self, name: str) -> type:
        return type(name, (Entity,), {})


def modules() -> dict[str, ModuleType]:
    """The modules that launch files import, by name."""
    made = {name: StandIn(name) for name in (
        'launch', 'launch.actions', 'launch.launch_description_sources', 'launch.substitutions',
        'launch_ros', 'launch_ros.actions', 'launch_ros.parameter_descriptions')}
    vars(made['launch'])['logging'] = SimpleNamespace(get_logger=logging.getLogger)
    return made


def nodes_of(file: Path, given: dict[str, str]) -> list[Entity]:
    """The nodes that a launch file starts."""
    context = SimpleNamespace(launch_configurations=dict(given))
    found = []
    for entity in runpy.run_path(str(file))['generate_launch_description']().given[0]:
        if type(entity).__name__ == 'DeclareLaunchArgument':
            name, choices = entity.given[0], entity.named['choices']
            value = context.launch_configurations.setdefault(name, entity.named['default_value'])
            if choices and value not in choices:
                raise RuntimeError(f'{name} is {value!r}, must be one of {choices}')
            continue
        for action in entity.named['function'](context):
            if type(action).__name__ == 'IncludeLaunchDescription':
                path = action.given[0].given[0].given[0][-1]
                found += nodes_of(file.parent / path, dict(action.named['launch_arguments']))
            else:
                found.append(action)
    return found


def parameters(source: Any, folder: Path) -> str:
    """The file in which parameters reach a node."""
    if isinstance(source, Entity):
        assert not source.named.get('allow_substs'), 'a file could run a program'
        text = Path(source.given[0]).read_text(encoding='utf-8')
    else:
        plain = {name: value.named['value_type'](value.given[0])
                 if isinstance(value, Entity) else value for name, value in source.items()}
        text = json.dumps({'/**': {'ros__parameters': plain}})      # which is YAML, too
    number, path = tempfile.mkstemp('.yaml', dir=folder, text=True)
    with open(number, 'w', encoding='utf-8') as file:
        file.write(text)
    return path


def command(node: Entity, folder: Path) -> list[str]:
    """The command that starts a node, with the name of its executable."""
    named = node.named
    words = [named['executable'], *named['arguments'], '--ros-args']
    if 'name' in named:
        words += ['-r', f"__node:={named['name']}"]
    if named['namespace']:
        words += ['-r', f"__ns:=/{named['namespace'].lstrip('/')}"]
    for source in named['parameters']:
        words += ['--params-file', parameters(source, folder)]
    for own, topic in named.get('remappings', ()):
        words += ['-r', f'{own}:={topic}']
    return words


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


def made(folder: Path, file: str, *arguments: str) -> dict[str, Started]:
    """How a launch file would start its nodes, by the stand-in."""
    prefix = folder / 'prefix'
    index = prefix / 'share/ament_index/resource_index/packages'
    index.mkdir(parents=True, exist_ok=True)
    (index / 'vjepa_ros').touch()
    share = prefix / 'share/vjepa_ros'
    if not share.exists():
        share.symlink_to(REPOSITORY)
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('AMENT_PREFIX_PATH', str(prefix), prepend=os.pathsep)
        patch.delenv('FASTDDS_BUILTIN_TRANSPORTS', raising=False)
        for name, module in modules().items():
            patch.setitem(sys.modules, name, module)
        for node in nodes_of(LAUNCH / file, dict(each.split(':=', 1) for each in arguments)):
            name, *words = command(node, folder)
            found[name if name not in found else f'{name}, standby'] = Started(
                words, {**os.environ, **node.named.get('additional_env', {})})
    return found


@pytest.fixture
def recorded(tmp_path):
    pytest.importorskip('ament_index_python')
    return partial(made, tmp_path)


def config(name: str) -> dict:
    return yaml.safe_load((REPOSITORY / 'config' / name).read_text())['/**']['ros__parameters']


def test_without_arguments_the_default_file_holds(recorded, monkeypatch):
    monkeypatch.setenv('MALLOC_TRIM_THRESHOLD_', '1')
    node = recorded('vjepa.launch.py')['vjepa_node']
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
def test_a_wrong_argument_ends_the_launch_with_the_reason(recorded, tmp_path, monkeypatch,
                                                         argument, words):
    monkeypatch.chdir(tmp_path)
    Path('mine.yaml').touch()
    with pytest.raises(RuntimeError, match=words):
        recorded('vjepa.launch.py', argument)


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
