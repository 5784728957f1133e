# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Serve a node until a signal comes, whatever its callbacks do."""

from __future__ import annotations

import traceback

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor

from vjepa_ros.ros.common.lifecycle_node import ManagedNode
from vjepa_ros.ros.common.process import WAKE_S, Signals

LOG_EVERY_S = 2.0        # at most one error is logged in this time


def spin_until(node: ManagedNode, signals: Signals) -> bool:
    """Serve a node until a signal, then release everything; False when a thread is left over."""
    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)
    try:
        while not signals.received and node.context.ok():
            _serve_once(executor, node)
    except KeyboardInterrupt:
        node.get_logger().info('interrupted while configuring')
    executor.shutdown(timeout_sec=0.1)
    node.destroy_node()
    rclpy.try_shutdown(context=node.context)
    return node.ended


def _serve_once(executor: SingleThreadedExecutor, node: ManagedNode) -> None:
    try:
        executor.spin_once(timeout_sec=WAKE_S)
    except ExternalShutdownException:
        return   # the context is gone, and the loop ends
    except Exception as error:
        # One callback must not take the robot's eyes: rclpy would end the process here.
        _tell(node, node.note_failed_callback(error))
        try:
            node.on_failed_callback()
        except Exception as another:
            _tell(node, f'what follows from a failed callback failed, too: {another}')


def _tell(node: ManagedNode, text: str) -> None:
    node.get_logger().error(f'{text}\n{traceback.format_exc()}',
                            throttle_duration_sec=LOG_EVERY_S)
