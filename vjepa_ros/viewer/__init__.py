# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show people what the nodes say: as text, as a table, and in Rerun."""
