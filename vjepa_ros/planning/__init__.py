# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Plan motion: towards a goal picture, and around what looming shows."""
