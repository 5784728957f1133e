# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Open a source by its name: a camera, file, folder, bag or synthetic scene."""

from __future__ import annotations

from pathlib import Path

from vjepa_ros.sources.bag import BAG_SUFFIXES, BagSource, is_bag_folder
from vjepa_ros.sources.base import PlayOptions, Source, SourceError
from vjepa_ros.sources.folder import (
    FolderSource,
    IMAGE_SUFFIXES,
    RecordingSource,
    StillSource,
    images_in,
)
from vjepa_ros.sources.synthetic import SyntheticSource
from vjepa_ros.sources.video import CameraSource, VideoSource

SUPPORTED = ("'synthetic', a camera index such as '0', a device or stream address, a video file, "
             'a picture, a folder of pictures, a recording folder (frames/ and labels.csv), '
             'a rosbag2 folder, or a .mcap or .db3 file')
DEFAULTS = PlayOptions()


def open_source(spec: str | Path, options: PlayOptions = DEFAULTS) -> Source:
    """Open a source of stamped frames.

    Parameters
    ----------
    spec : str
        ``synthetic`` (or ``synthetic:approach``), a camera index (``0``), a device
        (``/dev/video0``) or stream (``rtsp://…``), or the path of a video, a picture, a folder of
        pictures, a recording folder, a rosbag2 folder, or a .mcap or .db3 file.
    options : PlayOptions
        How it is played.

    Returns
    -------
    Source
        Yields `SourceFrame` when iterated; close it at the end (it is a context manager).

    Raises
    ------
    SourceError
        Names the source, what was found there and what is supported.
    """
    spec = str(spec).strip()
    if not spec:
        raise SourceError(f'no source given; supported: {SUPPORTED}')
    if spec == 'synthetic' or spec.startswith('synthetic:'):
        return SyntheticSource(spec.partition(':')[2] or 'approach', options)
    if spec.isdigit():
        return CameraSource(int(spec), options)
    if '://' in spec or spec.startswith('/dev/video'):
        return CameraSource(spec, options)
    try:
        path = Path(spec).expanduser()
        if path.is_dir():
            return _open_folder(path, options)
        there = path.exists()
    except (OSError, RuntimeError) as error:   # too long, of no user, or not permitted
        raise SourceError(f"source '{spec[:200]}' is not a valid path: {error}; supported: "
                          f'{SUPPORTED}') from error
    if not there:
        raise SourceError(f"source '{spec}' does not exist; supported: {SUPPORTED}")
    suffix = path.suffix.lower()
    if suffix in IMAGE_SUFFIXES:
        return StillSource(path, options)
    if suffix in BAG_SUFFIXES:
        return BagSource(path, options)
    return VideoSource(path, options)


def _open_folder(path: Path, options: PlayOptions) -> Source:
    if (path / 'labels.csv').is_file() and (path / 'frames').is_dir():
        return RecordingSource(path, options)
    if is_bag_folder(path):
        return BagSource(path, options)
    if images_in(path):
        return FolderSource(path, options)
    found = sorted(p.name for p in path.iterdir())
    listing = ', '.join(found[:6]) + (f' and {len(found) - 6} more' if len(found) > 6 else '')
    raise SourceError(f"folder '{path}' is neither pictures, nor a recording, nor a rosbag2 (it "
                      f'contains: {listing or "nothing"}); supported: {SUPPORTED}')
