# SPDX-License-Identifier: Apache-2.0
"""Errors of running a model."""


class SessionError(RuntimeError):
    """The session is closed, out of memory, or computes no usable numbers on this device."""
