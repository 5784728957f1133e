# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Nodes that stand in for hardware: cameras and a robot."""
