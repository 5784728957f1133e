# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Start the perception node; `ros2 launch vjepa_ros vjepa.launch.py --show-args` explains it."""

from launch import LaunchContext, LaunchDescription

from vjepa_ros.ros.common import launching
from vjepa_ros.ros.common.launching import RESPAWN, SWITCH
from vjepa_ros.ros.parameter_file import cameras_in

# An empty value leaves what the parameter file says.
ARGUMENTS = (  # name, default, allowed values, description
    ('namespace', '', None, 'Namespace of the node and of its topics'),
    ('params_file', 'default.yaml', None,
     'Parameter file: a path, or the name of a file in the config folder of the package'),
    ('cameras', '', None,
     'Names of the cameras, separated by commas; NAME=TOPIC also says which image topic is read '
     'instead of NAME/image_raw (camera_info is expected beside it); one that ends with '
     '/compressed or /ffmpeg is read as such'),
    ('device', '', None, 'Where the model runs: auto, cpu, cuda, cuda:N or mps'),
    ('model_size', '', None, 'Size of the encoder: tiny, small, base, large, huge, giant...'),
    ('num_frames', '', None, 'Frames in a clip'),
    ('weights', '', None,
     'Checkpoint of the encoder; empty: that of the parameter file, else that of the package'),
    ('heads', '', None, 'Safetensors file with learned heads for these weights'),
    ('allow_random_weights', '', ['', *SWITCH],
     'Run untrained where there are no weights; every output then says so'),
    ('use_sim_time', 'false', SWITCH, 'Take the time from /clock (simulation, ros2 bag --clock)'),
    ('autostart', 'true', SWITCH,
     'Configure and activate at once; false leaves that to a lifecycle manager'),
    ('respawn', 'false', RESPAWN,
     'Start the node again when its process ends; standby: a second process waits to take over'),
    ('enclaves', 'false', SWITCH, 'Give each node the SROS2 enclave of its name'),
    ('view', 'false', SWITCH,
     'Show cameras, maps, levels and states in a browser; needs the package rerun-sdk'),
    ('rviz', 'false', SWITCH, 'Open RViz with the first camera; needs the package rviz2'),
    ('log_level', 'info', ['debug', 'info', 'warn', 'error', 'fatal'], 'Least severity logged'),
)


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
    value = launching.values(context, ARGUMENTS)
    cameras = launching.read_cameras(value['cameras'])

    parameters = launching.model_parameters(value, ('device', 'model_size', 'weights', 'heads'))
    if value['num_frames']:
        if not value['num_frames'].isdecimal():
            raise RuntimeError(f"num_frames is '{value['num_frames']}', must be a whole number")
        parameters['num_frames'] = int(value['num_frames'])
    if cameras:
        parameters['cameras'] = list(cameras)
    for name, topic in cameras.items():
        if transport := launching.image_topic(topic)[1]:
            parameters[f'{name}.transport'] = transport

    return [*launching.model_nodes(context, 'vjepa_node', value, parameters, remappings(cameras)),
            *launching.viewer(value), *launching.rviz(value, cameras or cameras_in(
                launching.parameter_path('params_file', value['params_file']),
                launching.whole_namespace(context, value)))]


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the node."""
    return launching.description(ARGUMENTS, start)
