# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read stamped frames from cameras, files, recordings, bags and synthetic scenes, without ROS."""

from vjepa_ros.sources.base import PlayOptions, Source, SourceError, SourceFrame, SourceLost
from vjepa_ros.sources.opening import SUPPORTED, open_source

__all__ = ['SUPPORTED', 'PlayOptions', 'Source', 'SourceError', 'SourceFrame', 'SourceLost',
           'open_source']
