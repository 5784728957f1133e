# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the local planner as a process."""

import sys

from vjepa_ros.ros.common.process import run


def main() -> int:
    return run('local_planner', 'vjepa_ros.ros.local_planner.node:LocalPlannerNode', None)


if __name__ == '__main__':
    sys.exit(main())
