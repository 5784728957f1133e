# SPDX-License-Identifier: Apache-2.0
"""Run the collision_guard node as a process."""

from __future__ import annotations

import os

from vjepa_ros.ros.main import WAKE_S, Signals, settle, starting


def main(args: list[str] | None = None) -> None:
    """Run the guard until SIGINT or SIGTERM; exits 0."""
    signals = Signals()
    os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
    with starting('collision_guard'):
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        from vjepa_ros.ros.guard_node import CollisionGuard

        settle()
        rclpy.init(args=args, signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
        node = CollisionGuard()
    # Callbacks are short: none is torn apart, the loop sees the signal; the last word is a zero.
    signals.may_interrupt = lambda: False
    executor = SingleThreadedExecutor()
    executor.add_node(node)
    try:
        while not signals.received:
            executor.spin_once(timeout_sec=WAKE_S)
    finally:                      # also when a callback fails
        executor.shutdown(timeout_sec=0.1)
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
