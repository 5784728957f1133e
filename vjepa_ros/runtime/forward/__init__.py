# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Ways to run the forward pass: reference, CPU, kernels, narrow formats."""
