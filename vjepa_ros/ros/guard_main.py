# SPDX-License-Identifier: Apache-2.0
"""Run the collision_guard node as a process."""

from __future__ import annotations

from vjepa_ros.ros.main import WAKE_S, start


def main(args: list[str] | None = None) -> None:
    """Run the guard until SIGINT or SIGTERM; exits 0."""
    # Callbacks are short: none is torn apart, the loop sees the signal; the last word is a zero.
    node, signals = start('collision_guard', 'vjepa_ros.ros.guard_node:CollisionGuard', args,
                          lambda node: False)
    import rclpy
    from rclpy.executors import SingleThreadedExecutor

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
