# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw random scenes: places, bodies, cameras and their motion."""
