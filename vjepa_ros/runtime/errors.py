# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Errors of running a model."""


class SessionError(RuntimeError):
    """The session is closed, out of memory, or computes no usable numbers on this device."""
