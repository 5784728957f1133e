# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Never wait for who reads the output of a process: a full pipe, or a terminal held by Ctrl-S.

The logger of ROS writes while no other thread of Python can run, so that all of a node would wait.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import select
import stat
import sys
from collections.abc import Iterable


def unblock_output(numbers: Iterable[int]) -> None:
    """Let writing to these file descriptors fail at once rather than wait.

    What cannot be written is lost, see `lost_output`. Files need nothing. A pipe or terminal is
    opened anew, because who shares it is not to be changed.
    """
    if sys.platform != 'linux':
        return
    for number in numbers:
        try:
            mode = os.fstat(number).st_mode
        except OSError:                      # closed
            continue
        if stat.S_ISREG(mode):
            continue
        try:
            anew = os.open(f'/proc/self/fd/{number}', os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:                      # a socket, or of another user, as after sudo -u
            os.set_blocking(number, False)
            if os.isatty(number):
                atexit.register(os.set_blocking, number, True)
        else:
            os.dup2(anew, number)
            os.close(anew)


def lost_output() -> bool:
    """Return whether the C library has failed to write to stderr, once that is possible again."""
    if sys.platform != 'linux' or not _C.ferror(_STDERR) or not select.select(
            [], [2], [], 0)[1]:
        return False
    _C.clearerr(_STDERR)
    return True


if sys.platform == 'linux':
    _C = ctypes.CDLL(None)
    _STDERR = ctypes.c_void_p.in_dll(_C, 'stderr')
