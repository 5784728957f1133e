# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Learn encoders and heads from rendered scenes and from recordings."""
