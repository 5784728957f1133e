# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run camera, node and recorder as processes over DDS, and write a report."""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from vjepa_ros.cli.console import (
    add_model,
    end_like_ctrl_c,
    folder,
    print_error,
    real,
    ros_problem,
)
from vjepa_ros.lab.report.live_view import Recording, Status, View, log_to
from vjepa_ros.lab.report.measurement import command
from vjepa_ros.lab.report.report import summary_lines, write_outputs
from vjepa_ros.ros.common.processes import (
    Children,
    ProcessFailed,
    free_domain,
    keep_logs,
    middleware_hint,
    ros_arguments,
    ros_environment,
    takes_large_images,
)
from vjepa_ros.sources import PlayOptions, SUPPORTED, SourceError, open_source

LONGEST_S = 60.0          # for a source, without --seconds
CAMERA, NODE = 'camera', 'vjepa_node'
START_LIMIT_S = 120.0     # loading PyTorch from a cold disk takes its time
FIRST_RESULT_LIMIT_S = 40.0
STALL_LIMIT_S = 30.0      # without a new frame while playing
DRAIN_S = 2.5             # for the last results and two diagnostics messages
TICK_S = 0.1


class Demo:
    """One run of camera, node (with some parameters) and recorder on a source.

    `SourceError` when it cannot be opened. `seconds` limits the time; `rate` is that of pictures
    without stamps [Hz].
    """

    def __init__(self, spec: str, seconds: float | None, rate: float | None,
                 parameters: dict[str, object]) -> None:
        with open_source(spec, PlayOptions(rate=rate)) as source:
            length = source.frame_count / source.rate_hz \
                if source.frame_count and source.rate_hz > 0 else math.inf
            # Slow recordings must not start a new clip with every frame.
            gap = max(1.0, 2.5 / source.rate_hz) if source.rate_hz > 0 else 1.0
            self.name = f'{source.name}, {source.size[0]}x{source.size[1]}'
        endless = spec.strip().startswith('synthetic')
        self.seconds = min(length, LONGEST_S) if seconds is None else seconds
        if not endless:
            self.seconds = min(self.seconds, length)
        self.transport = 'raw' if takes_large_images(os.environ) else 'compressed'
        self._node = {'autostart': True, f'{CAMERA}.transport': self.transport,
                      'max_frame_gap': gap, **parameters}
        # The camera waits for the node, so that no moment of the scene is lost.
        self._camera = {'source': spec, 'camera': CAMERA, 'loop': endless, 'truth': True,
                        'rate': rate or 0.0, 'transport': self.transport,
                        'wait_for_subscribers': True}
        self.status = Status('vjepa-ros demo', self.name, span_s=self.seconds,
                             parts=dict.fromkeys(('camera', 'node', 'recorder'), 'starting'))
        self.recording = Recording(self.status)
        self.interrupted = False         # whether Ctrl-C ended it after the first result

    def run(self, console: Console, out: Path, line: str) -> tuple[dict[str, Any], list[Path]]:
        """Play, stop all processes, write the files; return the summary and files beside it."""
        with tempfile.TemporaryDirectory(prefix='vjepa_ros_demo_') as folder_name, \
                View(self.status, console) as view:
            work = Path(folder_name)
            try:
                with free_domain() as domain, Children(
                        ros_environment(domain, work / 'ros', os.environ), work) as children:
                    self._play(children, view, work)
                    self._finish(children, view)
                self.status.phase = f'writing {out}'
                view.tick()
                # Before and after the run, pictures show that there is no camera.
                pictures = [(int(path.stem), path) for path in sorted((work / 'overlay').iterdir())
                            if self.recording.covers(int(path.stem))]
                result = write_outputs(out, self.recording.records(), pictures,
                                       self._meta(line))
                self.status.phase = ''
                return result
            except ProcessFailed:
                keep_logs(work, out / 'logs')
                raise

    def _play(self, children: Children, view: View, work: Path) -> None:
        recording, parts = self.recording, self.status.parts
        self.status.phase = 'starting the processes'
        children.start('node', 'vjepa_ros.ros.perception_node', ros_arguments(NODE, self._node))
        children.start('recorder', 'vjepa_ros.ros.sim.recorder', ros_arguments(
            'recorder', {'folder': str(work), 'camera': CAMERA, 'node': NODE}),
            on_line=recording.take)
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

    def _ticks(self, children: Children, view: View) -> Iterator[float]:
        """Yield the seconds since the first time, ten times a second, while all children run."""
        begin = time.monotonic()
        while True:
            # A short source may have ended already.
            children.check(may_end=('camera',) if self.recording.frames_sent else ())
            view.tick()
            yield time.monotonic() - begin
            time.sleep(TICK_S)

    def _await(self, children: Children, view: View, name: str,
               ready: Callable[[], bool]) -> None:
        for waited_s in self._ticks(children, view):
            if ready():
                return
            if self.recording.configure_failed:
                raise children.all['node'].failure(
                    f'could not start ({self.recording.model["message"]})')
            if waited_s > START_LIMIT_S:
                raise children.all[name].failure(
                    f'was not ready after {START_LIMIT_S:.0f} s{middleware_hint(os.environ)}')

    def _follow(self, children: Children, view: View) -> None:
        """Supervise the run until the source ends or has played long enough."""
        recording, camera = self.recording, children.all['camera']
        seen, moved_s = recording.frames_sent, 0.0
        for now_s in self._ticks(children, view):
            if camera.returncode is not None or recording.played_s >= self.seconds:
                return
            if recording.frames_sent > seen:
                seen, moved_s = recording.frames_sent, now_s
            if now_s - moved_s > STALL_LIMIT_S:
                raise camera.failure(f'sent no frame for {STALL_LIMIT_S:.0f} s')
            if not recording.results and now_s > FIRST_RESULT_LIMIT_S:
                raise children.all['node'].failure(
                    f'gave no assessment within {FIRST_RESULT_LIMIT_S:.0f} s of the first frame'
                    f'{middleware_hint(os.environ)}')

    def _finish(self, children: Children, view: View) -> None:
        """Stop the camera, wait for the last results, then stop the others."""
        self.status.phase = 'waiting for the last results'
        camera = children.all['camera']
        camera.interrupt()
        camera.wait(DRAIN_S)
        self.status.parts['camera'] = 'ended'
        states = self.recording.states
        for waited_s in self._ticks(children, view):
            # Two messages, because the first may describe the time before.
            if self.recording.states >= states + 2 or waited_s > DRAIN_S:
                break
        children.stop()
        children.check(may_end=tuple(children.all))
        for name in self.status.parts:
            self.status.parts[name] = 'ended'
        if not self.recording.results:
            raise ProcessFailed(f'{self.name} ended before the first clip was full: nothing '
                                'to report (a clip takes about 2 s)')

    def _meta(self, command: str) -> dict[str, Any]:
        model, camera, played = self.recording.model, self.recording.camera, \
            self.recording.played_s
        sent, came = self.recording.frames_sent, int(camera.get('frames_in', 0))
        notes = [f'Camera, node and recorder ran as three processes and talked over DDS for '
                 f'{played:.1f} s. Latency runs from the stamp of a frame to the arrival of its '
                 'assessment in the recorder. Every estimate is compared with the truth of its '
                 'own stamp.']
        if self.recording.results < sent:
            notes.append(f'The camera sent {sent} frames, {came} came in, and '
                         f'{self.recording.results} were assessed: results begin with the first '
                         'full clip, and a busy node continues with the newest frame.')
        if self.interrupted:
            notes.append(f'The run was interrupted; its planned length was '
                         f'{self.seconds:.0f} s.')
        shown = ('model', 'model_version', 'precision', 'num_frames', 'image_size', 'clip_fps',
                 'resize_mode', 'weights', 'heads', 'looming_method', 'device_reason')
        return {
            'title': 'vjepa_ros demo', 'source': self.name, 'command': command,
            'date': datetime.now().astimezone().strftime('%Y-%m-%d %H:%M %Z'),
            'frames_in': came, 'device': model.get('device', 'unknown'),
            'model': model.get('model', 'unknown'), 'trained': model.get('trained') == 'True',
            'configuration': {**{name: model[name] for name in shown if name in model},
                              'image_transport': self.transport},
            'notes': notes}


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros demo', description=__doc__)
    parser.add_argument('--source', default='synthetic', metavar='SOURCE',
                        help=f'what the camera sees: {SUPPORTED} (default: synthetic)')
    parser.add_argument('--rate', type=real(0.01, 1000), metavar='HZ', help='rate at which '
                        'pictures without stamps were taken; others are thinned to it')
    parser.add_argument('--seconds', type=real(1, 3600), metavar='S', help='how long to play it '
                        f'(default: the whole source, at most {LONGEST_S:.0f})')
    parser.add_argument('--out', type=folder, default=Path('demo_output'), metavar='DIR',
                        help='folder for report, video and summary (default: demo_output)')
    add_model(parser, 'allow_random_weights')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when report, video and summary were written."""
    parser = make_parser()
    args = parser.parse_args(argv)
    console = Console()
    log_to(console)
    if ros_problem():
        return print_error(f'vjepa-ros demo: {ros_problem()}', console)
    parameters = {'device': args.device, 'model_size': args.model_size, 'weights': args.weights,
                  'allow_random_weights': args.allow_random_weights,
                  'require_device': args.device != 'auto'}
    end_like_ctrl_c()
    try:
        demo = Demo(args.source, args.seconds, args.rate, parameters)
        summary, files = demo.run(console, args.out, command('demo', argv or []))
    except (ProcessFailed, SourceError, OSError) as error:
        return print_error(f'vjepa-ros demo: {error}', console, args)
    except KeyboardInterrupt:
        console.print('stopped; nothing was written')
        return 130
    for line in summary_lines(summary, args.out, files):
        console.print(line, highlight=False, soft_wrap=True)
    return 130 if demo.interrupted else 0
