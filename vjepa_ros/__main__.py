# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the command line as `python -m vjepa_ros`."""

import sys

from vjepa_ros.cli import main

if __name__ == '__main__':
    sys.exit(main())
