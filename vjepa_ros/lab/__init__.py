# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What makes and proves the weights: world, training, evaluation, drive. No robot needs it."""
