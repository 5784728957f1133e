# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Camera, vjepa_node and collision_guard together over DDS: every way to lose sight stops."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest

pytest.importorskip('rclpy')

from guard_rig import Every, Late, Rig, WITHIN_S, guarding
from node_fixtures import Camera, NODE, NS, Publisher, SMALL
from ros_harness import Session, ros_session
from rosgraph_msgs.msg import Clock
from scenes import texture

from vjepa_ros.guard.settings import GuardSettings

pytestmark = [pytest.mark.ros, pytest.mark.any_distro]

SIZE = (160, 120)
# The small model runs untrained; the time to contact is geometric and holds.
STOP_ON = [name for name in GuardSettings.stop_on if name != 'untrained']
PERCEPTION = {**SMALL, 'autostart': True, 'max_rate': 15.0}


class Scene:
    """A view that stands, with the noise of a sensor, and what can happen to it."""

    def __init__(self, ros: Session) -> None:
        self._ros, self._still = ros, texture(SIZE)
        self._random = np.random.default_rng(0)
        self.what = 'live'
        self.plug_in()

    def picture(self, number: int) -> np.ndarray:
        if self.what == 'live':
            noise = self._random.integers(-2, 3, self._still.shape)
            return np.clip(self._still.astype(int) + noise, 0, 255).astype(np.uint8)
        if self.what == 'covered':                     # dark, with the noise of a sensor
            return self._random.integers(0, 4, self._still.shape).astype(np.uint8)
        return self._still if self.what == 'frozen' else np.zeros_like(self._still)

    def plug_in(self) -> None:
        self.camera = Camera(self._ros, rate=20.0, size=SIZE, picture=self.picture).__enter__()

    def unplug(self) -> None:
        self.camera.__exit__()


@pytest.fixture(scope='module')
def both() -> Iterator[tuple[Rig, Scene]]:
    with ExitStack() as stack:
        ros = stack.enter_context(ros_session())
        stack.enter_context(ros.compose(NODE, PERCEPTION))
        rig = stack.enter_context(guarding(ros, stop_on=STOP_ON))
        stack.enter_context(Every(0.05, rig.command))
        scene = Scene(ros)
        stack.callback(scene.unplug)
        yield rig, scene


@pytest.mark.parametrize(('what', 'text', 'flags'), [
    ('frozen', 'frozen', {'frozen'}), ('covered', 'unknown', {'low_texture', 'looming_unknown'}),
    ('black', 'unknown', {'low_texture', 'looming_unknown', 'frozen'})])
def test_a_camera_that_sees_nothing_stops_the_robot_with_the_reason(both, what, text, flags):
    rig, scene = both
    rig.wait_for_speed(1.0)
    scene.what = what
    rig.wait_for_state(f'fault: camera: {text}')
    rig.wait_for_speed(0.0)
    unusual = {'low_texture', 'looming_unknown', 'frozen'}
    rig.wait(lambda: set(rig.told(1)['flags'].split()) & unusual == flags)
    assert rig.told(1)['level'] == ('clear' if what == 'frozen' else 'unknown')
    scene.what = 'live'
    rig.wait_for_speed(1.0)


def stops_in_time(rig: Rig, blind: Callable[[], None]) -> None:
    """Check that the guard stops soon after the newest assessment has become too old."""
    with Late() as late:
        blind()
        rig.wait_for_state('timeout')
    took_s = (rig.stopped_ns() - rig.known_ns()) / NS
    assert took_s < GuardSettings.source_timeout + WITHIN_S + late.worst_s


def test_an_unplugged_camera_stops_the_robot_and_one_that_is_back_lets_it_go(both):
    rig, scene = both
    rig.wait_for_speed(1.0)
    stops_in_time(rig, scene.unplug)
    scene.plug_in()
    rig.wait_for_speed(1.0)


@pytest.mark.slow
def test_a_perception_process_that_is_killed_stops_the_robot_and_a_new_one_lets_it_go():
    with ros_session() as ros, guarding(ros, stop_on=STOP_ON) as rig, Every(0.05, rig.command):
        scene = Scene(ros)
        with ros.spawn(NODE, PERCEPTION) as perception:
            rig.wait_for_speed(1.0)
            stops_in_time(rig, lambda: perception.send(signal.SIGKILL))
        with ros.spawn(NODE, PERCEPTION):
            rig.wait_for_state('warming_up')
            rig.wait_for_speed(1.0)
        scene.unplug()


def test_a_simulated_clock_that_jumps_or_stands_makes_all_seen_forgotten():
    with ros_session() as ros, guarding(ros, use_sim_time=True) as rig:
        now, step = [1000 * NS], [NS // 50]

        def tick() -> None:
            now[0] += step[0]
            clock.tick(now[0])

        with Publisher(ros, '/clock', Clock, qos=1) as clock, Every(0.02, tick):
            rig.stamp = lambda: now[0]
            with rig.driving():
                for jump in (-500 * NS, 500 * NS):
                    rig.wait_for_speed(1.0)
                    rig.looking = False
                    ros.spin_for(0.2)             # what was seen before has arrived
                    now[0] += jump
                    rig.wait_for_state('missing')
                    rig.wait_for_speed(0.0)
                    rig.looking = True
                rig.wait_for_speed(1.0)
                step[0] = 0                       # no age can be told while the clock stands
                rig.wait_for_state('missing')
                rig.wait_for_speed(0.0)
                step[0] = NS // 50
                rig.wait_for_speed(1.0)
