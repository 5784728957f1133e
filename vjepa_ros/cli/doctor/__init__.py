# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Say why perception is slow, silent or UNKNOWN on this machine."""
