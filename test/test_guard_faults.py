# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Camera, vjepa_node and collision_guard together over DDS: every way to lose sight stops."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace

import numpy as np
import pytest

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]
pytest.importorskip('rclpy')

from guard_rig import CLEAR, WITHIN_S, Every, Late, Rig, guarding  # noqa: E402
from node_fixtures import NODE, NS, SMALL, Camera, Publisher  # noqa: E402
from ros_harness import Session, ros_session  # noqa: E402
from rosgraph_msgs.msg import Clock  # noqa: E402
from scenes import texture  # noqa: E402

from vjepa_ros.guard.settings import GuardSettings  # noqa: E402

SIZE = (160, 120)
# The small model runs untrained; the time to contact is geometric and holds.
STOP_ON = [name for name in GuardSettings.stop_on if name != 'untrained']
BLACK = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)


class Scene:
    """A view that stands, with the noise of a sensor, and what can happen to it."""

    def __init__(self) -> None:
        self._still = texture(SIZE)
        self._random = np.random.default_rng(0)
        self.show = self.live

    def live(self, number: int) -> np.ndarray:
        noise = self._random.integers(-2, 3, self._still.shape)
        return np.clip(self._still.astype(int) + noise, 0, 255).astype(np.uint8)

    def frozen(self, number: int) -> np.ndarray:
        return self._still

    def covered(self, number: int) -> np.ndarray:
        """Dark, with the noise of a sensor."""
        return self._random.integers(0, 4, self._still.shape).astype(np.uint8)

    def black(self, number: int) -> np.ndarray:
        return BLACK


class Rigged(SimpleNamespace):
    """Everything that runs: ros, rig, scene, camera."""

    def plug_in(self) -> None:
        self.camera = Camera(self.ros, rate=20.0, size=SIZE,
                             picture=lambda number: self.scene.show(number)).__enter__()

    def unplug(self) -> None:
        self.camera.__exit__()

    def go(self) -> None:
        """Wait until the robot drives."""
        self.scene.show = self.scene.live
        self.rig.wait_for_speed(1.0)


@contextmanager
def perceiving(ros: Session, process: bool = False) -> Iterator[object]:
    start = ros.spawn if process else ros.compose
    with start(NODE, {**SMALL, 'autostart': True, 'max_rate': 15.0}) as running:
        yield running


@pytest.fixture(scope='module')
def all_of() -> Iterator[Rigged]:
    scene = Scene()
    with ExitStack() as stack:
        ros = stack.enter_context(ros_session())
        stack.enter_context(perceiving(ros))
        rig = stack.enter_context(guarding(ros, stop_on=STOP_ON))
        stack.enter_context(Every(0.05, rig.command))
        everything = Rigged(ros=ros, rig=rig, scene=scene)
        everything.plug_in()
        stack.callback(everything.unplug)
        yield everything


@pytest.mark.parametrize(('what', 'text', 'flags'), [
    ('frozen', 'frozen', {'frozen'}),
    ('covered', 'unknown', {'low_texture', 'looming_unknown'}),
    ('black', 'unknown',
     {'low_texture', 'looming_unknown', 'frozen'})])
def test_a_camera_that_sees_nothing_stops_the_robot_with_the_reason(all_of, what, text, flags):
    all_of.go()
    rig = all_of.rig
    all_of.scene.show = getattr(all_of.scene, what)
    rig.wait_for_state(f'fault: camera: {text}')
    rig.wait_for_speed(0.0)
    unusual = {'low_texture', 'looming_unknown', 'frozen'}
    rig.wait(lambda: set(rig.values(1)['flags'].split()) & unusual == flags)
    assert rig.values(1)['level'] == ('clear' if what == 'frozen' else 'unknown')
    all_of.go()


def stops_in_time(rig: Rig, late: Late) -> bool:
    """Whether the guard stopped soon after the newest assessment had become too old."""
    took_s = (rig.stopped_ns() - rig.known_ns()) / NS
    return took_s < GuardSettings.source_timeout + WITHIN_S + late.worst_s


def test_an_unplugged_camera_stops_the_robot_and_one_that_is_back_lets_it_go(all_of):
    rig = all_of.rig
    all_of.go()
    with Late() as late:
        all_of.unplug()
        rig.wait_for_state('timeout')
    assert stops_in_time(rig, late)
    all_of.plug_in()
    all_of.go()


@pytest.mark.slow
def test_a_perception_process_that_is_killed_stops_the_robot_and_a_new_one_lets_it_go():
    scene = Scene()
    with ros_session() as ros, guarding(ros, stop_on=STOP_ON) as rig, Every(0.05, rig.command), \
            Camera(ros, rate=20.0, size=SIZE, picture=scene.live):
        with perceiving(ros, process=True) as perception:
            rig.wait_for_speed(1.0)
            with Late() as late:
                perception.send(signal.SIGKILL)
                rig.wait_for_state('timeout')
            # It saw the newest picture before it was killed: this is more than within
            # source_timeout and 50 ms of the kill.
            assert stops_in_time(rig, late)
        with perceiving(ros, process=True):
            rig.wait_for_state('warming_up')
            rig.wait_for_speed(1.0)


def test_a_simulated_clock_that_jumps_or_stands_makes_all_seen_forgotten():
    with ros_session() as ros, guarding(ros, use_sim_time=True) as rig:
        now, step = [1000 * NS], [NS // 50]

        def tick() -> None:
            now[0] += step[0]
            clock.tick(now[0])

        with Publisher(ros, '/clock', Clock, qos=None) as clock, Every(0.02, tick):
            rig.stamp = lambda: now[0]
            with rig.driving():
                rig.wait_for_speed(1.0)
                rig.looking = False
                now[0] -= 500 * NS
                rig.wait_for_state('missing')
                rig.wait_for_speed(0.0)
                rig.looking = True
                rig.wait_for_speed(1.0)
                rig.looking = False
                now[0] += 500 * NS                # forward, too
                rig.wait_for_state('missing')
                rig.wait_for_speed(0.0)
                rig.looking = True
                rig.wait_for_speed(1.0)
                step[0] = 0                       # no age can be told while the clock stands
                rig.wait_for_state('missing')
                rig.wait_for_speed(0.0)
                step[0] = NS // 50
                rig.wait_for_speed(1.0)
    assert rig.seen is CLEAR
