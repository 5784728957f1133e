# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Find weights by path, or by their name on the Hugging Face hub. A path needs no network."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Collection
from pathlib import Path

from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.checkpoint.readers import shards_of

log = logging.getLogger(__name__)

HUB_NAME = re.compile(r'[A-Za-z0-9][\w.-]*/[\w.-]+')
FILES = ('config.json', 'model*.safetensors', 'model.safetensors.index.json')
OF_FILES = ('.safetensors', '.pt', '.pth')


def located(weights: str | Path, parameter: str, fetched: Collection[str] | None = None) -> Path:
    """Path of weights.

    A name such as 'facebook/vjepa2-vitl-fpc64-256' that is no path here is looked for in the
    cache of `huggingface_hub`, and fetched when it is not there, unless HF_HUB_OFFLINE is set.

    Parameters
    ----------
    weights : str or Path
        Path or name.
    parameter : str
        Name of the parameter that asks for it, for the error.
    fetched : collection of str, optional
        Names that may be fetched; all when omitted.

    Raises
    ------
    WeightsError
        When a name of the hub cannot be had. A path that does not exist is returned as it is.

    """
    name = str(weights)
    try:
        path = Path(weights).expanduser()
        there = path.exists()
    except (OSError, RuntimeError) as error:  # a name that is too long, or of no user
        raise WeightsError(f"{parameter} '{name[:100]}' is no path: {error}; set `{parameter}` to "
                           'one') from error
    if there or not HUB_NAME.fullmatch(name) or name.endswith(OF_FILES):
        return path
    told = f"{parameter} '{name}' is no file or folder here"
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise WeightsError(f'{told}; to get it from the Hugging Face hub, install '
                           'huggingface_hub (`pip install huggingface_hub`), or set '
                           f'`{parameter}` to a path') from error
    try:
        return _complete(Path(snapshot_download(name, allow_patterns=list(FILES),
                                                local_files_only=True)))
    except (OSError, ValueError):  # not in the cache, or not all of it
        if _offline():
            raise WeightsError(f'{told} and not complete in the cache of the Hugging Face hub, '
                               'and HF_HUB_OFFLINE forbids to fetch it; unset that once, or set '
                               f'`{parameter}` to a path') from None
    if fetched is not None and name not in fetched:
        raise WeightsError(f'{told} and not complete in the cache of the Hugging Face hub, and '
                           'names that were not set when the node started are not fetched; start '
                           'it with `allow_download: true`, or fetch it before with `vjepa-ros '
                           f'download {name}`, or set `{parameter}` to a path')
    log.info("fetching '%s' from the Hugging Face hub", name)
    try:
        return _complete(Path(snapshot_download(name, allow_patterns=list(FILES))))
    except Exception as error:  # whatever the HTTP library of the hub raises
        reason = ' '.join(str(error).split())[:200]
        raise WeightsError(f'{told} and cannot be fetched from the Hugging Face hub: '
                           f'{type(error).__name__}: {reason}; '
                           f'check the name and the network, or set `{parameter}` to a path'
                           ) from error


def _complete(folder: Path) -> Path:
    """The folder, when all files of a model are in it; FileNotFoundError otherwise."""
    wanted = ['config.json', *shards_of(folder, f"folder '{folder}'")]
    absent = sorted(name for name in wanted if not (folder / name).is_file())
    if absent:
        raise FileNotFoundError(f"'{folder}' lacks {', '.join(absent)}")
    return folder


def _offline() -> bool:
    return os.environ.get('HF_HUB_OFFLINE', '').upper() in ('1', 'ON', 'YES', 'TRUE')
