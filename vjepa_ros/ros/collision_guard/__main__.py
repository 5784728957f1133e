# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the collision guard as a process."""

import sys

from vjepa_ros.ros.common.process import run


def main() -> int:
    return run('collision_guard', 'vjepa_ros.ros.collision_guard.node:CollisionGuard', None,
               commands=True)


if __name__ == '__main__':
    sys.exit(main())
