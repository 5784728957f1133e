# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Say what goes on where there is no terminal to draw a progress bar in."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console


def plain_lines(console: Console) -> Callable[[str], None]:
    """Writes each text as a line with the seconds since now; silent in a terminal."""
    before = time.perf_counter()

    def say(text: str) -> None:
        if text and not console.is_terminal:
            console.print(f'{time.perf_counter() - before:6.1f} s  {text}', highlight=False,
                          markup=False, soft_wrap=True)

    return say
