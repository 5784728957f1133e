# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Start the perception node, the guard between controller and base, and a planner if wanted."""

from launch import LaunchContext, LaunchDescription
from launch_ros.actions import Node

from vjepa_ros.ros.common import launching
from vjepa_ros.ros.common.launching import SWITCH, is_on
from vjepa_ros.ros.parameter_file import cameras_in, parameters_in, sources_for

# An empty value leaves what the parameter file says.
ARGUMENTS = (  # name, default, allowed values, description
    ('cmd_vel_in', 'cmd_vel_in', None, 'Topic that the controller publishes on'),
    ('cmd_vel_out', 'cmd_vel', None, 'Topic that the base listens to; nobody else may publish it'),
    ('odom', 'odom', None, 'Topic of the odometry, where the parameter odometry is set'),
    ('message', '', ['', 'twist', 'twist_stamped'], 'Type of the topics of velocities'),
    ('guard_params_file', 'collision_guard.yaml', None,
     'Parameter file of the guard: a path, or the name of a file in the config folder'),
    ('planner', 'false', SWITCH,
     'Put local_planner between controller and guard: it turns and slows before the guard stops, '
     'and drives to goals and along paths'),
    ('planner_params_file', 'local_planner.yaml', None,
     'Parameter file of that planner: a path, or the name of a file in the config folder'),
    ('watchdog', 'false', SWITCH,
     'Start command_watchdog, which stops a base without a timeout of its own when the guard is '
     'killed or hangs'),
    # Guard and planner listen to the cameras that their own parameter files name; with the files
    # of the package to the one of the perception node, which looks forward.
    *((name, 'standby' if name == 'respawn' else default, choices, text)
      for name, default, choices, text in launching.PERCEPTION),
)
HEARTBEAT_S = 0.4                # of a guard that is watched: a beat each 0.1 s
PLANNED = 'cmd_vel_planned'      # what a planner sends to the guard


def start(context: LaunchContext) -> list:
    """Turn the values of the arguments into the nodes."""
    value = launching.values(context, ARGUMENTS)
    parameters: dict[str, bool | str] = {
        name: is_on(value[name]) for name in ('use_sim_time', 'autostart')}
    if value['message']:
        parameters['message'] = value['message']
    watched = is_on(value['watchdog'])
    namespace = launching.whole_namespace(context, value)

    cameras = list(launching.read_cameras(value['cameras'])) or cameras_in(
        launching.parameter_path('params_file', value['params_file']), namespace)

    def node(name: str, argument: str, topics: dict[str, str], **more: float) -> Node:
        file = launching.parameter_path(argument, value[argument])
        sources = sources_for(cameras, name, argument, file,
                              file.parent == launching.config_folder(), namespace)
        return launching.node(
            context, name, value,
            [launching.parameter_file(argument, value[argument]),
             {**parameters, **({'sources': sources} if sources else {}), **more}],
            [(own, topic) for own, topic in topics.items() if topic != own])

    # Controller, planner if wanted, guard, base: nothing goes round the guard.
    begin, end, odom = (value[name] for name in ('cmd_vel_in', 'cmd_vel_out', 'odom'))
    nodes, guarded = [], begin
    if is_on(value['planner']):
        guarded = PLANNED
        nodes.append(node('local_planner', 'planner_params_file', {
            'cmd_vel_in': begin, 'cmd_vel_out': guarded, 'cmd_vel_sent': end, 'odom': odom},
            **({f'{name}.height': launching.number(value, 'mount_height') for name in cameras}
               if value['mount_height'] else {})))
    nodes.append(node('collision_guard', 'guard_params_file', {
        'cmd_vel_in': guarded, 'cmd_vel_out': end, 'odom': odom},
        **({'heartbeat': HEARTBEAT_S, 'watchdog': True} if watched else {})))
    if watched:
        file = launching.parameter_path('guard_params_file', value['guard_params_file'])
        message = parameters_in(file, 'collision_guard', namespace).get('message')
        if message and not value['message']:     # its zeros have to reach the same base
            parameters['message'] = str(message)
        nodes.append(launching.node(
            context, 'command_watchdog', value,
            [{key: kept for key, kept in parameters.items() if key != 'autostart'}],
            [('heartbeat', 'collision_guard/heartbeat'), ('cmd_vel', end)]))
    return [launching.perception(value), *nodes]


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the nodes."""
    return launching.description(ARGUMENTS, start)
