# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The demo for real: camera and node over DDS, their report, and how it ends when one breaks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import cv2
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.ros, pytest.mark.timeout(900)]
pytest.importorskip('rclpy')
psutil = pytest.importorskip('psutil')
pytest.importorskip('rosbags')

ROOT = Path(__file__).resolve().parents[1]


def start_demo(out, *words):
    """The demo as a process, with everything it writes in ``out``'s neighbour ``log``."""
    env = {**os.environ, 'PYTHONUNBUFFERED': '1', 'PYTHONPATH': os.pathsep.join(
        p for p in (str(ROOT), os.environ.get('PYTHONPATH', '')) if p)}
    # As from a shell: a runner in the background may have SIGINT ignored.
    return subprocess.Popen(
        [sys.executable, '-m', 'vjepa_ros', 'demo', '--out', str(out), '--device', 'cpu', *words],
        env=env, stdout=(out.parent / 'log').open('w'), stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler))


def finish(demo):
    try:
        return demo.wait(300.0)
    finally:
        demo.kill()


def playing_children(demo, log):
    """The children, once results come."""
    end = time.monotonic() + 300.0
    while time.monotonic() < end:
        assert demo.poll() is None, log.read_text()
        children = psutil.Process(demo.pid).children()
        if '[ ' in log.read_text() and len(children) == 2:
            return children
        time.sleep(0.1)
    raise AssertionError(f'waited in vain; it wrote:\n{log.read_text()}')


def test_the_demo_plays_the_scene_over_dds_and_writes_everything(tmp_path):
    out, log = tmp_path / 'out', tmp_path / 'log'
    begin = time.monotonic()
    demo = start_demo(out, '--seconds', '12')
    assert finish(demo) == 0, log.read_text()
    took = time.monotonic() - begin
    summary = json.loads((out / 'summary.json').read_text())
    assert (summary['trained'], summary['device'], summary['model']) == (True, 'cpu', 'tiny')
    # The camera sends 180 frames, fewer on a slow machine.
    assert summary['frames_in'] > 60
    assert summary['assessments_out'] > 5
    assert 0 < summary['latency_ms']['median'] <= summary['latency_ms']['p95']
    page = (out / 'report.html').read_text()
    capture = cv2.VideoCapture(str(out / 'overlay.mp4'))
    seconds = capture.get(cv2.CAP_PROP_FRAME_COUNT) / capture.get(cv2.CAP_PROP_FPS)
    capture.release()
    # In real time; a node that waits for its camera shows that, too.
    played = float(re.search(r'talked over DDS for ([\d.]+) s', page)[1])
    assert played > 8
    assert 0.7 * played < seconds < took
    text = log.read_text()
    assert 'report.html' in text and 'tiny on cpu (trained)' in text
    assert 'UNTRAINED' not in text + re.sub('data:[^"]+', '', page)
    assert 'Traceback' not in text


@pytest.mark.any_distro
@pytest.mark.parametrize(('victim', 'code', 'said'), [
    ('vjepa_ros.ros.perception_node', 1, 'exit code -9'),
    ('vjepa_ros.ros.sim.camera_source', 1, 'exit code -9'), ('', 130, 'report.html')])
def test_a_killed_child_and_ctrl_c_end_the_demo_and_nothing_is_left(victim, code, said, tmp_path):
    out, log = tmp_path / 'out', tmp_path / 'log'
    demo = start_demo(out, '--seconds', '60')
    try:
        children = playing_children(demo, log)
        if victim:
            next(c for c in children if victim in c.cmdline()).kill()
        else:
            demo.send_signal(signal.SIGINT)
    finally:
        ended = finish(demo)
    assert ended == code, log.read_text()
    assert said in log.read_text() and 'Traceback' not in log.read_text()
    assert victim or json.loads((out / 'summary.json').read_text())['assessments_out'] > 0
    assert psutil.wait_procs(children, timeout=30.0)[1] == []
