# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the collision guard as a process."""

from __future__ import annotations

import sys

from vjepa_ros.ros.common.process import run


def main(args: list[str] | None = None) -> int:
    return run('collision_guard', 'vjepa_ros.ros.collision_guard.node:CollisionGuard', args,
               commands=True)


if __name__ == '__main__':
    sys.exit(main())
