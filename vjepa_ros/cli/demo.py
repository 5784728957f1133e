# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run camera, node and recorder as processes over DDS, and write a report."""

from __future__ import annotations

import argparse
import math
import shlex
import shutil
import tempfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from vjepa_ros.cli.console import add_model, folder, print_error, real
from vjepa_ros.cli.demo_processes import DemoProcesses, Plan, end_like_ctrl_c, ros_problem
from vjepa_ros.lab.report.live_view import View, log_to
from vjepa_ros.lab.report.report import summary_lines, write_outputs
from vjepa_ros.ros.common.processes import ProcessFailed, keep_logs
from vjepa_ros.sources import PlayOptions, SUPPORTED, SourceError, open_source
from vjepa_ros.sources.base import printable

LONGEST_S = 60.0          # for a source, without --seconds
BRIEF_FAILURES = (ProcessFailed, SourceError, OSError)


def make_plan(spec: str, seconds: float | None, given_hz: float | None = None) -> Plan:
    """Check a source before anything starts (`SourceError` when it cannot be opened)."""
    with open_source(spec, PlayOptions(rate=given_hz)) as source:
        rate, count = source.rate_hz, source.frame_count
        length = count / rate if count and rate > 0 else math.inf
        endless = spec.strip().startswith('synthetic')
        wanted = min(length, LONGEST_S) if seconds is None else seconds
        # Slow recordings must not start a new clip with every frame.
        gap = max(1.0, 2.5 / rate) if rate > 0 else 1.0
        name = f'{source.name}, {source.size[0]}x{source.size[1]}'
        return Plan(spec, name, wanted if endless else min(wanted, length), endless, gap,
                    given_hz)


class Demo:
    """One run of the demo.

    Parameters
    ----------
    plan
        What to play.
    parameters : dict of str to object
        Parameters of the node beside those of the demo.
    out_dir
        Folder for the results.
    console
        Shows the progress.
    command
        Command line, for the report.
    """

    def __init__(self, plan: Plan, parameters: dict[str, object], out_dir: Path,
                 console: Console, command: str) -> None:
        self.plan, self.out_dir, self.console, self.command = plan, out_dir, console, command
        self._processes = DemoProcesses('vjepa-ros demo', plan, node=parameters,
                                        camera={'truth': True, 'rate': plan.rate or 0.0})
        self.recording = self._processes.recording

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it after the first result."""
        return self._processes.interrupted

    def run(self) -> tuple[dict[str, Any], list[Path]]:
        """Play, stop all processes, write the files; return the summary and files beside it."""
        work = Path(tempfile.mkdtemp(prefix='vjepa_ros_demo_'))
        try:
            with View(self._processes.status, self.console) as view:
                self._processes.run(view, work)
                return self._write(work, view)
        except ProcessFailed:
            keep_logs(work, self.out_dir / 'logs')
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _write(self, work: Path, view: View) -> tuple[dict[str, Any], list[Path]]:
        self._processes.status.phase = f'writing {self.out_dir}'
        view.tick()
        # Before and after the run, pictures show that there is no camera.
        pictures, maps = ([item for path in sorted((work / name).iterdir())
                           if self.recording.covers((item := (int(path.stem), path))[0])]
                          for name in ('overlay', 'looming_map'))
        result = write_outputs(self.out_dir, self.recording.records(), pictures, self._meta(),
                               maps)
        self._processes.status.phase = ''
        return result

    def _meta(self) -> dict[str, Any]:
        model, camera, played = self.recording.model, self.recording.camera, \
            self.recording.played_s
        sent, came = self.recording.frames_sent, int(camera.get('frames_in', 0))
        notes = [f'Camera, node and recorder ran as three processes and talked over DDS for '
                 f'{played:.1f} s. Latency runs from the stamp of a frame to the arrival of its '
                 'assessment in the recorder. Every estimate is compared with the truth of its '
                 'own stamp.']
        if self.recording.results < came:
            notes.append(f'{came} frames came in and {self.recording.results} were assessed: '
                         'results begin with the first full clip, and a busy node continues with '
                         'the newest frame.')
        if came < sent:
            notes.append(f'{sent - came} of {sent} frames from the camera did not arrive.')
        if self.interrupted:
            notes.append(f'The run was interrupted; its planned length was '
                         f'{self.plan.seconds:.0f} s.')
        shown = ('model', 'model_version', 'precision', 'num_frames', 'image_size', 'clip_fps',
                 'resize_mode', 'weights', 'heads', 'looming_method', 'device_reason')
        return {
            'title': 'vjepa_ros demo', 'source': self.plan.name, 'command': self.command,
            'date': datetime.now().astimezone().strftime('%Y-%m-%d %H:%M %Z'),
            'frames_in': came, 'device': model.get('device', 'unknown'),
            'model': model.get('model', 'unknown'), 'trained': model.get('trained') == 'True',
            'configuration': {**{name: model[name] for name in shown if name in model},
                              'image_transport': self._processes.transport},
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
    add_model(parser)
    parser.add_argument('--allow-random-weights', action='store_true',
                        help='run untrained when there are no weights')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when report, video and summary were written."""
    parser = make_parser()
    args = parser.parse_args(argv)
    console = Console()
    log_to(console)
    words = ['vjepa-ros', 'demo', *(argv if argv is not None else [])]
    if ros_problem():
        return print_error(f'vjepa-ros demo: {ros_problem()}', console)
    parameters = {'device': args.device, 'model_size': args.model_size, 'weights': args.weights,
                  'allow_random_weights': args.allow_random_weights,
                  'require_device': args.device != 'auto'}
    end_like_ctrl_c()
    try:
        plan = make_plan(args.source, args.seconds, args.rate)
        demo = Demo(plan, parameters, args.out, console, printable(shlex.join(words)))
        summary, files = demo.run()
    except BRIEF_FAILURES as error:
        return print_error(f'vjepa-ros demo: {error}', console, args)
    except KeyboardInterrupt:
        console.print('stopped; nothing was written')
        return 130
    for line in summary_lines(summary, args.out, files):
        console.print(line, highlight=False, soft_wrap=True)
    return 130 if demo.interrupted else 0
