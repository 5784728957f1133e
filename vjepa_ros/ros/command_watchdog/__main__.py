# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the watchdog as a process."""

from __future__ import annotations

import sys

from vjepa_ros.ros.common.process import run


def main(args: list[str] | None = None) -> int:
    return run('command_watchdog', 'vjepa_ros.ros.command_watchdog.node:CommandWatchdog', args,
               commands=True)


if __name__ == '__main__':
    sys.exit(main())
