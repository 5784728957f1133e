# SPDX-License-Identifier: Apache-2.0
"""The ROS 2 side: nodes, parameters and message conversion."""
