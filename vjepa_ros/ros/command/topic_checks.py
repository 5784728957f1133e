# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Detect wrong connections: other publishers of motion commands, and types that do not match."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from rclpy.node import Node
from rclpy.topic_endpoint_info import TopicEndpointInfo

WATCHDOG = 'command_watchdog'    # sends only zeros, and only while the guard is silent
# How rclpy names the node of an endpoint that DDS has told of, but not yet of its node.
UNNAMED = '_NODE_NAME_UNKNOWN_'
CLOUD = 'sensor_msgs/msg/PointCloud2'
# Nodes that listen to what is sent to a base without being one.
LISTENERS = (WATCHDOG, 'local_planner', 'rosbag2_recorder')
UNNAMED_S = 2.0          # after which an endpoint without a name is no node of ROS


class Endpoint(Protocol):
    """A publisher or subscription of some node."""

    @property
    def node_name(self) -> str:
        """Name of the node."""
        ...

    @property
    def node_namespace(self) -> str:
        """Namespace of the node."""
        ...


class BaseMatch:
    """Tells whether a base, or what drives it, receives what a publisher sends.

    Parameters
    ----------
    node
        The node of the publisher, which may listen itself.
    publisher
        On the topic of the base.
    """

    def __init__(self, node: Node, publisher: Any) -> None:
        self._node, self._publisher = node, publisher
        self._unnamed: dict[bytes, float] = {}      # since when they are known

    def matched(self) -> bool:
        """Return whether it is matched with more than known listeners."""
        found = self._node.get_subscriptions_info_by_topic(self._publisher.topic_name)
        now = time.monotonic()
        self._unnamed = {_id(info): self._unnamed.get(_id(info), now) for info in found
                         if info.node_name == UNNAMED}
        others = [info for info in found if info.node_name in (*LISTENERS, self._node.get_name())
                  or info.node_name.startswith('_ros2cli')
                  or now - self._unnamed.get(_id(info), -UNNAMED_S) < UNNAMED_S]
        return len(others) < min(len(found), self._publisher.get_subscription_count())


def twist_type(stamped: bool) -> str:
    """Return the type of commands."""
    return 'geometry_msgs/msg/' + ('TwistStamped' if stamped else 'Twist')


def topic_problems(node: Node, output: str, wanted: Mapping[str, str],
                   unnamed: set[bytes]) -> list[str]:
    """Return the problems of the topics between controller and base, a sentence each."""
    problems = []
    output = node.resolve_topic_name(output)
    found = node.get_publishers_info_by_topic(output)
    before, now = set(unnamed), {_id(info) for info in found if info.node_name == UNNAMED}
    unnamed.clear()
    unnamed.update(now)
    publishers = [info for info in found
                  if info.node_name != WATCHDOG and _id(info) not in now - before]
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


def _id(endpoint: TopicEndpointInfo) -> bytes:
    return bytes(endpoint.endpoint_gid)


def full_name(endpoint: Endpoint) -> str:
    """Return the full name of the node of an endpoint."""
    return f'{endpoint.node_namespace.rstrip("/")}/{endpoint.node_name}'
