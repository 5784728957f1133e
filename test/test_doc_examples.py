# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The controller of docs/robot.md and commands of other documents, as they stand."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]
pytest.importorskip('rclpy')

from geometry_msgs.msg import Twist  # noqa: E402
from guard_rig import CLEAR, Every, NS, cloud  # noqa: E402
from node_fixtures import now_ns  # noqa: E402
from ros_harness import NodeProcess, Session, ros_env, ros_session  # noqa: E402
from sensor_msgs.msg import PointCloud2  # noqa: E402

from vjepa_ros.perception.types import Level, Quality  # noqa: E402
from vjepa_ros.planning.local_planner import CANDIDATE  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / 'docs' / 'robot.md'


def example() -> str:
    """The block of Python that publishes on cmd_vel."""
    blocks = re.findall(r'```python\n(.*?)```', DOCUMENT.read_text(encoding='utf-8'), re.DOTALL)
    found, = (block for block in blocks if "'cmd_vel'" in block)
    return found


class Road:
    """A camera that this process plays, and what the example makes of it."""

    def __init__(self, ros: Session, process: NodeProcess) -> None:
        self.ros, self.process = ros, process
        self.seen, self.age_s = CLEAR, 0.0
        self.speeds: list[float] = []
        self.camera = ros.node.create_publisher(PointCloud2, 'vjepa_node/camera/assessment', 10)
        ros.node.create_subscription(Twist, 'cmd_vel',
                                     lambda msg: self.speeds.append(msg.linear.x), 10)

    def look(self) -> None:
        stamp = now_ns() - round(self.age_s * NS)
        self.camera.publish(cloud(replace(self.seen, stamp_ns=stamp)))

    def wait_for(self, speed: float) -> None:
        """Wait until the commands of a while are all this speed."""
        before = len(self.speeds)

        def settled() -> bool:
            newest = self.speeds[before:][-5:]
            return len(newest) == 5 and {round(v, 6) for v in newest} == {speed}

        assert self.ros.spin_until(settled, 30.0), f'{self.speeds[-5:]}\n{self.process.output}'


@pytest.fixture(scope='module')
def road() -> Iterator[Road]:
    with ros_session() as ros:
        process = NodeProcess([sys.executable, '-c', example()], ros_env(ros.domain_id))
        try:
            road = Road(ros, process)
            with Every(0.05, road.look):
                yield road
        finally:
            process.close()


@pytest.fixture(autouse=True)
def _driving(road: Road) -> None:
    road.seen, road.age_s = CLEAR, 0.0
    road.wait_for(0.5)


@pytest.mark.parametrize(('changes', 'age_s', 'speed'), [
    ({'level': Level.CAUTION}, 0.0, 0.3), ({'level': Level.WARNING}, 0.0, 0.15),
    ({'level': Level.DANGER}, 0.0, 0.0), ({'level': Level.UNKNOWN}, 0.0, 0.0),
    ({'flags': Quality.UNTRAINED}, 0.0, 0.0), ({'flags': Quality.WARMING_UP}, 0.0, 0.0),
    ({'flags': Quality.FROZEN}, 0.0, 0.0), ({}, 2.0, 0.0), ({}, -2.0, 0.0)])
def test_levels_and_what_can_not_be_trusted_slow_and_stop(road, changes, age_s, speed):
    road.seen, road.age_s = replace(CLEAR, **changes), age_s
    road.wait_for(speed)


def test_all_fields_of_clouds_of_candidates_are_documented():
    rows = (ROOT / 'docs' / 'planning.md').read_text(encoding='utf-8').splitlines()

    def check(row: str, names: Iterable[str]) -> None:
        found = [line for line in rows if line.startswith(row)]
        assert found
        assert not [name for name in names if not any(f'`{name}`' in line for line in found)]

    check('| `~/candidates` | PointCloud2, a point for each', CANDIDATE.names)
