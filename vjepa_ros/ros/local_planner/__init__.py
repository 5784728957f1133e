# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The lifecycle node `local_planner`: the safest twist near a command, or to a goal."""
