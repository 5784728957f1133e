# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score recordings, from one bag to a fleet's archive, without ROS."""
