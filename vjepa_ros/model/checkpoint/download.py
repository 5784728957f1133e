# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Fetch published files. An interrupted download goes on where it stopped."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from vjepa_ros.model.checkpoint.files import WeightsError

BASE_URL = 'https://dl.fbaipublicfiles.com/vjepa2/'
PUBLISHED = {  # name: (file, what it is)
    'vitl': ('vitl.pt', '2.0 large, 256 pixels'),
    'vith': ('vith.pt', '2.0 huge, 256 pixels'),
    'vitg': ('vitg.pt', '2.0 giant, 256 pixels'),
    'vitg-384': ('vitg-384.pt', '2.0 giant, 384 pixels'),
    'ac-vitg': ('vjepa2-ac-vitg.pt', '2.0 giant with action-conditioned predictor, 11.8 GB'),
    '2.1-vitb': ('vjepa2_1_vitb_dist_vitG_384.pt', '2.1 base, 384 pixels'),
    '2.1-vitl': ('vjepa2_1_vitl_dist_vitG_384.pt', '2.1 large, 384 pixels'),
    '2.1-vitg': ('vjepa2_1_vitg_384.pt', '2.1 giant, 384 pixels'),
    '2.1-vitG': ('vjepa2_1_vitG_384.pt', '2.1 gigantic, 384 pixels'),
    'ssv2-vitl': ('evals/ssv2-vitl-16x2x3.pt', 'probe of 174 actions for vitl'),
    'ssv2-vitg-384': ('evals/ssv2-vitg-384-64x2x3.pt', 'probe of 174 actions for vitg-384'),
    'diving48-vitl': ('evals/diving48-vitl-256.pt', 'probe of 48 dives for vitl'),
    'diving48-vitg-384': ('evals/diving48-vitg-384-32x4x3.pt', 'probe of 48 dives for vitg-384'),
    'ek100-vitl': ('evals/ek100-vitl-256.pt', 'probe of coming kitchen actions for vitl'),
    'ek100-vitg-384': ('evals/ek100-vitg-384.pt', 'probe of coming kitchen actions for vitg-384'),
}
PIECE = 1 << 20
TIMEOUT_S = 30.0
KEPT = 'what has arrived is kept: run the same command again to go on'

Progress = Callable[[int, int], None]


def download(url: str, folder: str | Path, progress: Progress) -> Path:
    """Fetch a file completely.

    Parameters
    ----------
    url : str
        Where it is.
    folder : str or Path
        Where to put it. What has arrived of an interrupted download waits there under a name
        that ends with '.part'.
    progress : callable
        Called with the bytes that are there and those there will be.

    Returns
    -------
    Path
        The file. One that is there already is not fetched again when its size is right.

    Raises
    ------
    WeightsError
        When it cannot be fetched completely.

    """
    folder = Path(folder).expanduser()
    target = folder / url.rsplit('/', 1)[-1]
    with _told(url, KEPT):
        total, state = _state(url)
        if target.exists():
            if target.stat().st_size == total:
                progress(total, total)
                return target
            raise WeightsError(f"'{target}' is there already with another size; move it away")
        folder.mkdir(parents=True, exist_ok=True)
        # Its name tells the state of the file on the server: never join pieces of two.
        part = folder / f'{target.name}.{state}.part'
        there = part.stat().st_size if part.exists() else 0
        free = shutil.disk_usage(folder).free
        if total - there > free:
            raise WeightsError(f"'{folder}' has {free / 1e9:.1f} GB left, and {target.name} needs "
                               f'{(total - there) / 1e9:.1f} GB; choose another folder')
        if there < total:
            _fetch(url, part, there, total, progress)
        if part.stat().st_size != total:
            part.unlink()
            raise WeightsError(f'{url}: the server sent more than it announced; try again')
        os.replace(part, target)
    return target


def size_of(url: str) -> int:
    """Bytes of a file on a server; WeightsError when it cannot be asked."""
    with _told(url, 'check the network and try again'):
        return _state(url)[0]


@contextmanager
def _told(url: str, remedy: str) -> Iterator[None]:
    """Turn what goes wrong with a server into WeightsError."""
    try:
        yield
    except urllib.error.HTTPError as error:
        raise WeightsError(f'{url}: the server answers {error.code} {error.reason}; try again '
                           'later, or get the file elsewhere') from error
    except (OSError, http.client.HTTPException) as error:
        raise WeightsError(f'{url}: {error}; {remedy}') from error


def _state(url: str) -> tuple[int, str]:
    """Size of a file on a server, and a short name for its present state."""
    with urllib.request.urlopen(urllib.request.Request(url, method='HEAD'), timeout=TIMEOUT_S
                                ) as answer:
        size = int(answer.headers.get('Content-Length') or 0)
        stamp = answer.headers.get('ETag') or answer.headers.get('Last-Modified') or ''
    if not size:
        raise WeightsError(f'{url}: the server does not say how large the file is')
    return size, hashlib.sha256(f'{url} {size} {stamp}'.encode()).hexdigest()[:8]


def _fetch(url: str, part: Path, there: int, total: int, progress: Progress) -> None:
    request = urllib.request.Request(url)
    if there:
        request.add_header('Range', f'bytes={there}-')
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        if there and answer.status != http.client.PARTIAL_CONTENT:
            there = 0  # this server only sends whole files
        with part.open('ab' if there else 'wb') as file:
            progress(there, total)
            while piece := answer.read(PIECE):
                file.write(piece)
                there += len(piece)
                progress(there, total)
    if there < total:
        raise OSError(f'the connection ended after {there} of {total} bytes')
