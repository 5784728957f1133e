# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run camera, node and recorder as processes that talk over DDS, and supervise them."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from vjepa_ros.lab.report.live_view import Status, View
from vjepa_ros.lab.report.recording import Recording
from vjepa_ros.ros.common.processes import (
    Children,
    ProcessFailed,
    free_domain,
    middleware_hint,
    ros_arguments,
    ros_environment,
    takes_large_images,
)

CAMERA, NODE = 'camera', 'vjepa_node'
START_LIMIT_S = 120.0     # loading PyTorch from a cold disk takes its time
FIRST_RESULT_LIMIT_S = 40.0
STALL_LIMIT_S = 30.0      # without a new frame while playing
DRAIN_S = 2.5             # for the last results and two diagnostics messages
TICK_S = 0.1


@dataclass(frozen=True)
class Plan:
    """What to play: the source, its name for people, and for how long [s]."""

    spec: str
    name: str
    seconds: float
    loop: bool
    max_frame_gap: float
    rate: float | None = None        # of pictures without stamps [Hz]


class DemoProcesses:
    """One run of camera, node and recorder.

    Parameters
    ----------
    title
        Title of the live view.
    plan
        What to play.
    node, camera, recorder
        Parameters of each, beside those set here.
    transport
        Image transport, 'raw' or 'compressed'; '' takes raw where the middleware can.
    node_words
        Further words for the command line of the node.

    Attributes
    ----------
    status : Status
        State for a live `View`.
    recording : Recording
        Output of the recorder.
    interrupted : bool
        Whether Ctrl-C ended the run after the first result.
    """

    def __init__(self, title: str, plan: Plan, *, node: Mapping[str, object],
                 camera: Mapping[str, object], recorder: Mapping[str, object] | None = None,
                 transport: str = '', node_words: Sequence[str] = ()) -> None:
        self.plan = plan
        self.transport = transport or (
            'raw' if takes_large_images(os.environ) else 'compressed')
        self._node = {'autostart': True, f'{CAMERA}.transport': self.transport,
                      'max_frame_gap': plan.max_frame_gap, **node}
        # The camera waits for the node, so that no moment of the scene is lost.
        self._camera = {'source': plan.spec, 'camera': CAMERA, 'loop': plan.loop,
                        'transport': self.transport, 'wait_for_subscribers': True,
                        'wait_timeout': 0.0, 'start_delay': 0.5, **camera}
        self._recorder = {'camera': CAMERA, 'node': NODE, **(recorder or {})}
        self._node_words = tuple(node_words)
        self.status = Status(title, plan.name, span_s=plan.seconds,
                             parts=dict.fromkeys(('camera', 'node', 'recorder'), 'starting'))
        self.recording = Recording(self.status)
        self.interrupted = False

    def run(self, view: View, work: Path) -> None:
        """Play the plan and stop everything."""
        with free_domain() as domain, Children(
                ros_environment(domain, work / 'ros', os.environ), work) as children:
            self._play(children, view, work)
            self._finish(children, view)

    def _play(self, children: Children, view: View, work: Path) -> None:
        recording, parts = self.recording, self.status.parts
        self.status.phase = 'starting the processes'
        children.start('node', 'vjepa_ros.ros.perception_node',
                       [*ros_arguments(NODE, self._node), *self._node_words])
        children.start('recorder', 'vjepa_ros.ros.sim.recorder', ros_arguments(
            'recorder', {'folder': str(work), **self._recorder}), on_line=recording.take)
        self._await(children, view, 'recorder', recording.ready.is_set)
        parts['recorder'] = 'ready'
        children.start('camera', 'vjepa_ros.ros.sim.camera_source',
                       ros_arguments('camera_source', self._camera))
        self.status.phase = 'loading the model in the node process'
        self._await(children, view, 'node', lambda: recording.model.get('state') == 'active')
        parts['node'] = 'ready'
        self.status.phase = 'waiting for the first frame of the camera process'
        self._await(children, view, 'camera', lambda: recording.frames_sent > 0)
        parts['camera'] = 'ready'
        self.status.phase = 'filling the first clip'
        try:
            self._follow(children, view)
        except KeyboardInterrupt:
            if not recording.results:
                raise
            self.interrupted = True

    def _await(self, children: Children, view: View, name: str,
               ready: Callable[[], bool]) -> None:
        """Wait until a child is ready."""
        end = time.monotonic() + START_LIMIT_S
        while not ready():
            # A short source may have ended already.
            children.check(may_end=('camera',) if self.recording.frames_sent else ())
            if self.recording.configure_failed:
                raise children.all['node'].failure(
                    f'could not start ({self.recording.model["message"]})')
            if time.monotonic() > end:
                raise children.all[name].failure(
                    f'was not ready after {START_LIMIT_S:.0f} s{middleware_hint(os.environ)}')
            view.tick()
            time.sleep(TICK_S)

    def _follow(self, children: Children, view: View) -> None:
        """Supervise the run until the source ends or has played long enough."""
        recording, camera = self.recording, children.all['camera']
        begin = moved = time.monotonic()
        seen = recording.frames_sent
        while camera.returncode is None and recording.played_s < self.plan.seconds:
            children.check(may_end=('camera',))
            now = time.monotonic()
            if recording.frames_sent > seen:
                seen, moved = recording.frames_sent, now
            if now - moved > STALL_LIMIT_S:
                raise camera.failure(f'sent no frame for {STALL_LIMIT_S:.0f} s')
            if not recording.results and now - begin > FIRST_RESULT_LIMIT_S:
                raise children.all['node'].failure(
                    f'gave no assessment within {FIRST_RESULT_LIMIT_S:.0f} s of the first frame'
                    f'{middleware_hint(os.environ)}')
            view.tick()
            time.sleep(TICK_S)
        children.check(may_end=('camera',))

    def _finish(self, children: Children, view: View) -> None:
        """Stop the camera, wait for the last results, then stop the others."""
        self.status.phase = 'waiting for the last results'
        camera = children.all['camera']
        camera.interrupt()
        camera.wait(DRAIN_S)
        self.status.parts['camera'] = 'ended'
        states = self.recording.states
        end = time.monotonic() + DRAIN_S
        # Two messages, because the first may describe the time before.
        while self.recording.states < states + 2 and time.monotonic() < end:
            children.check(may_end=('camera',))
            view.tick()
            time.sleep(TICK_S)
        children.stop()
        children.check(may_end=tuple(children.all))
        for name in self.status.parts:
            self.status.parts[name] = 'ended'
        if not self.recording.results:
            raise ProcessFailed(f'{self.plan.name} ended before the first clip was full: nothing '
                                'to report (a clip takes about 2 s)')


def ros_problem() -> str:
    """Return why this Python cannot start ROS programs; '' when it can."""
    if importlib.util.find_spec('rclpy') is not None:
        return ''
    if distro := os.environ.get('ROS_DISTRO'):
        return (f'rclpy is missing: ROS 2 {distro} is sourced, but {sys.executable} (Python '
                f'{sys.version_info.major}.{sys.version_info.minor}) does not find it; use the '
                'Python that it was built for, such as /usr/bin/python3, or an environment of it')
    return ('rclpy is missing: source your ROS 2 (/opt/ros/DISTRO/setup.bash); else it comes '
            "from wheels (x86-64 Linux): `make env`, or pip install '.[ros]', in a checkout")


def end_like_ctrl_c() -> None:
    """Let SIGTERM and a lost terminal end this process as Ctrl-C does, with all its children."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(AttributeError):
        signal.signal(signal.SIGHUP, signal.default_int_handler)
