# SPDX-License-Identifier: Apache-2.0
"""Run the action planner as a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vjepa_ros.ros.main import run

if TYPE_CHECKING:        # importing it takes rclpy, which must wait for the signal handlers
    from vjepa_ros.ros.planner_node import PlannerNode


def main(args: list[str] | None = None) -> None:
    """Run `action_planner` until SIGINT or SIGTERM; exits 0."""
    run('action_planner', _load, args)


def _load() -> type[PlannerNode]:
    from vjepa_ros.ros.planner_node import PlannerNode

    return PlannerNode


if __name__ == '__main__':
    main()
