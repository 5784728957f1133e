# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the watchdog as a process."""

import sys

from vjepa_ros.ros.common.process import run


def main() -> int:
    return run('command_watchdog', 'vjepa_ros.ros.command_watchdog.node:CommandWatchdog', None,
               commands=True)


if __name__ == '__main__':
    sys.exit(main())
