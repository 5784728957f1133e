# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Watch a ROS graph for some seconds without disturbing it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from rcl_interfaces.srv import GetParameters
from rclpy.parameter import parameter_value_to_python
from rclpy.qos import QoSCompatibility, QoSProfile, ReliabilityPolicy, qos_check_compatible
from rclpy.serialization import deserialize_message
from rclpy.utilities import get_rmw_implementation_identifier
from std_msgs.msg import Header

from vjepa_ros.ros import read
from vjepa_ros.ros.doctor import Graph, NodeSeen, PARAMETERS, Topic
from vjepa_ros.ros.listener import Listener

DISCOVERY_S = 8.0        # at most, and until nothing new has come for so long:
STABLE_S = 1.5
ANSWER_S, ASK_TIMES = 1.5, 4      # of services, each time that they are asked
MOST_SAMPLED = 16        # topics: a doctor must not fill the network
IMAGES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage',
          'foxglove_msgs/msg/CompressedVideo', 'ffmpeg_image_transport_msgs/msg/FFMPEGPacket')
OF_ROS = ('/parameter_events', '/rosout', '/clock')
DIAGNOSTICS = '/diagnostics'
BEST_EFFORT = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)


def observe(seconds: float) -> Graph:
    """Look at the graph, and sample for some seconds what nodes of this package read."""
    with Listener('vjepa_doctor') as ros:
        return _Observer(ros).run(seconds)


class _Observer:
    def __init__(self, ros: Listener) -> None:
        self._ros, self._node = ros, ros.node
        self._graph = Graph(0.0, middleware=get_rmw_implementation_identifier())
        self._arrivals: dict[str, list[float]] = {}

    def run(self, seconds: float) -> Graph:
        graph = self._graph
        self._ros.subscribe(DIAGNOSTICS, 'diagnostic_msgs/msg/DiagnosticArray',
                            self._on_diagnostics)
        self._discover()
        graph.topics = {name: self._topic(name, types) for name, types
                        in self._node.get_topic_names_and_types() if name not in OF_ROS[:2]}
        self._ros.spin(DISCOVERY_S, lambda: not self._mute())
        graph.mute = self._mute()
        self._find_nodes()
        begin = time.monotonic()
        for name in self._worth_sampling():
            self._sample(name)
        self._ros.spin(seconds)
        graph.seconds = time.monotonic() - begin
        for name, times in self._arrivals.items():
            span = times[-1] - times[0] if times else 0.0
            graph.topics[name].rate_hz = (len(times) - 1) / span if span > 0 else math.nan
        graph.nodes_total = len(self._names())
        return graph

    def _discover(self) -> None:
        """Wait until the graph is complete; on a busy machine that takes seconds."""
        seen, since = -1, time.monotonic()

        def stable() -> bool:
            nonlocal seen, since
            count = len(self._names()) + len(self._node.get_topic_names_and_types())
            if count != seen:
                seen, since = count, time.monotonic()
            return bool(self._names()) and time.monotonic() - since > STABLE_S

        self._ros.spin(DISCOVERY_S, stable)

    def _names(self) -> dict[str, tuple[str, str]]:
        """Return name and namespace of all nodes but this one, by their full names."""
        return {_full(name, space): (name, space) for name, space
                in self._node.get_node_names_and_namespaces() if name != self._node.get_name()}

    # -- nodes of this package --------------------------------------------------------------

    def _mute(self) -> tuple[str, ...]:
        """Return nodes with topics of this package that have not reported yet."""
        topics, heard = self._graph.topics, {f'/{name}' for name, _ in self._graph.statuses}
        return tuple(name for name in self._graph.publishers(DIAGNOSTICS)
                     if name not in heard and any(
                         topic.startswith(f'{name}/') and topic.endswith(('/assessment', '/state'))
                         for topic in topics))

    def _find_nodes(self) -> None:
        """Find nodes by what they report of themselves, and ask for their parameters."""
        graph = self._graph
        names = self._names()
        for (name, part), _ in sorted(graph.statuses.items()):
            # The watchdog reports the state of the guard, not its own.
            if part in PARAMETERS and f'/{name}' in names and names[f'/{name}'][0] != (
                    'command_watchdog'):
                graph.nodes[f'/{name}'] = NodeSeen(part, self._reads(names[f'/{name}']))
        clients = {name: self._node.create_client(GetParameters, f'{name}/get_parameters')
                   for name in graph.nodes}
        # A server drops its answer to a client that it has not found yet: then it is asked again.
        for _ in range(ASK_TIMES):
            calls = {name: clients[name].call_async(
                         GetParameters.Request(names=PARAMETERS[node.part]))
                     for name, node in graph.nodes.items() if node.parameters is None}
            self._ros.spin(ANSWER_S, lambda calls=calls: all(
                call.done() for call in calls.values()))
            for name in (name for name, call in calls.items() if call.done()):
                answer: Any = calls[name].result()
                graph.nodes[name].parameters = dict(zip(
                    PARAMETERS[graph.nodes[name].part],
                    map(parameter_value_to_python, answer.values), strict=True))

    def _reads(self, place: tuple[str, str]) -> tuple[str, ...]:
        """Return the topics that a node has subscribed to; none when it has just gone."""
        try:
            found = self._node.get_subscriber_names_and_types_by_node(*place)
        except RuntimeError:     # NodeNameNonExistentError, which rclpy keeps to itself
            return ()
        return tuple(topic for topic, _ in found if topic not in OF_ROS)

    # -- topics -----------------------------------------------------------------------------

    def _topic(self, name: str, types: Iterable[str]) -> Topic:
        def others(infos: Iterable[Any]) -> list[Any]:
            return [i for i in infos if i.node_name != self._node.get_name()]

        senders = others(self._node.get_publishers_info_by_topic(name))
        readers = others(self._node.get_subscriptions_info_by_topic(name))
        mismatches = [(_of(sender), _of(reader), why) for sender in senders for reader in readers
                      if (why := _mismatch(sender.qos_profile, reader.qos_profile))]
        return Topic(tuple(types), tuple(sorted(map(_of, senders))),
                     tuple(sorted(map(_of, readers))), tuple(mismatches))

    def _worth_sampling(self) -> list[str]:
        """Return the topics that our nodes read, then images of others."""
        topics, ours = self._graph.topics, {*self._graph.nodes, *self._graph.mute}
        images = {name for name, topic in topics.items()
                  if set(topic.types) & set(IMAGES) and not ours & set(topic.publishers)}
        sent = [name for name in (*sorted(self._graph.read), *sorted(images - self._graph.read))
                if name in topics and topics[name].publishers]
        return sent[:MOST_SAMPLED]

    def _sample(self, name: str) -> None:
        topic = self._graph.topics[name]
        package, _, kind = topic.types[0].partition('/msg/')
        try:
            message = getattr(import_module(f'{package}.msg'), kind)
        except (ImportError, AttributeError):
            return      # its package is not installed here
        stamped = next(iter(message.get_fields_and_field_types()), '') == 'header'
        topic.sampled, self._arrivals[name] = True, []
        # As bytes: an image need not be unpacked to count it.
        self._node.create_subscription(
            message, name, lambda data: self._on_message(name, data, stamped), BEST_EFFORT,
            raw=True)

    def _on_message(self, name: str, data: bytes, stamped: bool) -> None:
        topic = self._graph.topics[name]
        self._arrivals[name].append(time.monotonic())
        topic.count += 1
        if stamped:
            stamp = deserialize_message(data, Header).stamp
            stamp_ns = stamp.sec * 10**9 + stamp.nanosec
            topic.unstamped = stamp_ns == 0
            topic.age_s = (self._node.get_clock().now().nanoseconds - stamp_ns) / 1e9

    def _on_diagnostics(self, _: str, msg: Any) -> None:
        for node, part, got in read.statuses(msg):
            self._graph.statuses[node, part] = got


def _mismatch(offered: QoSProfile, wanted: QoSProfile) -> str:
    verdict, reason = qos_check_compatible(offered, wanted)
    return reason.strip(' ;') if verdict == QoSCompatibility.ERROR else ''


def _of(info: Any) -> str:
    return _full(info.node_name, info.node_namespace)


def _full(name: str, space: str) -> str:
    return f'{space.rstrip("/")}/{name}'
