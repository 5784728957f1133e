# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Join the pictures of one episode in all modes to a video, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import cv2
import numpy as np

from vjepa_ros.lab.drive.plot import WORDS
from vjepa_ros.lab.report.report import write_video

_BAND_PX = 22    # above the pictures, with the name of the mode


def write(path: Path, film: Path, modes: Sequence[str], number: int, rate: float) -> Path:
    """Write the video of an episode.

    Parameters
    ----------
    path
        Of the video, without or with its extension.
    film
        Folder with a folder of pictures for each mode and episode, as `drive.jobs` writes it.
    modes, number
        Which.
    rate
        Pictures per second [Hz].

    Returns
    -------
    Path
        Of the file, see `vjepa_ros.lab.report.report.write_video`.

    Raises
    ------
    ValueError
        When there are no pictures.
    """
    files = {mode: sorted((film / mode / f'{number:04d}').glob('*.png')) for mode in modes}
    if not all(files.values()):
        raise ValueError(f'no pictures of episode {number} for '
                         f'{[mode for mode in modes if not files[mode]]}')
    return write_video(path.with_suffix(''), _frames(files), rate)


def _frames(files: dict[str, list[Path]]) -> Iterator[np.ndarray]:
    """BGR pictures side by side; a run that has ended shows its last one."""
    for step in range(max(map(len, files.values()))):
        shown = []
        for mode, paths in files.items():
            picture = cv2.imread(str(paths[min(step, len(paths) - 1)]))
            band = np.full((_BAND_PX, picture.shape[1], 3), 255, np.uint8)
            ended = ' (ended)' if step >= len(paths) else ''
            cv2.putText(band, WORDS[mode] + ended, (4, 16), cv2.FONT_HERSHEY_SIMPLEX, 0.5,
                        (40, 36, 28), 1, cv2.LINE_AA)
            shown.append(np.concatenate((band, picture)))
        yield np.concatenate(shown, 1)
