# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Start a camera (a synthetic approach, or any source) and the perception node watching it."""

from launch import LaunchContext, LaunchDescription
from launch.actions import Shutdown
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
    *(row for row in launching.PERCEPTION if row[0] not in ('cameras', 'respawn')),
)


def start(context: LaunchContext) -> list:
    """Turn the values of the arguments into the two nodes."""
    value = launching.values(context, ARGUMENTS)
    # A camera index is text, too: the parameter would otherwise become an integer.
    parameters = {name: ParameterValue(value[name], value_type=str)
                  for name in ('source', 'camera', 'transport')}
    parameters.update(loop=is_on(value['loop']), truth=True, wait_for_subscribers=True)
    if value['rate']:
        parameters['rate'] = launching.number(value, 'rate')

    camera = Node(
        package='vjepa_ros', executable='camera_source', name='camera_source',
        namespace=value['namespace'], parameters=[parameters],
        arguments=launching.node_arguments(context, 'camera_source', value),
        output='screen', emulate_tty=True,
        on_exit=Shutdown(reason='the camera source has ended'))
    return [launching.perception(value, cameras=value['camera']), camera]


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the nodes."""
    return launching.description(ARGUMENTS, start)
