# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Log without waiting for who reads: a pipe may be full, a terminal held by Ctrl-S.

The logger of ROS writes while no other thread of Python can run, so that all of a node would wait.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import select
import stat
import sys

STREAM = 'stdout' if os.environ.get('RCUTILS_LOGGING_USE_STDOUT') == '1' else 'stderr'
NUMBER = {'stdout': 1, 'stderr': 2}[STREAM]


def unblock_log() -> None:
    """Let writing to the log of this process fail at once rather than wait.

    What cannot be written is lost, see `lost_output`. Files need nothing. A pipe or terminal is
    opened anew, because who shares it is not to be changed.
    """
    if sys.platform != 'linux':
        return
    try:
        mode = os.fstat(NUMBER).st_mode
    except OSError:                          # closed
        return
    if stat.S_ISREG(mode):
        return
    try:
        anew = os.open(f'/proc/self/fd/{NUMBER}', os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:                          # a socket, or of another user, as after sudo -u
        os.set_blocking(NUMBER, False)
        if os.isatty(NUMBER):
            atexit.register(os.set_blocking, NUMBER, True)
    else:
        os.dup2(anew, NUMBER)
        os.close(anew)


def lost_output() -> bool:
    """Return whether the C library has failed to write the log, once that is possible again."""
    if sys.platform != 'linux' or not _C.ferror(_FILE):
        return False
    reader = select.poll()
    reader.register(NUMBER, select.POLLOUT)
    if [event for _, event in reader.poll(0)] != [select.POLLOUT]:     # full, or nobody is there
        return False
    _C.clearerr(_FILE)
    return True


if sys.platform == 'linux':
    _C = ctypes.CDLL(None)
    _FILE = ctypes.c_void_p.in_dll(_C, STREAM)
