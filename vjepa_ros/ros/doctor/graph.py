# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Watch a ROS graph for some seconds without disturbing it."""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import GetParameters, ListParameters
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import parameter_value_to_python
from rclpy.qos import QoSCompatibility, QoSProfile, ReliabilityPolicy, qos_check_compatible
from rclpy.signals import SignalHandlerOptions
from rclpy.utilities import get_rmw_implementation_identifier

from vjepa_ros.ros.doctor.rules import Graph, KINDS, NodeSeen, PARAMETERS, Status, Topic

DISCOVERY_S = 8.0        # at most, and until nothing new has come for so long:
STABLE_S = 1.5
ANSWER_S, ASK_TIMES = 1.5, 4      # of services, each time that they are asked
MOST_SAMPLED = 16        # topics: a doctor must not fill the network
IMAGES = ('sensor_msgs/msg/Image', 'sensor_msgs/msg/CompressedImage',
          'foxglove_msgs/msg/CompressedVideo', 'ffmpeg_image_transport_msgs/msg/FFMPEGPacket')
OF_ROS = ('/parameter_events', '/rosout', '/clock')
DIAGNOSTICS = '/diagnostics'


def observe(seconds: float, context: Any = None) -> Graph:
    """Look at the graph, and sample for some seconds what nodes of this package read."""
    own = context is None
    context = context or rclpy.Context()
    if own:
        rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = rclpy.create_node('vjepa_doctor', context=context, enable_rosout=False,
                             start_parameter_services=False)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    try:
        return _Observer(node, executor).run(seconds)
    finally:
        executor.shutdown(timeout_sec=2.0)
        node.destroy_node()
        if own:
            rclpy.try_shutdown(context=context)


class _Observer:
    def __init__(self, node: Node, executor: Any) -> None:
        self._node, self._executor = node, executor
        self._graph = Graph(0.0, middleware=get_rmw_implementation_identifier())
        self._arrivals: dict[str, list[float]] = {}
        self._keep: list[Any] = []

    def run(self, seconds: float) -> Graph:
        graph = self._graph
        best = QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT)
        self._keep.append(self._node.create_subscription(
            DiagnosticArray, DIAGNOSTICS, self._on_diagnostics, best))
        self._discover()
        graph.nodes = self._find_nodes()
        graph.topics = {name: self._topic(name, types) for name, types
                        in self._node.get_topic_names_and_types() if name not in OF_ROS[:2]}
        begin = time.monotonic()
        for name in self._worth_sampling():
            self._sample(name)
        self._spin(seconds)
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

        self._spin(DISCOVERY_S, stable)

    def _spin(self, seconds: float, done: Callable[[], bool] = lambda: False) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not done():
            self._executor.spin_once(timeout_sec=0.05)

    def _names(self) -> list[tuple[str, str]]:
        """Return name and namespace of all nodes but this one."""
        return sorted({(name, space) for name, space in self._node.get_node_names_and_namespaces()
                       if name != self._node.get_name()})

    # -- nodes of this package --------------------------------------------------------------

    def _find_nodes(self) -> dict[str, NodeSeen]:
        places = {_full(name, space): (name, space) for name, space in self._names()}
        asked = {full: place for full, place in places.items() if DIAGNOSTICS in self._ends(
            self._node.get_publisher_names_and_types_by_node, place)}
        listed = self._ask(ListParameters, 'list_parameters',
                           dict.fromkeys(asked, ListParameters.Request()))
        self._graph.mute = tuple(sorted(set(asked) - set(listed)))
        found: dict[str, NodeSeen] = {}
        names: dict[str, list[str]] = {}
        for full, answer in listed.items():
            has = set(answer.result.names)
            for kind, mark in KINDS.items():
                if mark in has:
                    names[full] = sorted(has & PARAMETERS)
                    reads = self._ends(self._node.get_subscriber_names_and_types_by_node,
                                       asked[full])
                    found[full] = NodeSeen(kind, {}, tuple(
                        topic for topic in reads if topic not in OF_ROS))
        values = self._ask(GetParameters, 'get_parameters', {
            full: GetParameters.Request(names=names[full]) for full in found})
        for full, answer in values.items():
            found[full].parameters = dict(zip(names[full], map(
                parameter_value_to_python, answer.values), strict=True))
        states = self._ask(GetState, 'get_state', dict.fromkeys(found, GetState.Request()))
        for full, answer in states.items():
            found[full].state = answer.current_state.label
        return found

    def _ends(self, ask: Callable[[str, str], Iterable[tuple[str, Any]]],
              place: tuple[str, str]) -> list[str]:
        """Return the topics of the endpoints of a node; none when it has just gone."""
        try:
            return [topic for topic, _ in ask(*place)]
        except RuntimeError:     # NodeNameNonExistentError, which rclpy keeps to itself
            return []

    def _ask(self, kind: Any, service: str, requests: Mapping[str, Any]) -> dict[str, Any]:
        """Call a service of nodes, and return the answers that came in time, by node."""
        clients = {key: self._node.create_client(kind, f'{key}/{service}') for key in requests}
        answers: dict[str, Any] = {}
        # A server drops its answer to a client that it has not found yet: then it is asked again.
        for _ in range(ASK_TIMES):
            calls = {key: client.call_async(requests[key]) for key, client in clients.items()
                     if key not in answers and client.service_is_ready()}
            complete = len(calls) + len(answers) == len(requests)
            self._spin(ANSWER_S, lambda calls=calls, complete=complete: complete and all(
                call.done() for call in calls.values()))
            answers |= {key: call.result() for key, call in calls.items() if call.done()}
            if len(answers) == len(requests):
                break
        for client in clients.values():
            self._node.destroy_client(client)
        return answers

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
        read = self._graph.read
        images = {name for name, topic in topics.items()
                  if set(topic.types) & set(IMAGES) and not ours & set(topic.publishers)}
        sent = [name for name in (*sorted(read), *sorted(images - read))
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
        profile = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
        # As bytes: an image need not be unpacked to count it.
        self._keep.append(self._node.create_subscription(
            message, name, lambda data: self._on_message(name, data, stamped), profile,
            raw=True))

    def _on_message(self, name: str, data: bytes, stamped: bool) -> None:
        topic = self._graph.topics[name]
        self._arrivals[name].append(time.monotonic())
        topic.count += 1
        topic.size = len(data)
        if stamped and len(data) >= 12:
            # CDR: four bytes, of which the second tells the order, then the header.
            seconds, nanoseconds = struct.unpack_from('<iI' if data[1] & 1 else '>iI', data, 4)
            topic.unstamped = seconds == nanoseconds == 0
            now = self._node.get_clock().now().nanoseconds
            topic.age_s = (now - seconds * 10**9 - nanoseconds) / 1e9

    def _on_diagnostics(self, msg: DiagnosticArray) -> None:
        for each in msg.status:
            level = each.level[0] if isinstance(each.level, bytes) else int(each.level)
            self._graph.diagnostics[each.name] = Status(
                level, each.message, {pair.key: pair.value for pair in each.values})


def _mismatch(offered: QoSProfile, wanted: QoSProfile) -> str:
    verdict, reason = qos_check_compatible(offered, wanted)
    return reason.strip(' ;') if verdict == QoSCompatibility.ERROR else ''


def _of(info: Any) -> str:
    return _full(info.node_name, info.node_namespace)


def _full(name: str, space: str) -> str:
    return f'{space.rstrip("/")}/{name}'
