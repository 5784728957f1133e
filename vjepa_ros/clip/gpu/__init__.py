# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Resize camera images on a GPU, byte for byte as on the host."""
