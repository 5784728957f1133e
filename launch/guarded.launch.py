# SPDX-License-Identifier: Apache-2.0
"""Start the perception node and the guard between controller and base that listens to it."""

from launch import LaunchContext, LaunchDescription
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import PathJoinSubstitution, ThisLaunchFileDir
from launch_ros.actions import Node

from vjepa_ros.ros import launching
from vjepa_ros.ros.launching import SWITCH, is_on

# An empty value leaves what the parameter file says.
ARGUMENTS = (  # name, default, allowed values, description
    ('cmd_vel_in', 'cmd_vel_in', None, 'Topic that the controller publishes on'),
    ('cmd_vel_out', 'cmd_vel', None, 'Topic that the base listens to; nobody else may publish it'),
    ('odom', 'odom', None, 'Topic of the odometry, where the parameter odometry is set'),
    ('message', '', ['', 'twist', 'twist_stamped'], 'Type of both topics of velocities'),
    ('guard_params_file', 'collision_guard.yaml', None,
     'Parameter file of the guard: a path, or the name of a file in the config folder'),
    ('namespace', '', None, 'Namespace of both nodes and of their topics'),
    ('params_file', 'default.yaml', None, 'Parameter file of the perception node'),
    ('cameras', '', None,
     'Cameras of the perception node, NAME or NAME=TOPIC, separated by commas; the guard listens '
     'to those that its own parameter file names'),
    ('device', '', None, 'Where the model runs: auto, cpu, cuda, cuda:N or mps'),
    ('model_size', '', None, 'Size of the encoder: tiny, small, base, large, huge, giant...'),
    ('weights', '', None,
     'Checkpoint of the encoder; empty: that of the parameter file, else that of the package'),
    ('use_sim_time', 'false', SWITCH, 'Take the time from /clock, both nodes'),
    ('autostart', 'true', SWITCH,
     'Configure and activate both at once; false leaves that to a lifecycle manager'),
    ('respawn', 'true', SWITCH,
     'Start a node again when its process ends; until then the robot stands'),
    ('log_level', 'info', ['debug', 'info', 'warn', 'error', 'fatal'], 'Least severity logged'),
)
FORWARDED = ('namespace', 'params_file', 'cameras', 'device', 'model_size', 'weights',
             'use_sim_time', 'autostart', 'respawn', 'log_level')
RESPAWN_DELAY_S = 0.5


def start(context: LaunchContext) -> list:
    """Turn the values of the arguments into the two nodes."""
    value = launching.values(context, ARGUMENTS)
    parameters = {name: is_on(value[name]) for name in ('use_sim_time', 'autostart')}
    if value['message']:
        parameters['message'] = value['message']
    guard = Node(
        package='vjepa_ros', executable='collision_guard', name='collision_guard',
        namespace=value['namespace'],
        parameters=[launching.parameter_file('guard_params_file', value['guard_params_file']),
                    parameters],
        remappings=[(name, value[name]) for name in ('cmd_vel_in', 'cmd_vel_out', 'odom')
                    if value[name] != name],
        arguments=['--ros-args', '--log-level', value['log_level']],
        respawn=is_on(value['respawn']), respawn_delay=RESPAWN_DELAY_S,
        output='screen', emulate_tty=True)
    perception = IncludeLaunchDescription(
        PythonLaunchDescriptionSource(
            PathJoinSubstitution([ThisLaunchFileDir(), 'vjepa.launch.py'])),
        launch_arguments=[(name, value[name]) for name in FORWARDED])
    return [perception, guard]


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the nodes."""
    return launching.description(ARGUMENTS, start)
