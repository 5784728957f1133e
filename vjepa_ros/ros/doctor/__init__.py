# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Look at a running ROS graph from outside, and say what is wrong with it."""
