# SPDX-License-Identifier: Apache-2.0
"""Notice wrong wiring: who else drives the robot, and types that do not fit."""

from __future__ import annotations

from collections.abc import Mapping

from rclpy.node import Node


def wiring_problems(node: Node, output: str, wanted: Mapping[str, str]) -> list[str]:
    """What is wrong with the topics of a guard, one sentence each.

    Parameters
    ----------
    node
        The guard.
    output
        Its resolved output topic. Another publisher there, a second guard or a controller, goes
        round the guard.
    wanted
        Resolved topics it listens to and publishes on, with the type it expects.
    """
    problems = []
    publishers = node.get_publishers_info_by_topic(output)
    if len(publishers) > 1:
        names = sorted(_full_name(info) for info in publishers)
        own = node.get_fully_qualified_name()
        if own in names:
            names.remove(own)
        problems.append(f'{", ".join(names)} also publishes on {output}: the robot is not guarded '
                        'against it; let one node alone publish there')
    for topic, kind in wanted.items():
        others = {info.topic_type for info in (*node.get_publishers_info_by_topic(topic),
                                               *node.get_subscriptions_info_by_topic(topic))}
        for other in sorted(others - {kind}):
            problems.append(f'{topic} has an endpoint of type {other}, the guard uses {kind}: '
                            "nothing passes between them (parameter 'message')")
    return problems


def _full_name(info: object) -> str:
    return f'{info.node_namespace.rstrip("/")}/{info.node_name}'
