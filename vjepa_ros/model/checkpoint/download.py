# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find weights by path or by their name on the Hugging Face hub, and fetch published files."""

from __future__ import annotations

import hashlib
import http.client
import logging
import os
import re
import shutil
import urllib.error
import urllib.request
from collections.abc import Callable, Collection
from pathlib import Path

from vjepa_ros.model.checkpoint.files import WeightsError, shards_of

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
}
PIECE = 1 << 20
TIMEOUT_S = 30.0
HUB_NAME = re.compile(r'[A-Za-z0-9][\w.-]*/[\w.-]+')
HUB_FILES = ['config.json', 'model*.safetensors', 'model.safetensors.index.json']
ENDINGS = ('.safetensors', '.pt', '.pth')

Progress = Callable[[int, int], None]

log = logging.getLogger(__name__)


def download(url: str, folder: str | Path, progress: Progress) -> Path:
    """Fetch a file completely; an interrupted download resumes where it stopped."""
    folder = Path(folder).expanduser()
    target = folder / url.rsplit('/', 1)[-1]
    try:
        head = urllib.request.Request(url, method='HEAD')
        with urllib.request.urlopen(head, timeout=TIMEOUT_S) as answer:
            total = int(answer.headers.get('Content-Length') or 0)
            stamp = answer.headers.get('ETag') or answer.headers.get('Last-Modified') or ''
        if not total:
            raise WeightsError(f'{url}: the server does not say how large the file is')
        if target.exists():
            if target.stat().st_size != total:
                raise WeightsError(f"'{target}' is there already with another size; move it away")
            progress(total, total)
            return target
        folder.mkdir(parents=True, exist_ok=True)
        # Its name tells the state of the file on the server: never join pieces of two.
        state = hashlib.sha256(f'{url} {total} {stamp}'.encode()).hexdigest()[:8]
        part = folder / f'{target.name}.{state}.part'
        _fetch(url, part, total, progress)
        os.replace(part, target)
    except urllib.error.HTTPError as error:
        raise WeightsError(f'{url}: the server answers {error.code} {error.reason}; try again '
                           'later, or get the file elsewhere') from error
    except (OSError, http.client.HTTPException) as error:
        raise WeightsError(f'{url}: {error}; what has arrived is kept: run the same command again '
                           'to resume') from error
    return target


def _fetch(url: str, part: Path, total: int, progress: Progress) -> None:
    there = part.stat().st_size if part.exists() else 0
    free = shutil.disk_usage(part.parent).free
    if total - there > free:
        raise WeightsError(f"'{part.parent}' has {free / 1e9:.1f} GB left, and the file needs "
                           f'{(total - there) / 1e9:.1f} GB; choose another folder')
    if there < total:
        headers = {'Range': f'bytes={there}-'} if there else {}
        request = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            if answer.status != http.client.PARTIAL_CONTENT:
                there = 0  # this server only sends whole files
            with part.open('ab' if there else 'wb') as file:
                progress(there, total)
                while piece := answer.read(PIECE):
                    file.write(piece)
                    there += len(piece)
                    progress(there, total)
    if there < total:
        raise OSError(f'the connection ended after {there} of {total} bytes')
    if there > total:
        part.unlink()
        raise OSError('the server sent more than it announced')


def located(weights: str | Path, parameter: str, fetched: Collection[str] | None = None) -> Path:
    """Return the path of weights; a name on the hub is fetched unless HF_HUB_OFFLINE is set."""
    name = str(weights)
    try:
        path = Path(weights).expanduser()
        there = path.exists()
    except (OSError, RuntimeError) as error:  # a name that is too long, or of no user
        raise WeightsError(f"{parameter} '{name[:100]}' is no path: {error}; set `{parameter}` to "
                           'one') from error
    if there or not HUB_NAME.fullmatch(name) or name.endswith(ENDINGS):
        return path
    absent = f"{parameter} '{name}' is no file or folder here"
    try:
        # An optional package.
        from huggingface_hub import snapshot_download  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise WeightsError(f'{absent}; to get it from the Hugging Face hub, install '
                           'huggingface_hub (`pip install huggingface_hub`), or set '
                           f'`{parameter}` to a path') from error
    try:
        return _complete(snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=True))
    except (OSError, ValueError):  # not in the cache, or not all of it
        absent += ' and not complete in the cache of the Hugging Face hub'
    if os.environ.get('HF_HUB_OFFLINE', '').upper() in ('1', 'ON', 'YES', 'TRUE'):
        raise WeightsError(f'{absent}, and HF_HUB_OFFLINE forbids to fetch it; unset that once, '
                           f'or set `{parameter}` to a path')
    if fetched is not None and name not in fetched:
        raise WeightsError(f'{absent}, and names that were not set when the node started are not '
                           'fetched; start it with `allow_download: true`, or fetch it before '
                           f'with `vjepa-ros download {name}`, or set `{parameter}` to a path')
    log.info("fetching '%s' from the Hugging Face hub", name)
    try:
        return _complete(snapshot_download(name, allow_patterns=HUB_FILES))
    except Exception as error:  # whatever the HTTP library of the hub raises
        reason = ' '.join(str(error).split())[:200]
        raise WeightsError(f'{absent}, and cannot be fetched: {type(error).__name__}: {reason}; '
                           f'check the name and the network, or set `{parameter}` to a path'
                           ) from error


def _complete(snapshot: str) -> Path:
    """Return a folder with all files of a model; FileNotFoundError for any other."""
    folder = Path(snapshot)
    wanted = ['config.json', *shards_of(folder, f"folder '{folder}'")]
    absent = sorted(name for name in wanted if not (folder / name).is_file())
    if absent:
        raise FileNotFoundError(f"'{folder}' lacks {', '.join(absent)}")
    return folder
