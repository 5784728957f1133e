# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run clips in as few passes as memory allows."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from vjepa_ros.runtime.device import DeviceChoice, SessionError
from vjepa_ros.runtime.memory import is_out_of_memory, release_memory

log = logging.getLogger(__name__)

SMALLER = ('choose a smaller model_size, image_size or num_frames, or half precision '
           '(precision: fp16 or bf16)')

Part = TypeVar('Part')


class Parts:
    """Split clips into passes, whose size it learns from those that ran out of memory.

    Parameters
    ----------
    choice : DeviceChoice
        Where they run.
    clip_shape : tuple of int
        (T, S, S, 3).
    trim : callable
        Frees all memory that can be allocated again.

    Attributes
    ----------
    most : int, optional
        Clips of one pass; None until memory has run out once.

    """

    def __init__(self, choice: DeviceChoice, clip_shape: tuple[int, ...],
                 trim: Callable[[], None]):
        self._choice = choice
        self._clip_shape = clip_shape
        self._trim = trim
        self.most: int | None = None

    def run(self, clips: int, run: Callable[[slice], Part]) -> list[Part]:
        """Run all clips, one part after the other, halving the parts when memory runs out.

        Parameters
        ----------
        clips : int
            How many there are.
        run : callable
            Runs a part of them in one pass.

        Raises
        ------
        SessionError
            When there is no memory for a single clip, with the remedy.

        """
        done, results = 0, []
        while done < clips:
            left = clips - done
            part = slice(done, done + (left if self.most is None else min(left, self.most)))
            try:
                results.append(run(part))
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                problem = str(error).partition('\n')[0]
            else:
                done = part.stop
                continue
            # Not above: the traceback of an error keeps what the failed pass has allocated.
            self._make_room(part.stop - part.start, problem)
        return results

    def _make_room(self, failed: int, problem: str) -> None:
        """Free what can be made again, and take fewer clips from now on."""
        self._trim()
        release_memory(self._choice.device)
        frames, side = self._clip_shape[:2]
        what = f'{failed} clips' if failed > 1 else 'one clip'
        what += f' of {frames} frames of {side} px in {self._choice.precision}'
        if failed <= 1:
            raise SessionError(f'{self._choice.device} has no memory for {what} ({problem}); '
                               f'{SMALLER}')
        self.most = failed // 2
        log.warning('%s has no memory for %s in one pass (%s); at most %d in one pass from now on',
                    self._choice.device, what, problem, self.most)
