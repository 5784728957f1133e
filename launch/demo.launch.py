# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Start a camera (a synthetic approach, or any source) and the perception node watching it."""

from launch import LaunchContext, LaunchDescription
from launch.actions import IncludeLaunchDescription, Shutdown
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import PathJoinSubstitution, ThisLaunchFileDir
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterValue

from vjepa_ros.ros.common import launching
from vjepa_ros.ros.common.launching import SWITCH, is_on

ARGUMENTS = (  # name, default, allowed values, description
    ('source', 'synthetic', None,
     'What to play: synthetic, a camera index, or the path of a video, image folder, recording '
     'folder or bag'),
    ('camera', 'camera', None, 'Name of the camera; images come on NAME/image_raw'),
    ('rate', '', None, 'Frames per second; empty keeps the rate of the source'),
    ('loop', 'true', SWITCH, 'Start again at the end; false ends everything there'),
    ('transport', 'raw', ['raw', 'compressed', 'both'], 'Image topics that are published'),
    ('namespace', '', None, 'Namespace of both nodes'),
    ('params_file', 'default.yaml', None, 'Parameter file of the perception node'),
    ('device', '', None, 'Where the model runs: auto, cpu, cuda, cuda:N or mps'),
    ('model_size', '', None, 'Size of the encoder: tiny, small, base, large, huge, giant...'),
    ('num_frames', '', None, 'Frames in a clip'),
    ('weights', '', None,
     'Checkpoint of the encoder; empty: that of the parameter file, else that of the package'),
    ('allow_random_weights', '', ['', *SWITCH],
     'Run untrained where there are no weights; every output then says so'),
    ('enclaves', 'false', SWITCH, 'Give each node the SROS2 enclave of its name'),
    ('view', 'false', SWITCH,
     'Show cameras, maps, levels and states in a browser; needs the package rerun-sdk'),
    ('rviz', 'false', SWITCH, 'Open RViz with the first camera; needs the package rviz2'),
    ('log_level', 'info', ['debug', 'info', 'warn', 'error', 'fatal'], 'Least severity logged'),
)
FORWARDED = ('namespace', 'params_file', 'device', 'model_size', 'num_frames', 'weights',
             'allow_random_weights', 'enclaves', 'view', 'rviz', 'log_level')


def start(context: LaunchContext) -> list:
    """Turn the values of the arguments into the two nodes."""
    value = launching.values(context, ARGUMENTS)
    # A camera index is text, too: the parameter would otherwise become an integer.
    parameters = {name: ParameterValue(value[name], value_type=str)
                  for name in ('source', 'camera', 'transport')}
    parameters.update(loop=is_on(value['loop']), truth=True, wait_for_subscribers=True)
    if value['rate']:
        try:
            parameters['rate'] = float(value['rate'])
        except ValueError:
            raise RuntimeError(f"rate is '{value['rate']}', must be a number") from None

    camera = Node(
        package='vjepa_ros', executable='camera_source', name='camera_source',
        namespace=value['namespace'], parameters=[parameters],
        arguments=launching.node_arguments(context, 'camera_source', value),
        output='screen', emulate_tty=True,
        on_exit=Shutdown(reason='the camera source has ended'))
    perception = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(
            PathJoinSubstitution([ThisLaunchFileDir(), 'vjepa.launch.py'])),
        launch_arguments=[*((name, value[name]) for name in FORWARDED),
                          ('cameras', value['camera'])])
    return [perception, camera]


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the nodes."""
    return launching.description(ARGUMENTS, start)
