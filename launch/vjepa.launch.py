# SPDX-License-Identifier: Apache-2.0
"""Start the perception node; `ros2 launch vjepa_ros vjepa.launch.py --show-args` explains it."""

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
    ('params_file', 'default.yaml', None,
     'Parameter file: a path, or the name of a file in the config folder of the package'),
    ('cameras', '', None,
     'Names of the cameras, separated by commas; NAME=TOPIC also says which image topic is read '
     'instead of NAME/image_raw (camera_info is expected beside it)'),
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
    ('respawn', 'false', SWITCH, 'Start the node again when its process ends'),
    ('log_level', 'info', ['debug', 'info', 'warn', 'error', 'fatal'], 'Least severity logged'),
)
RESPAWN_DELAY_S = 2.0
# Frames of several hundred kilobytes come and go at camera rate. By default glibc maps and unmaps
# fresh pages for each, and the datagrams of Fast DDS are too small for its fragments to arrive.
# Idle threads of NumPy's matrix library would spin on the cores that the encoder needs; threads of
# PyTorch that wait for each other would do so for milliseconds.
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
    known = ', '.join(sorted(p.name for p in config.glob('*.yaml')))
    raise RuntimeError(f"params_file is '{name}', which is neither a file nor one of: {known}")


def read_cameras(text: str) -> dict:
    """Read `front,rear=/robot/rear/image_raw` into names and topics ('' = the usual one)."""
    cameras = {}
    for item in text.strip('[] ').split(','):
        name, _, topic = (part.strip(' \'"') for part in item.partition('='))
        if not name or name in cameras:
            raise RuntimeError(
                f"cameras is '{text}', must be names separated by commas, each once")
        cameras[name] = topic
    return cameras


def remappings(cameras: dict) -> list:
    """List the remappings that lead each camera to its image topic."""
    pairs = []
    for name, topic in cameras.items():
        if topic:
            folder, slash, _ = topic.rpartition('/')
            pairs += [(f'{name}/image_raw', topic),
                      (f'{name}/camera_info', f'{folder}{slash}camera_info')]
    return pairs


def start(context: LaunchContext) -> list:
    """Turn the values of the arguments into the node."""
    value = {name: LaunchConfiguration(name).perform(context) for name, *_ in ARGUMENTS}
    on = {name: value[name].lower() == 'true' for name in
          ('use_sim_time', 'autostart', 'respawn', 'allow_random_weights')}
    cameras = read_cameras(value['cameras']) if value['cameras'] else {}

    parameters = {name: on[name] for name in ('use_sim_time', 'autostart')}
    if value['allow_random_weights']:
        parameters['allow_random_weights'] = on['allow_random_weights']
    for name in ('device', 'model_size', 'weights', 'heads'):
        if value[name]:
            parameters[name] = ParameterValue(value[name], value_type=str)
    if value['num_frames']:
        if not value['num_frames'].isdecimal():
            raise RuntimeError(f"num_frames is '{value['num_frames']}', must be a whole number")
        parameters['num_frames'] = int(value['num_frames'])
    if cameras:
        parameters['cameras'] = list(cameras)

    return [Node(
        package='vjepa_ros', executable='vjepa_node', name='vjepa_node',
        namespace=value['namespace'],
        parameters=[ParameterFile(str(parameter_file(value['params_file'])), allow_substs=True),
                    parameters],
        remappings=remappings(cameras),
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
