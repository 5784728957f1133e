# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Break ten lines that decide, one at a time, and check that `make test` notices.

    python test/mutations.py

Each is made in a copy of the package, and the tests around it run there: those of `make test`,
without the slow ones. Exits 1 when one survives, or when its line is no longer in the code.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parents[1]


class Mutation(NamedTuple):
    """One changed line, and the tests that must notice."""

    file: str
    line: str
    mutated: str
    tests: str


MUTATIONS = (
    # Hysteresis works the wrong way round.
    Mutation('perception/danger.py', 'if time_to_contact < time * ease:',
             'if time_to_contact < time / ease:', 'test_danger.py'),
    # Frames from the future count as current.
    Mutation('perception/danger.py', 'if age_s < -AHEAD_S:', 'if age_s < -100 * AHEAD_S:',
             'test_danger.py'),
    # What is improbable is believed, and the other way round.
    Mutation('perception/danger.py', 'learned, by_geometry) < BELIEVED:',
             'learned, by_geometry) > BELIEVED:', 'test_danger.py test_fusion.py'),
    # The robot stops only where it touches the obstacle.
    Mutation('guard/source.py', '    room = max(0.0, distance - settings.stop_distance)',
             '    room = max(0.0, distance)', 'test_guard.py'),
    # A command that has ended goes on driving the robot.
    Mutation('guard/guard.py', 'now_s - self._commanded_s > self.settings.command_timeout',
             'now_s - self._commanded_s > 100 * self.settings.command_timeout', 'test_guard.py'),
    # Another frame is chosen where two are equally near.
    Mutation('clip/ring.py', 'stamps_ns[place] - target > target - stamps_ns[place - 1]:',
             'stamps_ns[place] - target >= target - stamps_ns[place - 1]:', 'test_clip.py'),
    # A full ring drops the neighbour of the frame that is redundant.
    Mutation('clip/ring.py', 'return 1 + int(np.argmin(holes)) if holes else 0',
             'return int(np.argmin(holes)) if holes else 0', 'test_clip.py'),
    # A frame that comes twice is stored twice.
    Mutation('clip/ring.py', 'or abs(stamp_ns - near[-1]) < SAME_NS):',
             'or abs(stamp_ns - near[-1]) < 0):', 'test_clip.py'),
    # Positions are rotated the wrong way round.
    Mutation('model/rope.py', 'sign = torch.tensor([-1.0, 1.0])',
             'sign = torch.tensor([1.0, -1.0])', 'test_golden.py'),
)


def main() -> int:
    """Try all mutations; the exit code."""
    bad = 0
    with tempfile.TemporaryDirectory(prefix='mutations_') as work:
        copy = Path(work)
        for name in ('vjepa_ros', 'test'):
            shutil.copytree(REPOSITORY / name, copy / name,
                            ignore=shutil.ignore_patterns('__pycache__'))
        shutil.copy(REPOSITORY / 'pyproject.toml', copy)
        for one in MUTATIONS:
            verdict = tried(one, copy)
            print(f'{verdict:10} {one.file}: {one.mutated}', flush=True)
            bad += verdict != 'caught'
    return 1 if bad else 0


def tried(one: Mutation, copy: Path) -> str:
    """What becomes of a mutation: caught, SURVIVES, or NOT FOUND when its line is gone."""
    path = copy / 'vjepa_ros' / one.file
    code = path.read_text(encoding='utf-8')
    if code.count(one.line) != 1:
        return 'NOT FOUND'
    tests = [f'test/{name}' for name in one.tests.split()]
    path.write_text(code.replace(one.line, one.mutated), encoding='utf-8')
    try:
        done = subprocess.run(
            [sys.executable, '-m', 'pytest', '-q', '-x', '-p', 'no:cacheprovider',
             '-m', 'not ros and not slow', *tests],
            cwd=copy, env={**os.environ, 'PYTHONPATH': str(copy), 'PYTHONDONTWRITEBYTECODE': '1'},
            capture_output=True)
    finally:
        path.write_text(code, encoding='utf-8')
    # Code 1: tests have run, and some failed.
    return {0: 'SURVIVES', 1: 'caught'}.get(done.returncode, f'ERROR {done.returncode}')


if __name__ == '__main__':
    sys.exit(main())
