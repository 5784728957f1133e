# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the twist planner as a process."""

from __future__ import annotations

from vjepa_ros.ros.common.process import run


def main(args: list[str] | None = None) -> None:
    """Run `twist_planner` until SIGINT or SIGTERM; exits 0."""
    run('twist_planner', 'vjepa_ros.ros.twist_planner.node:TwistPlannerNode', args)


if __name__ == '__main__':
    main()
