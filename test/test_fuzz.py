# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Everything that comes from outside is refused in words, or works: a short fixed round.

`make fuzz MINUTES=60` goes on from here with a fuzzer that follows coverage.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

FUZZ = Path(__file__).resolve().parent / 'fuzz'
sys.path.insert(0, str(FUZZ))

from targets import SEEDS, TARGETS  # noqa: E402

ROUNDS = {'checkpoint': 100, 'bag': 100, 'labels': 150}      # others 400
PIECES = (b'', b'\0', b'\xff' * 8, b'nan', b'-1', b'1e999', b'"', b'{}', b'\n', b',', b'../')


def mutated(seeds: list[bytes], count: int) -> list[bytes]:
    """Inputs near some valid ones, always the same."""
    random, made = np.random.default_rng(0), []
    for _ in range(count):
        data = bytearray(seeds[random.integers(len(seeds))])
        for _ in range(random.integers(1, 6)):
            at = int(random.integers(len(data) + 1))
            change = random.integers(4)
            if change == 0 and at < len(data):
                data[at] = int(random.integers(256))
            elif change == 1:
                data[at:at] = PIECES[random.integers(len(PIECES))]
            elif change == 2:
                del data[at:at + int(random.integers(1, 30))]
            else:
                begin = int(random.integers(len(data) + 1))
                data[at:at] = data[begin:begin + int(random.integers(1, 60))]
        made.append(bytes(data))
    return made


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('name', TARGETS)
def test_no_input_does_what_nobody_foresaw(name):
    once_failed = [path.read_bytes() for path in sorted((FUZZ / 'corpus' / name).glob('*'))]
    for data in (b'', *SEEDS[name], *once_failed, *mutated(SEEDS[name], ROUNDS.get(name, 400))):
        try:
            TARGETS[name](data)
        except Exception as error:
            pytest.fail(f'{type(error).__name__}: {error}\nby {data!r}')
