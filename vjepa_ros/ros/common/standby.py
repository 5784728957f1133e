# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Let a second process of a node stand by, so that it takes over at once when the first ends.

Most of the time in which a killed node is back goes into the import of PyTorch. A process that
stands by has that behind it; until its turn comes it takes part in nothing.
"""

from __future__ import annotations

import fcntl
import math
import os
import time
from contextlib import suppress

VARIABLE = 'VJEPA_ROS_TURN'      # of the environment: path of a file, the same for both
LOOK_S = 0.1                     # between two looks at the lock
LET_START_S = 10.0               # in which who stands by leaves the cores to who starts


class Turn:
    """The turn to be the node, which one process has until it ends, however it does.

    Parameters
    ----------
    path
        File whose lock says whose turn it is; '': nobody stands by, and it is always ours.
    """

    def __init__(self, path: str) -> None:
        # Never closed: the lock is released by the end of the process.
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600) if path else None

    def wait(self, limit_s: float = math.inf) -> bool:
        """Wait so long for the turn; whether it is ours. A signal whose handler raises ends it."""
        if self._file is None:
            return True
        if math.isinf(limit_s):
            fcntl.flock(self._file, fcntl.LOCK_EX)
            return True
        end_s = time.monotonic() + limit_s
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            if time.monotonic() >= end_s:
                return False
            time.sleep(LOOK_S)
