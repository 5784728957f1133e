# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Everything that comes from outside is refused in words, or works: a short fixed round.

`make fuzz MINUTES=60` goes on from here with a fuzzer that follows coverage.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

FUZZ = Path(__file__).resolve().parent / 'fuzz'
sys.path.insert(0, str(FUZZ))

from targets import SEEDS, TARGETS  # noqa: E402

ROUNDS = {'checkpoint': 100, 'bag': 100, 'labels': 150}      # others 400
PIECES = (b'', b'\0', b'\xff' * 8, b'nan', b'-1', b'1e999', b'"', b'{}', b'\n', b',', b'../')


def mutated(seeds: list[bytes], count: int) -> Iterator[bytes]:
    """Inputs near some valid ones, always the same: parts are replaced, inserted and left out."""
    random = Random(0)
    for _ in range(count):
        data = bytearray(random.choice(seeds))
        for _ in range(random.randint(1, 5)):
            at, other = random.randrange(len(data) + 1), random.randrange(len(data) + 1)
            data[at:at + random.choice((0, 1, random.randrange(30)))] = random.choice(
                (random.choice(PIECES), random.randbytes(1), data[other:other + 60]))
        yield bytes(data)


@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('name', TARGETS)
def test_no_input_does_what_nobody_foresaw(name):
    once_failed = [path.read_bytes() for path in sorted((FUZZ / 'corpus' / name).glob('*'))]
    for data in (b'', *SEEDS[name], *once_failed, *mutated(SEEDS[name], ROUNDS.get(name, 400))):
        try:
            TARGETS[name](data)
        except Exception as error:
            pytest.fail(f'{type(error).__name__}: {error}\nby {data!r}')
