# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The files that figures are written to, and the command that made them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Where a file lies belongs to one machine, and its name says nothing about a measurement.
PATHS = ('--json', '--out', '--plot', '--weights')


def write_json(path: Path, result: Mapping[str, Any]) -> None:
    """Write figures, making the folder (`OSError` where that is not possible)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + '\n', encoding='utf-8')


def command(tool: str, words: Sequence[str]) -> str:
    """The command line of a tool for the record, without paths."""
    return ' '.join(['vjepa-ros', tool, *without(words, PATHS)])


def without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """A command line without some options and their values."""
    kept, skip = [], False
    for word in words:
        if skip or word in options:
            skip = not skip
        elif not word.startswith(tuple(f'{name}=' for name in options)):
            kept.append(word)
    return kept
