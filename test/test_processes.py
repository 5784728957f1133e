# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Child processes: private, watched, and never left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from vjepa_ros.ros.common.processes import Children, ProcessFailed


def write_module(folder, name, text):
    (folder / f'{name}.py').write_text(text)
    return {**os.environ, 'PYTHONPATH': str(folder), 'PYTHONUNBUFFERED': '1'}


def test_a_child_that_ends_too_early_is_an_error_with_the_end_of_its_log(tmp_path):
    env = write_module(tmp_path, 'breaks', "print('first'); raise SystemExit('disk on fire')")
    write_module(tmp_path, 'leaves', 'pass')
    with Children(env, tmp_path) as children:
        children.start('camera', 'leaves', []).wait(60.0)
        children.check(may_end=('camera',))
        with pytest.raises(ProcessFailed, match='exit code 0'):
            children.check()
        children.start('node', 'breaks', []).wait(60.0)
        with pytest.raises(ProcessFailed, match=r'(?s)node process ended with exit code 1.*first.*'
                                                r'disk on fire'):
            children.check(may_end=('node', 'camera'))


def test_nothing_is_left_of_children_that_ignore_signals_nor_of_their_children(tmp_path):
    env = write_module(tmp_path, 'stubborn', (
        'import signal, subprocess, sys, time\n'
        'signal.signal(signal.SIGINT, signal.SIG_IGN)\n'
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        'print(child.pid)\n'
        'time.sleep(600)\n'))
    lines = []
    with Children(env, tmp_path) as children:
        child = children.start('node', 'stubborn', [], on_line=lines.append)
        end = time.monotonic() + 60
        while not lines and time.monotonic() < end:
            time.sleep(0.02)
        children.stop(timeout_s=0.3)
        assert child.returncode == -9
    assert is_gone(int(lines[0]))


def is_gone(pid, timeout_s=60.0):
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        stat = Path(f'/proc/{pid}/stat')
        if not stat.exists() or stat.read_text().rsplit(')', 1)[1].split()[0] == 'Z':
            return True
        time.sleep(0.02)
    return False
