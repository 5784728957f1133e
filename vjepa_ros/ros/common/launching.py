# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the launch files share: tables of arguments, parameter files, and how a node is started."""

# The launch packages belong to a ROS installation; the type checker does not need one.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ament_index_python.packages import PackageNotFoundError, get_package_share_directory
from launch import LaunchContext, LaunchDescription, logging
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    IncludeLaunchDescription,
    OpaqueFunction,
)
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration, PathJoinSubstitution, ThisLaunchFileDir
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterFile, ParameterValue

from vjepa_ros.parameter import TRANSPORTS
from vjepa_ros.ros.common.process import LARGE_IMAGES, TUNING, VARIABLE

# Values of an argument that is on or off.
SWITCH = ['true', 'false', 'True', 'False']
STANDBY = 'standby'
RESPAWN_DELAY_S = 0.2
ENVIRONMENT = {**TUNING, 'FASTDDS_BUILTIN_TRANSPORTS': LARGE_IMAGES}
# Name, default, allowed values (None: any), description.
Argument = tuple[str, str, 'list[str] | None', str]
# Those of the perception node, which all launch files have. An empty value leaves what the
# parameter file says.
PERCEPTION: tuple[Argument, ...] = (
    ('namespace', '', None, 'Namespace of the nodes and of their topics'),
    ('params_file', 'default.yaml', None, 'Parameter file of the perception node: a path, or the '
     'name of a file in the config folder of the package'),
    ('cameras', '', None,
     'Names of the cameras, separated by commas; NAME=TOPIC also says which image topic is read '
     'instead of NAME/image_raw (camera_info is expected beside it); one that ends with '
     '/compressed or /ffmpeg is read as such; empty: those of the parameter file'),
    ('device', '', None, 'Where the model runs: auto, cpu, cuda, cuda:N or mps'),
    ('model_size', '', None, 'Size of the encoder: tiny, small, base, large, huge, giant...'),
    ('num_frames', '', None, 'Frames in a clip'),
    ('image_size', '', None, 'Side of the encoder input [px]'),
    ('clip_fps', '', None, 'Rate at which frames are sampled for whole clips [Hz]'),
    ('mount_height', '', None, 'Height of all cameras above the ground [m]'),
    ('weights', '', None,
     'Checkpoint of the encoder; empty: that of the parameter file, else that of the package'),
    ('heads', '', None, 'Safetensors file with learned heads for these weights'),
    ('allow_random_weights', '', ['', *SWITCH],
     'Run untrained where there are no weights; every output then says so'),
    ('use_sim_time', 'false', SWITCH, 'Take the time from /clock (simulation, ros2 bag --clock)'),
    ('autostart', 'true', SWITCH,
     'Configure and activate at once; false leaves that to a lifecycle manager'),
    ('respawn', 'false', [STANDBY, *SWITCH], 'Start a node again when its process ends; standby: '
     'beside the perception node a second process waits to take over'),
    ('enclaves', 'false', SWITCH, 'Give each node the SROS2 enclave of its name'),
    ('view', 'false', SWITCH,
     'Show cameras, maps, levels and states in a browser; needs the package rerun-sdk'),
    ('rviz', 'false', SWITCH, 'Open RViz with the first camera; needs the package rviz2'),
    ('log_level', 'info', ['debug', 'info', 'warn', 'error', 'fatal'], 'Least severity logged'),
)
TEXTS, NUMBERS = ('device', 'model_size', 'weights', 'heads'), {
    'num_frames': int, 'image_size': int, 'clip_fps': float}


def description(arguments: Iterable[Argument], start: Callable[[LaunchContext], list]
                ) -> LaunchDescription:
    """Declare the arguments, then start what `start` makes of their values."""
    return LaunchDescription([
        *(DeclareLaunchArgument(name, default_value=default, description=text, choices=choices)
          for name, default, choices, text in arguments),
        OpaqueFunction(function=start)])


def values(context: LaunchContext, arguments: Iterable[Argument]) -> dict[str, str]:
    """Read what each argument was given, by its name."""
    return {name: LaunchConfiguration(name).perform(context) for name, *_ in arguments}


def perception(value: dict[str, str], **changed: str) -> IncludeLaunchDescription:
    """Start what vjepa.launch.py starts, with the values of `PERCEPTION`."""
    return IncludeLaunchDescription(
        PythonLaunchDescriptionSource(
            PathJoinSubstitution([ThisLaunchFileDir(), 'vjepa.launch.py'])),
        launch_arguments=[*{**{name: value[name] for name, *_ in PERCEPTION if name in value},
                            **changed}.items()])


def number(value: dict[str, str], name: str, kind: type = float) -> float:
    """Return the number that an argument was given."""
    try:
        return kind(value[name])
    except ValueError:
        what = 'a whole number' if kind is int else 'a number'
        raise RuntimeError(f"{name} is '{value[name]}', must be {what}") from None


def is_on(text: str) -> bool:
    """Return whether a value of `SWITCH` means true."""
    return text.lower() == 'true'


def read_cameras(text: str) -> dict[str, str]:
    """Read `front,rear=/robot/rear/image_raw` into names and topics ('' = the usual one)."""
    cameras = {}
    for item in text.strip('[] ').split(',') if text else ():
        name, _, topic = (part.strip(' \'"') for part in item.partition('='))
        if not name or name in cameras:
            raise RuntimeError(
                f"cameras is '{text}', must be names separated by commas, each once")
        cameras[name] = topic
    return cameras


def image_topic(topic: str) -> tuple[str, str]:
    """Return the topic of the raw images, and the transport that the given one names, or ''."""
    raw, _, last = topic.rpartition('/')
    named = last in TRANSPORTS[2:]       # has a topic beside that of the raw images
    return (raw, last) if named else (topic, '')


def whole_namespace(context: LaunchContext, value: dict[str, str]) -> str:
    """Return the argument `namespace` below the one that the launch has pushed, if any."""
    namespace = value['namespace']
    if namespace.startswith('/'):
        return namespace
    return f"{context.launch_configurations.get('ros_namespace', '')}/{namespace}"


def node_arguments(context: LaunchContext, name: str, value: dict[str, str]) -> list[str]:
    """Arguments that set the least severity that a node logs, and its enclave if wanted."""
    parts = [*filter(None, whole_namespace(context, value).split('/')), name]
    enclave = ['--enclave', f'/{"/".join(parts)}'] if is_on(value['enclaves']) else []
    # For that node alone: at debug the libraries of ROS would fill the log.
    return ['--ros-args', '--log-level', f"{'.'.join(parts)}:={value['log_level']}", *enclave]


def node(context: LaunchContext, name: str, value: dict[str, str], parameters: list,
         remappings: Iterable[tuple[str, str]], second: bool = False,
         env: dict[str, str] | None = None) -> Node:
    """Start a node that is called like its executable; `second`: one that stands by for it."""
    # Launch would warn of two actions with one name.
    called = {} if second else {'name': name}
    rename = ('--ros-args', '-r', f'__node:={name}') if second else ()
    return Node(
        package='vjepa_ros', executable=name, namespace=value['namespace'], parameters=parameters,
        remappings=[*remappings], additional_env=env or {},
        respawn=value['respawn'] == STANDBY or is_on(value['respawn']),
        respawn_delay=RESPAWN_DELAY_S, output='screen', emulate_tty=True,
        arguments=[*node_arguments(context, name, value), *rename], **called)


def parameter_file(argument: str, name: str) -> ParameterFile:
    """Parameters from a file that `parameter_path` finds; the log says which one it is."""
    path = parameter_path(argument, name)
    logging.get_logger('vjepa_ros').info(f'{argument}: {path}')
    # $(command ...) in it would run a program.
    return ParameterFile(str(path), allow_substs=False)


def config_folder() -> Path:
    """Return the folder with the parameter files of the package."""
    return Path(get_package_share_directory('vjepa_ros')) / 'config'


def parameter_path(argument: str, name: str) -> Path:
    """Find a parameter file by its path or, where it is a bare name, in the package."""
    config = config_folder()
    bare = os.path.basename(name) == name
    path = config / name if bare else Path(name).expanduser()
    if path.is_file():
        return path
    known = ', '.join(sorted(p.name for p in config.glob('*.yaml')))
    if bare and Path(name).is_file():
        raise RuntimeError(f"{argument} is '{name}', which is none of the files of the package "
                           f'({known}); for the one in this folder write ./{name}')
    raise RuntimeError(f"{argument} is '{name}', which is neither a file nor one of: {known}")


def model_parameters(value: dict[str, str]) -> dict[str, Any]:
    """Turn arguments into parameters of the perception node."""
    parameters: dict[str, Any] = {
        name: is_on(value[name]) for name in ('use_sim_time', 'autostart', 'allow_random_weights')
        if value[name]}
    # A file called 1234 is text, too: the parameter would otherwise become an integer.
    return parameters | {name: ParameterValue(value[name], value_type=str) for name in TEXTS
                         if value[name]} | {
        name: number(value, name, kind) for name, kind in NUMBERS.items() if value[name]}


def model_nodes(context: LaunchContext, name: str, value: dict[str, str],
                parameters: dict[str, Any], remappings: list[tuple[str, str]]) -> list[Node]:
    """Start a node with a model, and one that stands by if wanted."""
    # What the user has set stays.
    own = {k: v for k, v in ENVIRONMENT.items() if k not in os.environ}
    both = value['respawn'] == STANDBY
    if both:
        descriptor, own[VARIABLE] = tempfile.mkstemp('.turn', f'{name}_')
        os.close(descriptor)
    return [node(context, name, value,
                 [parameter_file('params_file', value['params_file']), parameters], remappings,
                 second, own) for second in ((False, True) if both else (False,))]


def viewer(value: dict[str, str]) -> list:
    """Start `vjepa-ros view` where the argument `view` is on; the log has its address."""
    if not is_on(value['view']):
        return []
    # The server of the viewer takes seconds to end after Ctrl-C.
    return [ExecuteProcess(cmd=[sys.executable, '-m', 'vjepa_ros', 'view'], name='vjepa_view',
                           sigterm_timeout='15', output='screen')]


RVIZ_TOPICS = ('overlay', 'looming_map', 'moving_map', 'obstacle_points', 'scan')


def rviz(value: dict[str, str], cameras: Iterable[str]) -> list:
    """Start RViz with ``config/vjepa.rviz`` where the argument `rviz` is on."""
    if not is_on(value['rviz']):
        return []
    try:
        get_package_share_directory('rviz2')
    except PackageNotFoundError as error:
        raise RuntimeError("rviz is 'true', but the package rviz2 is not installed: apt install "
                           'ros-$ROS_DISTRO-rviz2, or see with view:=true') from error
    camera = next(iter(cameras), 'camera')
    return [Node(
        package='rviz2', executable='rviz2', name='vjepa_rviz', namespace=value['namespace'],
        parameters=[{'use_sim_time': is_on(value['use_sim_time'])}],
        remappings=[(f'vjepa_node/camera/{topic}', f'vjepa_node/{camera}/{topic}')
                    for topic in RVIZ_TOPICS if camera != 'camera'],
        arguments=['-d', str(config_folder() / 'vjepa.rviz')], output='screen')]
