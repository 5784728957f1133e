# SPDX-License-Identifier: Apache-2.0
"""Start the action planner; `ros2 launch vjepa_ros planner.launch.py --show-args` explains it."""

import os
from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from launch import LaunchContext, LaunchDescription
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import Node
from launch_ros.parameter_descriptions import ParameterFile, ParameterValue

SWITCH = ['true', 'false', 'True', 'False']
# An empty value leaves what the parameter file says.
ARGUMENTS = (  # name, default, allowed values, description
    ('namespace', '', None, 'Namespace of the node and of its topics'),
    ('params_file', 'action_planner.yaml', None,
     'Parameter file: a path, or the name of a file in the config folder of the package'),
    ('image', '', None, 'Image topic that is read instead of CAMERA/image_raw'),
    ('goal', '', None, 'Image topic with the goal, instead of goal/image_raw'),
    ('state', '', None, 'PoseStamped topic with the state, instead of state'),
    ('device', '', None, 'Where the model runs: auto, cpu, cuda, cuda:N or mps'),
    ('weights', '', None, 'Checkpoint of V-JEPA 2-AC, with encoder and predictor'),
    ('action_space', '', ['', 'arm', 'twist'], 'What is searched: steps of an arm, or velocities'),
    ('allow_random_weights', '', ['', *SWITCH],
     'Run untrained where there are no weights; every output then says so'),
    ('use_sim_time', 'false', SWITCH, 'Take the time from /clock (simulation, ros2 bag --clock)'),
    ('autostart', 'true', SWITCH,
     'Configure and activate at once; false leaves that to a lifecycle manager'),
    ('respawn', 'false', SWITCH, 'Start the node again when its process ends'),
    ('log_level', 'info', ['debug', 'info', 'warn', 'error', 'fatal'], 'Least severity logged'),
)
RESPAWN_DELAY_S = 2.0
# As in vjepa.launch.py, where the reasons are.
ENVIRONMENT = {
    'OPENBLAS_NUM_THREADS': '1',
    'GOMP_SPINCOUNT': '300',
    'MALLOC_MMAP_THRESHOLD_': str(32 << 20),
    'MALLOC_TRIM_THRESHOLD_': str(128 << 20),
    'FASTDDS_BUILTIN_TRANSPORTS': 'DEFAULT?max_msg_size=64KB&sockets_size=4MB',
}


def parameter_file(name: str) -> Path:
    """Find a parameter file by path or by its name in the package."""
    config = Path(get_package_share_directory('vjepa_ros')) / 'config'
    for path in (Path(name).expanduser(), config / name):
        if path.is_file():
            return path
    raise RuntimeError(f"params_file is '{name}', which is neither a file nor one in the package")


def start(context: LaunchContext) -> list:
    """Turn the values of the arguments into the node."""
    value = {name: LaunchConfiguration(name).perform(context) for name, *_ in ARGUMENTS}
    on = {name: value[name].lower() == 'true' for name in
          ('use_sim_time', 'autostart', 'respawn', 'allow_random_weights')}
    parameters = {name: on[name] for name in ('use_sim_time', 'autostart')}
    if value['allow_random_weights']:
        parameters['allow_random_weights'] = on['allow_random_weights']
    for name in ('device', 'weights', 'action_space'):
        if value[name]:
            parameters[name] = ParameterValue(value[name], value_type=str)
    topics = {'image': 'camera/image_raw', 'goal': 'goal/image_raw', 'state': 'state'}
    remappings = [(topic, value[name]) for name, topic in topics.items() if value[name]]

    return [Node(
        package='vjepa_ros', executable='action_planner', name='action_planner',
        namespace=value['namespace'],
        parameters=[ParameterFile(str(parameter_file(value['params_file'])), allow_substs=True),
                    parameters],
        remappings=remappings,
        arguments=['--ros-args', '--log-level', value['log_level']],
        additional_env={k: v for k, v in ENVIRONMENT.items() if k not in os.environ},
        respawn=on['respawn'], respawn_delay=RESPAWN_DELAY_S,
        output='screen', emulate_tty=True)]


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the node."""
    return LaunchDescription([
        *(DeclareLaunchArgument(name, default_value=default, description=text, choices=choices)
          for name, default, choices, text in ARGUMENTS),
        OpaqueFunction(function=start)])
