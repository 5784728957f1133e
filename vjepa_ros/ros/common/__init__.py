# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the nodes share: lifecycle, process, parameters, messages, tf."""
