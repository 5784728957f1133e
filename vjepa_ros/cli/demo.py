# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run camera and node as processes, listen to them over DDS, and write a report."""

from __future__ import annotations

import argparse
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TYPE_CHECKING

from rich.console import Console

from vjepa_ros.cli.console import (
    add_model,
    end_like_ctrl_c,
    folder,
    print_error,
    real,
    ros_problem,
)
from vjepa_ros.lab.report.live_view import Status, View, log_to
from vjepa_ros.lab.report.measurement import command
from vjepa_ros.lab.report.report import write_outputs
from vjepa_ros.ros import read
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
from vjepa_ros.viewer.messages import CLOUD, COMPRESSED, DIAGNOSTICS, INFO, STAGE

if TYPE_CHECKING:
    from vjepa_ros.ros.listener import Listener

LONGEST_S = 60.0          # for a source, without --seconds
CAMERA, NODE = 'camera', 'vjepa_node'
START_LIMIT_S = 120.0     # loading PyTorch from a cold disk takes its time
FIRST_RESULT_LIMIT_S = 40.0
STALL_LIMIT_S = 30.0      # without a new frame while playing
DRAIN_S = 2.5             # for the last results and two diagnostics messages
TICK_S = 0.1
SHOWN = ('model', 'model_version', 'precision', 'num_frames', 'image_size', 'clip_fps',
         'resize_mode', 'weights', 'heads', 'device_reason')


class Demo:
    """One run of camera and node (with some parameters) on a source.

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
            name = f'{source.name}, {source.size[0]}x{source.size[1]}'
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
        self.status = Status('vjepa-ros demo', name, span_s=self.seconds,
                             parts=dict.fromkeys(('camera', 'node'), 'starting'))
        self.interrupted = False         # whether Ctrl-C ended it after the first result
        self._model: dict[str, Any] = {}      # the newest diagnostics of the node,
        self._stages: dict[str, float] = {}   # its stage times [ms],
        self._reports = 0                     # and how many have come
        self._sent, self._last_ns = 0, 0      # frames of the camera, and the newest stamp
        self._pictures: dict[int, Path] = {}  # overlays by stamp [ns]

    def run(self, console: Console, out: Path, line: str) -> list[str]:
        """Play, stop all processes, write the files; return lines that describe the run."""
        from vjepa_ros.ros.listener import Listener

        with tempfile.TemporaryDirectory(prefix='vjepa_ros_demo_') as folder_name, \
                View(self.status, console) as view:
            work = Path(folder_name)
            try:
                with free_domain() as domain:
                    environment = ros_environment(domain, work / 'ros', os.environ)
                    os.environ.clear()
                    os.environ.update(environment)
                    with Listener('vjepa_ros_demo') as ros, \
                            Children(environment, work) as children:
                        self._listen(ros, work)
                        self._play(children, ros, view)
                        self._finish(children, ros, view)
                self.status.phase = f'writing {out}'
                view.tick()
                # Before and after the run, pictures show that there is no camera.
                pictures = [(stamp, path) for stamp, path in sorted(self._pictures.items())
                            if self.status.begin_ns <= stamp <= self._last_ns]
                lines = write_outputs(out, self.status, pictures, self._facts(line))
                self.status.phase = ''
                return lines
            except ProcessFailed:
                keep_logs(work, out / 'logs')
                raise

    # -- what camera and node say -----------------------------------------------------------

    def _listen(self, ros: Listener, work: Path) -> None:
        outputs = f'/{NODE}/{CAMERA}'
        ros.subscribe(f'/{CAMERA}/camera_info', INFO, self._on_info)
        ros.subscribe(f'/{CAMERA}/truth', CLOUD, self._on_truth)
        ros.subscribe(f'{outputs}/assessment', CLOUD, self._on_assessment)
        ros.subscribe(f'{outputs}/overlay/compressed', COMPRESSED,
                      lambda _, msg: self._on_overlay(msg, work))
        ros.subscribe('/diagnostics', DIAGNOSTICS, self._on_diagnostics)

    def _on_info(self, _: str, msg: Any) -> None:
        self._sent += 1
        self._last_ns = read.stamp_ns(msg)
        self.status.begin_ns = self.status.begin_ns or self._last_ns

    def _on_truth(self, _: str, msg: Any) -> None:
        true = float(read.records(msg)['ttc'][0])
        if not math.isnan(true):
            self.status.truth[read.stamp_ns(msg)] = true

    def _on_assessment(self, _: str, msg: Any) -> None:
        latency_ms = (time.time_ns() - read.stamp_ns(msg)) / 1e6
        # An assessment has no stage times; those of the diagnostics are at most a second old.
        self.status.add(replace(read.assessment(msg, CAMERA), latency_ms=latency_ms,
                                timings=self._stages))

    def _on_overlay(self, msg: Any, work: Path) -> None:
        # A silent camera repeats the stamp of its newest frame.
        stamp = read.stamp_ns(msg)
        stamp = time.time_ns() if stamp in self._pictures else stamp
        self._pictures[stamp] = work / f'{stamp}.jpg'
        self._pictures[stamp].write_bytes(memoryview(msg.data))

    def _on_diagnostics(self, _: str, msg: Any) -> None:
        status = self.status
        for node, part, got in read.statuses(msg):
            values = got['values']
            if (node, part) == (NODE, 'model'):
                self._reports += 1
                self._model = {**values, 'message': got['message']}
                if 'device' in values:
                    status.model, status.device = values['model'], values['device']
                    status.precision = values['precision']
                    status.trained = values['trained'] == 'True'
                if values['state'] == 'active':
                    status.parts['node'] = 'ready'
            elif (node, part) == (NODE, f'camera {CAMERA}'):
                status.frames_in, status.rate_in_hz = values['frames_in'], values['rate_in_hz']
                self._stages = {name.removeprefix(STAGE): ms for name, ms in values.items()
                                if name.startswith(STAGE) and not math.isnan(ms)}

    # -- the run ----------------------------------------------------------------------------

    def _play(self, children: Children, ros: Listener, view: View) -> None:
        """Supervise the run until the source ends or has played long enough."""
        children.start('node', 'vjepa_ros.ros.perception_node', ros_arguments(NODE, self._node))
        camera = children.start('camera', 'vjepa_ros.ros.sim.camera_source',
                                ros_arguments('camera_source', self._camera))
        before, since_s = ('', 0), 0.0
        try:
            for now_s in self._ticks(children, ros, view):
                if self._played_s >= self.seconds or camera.returncode is not None:
                    return
                name, limit_s = self._awaited()
                news = (self.status.phase, self._sent if self.status.results else 0)
                if news != before:
                    before, since_s = news, now_s
                if now_s - since_s > limit_s:
                    raise children.all[name].failure(
                        f'has not got on for {limit_s:.0f} s '
                        f'({self.status.phase or "it sends no frames"})'
                        f'{middleware_hint(os.environ)}')
                model = self._model
                if model.get('state') == 'unconfigured' and model['message'] != 'unconfigured':
                    raise children.all['node'].failure(f'could not start ({model["message"]})')
        except KeyboardInterrupt:
            if not self.status.results:
                raise
            self.interrupted = True

    def _awaited(self) -> tuple[str, float]:
        """Return which process must do something next, and within which time [s]; tell of it."""
        status = self.status
        if status.parts['node'] != 'ready':
            status.phase = 'loading the model in the node process'
            return 'node', START_LIMIT_S
        if not self._sent:
            status.phase = 'waiting for the first frame of the camera process'
            return 'camera', START_LIMIT_S
        status.parts['camera'] = 'ready'
        if not status.results:
            status.phase = 'filling the first clip'
            return 'node', FIRST_RESULT_LIMIT_S
        return 'camera', STALL_LIMIT_S

    def _ticks(self, children: Children, ros: Listener, view: View) -> Iterator[float]:
        """Yield the seconds since the first time, ten times a second, while all children run."""
        begin = time.monotonic()
        while True:
            # A short source may have ended already.
            children.check(may_end=('camera',) if self._sent else ())
            yield time.monotonic() - begin
            view.tick()
            ros.spin(TICK_S)

    @property
    def _played_s(self) -> float:
        return (self._last_ns - self.status.begin_ns) / 1e9

    def _finish(self, children: Children, ros: Listener, view: View) -> None:
        """Stop the camera, wait for the last results, then stop the node."""
        self.status.phase = 'waiting for the last results'
        camera = children.all['camera']
        camera.interrupt()
        camera.wait(DRAIN_S)
        self.status.parts['camera'] = 'ended'
        reports = self._reports
        for waited_s in self._ticks(children, ros, view):
            # Two messages, because the first may describe the time before.
            if self._reports >= reports + 2 or waited_s > DRAIN_S:
                break
        children.stop()
        children.check(may_end=tuple(children.all))
        self.status.parts['node'] = 'ended'
        if not self.status.results:
            raise ProcessFailed(f'{self.status.source} ended before the first clip was full: '
                                'nothing to report (a clip takes about 2 s)')

    def _facts(self, command: str) -> dict[str, Any]:
        status = self.status
        notes = [f'Camera and node ran as processes and talked over DDS for {self._played_s:.1f} '
                 's. Latency runs from the stamp of a frame to the arrival of its assessment in '
                 'the demo. Every estimate is compared with the truth of its own stamp.']
        if status.count < self._sent:
            notes.append(f'The camera sent {self._sent} frames, {status.frames_in} came in, and '
                         f'{status.count} were assessed: results begin with the first '
                         'full clip, and a busy node continues with the newest frame.')
        if self.interrupted:
            notes.append(f'The run was interrupted; its planned length was '
                         f'{self.seconds:.0f} s.')
        return {'command': command, 'notes': notes, 'configuration': {
            **{name: self._model[name] for name in SHOWN if name in self._model},
            'image_transport': self.transport}}


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
        lines = demo.run(console, args.out, command('demo', argv or []))
    except (ProcessFailed, SourceError, OSError) as error:
        return print_error(f'vjepa-ros demo: {error}', console, args)
    except KeyboardInterrupt:
        console.print('stopped; nothing was written')
        return 130
    for line in lines:
        console.print(line, highlight=False, soft_wrap=True)
    return 130 if demo.interrupted else 0
