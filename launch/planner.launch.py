# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Start the action planner; `ros2 launch vjepa_ros planner.launch.py --show-args` explains it."""

from launch import LaunchContext, LaunchDescription

from vjepa_ros.ros.command.launch_sources import parameters_in
from vjepa_ros.ros.common import launching
from vjepa_ros.ros.common.launching import RESPAWN, SWITCH

# An empty value leaves what the parameter file says.
ARGUMENTS = (  # name, default, allowed values, description
    ('namespace', '', None, 'Namespace of the node and of its topics'),
    ('params_file', 'action_planner.yaml', None,
     'Parameter file: a path, or the name of a file in the config folder of the package'),
    ('image', '', None, 'Image topic that is read instead of CAMERA/image_raw (camera_info is '
     'expected beside it); one that ends with /compressed or /ffmpeg is read as such'),
    ('goal', '', None, 'Image topic with the goal, instead of goal/image_raw'),
    ('state', '', None, 'PoseStamped topic with the state, instead of state'),
    ('device', '', None, 'Where the model runs: auto, cpu, cuda, cuda:N or mps'),
    ('odom', '', None, 'Odometry topic with the speed of a base, instead of odom'),
    ('weights', '', None, 'Checkpoint of V-JEPA 2-AC, with encoder and predictor; empty: the '
     'bundled model, for a base'),
    ('action_space', '', ['', 'auto', 'arm', 'twist'],
     'What is searched: steps of an arm, or velocities'),
    ('plan_rate', '', None, 'Plans per second while there is a goal; 0: only when asked for'),
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
    ('rviz', 'false', SWITCH, 'Open RViz with the next pose of an arm; needs the package rviz2'),
    ('log_level', 'info', ['debug', 'info', 'warn', 'error', 'fatal'], 'Least severity logged'),
)


def start(context: LaunchContext) -> list:
    """Turn the values of the arguments into the node."""
    value = launching.values(context, ARGUMENTS)
    parameters = launching.model_parameters(value, ('device', 'weights', 'action_space'))
    if value['plan_rate']:
        parameters['plan_rate'] = float(value['plan_rate'])
    file = launching.parameter_path('params_file', value['params_file'])
    camera = parameters_in(file, 'action_planner', launching.whole_namespace(
        context, value)).get('camera', 'camera')
    topics = {'image': f'{camera}/image_raw', 'goal': 'goal/image_raw', 'state': 'state',
              'odom': 'odom'}
    remappings = [(topic, launching.image_topic(value[name])[0])
                  for name, topic in topics.items() if value[name]]
    if value['image']:
        folder, slash, _ = launching.image_topic(value['image'])[0].rpartition('/')
        remappings.append((f'{camera}/camera_info', f'{folder}{slash}camera_info'))
    if transport := launching.image_topic(value['image'])[1]:
        parameters['transport'] = transport

    return [*launching.model_nodes(context, 'action_planner', value, parameters, remappings),
            *launching.viewer(value), *launching.rviz(value, [camera])]


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the node."""
    return launching.description(ARGUMENTS, start)
