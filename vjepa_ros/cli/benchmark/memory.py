# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure the memory of each model on the CPU, and write the table of ``docs/performance.md``.

``python -m vjepa_ros.cli.benchmark.memory`` runs each model in a process of its own; the largest
needs 16 GB and minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from vjepa_ros.model.variants import VARIANTS, Variant

DOCUMENT = Path(__file__).resolve().parents[3] / 'docs/performance.md'
SIDE = 256               # of all models [px]
FRAMES = (8, 16)
PRECISIONS = ('bf16', 'fp32')
MIB = 1 << 20


def measured_bytes(variant: Variant, frames: int, precision: str) -> int:
    """Return by how much a process grows with a model, at the peak of a pass [bytes]."""
    done = subprocess.run(
        [sys.executable, '-m', 'vjepa_ros.cli.benchmark.memory', variant.name, str(frames),
         precision], capture_output=True, text=True, check=True)
    return int(json.loads(done.stdout.splitlines()[-1]))


def _grown(size: str, frames: int, precision: str) -> int:
    """Load a model in this process and run it; see `measured_bytes`."""
    import numpy as np

    from vjepa_ros.runtime.engine import Engine, EngineConfig
    from vjepa_ros.runtime.memory import release_memory

    before = _kept('VmRSS')
    engine = Engine.load(EngineConfig(
        size, weights='random', allow_random_weights=True, num_frames=frames, image_size=SIDE,
        device='cpu', precision=precision))
    release_memory(engine.choice.device)
    Path('/proc/self/clear_refs').write_text('5')       # the peak so far is that of loading
    clip = np.random.default_rng(0).integers(0, 256, (frames, SIDE, SIDE, 3), np.uint8)
    engine.run([clip])
    return _kept('VmHWM') - before


def _kept(name: str) -> int:
    """Return a figure of this process [bytes]; Linux tells them in KiB."""
    lines = Path('/proc/self/status').read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f'{name}:'))


def table() -> str:
    """Measure all models and make the table."""
    cells = [(frames, precision) for precision in PRECISIONS for frames in FRAMES]
    lines = ['| model | weights, half precision | '
             + ' | '.join(f'{precision}, {frames} frames' for frames, precision in cells) + ' |',
             '|---|' + (1 + len(cells)) * '---:|']
    for variant in VARIANTS.values():
        row = [f'{2 * variant.weights / MIB:.0f}']
        for frames, precision in cells:
            row.append(f'{measured_bytes(variant, frames, precision) / MIB:.0f}')
            print(variant.name, frames, precision, row[-1], file=sys.stderr)
        lines.append(f'| {variant.name} | ' + ' | '.join(row) + ' |')
    return '\n'.join(lines) + '\n'


def main(arguments: list[str]) -> int:
    """Measure one model and print its bytes, or all and write the table."""
    if arguments:
        size, frames, precision = arguments
        print(_grown(size, int(frames), precision))
        return 0
    from vjepa_ros.lab.report.measurement import fill

    measured = table()       # first: the document may be edited meanwhile
    DOCUMENT.write_text(fill(DOCUMENT.read_text(), 'memory', measured))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
