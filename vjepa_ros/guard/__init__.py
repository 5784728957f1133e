# SPDX-License-Identifier: Apache-2.0
"""Velocity guard without ROS: commands and assessments in, safe commands out."""
