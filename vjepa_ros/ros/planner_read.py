# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Read the planner's point clouds into structured arrays; imports no message package."""

from __future__ import annotations

from typing import Any

import numpy as np

TYPES = {2: 'u1', 4: '<u2', 7: '<f4'}  # of sensor_msgs/PointField


def records(msg: Any) -> np.ndarray:
    """One record for each point of ``~/candidates`` or ``~/best_action``, by field name.

    Raises
    ------
    ValueError
        When the cloud has fields of another type than the planner's have.
    """
    wrong = [field.name for field in msg.fields if field.datatype not in TYPES or field.count != 1]
    if wrong:
        raise ValueError(f'the cloud is not one of the action planner: it has {wrong}')
    kind = np.dtype({'names': [field.name for field in msg.fields],
                     'formats': [TYPES[field.datatype] for field in msg.fields],
                     'offsets': [field.offset for field in msg.fields],
                     'itemsize': msg.point_step})
    return np.frombuffer(msg.data, kind, msg.width * msg.height)
