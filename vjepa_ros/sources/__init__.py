# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Stamped frames from cameras, files, recordings, bags and synthetic scenes, without ROS."""

from vjepa_ros.sources.base import Source, SourceError, SourceFrame, SourceLost
from vjepa_ros.sources.opening import SUPPORTED, open_source

__all__ = ['SUPPORTED', 'Source', 'SourceError', 'SourceFrame', 'SourceLost', 'open_source']
