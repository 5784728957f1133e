# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Start the perception node; `ros2 launch vjepa_ros vjepa.launch.py --show-args` explains it."""

from launch import LaunchContext, LaunchDescription

from vjepa_ros.ros.common import launching
from vjepa_ros.ros.parameter_file import cameras_in


def remappings(cameras: dict) -> list:
    """List the remappings that lead each camera to its image topic."""
    pairs = []
    for name, topic in cameras.items():
        if topic:
            raw, _ = launching.image_topic(topic)
            folder, slash, _ = raw.rpartition('/')
            pairs += [(f'{name}/image_raw', raw),
                      (f'{name}/camera_info', f'{folder}{slash}camera_info')]
    return pairs


def start(context: LaunchContext) -> list:
    """Turn the values of the arguments into the node."""
    value = launching.values(context, launching.PERCEPTION)
    cameras = launching.read_cameras(value['cameras'])
    names = list(cameras) or cameras_in(
        launching.parameter_path('params_file', value['params_file']),
        launching.whole_namespace(context, value))

    parameters = launching.model_parameters(value)
    if cameras:
        parameters['cameras'] = list(cameras)
    for name, topic in cameras.items():
        if transport := launching.image_topic(topic)[1]:
            parameters[f'{name}.transport'] = transport
    if value['mount_height']:
        height = launching.number(value, 'mount_height')
        parameters |= {f'{name}.mount.height': height for name in names}

    return [*launching.model_nodes(context, 'vjepa_node', value, parameters, remappings(cameras)),
            *launching.viewer(value), *launching.rviz(value, names)]


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the node."""
    return launching.description(launching.PERCEPTION, start)
