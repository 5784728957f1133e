# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Processes and actors share the GPUs of a machine; no GPU is needed to see it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from vjepa_ros.lab.worker_pool import VISIBLE, run_all


def gpu_of(context: object, seconds: float) -> str:
    """Return the GPU that this process sees, after the others have got work, too."""
    time.sleep(seconds)
    return os.environ.get(VISIBLE, '')


def test_processes_take_the_gpus_in_turn(monkeypatch):
    monkeypatch.delenv(VISIBLE, raising=False)
    seen = run_all([(gpu_of, 2.0)] * 3, 3, object, lambda result: None, ['4', '7'])
    assert set(seen) == {'4', '7'} and VISIBLE not in os.environ


def shown(context: object, file: str) -> None:
    """Write down which process this is, and go on for long."""
    Path(file).write_text(str(os.getpid()))
    time.sleep(300.0)


def test_processes_end_with_the_one_that_started_them(tmp_path):
    files = [tmp_path / 'one', tmp_path / 'other']
    script = tmp_path / 'script.py'
    script.write_text(f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_worker_pool import run_all, shown
if __name__ == '__main__':
    run_all([(shown, name) for name in {[str(file) for file in files]}], 2, object, print)
""")
    main = subprocess.Popen([sys.executable, str(script)])
    try:
        wait_until(lambda: all(file.exists() and file.read_text() for file in files), 60.0)
    finally:
        main.kill()
        main.wait()
    numbers = [int(file.read_text()) for file in files]
    wait_until(lambda: not any(map(runs, numbers)), 20.0)


def runs(number: int) -> bool:
    return (psutil.pid_exists(number)
            and psutil.Process(number).status() != psutil.STATUS_ZOMBIE)


def wait_until(done: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.1)
