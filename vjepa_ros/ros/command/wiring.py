# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Notice wrong wiring: who else drives the robot, and types that do not fit."""

from __future__ import annotations

from collections.abc import Mapping

from rclpy.node import Node

CLOUD = 'sensor_msgs/msg/PointCloud2'


def twist_type(stamped: bool) -> str:
    """The type of commands."""
    return 'geometry_msgs/msg/' + ('TwistStamped' if stamped else 'Twist')


def wiring_problems(node: Node, output: str, wanted: Mapping[str, str]) -> list[str]:
    """What is wrong with the topics of a node between controller and base, one sentence each.

    Parameters
    ----------
    node
        The node.
    output
        Its output topic. Another publisher there, a second node of this kind or a controller,
        goes round it.
    wanted
        Topics it listens to and publishes on, with the type it expects.
    """
    problems = []
    output = node.resolve_topic_name(output)
    publishers = node.get_publishers_info_by_topic(output)
    if len(publishers) > 1:
        names = sorted(full_name(info) for info in publishers)
        own = node.get_fully_qualified_name()
        if own in names:
            names.remove(own)
        problems.append(f'{", ".join(names)} also publishes on {output}, past this node: the '
                        'robot is driven by both; let one node alone publish there')
    for name, kind in wanted.items():
        topic = node.resolve_topic_name(name)
        others = {info.topic_type for info in (*node.get_publishers_info_by_topic(topic),
                                               *node.get_subscriptions_info_by_topic(topic))}
        remedy = "set parameter 'message'" if kind != CLOUD else 'remap one of them'
        for other in sorted(others - {kind}):
            problems.append(f'{topic} has an endpoint of type {other}, this node uses {kind}: '
                            f'nothing passes between them; {remedy}')
    return problems


def full_name(info: object) -> str:
    """Name of the node that an endpoint belongs to."""
    return f'{info.node_namespace.rstrip("/")}/{info.node_name}'
