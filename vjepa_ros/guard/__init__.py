# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Velocity guard without ROS: commands and assessments in, safe commands out."""
