# SPDX-License-Identifier: Apache-2.0
"""Run camera, node and recorder as processes that talk over DDS, and write what came of it."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import shlex
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.sources import SUPPORTED, SourceError, open_source
from vjepa_ros.tools.outputs import summary_lines, write_outputs
from vjepa_ros.tools.processes import (
    Children,
    ProcessFailed,
    free_domain,
    keep_logs,
    middleware_hint,
    ros_arguments,
    ros_environment,
    takes_large_images,
)
from vjepa_ros.tools.recording import Recording
from vjepa_ros.tools.status import Status
from vjepa_ros.tools.terminal import View, log_to

CAMERA, NODE = 'camera', 'vjepa_node'
LONGEST_S = 60.0          # of a source, unless --seconds says otherwise
START_LIMIT_S = 120.0     # loading PyTorch from a cold disk takes its time
FIRST_RESULT_LIMIT_S = 40.0
STALL_LIMIT_S = 30.0      # without a new frame while playing
DRAIN_S = 2.5             # for the last results and one more diagnostics message
TICK_S = 0.1
BRIEF_FAILURES = (ProcessFailed, SourceError, OSError)


@dataclass(frozen=True)
class Plan:
    """What is played: the source, its name in words, and how long it is played [s]."""

    spec: str
    name: str
    seconds: float
    loop: bool
    max_frame_gap: float


def make_plan(spec: str, seconds: float | None) -> Plan:
    """Look at a source before anything is started (`SourceError` when it is none)."""
    with open_source(spec) as source:
        rate, count = source.rate_hz, source.frame_count
        length = count / rate if count and rate > 0 else math.inf
        endless = spec.strip().startswith('synthetic')
        wanted = min(length, LONGEST_S) if seconds is None else seconds
        # Slow recordings must not start a new clip with every frame.
        gap = max(1.0, 2.5 / rate) if rate > 0 else 1.0
        name = f'{source.name}, {source.size[0]}x{source.size[1]}'
        return Plan(spec, name, wanted if endless else min(wanted, length), endless, gap)


class Demo:
    """One run of the demo.

    Parameters
    ----------
    plan
        What is played.
    parameters
        Of the node, on top of what the demo sets.
    out_dir
        Takes the results.
    console
        Where the progress is shown.
    command
        The command line, for the report.
    """

    def __init__(self, plan: Plan, parameters: dict[str, object], out_dir: Path,
                 console: Console, command: str) -> None:
        self.plan, self.out_dir, self.console, self.command = plan, out_dir, console, command
        self.transport = 'raw' if takes_large_images(os.environ) else 'compressed'
        self._parameters = {
            'autostart': True, f'{CAMERA}.transport': self.transport,
            'max_frame_gap': plan.max_frame_gap, **parameters}
        self.status = Status('vjepa-ros demo', plan.name, span_s=plan.seconds,
                             parts=dict.fromkeys(('camera', 'node', 'recorder'), 'starting'))
        self.recording = Recording(self.status)
        self.interrupted = False

    def run(self) -> tuple[dict[str, Any], Path | None]:
        """Play, stop everything, write; the summary and the video."""
        work = Path(tempfile.mkdtemp(prefix='vjepa_ros_demo_'))
        try:
            with View(self.status, self.console) as view, free_domain() as domain:
                with Children(
                        ros_environment(domain, work / 'ros', os.environ), work) as children:
                    self._play(children, view, work)
                    self._finish(children, view)
                return self._write(work, view)
        except ProcessFailed:
            keep_logs(work, self.out_dir / 'logs')
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)

    # -- steps -----------------------------------------------------------------------------

    def _play(self, children: Children, view: View, work: Path) -> None:
        recording, parts = self.recording, self.status.parts
        self.status.phase = 'starting the processes'
        children.start('node', 'vjepa_ros.ros.main', ros_arguments(NODE, self._parameters))
        children.start('recorder', 'vjepa_ros.ros.recorder', ros_arguments(
            'recorder', {'folder': str(work), 'camera': CAMERA, 'node': NODE}),
            on_line=recording.take)
        self._await(children, view, 'recorder', recording.ready.is_set)
        parts['recorder'] = 'ready'
        # Frames flow only when the node has subscribed, so no moment of the scene is lost.
        children.start('camera', 'vjepa_ros.ros.camera_source', ros_arguments('camera_source', {
            'source': self.plan.spec, 'camera': CAMERA, 'loop': self.plan.loop, 'truth': True,
            'transport': self.transport, 'wait_for_subscribers': True, 'wait_timeout': 0.0,
            'start_delay': 0.5}))
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
            # A source of a few frames may be over before it is looked at.
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
        """Watch the run until the source ends or has been played long enough."""
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
        """Stop the camera, let the last frames pass, stop the others; all must end well."""
        self.status.phase = 'waiting for the last results'
        camera = children.all['camera']
        camera.interrupt()
        camera.wait(DRAIN_S)
        self.status.parts['camera'] = 'ended'
        states = self.recording.states
        end = time.monotonic() + DRAIN_S
        # Two diagnostics messages: the first may have been under way already.
        while self.recording.states < states + 2 and time.monotonic() < end:
            children.check(may_end=('camera',))
            view.tick()
            time.sleep(TICK_S)
        children.stop()
        children.check(may_end=tuple(children.all))
        for name in self.status.parts:
            self.status.parts[name] = 'ended'
        if not self.recording.results:
            raise ProcessFailed(f'{self.plan.name} ended before the first clip was full, so there '
                                'is nothing to report (a clip takes about 2 s)')

    def _write(self, work: Path, view: View) -> tuple[dict[str, Any], Path | None]:
        self.status.phase = f'writing {self.out_dir}'
        view.tick()
        pictures = [(int(path.stem), path) for path in sorted((work / 'overlay').glob('*.jpg'))]
        # Before and after it the node shows that it has no camera, which is not of the run.
        pictures = [item for item in pictures if self.recording.covers(item[0])]
        result = write_outputs(self.out_dir, self.recording.records(), pictures, self._meta())
        self.status.phase = ''
        return result

    # -- words -----------------------------------------------------------------------------

    def _meta(self) -> dict[str, Any]:
        model, camera, played = self.recording.model, self.recording.camera, \
            self.recording.played_s
        sent, came = self.recording.frames_sent, int(camera.get('frames_in', 0))
        notes = [f'Camera, node and recorder ran as three processes and talked over DDS for '
                 f'{played:.1f} s. Latency is the time from the stamp of the frame to the '
                 'arrival of its assessment in the recorder. Every estimate is compared with the '
                 'truth of its own stamp.']
        if self.recording.results < came:
            notes.append(f'{came} frames came in and {self.recording.results} were assessed: no '
                         'result is made before the first clip is full, and a node that is still '
                         'busy takes the newest frame and leaves out those before it.')
        if came < sent:
            notes.append(f'{sent - came} of {sent} frames that the camera sent did not arrive.')
        if self.interrupted:
            notes.append(f'The run was interrupted; it was meant to last {self.plan.seconds:.0f} '
                         's.')
        shown = ('model', 'model_version', 'precision', 'num_frames', 'image_size', 'clip_fps',
                 'resize_mode', 'weights', 'heads', 'looming_method', 'device_reason')
        return {
            'title': 'vjepa_ros demo', 'source': self.plan.name, 'command': self.command,
            'date': datetime.now().astimezone().strftime('%Y-%m-%d %H:%M %Z'),
            'frames_in': came, 'device': model.get('device', 'unknown'),
            'model': model.get('model', 'unknown'), 'trained': model.get('trained') == 'True',
            'configuration': {**{name: model[name] for name in shown if name in model},
                              'image_transport': self.transport},
            'notes': notes}


def make_parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = argparse.ArgumentParser(prog='vjepa-ros demo', description=__doc__)
    parser.add_argument('--source', default='synthetic', metavar='SOURCE',
                        help=f'what the camera sees: {SUPPORTED} (default: synthetic)')
    parser.add_argument('--seconds', type=float, metavar='S', help='how long it is played '
                        f'(default: the whole source, at most {LONGEST_S:.0f})')
    parser.add_argument('--out', type=Path, default=Path('demo_output'), metavar='DIR',
                        help='folder for report, video and summary (default: demo_output)')
    parser.add_argument('--device', default='auto', help='auto, cpu, cuda, cuda:N or mps')
    parser.add_argument('--model-size', default='tiny', choices=tuple(VARIANTS))
    parser.add_argument('--weights', default='', metavar='FILE',
                        help='checkpoint of the encoder (default: that of the package, which '
                        'has one for tiny)')
    parser.add_argument('--allow-random-weights', action='store_true',
                        help='run untrained when there are no weights')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 when report, video and summary were written."""
    parser = make_parser()
    args = parser.parse_args(argv)
    if args.seconds is not None and not 1 <= args.seconds <= 3600:
        parser.error(f'argument --seconds: {args.seconds:g} is out of range: 1 to 3600')
    console = Console()
    log_to(console)
    words = ['vjepa-ros', 'demo', *(argv if argv is not None else [])]
    if importlib.util.find_spec('rclpy') is None:
        console.print('vjepa-ros demo: rclpy is missing: run `make demo` in a checkout (it '
                      'installs wheels), or source your ROS 2', style='red')
        return 1
    parameters = {'device': args.device, 'model_size': args.model_size, 'weights': args.weights,
                  'allow_random_weights': args.allow_random_weights}
    # As Ctrl-C, so that nothing is left running.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(AttributeError):
        signal.signal(signal.SIGHUP, signal.default_int_handler)
    try:
        plan = make_plan(args.source, args.seconds)
        demo = Demo(plan, parameters, args.out, console, shlex.join(words))
        summary, video = demo.run()
    except BRIEF_FAILURES as error:
        console.print(f'vjepa-ros demo: {error}', style='red', markup=False, highlight=False,
                      soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print('stopped; nothing was written')
        return 130
    for line in summary_lines(summary, args.out, video):
        console.print(line, highlight=False, soft_wrap=True)
    return 130 if demo.interrupted else 0
