# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Networks and weights of the V-JEPA 2 family."""
