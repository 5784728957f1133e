# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Work that kills its process, for the test of those that run it; imports little."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from vjepa_ros.fleet import recordings


def killer() -> Callable:
    """Work that kills its process: at 'always' ever, at a file the first time."""
    def work(task: str) -> str:
        if task == 'hangs':
            recordings.READ_S = 1
            with recordings.reading():
                time.sleep(60.0)
        if task == 'bad':
            raise ValueError('bad task')
        if task == 'always' or (task.startswith('/') and not Path(task).exists()):
            Path(task).touch() if task != 'always' else None
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
        return task.upper()
    return work


def unfit() -> Callable:
    raise ValueError('no such weights')
