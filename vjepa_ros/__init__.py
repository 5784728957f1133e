# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""V-JEPA 2 obstacle and collision perception for ROS 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = '0.1.0'
__all__ = ['Assessment', 'Level', 'ObstacleDetector', 'Quality', '__version__']

if TYPE_CHECKING:
    from vjepa_ros.detector import ObstacleDetector
    from vjepa_ros.perception.types import Assessment, Level, Quality


def __getattr__(name: str) -> object:
    """Import on first use: `import vjepa_ros` must not cost the start-up of PyTorch."""
    if name == 'ObstacleDetector':
        from vjepa_ros.detector import ObstacleDetector
        return ObstacleDetector
    if name in ('Assessment', 'Level', 'Quality'):
        from vjepa_ros.perception import types as assessment
        return getattr(assessment, name)
    raise AttributeError(f"module 'vjepa_ros' has no attribute '{name}'")
