# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The controller of docs/robot.md, as it stands."""

from __future__ import annotations

import re
import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]
pytest.importorskip('rclpy')

from geometry_msgs.msg import Twist  # noqa: E402
from guard_rig import CLEAR, Every, NS, cloud  # noqa: E402
from node_fixtures import now_ns  # noqa: E402
from ros_harness import NodeProcess, ros_env, ros_session  # noqa: E402
from sensor_msgs.msg import PointCloud2  # noqa: E402

from vjepa_ros.perception.types import Level, Quality  # noqa: E402

PAGE = Path(__file__).resolve().parents[1] / 'docs' / 'robot.md'


@pytest.fixture(scope='module')
def drives() -> Iterator[Callable[..., bool]]:
    """Whether the commands of the example become all one speed, for what a camera shows."""
    blocks = re.findall(r'```python\n(.*?)```', PAGE.read_text(encoding='utf-8'), re.DOTALL)
    example, = (block for block in blocks if "'cmd_vel'" in block)
    shown, speeds = {'age_s': 0.0}, deque(maxlen=5)
    with ros_session() as ros, closing(
            NodeProcess([sys.executable, '-c', example], ros_env(ros.domain_id))):
        camera = ros.node.create_publisher(PointCloud2, 'vjepa_node/camera/assessment', 10)
        ros.node.create_subscription(
            Twist, 'cmd_vel', lambda msg: speeds.append(round(msg.linear.x, 6)), 10)

        def look() -> None:
            stamp, changes = now_ns() - round(shown['age_s'] * NS), shown.get('changes', {})
            camera.publish(cloud(replace(CLEAR, stamp_ns=stamp, **changes)))

        def at(speed: float, age_s: float = 0.0, **changes: object) -> bool:
            shown.update(age_s=age_s, changes=changes)
            return ros.spin_until(lambda: list(speeds) == [speed] * 5, 30.0)

        with Every(0.05, look):
            yield at


@pytest.mark.parametrize(('changes', 'age_s', 'speed'), [
    ({'level': Level.CAUTION}, 0.0, 0.3), ({'level': Level.WARNING}, 0.0, 0.15),
    ({'level': Level.DANGER}, 0.0, 0.0), ({'level': Level.UNKNOWN}, 0.0, 0.0),
    ({'flags': Quality.UNTRAINED}, 0.0, 0.0), ({'flags': Quality.WARMING_UP}, 0.0, 0.0),
    ({'flags': Quality.FROZEN}, 0.0, 0.0), ({}, 2.0, 0.0), ({}, -2.0, 0.0)])
def test_levels_and_what_can_not_be_trusted_slow_and_stop(drives, changes, age_s, speed):
    assert drives(0.5)
    assert drives(speed, age_s, **changes)
