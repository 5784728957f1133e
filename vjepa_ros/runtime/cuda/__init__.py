# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run passes on CUDA: streams, graphs, frame upload, prewarming."""
