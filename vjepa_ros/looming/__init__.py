# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Estimate looming (closing speed over distance) and ego-motion from pairs of frames."""
