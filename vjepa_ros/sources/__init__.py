# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read stamped frames from cameras, files, recordings, bags and synthetic scenes, without ROS."""

from __future__ import annotations

import logging
from pathlib import Path

from vjepa_ros.sources import base, folder
from vjepa_ros.sources.bag import BagSource, is_bag, is_bag_file
from vjepa_ros.sources.base import PlayOptions, Source, SourceError, SourceFrame, SourceLost
from vjepa_ros.sources.video import CameraSource, SyntheticSource, VideoSource

__all__ = ['SUPPORTED', 'PlayOptions', 'Source', 'SourceError', 'SourceFrame', 'SourceLost',
           'open_source']
SUPPORTED = ("'synthetic', a camera index such as '0', a device or stream address, a video file, "
             'a picture, a folder of pictures, a recording folder (frames/ and labels.csv), '
             'a rosbag2 folder, or a .mcap or .db3 file')
DEFAULTS = PlayOptions()
_log = logging.getLogger(__name__)


def open_source(spec: str | Path, options: PlayOptions = DEFAULTS) -> Source:
    """Open a source of stamped frames.

    Parameters
    ----------
    spec : str
        ``synthetic``, a camera index (``0``), a device (``/dev/video0``) or stream
        (``rtsp://…``), or the path of a video, a picture, a folder of pictures, a recording
        folder, a rosbag2 folder, or a .mcap or .db3 file.
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
    base.check_file(path)
    if path.suffix.lower() in folder.IMAGE_SUFFIXES:
        return folder.StillSource(path, options)
    return (BagSource if is_bag_file(path) else VideoSource)(path, options)


def is_recording(path: Path) -> bool:
    """Return whether a path has its own stamps or labels: a bag, or pictures with a table."""
    return is_bag(path) or (path.is_dir() and folder.has_table(path))


def _open_folder(path: Path, options: PlayOptions) -> Source:
    if path.name == 'frames' and folder.is_labelled(path.parent):
        path = path.parent
    pictures = folder.images_in(path)
    within = [path] if is_recording(path) else sorted(filter(is_recording, path.iterdir()))
    if len(within) > 1:
        raise SourceError(f"folder '{path}' has several recordings: "
                          f'{listed([one.name for one in within])}; give one of them')
    if not within and not pictures:
        raise SourceError(
            f"folder '{path}' is neither pictures, nor a recording, nor a rosbag2 (it contains: "
            f'{listed(sorted(p.name for p in path.iterdir())) or "nothing"}); supported: '
            f'{SUPPORTED}')
    chosen = within[0] if within else path
    if pictures and (is_bag(chosen) or chosen != path):
        _log.warning("'%s': played is '%s', left out %s", path, chosen.name,
                     listed([picture.name for picture in pictures]))
    return (BagSource if is_bag(chosen) else folder.FolderSource)(chosen, options)


def listed(names: list[str]) -> str:
    """Return the first names of many, and how many there are more."""
    return ', '.join(names[:6]) + (f' and {len(names) - 6} more' if len(names) > 6 else '')
