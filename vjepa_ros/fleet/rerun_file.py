# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write what `vjepa-ros view` shows of a chunk as a file for the Rerun viewer."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vjepa_ros.fleet.recordings import Chunk
from vjepa_ros.sources.base import printable
from vjepa_ros.viewer.rerun_log import RerunLog, rr


@contextmanager
def rerun_file(results: Path, chunk: Chunk) -> Iterator[RerunLog]:
    """Yield a log into the file of a chunk, which is there, whole, when the block ends well.

    The files of a camera are one recording: the viewer shows them together.
    """
    path = results / chunk.rerun_file
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f'.{path.name}.{socket.gethostname()}.{os.getpid()}.tmp')
    stream: Any = rr.RecordingStream('vjepa_ros', recording_id=path.stem.rpartition('-')[0])
    try:
        stream.save(draft)
        try:
            stream.send_recording_name(printable(str(chunk.recording)))
            yield RerunLog(stream, live=False)
            _flush(stream, path)
        finally:
            stream.disconnect()
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _flush(stream: Any, path: Path) -> None:
    try:
        stream.flush()
    except RuntimeError as error:
        raise OSError(f"'{path.name}' cannot be written: {error}") from error
