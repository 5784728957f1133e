# SPDX-License-Identifier: Apache-2.0
"""Run the action planner as a process: signals, executor, orderly end."""

from __future__ import annotations

import os
import sys

from vjepa_ros.ros.main import Signals


def main(args: list[str] | None = None) -> None:
    """Run the node until SIGINT or SIGTERM; exits 0."""
    signals = Signals()
    # Idle threads of NumPy's matrix library spin on the cores that the model needs.
    os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
    os.environ.setdefault('GOMP_SPINCOUNT', '300')
    try:
        # Imported here because PyTorch takes seconds, in which Ctrl-C must work too.
        import rclpy
        import rclpy.signals

        from vjepa_ros.ros.planner_node import PlannerNode
        from vjepa_ros.ros.service import spin_until

        rclpy.init(args=args, signal_handler_options=rclpy.signals.SignalHandlerOptions.NO)
        node = PlannerNode()
        # Loading a model can take longer than anybody wants to wait after Ctrl-C; any other
        # callback is short and must not be torn apart.
        signals.may_interrupt = lambda: node.state == 'configuring'
    except KeyboardInterrupt:
        sys.exit(0)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition('.')[0].startswith('vjepa_ros'):
            raise
        sys.exit(f"action_planner needs '{error.name}', which this Python does not have: source "
                 'your ROS 2 (or install its wheels), and install the requirements in the README')
    if not spin_until(node, signals):
        os._exit(0)   # a thread is still inside the model; the interpreter must not wait for it


if __name__ == '__main__':
    main()
