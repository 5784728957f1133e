# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the perception node as a process."""

from __future__ import annotations

import sys

from vjepa_ros.ros.common.process import run


def main(args: list[str] | None = None) -> int:
    """Run `vjepa_node` until SIGINT or SIGTERM; the exit code of the process."""
    return run('vjepa_node', 'vjepa_ros.ros.perception_node.node:VjepaNode', args)


if __name__ == '__main__':
    sys.exit(main())
