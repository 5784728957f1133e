# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The ROS 2 side: nodes, parameters and message conversion."""
