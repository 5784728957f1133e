# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Hashes of weights files; those of large ones are remembered between runs."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

log = logging.getLogger(__name__)

REMEMBERED_FROM = 64 * 2**20  # bytes; smaller files are hashed in less than a tenth of a second
SETTLED_S = 2.0  # a file younger than this may change again without a new time stamp


def files_sha256(files: Sequence[Path]) -> str:
    """Hash of one file, or of the names and hashes of several."""
    if len(files) == 1:
        return file_sha256(files[0])
    digest = hashlib.sha256()
    for path in files:
        digest.update(f'{file_sha256(path)}  {path.name}\n'.encode())
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Hash of a file. That of a large one is remembered by place, size and time of change."""
    path = path.resolve()
    before = path.stat()
    if before.st_size < REMEMBERED_FROM:
        return _hash(path)
    state = f'{before.st_size} {before.st_mtime_ns} {before.st_ino}'
    known = _remembered()
    entry = known.get(str(path))
    if isinstance(entry, list) and len(entry) == 2 and entry[0] == state:
        return str(entry[1])
    found = _hash(path)
    if time.time() - before.st_mtime > SETTLED_S and path.stat().st_mtime_ns == before.st_mtime_ns:
        _remember(known | {str(path): [state, found]})
    return found


def memory_file() -> Path:
    """Where hashes are remembered."""
    folder = os.environ.get('XDG_CACHE_HOME') or Path.home() / '.cache'
    return Path(folder) / 'vjepa_ros' / 'sha256.json'


def _hash(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open('rb') as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _remembered() -> dict[str, object]:
    try:
        found = json.loads(memory_file().read_text(encoding='utf-8'))
    except (OSError, ValueError):  # not there yet, or damaged: hash anew
        return {}
    return found if isinstance(found, dict) else {}


def _remember(known: dict[str, object]) -> None:
    path = memory_file()
    part = path.with_name(f'{path.name}.{os.getpid()}')
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(known), encoding='utf-8')
        os.replace(part, path)
    except OSError as error:
        log.debug('the hash of a weights file is not remembered: %s', error)
