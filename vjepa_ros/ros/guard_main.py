# SPDX-License-Identifier: Apache-2.0
"""Run the collision_guard node as a process."""

from __future__ import annotations

import gc
import os
import sys

from vjepa_ros.ros.main import WAKE_S, Signals


def main(args: list[str] | None = None) -> None:
    """Run the guard until SIGINT or SIGTERM; exits 0."""
    signals = Signals()
    os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
    try:
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        from vjepa_ros.ros.guard_node import CollisionGuard

        # What the imports made stays for good: a collection must not hold up a stop.
        gc.collect()
        gc.freeze()
        rclpy.init(args=args, signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
        node = CollisionGuard()
    except KeyboardInterrupt:
        sys.exit(0)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition('.')[0].startswith('vjepa_ros'):
            raise
        sys.exit(f"collision_guard needs '{error.name}', which this Python does not have: source "
                 'your ROS 2 (or install its wheels), and install the requirements in the README')
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
