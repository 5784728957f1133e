# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show pictures in a window, where there is a display and OpenCV can."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import cv2
import numpy as np

TITLE = 'vjepa_ros'
QUIT_KEYS = (27, ord('q'))


def problem(environ: Mapping[str, str], platform: str = sys.platform,
            build: str | None = None) -> str:
    """Why no window can be shown, '' when one can.

    Parameters
    ----------
    environ
        Environment variables.
    platform
        As `sys.platform`.
    build
        Text about the build of OpenCV; None asks OpenCV.
    """
    build = cv2.getBuildInformation() if build is None else build
    gui = next((line.split(':', 1)[1].strip() for line in build.splitlines()
                if line.strip().startswith('GUI:')), '')
    if gui == 'NONE':
        return 'this OpenCV was built without windows (opencv-python-headless)'
    # Asked first because some builds end the whole process when they find no display.
    if platform.startswith('linux') and not (environ.get('DISPLAY')
                                             or environ.get('WAYLAND_DISPLAY')):
        return 'there is no display (DISPLAY is not set)'
    return ''


def show(bgr: np.ndarray) -> bool:
    """Show a picture; False when the user wants to end (q, Escape, or the window closed)."""
    cv2.imshow(TITLE, bgr)
    key = cv2.waitKey(1) & 0xFF
    return key not in QUIT_KEYS and cv2.getWindowProperty(TITLE, cv2.WND_PROP_VISIBLE) >= 1


def close() -> None:
    """Close the window."""
    cv2.destroyAllWindows()
