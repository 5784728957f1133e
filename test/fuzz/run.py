# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fuzz the targets in turn, guided by coverage: `python test/fuzz/run.py MINUTES [TARGET ...]`.

An input that fails is kept in test/fuzz/corpus/TARGET, from where `test/test_fuzz.py` takes it.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
MEMORY_MB, HANG_S = 3000, 20
sys.path.insert(0, str(HERE.parent))       # for what the tests share


def fuzz(name: str, folder: str, seconds: str) -> None:
    """Fuzz one target; does not return."""
    import atheris

    with atheris.instrument_imports(include=['vjepa_ros', 'targets']):
        from targets import SEEDS, TARGETS

    for number, seed in enumerate(SEEDS[name]):
        (Path(folder) / f'seed-{number}').write_bytes(seed)
    kept = HERE / 'corpus' / name
    kept.mkdir(parents=True, exist_ok=True)
    atheris.Setup([sys.argv[0], folder, str(kept), f'-max_total_time={seconds}', '-max_len=4096',
                   f'-artifact_prefix={kept}/', f'-rss_limit_mb={MEMORY_MB}',
                   f'-timeout={HANG_S}', '-verbosity=0'], TARGETS[name])
    atheris.Fuzz()


def main(words: list[str]) -> int:
    """Run all targets, or those that are named; 1 when one has failed."""
    if words[:1] == ['--one']:       # a process that this one has started
        fuzz(*words[1:])
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('minutes', type=float, help='for all targets together')
    parser.add_argument('targets', nargs='*', metavar='TARGET', help='default: all')
    args = parser.parse_args(words)
    from targets import TARGETS

    names, failed = args.targets or list(TARGETS), False
    seconds = max(5, round(60 * args.minutes / len(names)))
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, __file__, '--one', name, folder, str(seconds)],
                                  cwd=HERE, capture_output=True, text=True, check=False)
        failed |= done.returncode != 0
        print(f'{name}: failed\n{done.stderr[-3000:]}' if done.returncode else f'{name}: passed')
    return failed


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
