# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The command `vjepa-ros soak`, which attacks running nodes and judges what they do."""
