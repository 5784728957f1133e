# SPDX-License-Identifier: Apache-2.0
"""Run the twist planner as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vjepa_ros.ros.main import run

if TYPE_CHECKING:        # importing it takes rclpy, which must wait for the signal handlers
    from vjepa_ros.ros.twist_node import TwistPlannerNode


def main(args: list[str] | None = None) -> None:
    """Run `twist_planner` until SIGINT or SIGTERM; exits 0."""
    run('twist_planner', _load, args)


def _load() -> type[TwistPlannerNode]:
    from vjepa_ros.ros.twist_node import TwistPlannerNode

    return TwistPlannerNode


if __name__ == '__main__':
    main()
