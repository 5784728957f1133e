# SPDX-License-Identifier: Apache-2.0
"""From features and frames to motion, looming and collision."""
