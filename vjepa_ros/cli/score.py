# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score recordings: one row per assessment and a table of events, as Parquet, and a page."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from vjepa_ros.cli.console import behind_p, folder, plain_lines, positive, print_error, real, whole
from vjepa_ros.fleet import run as fleet
from vjepa_ros.fleet.recordings import find_recordings
from vjepa_ros.fleet.results import EventRule, ROWS, arrow, write_summary
from vjepa_ros.fleet.scoring import read_config
from vjepa_ros.lab.worker_pool import usual_jobs
from vjepa_ros.perception.types import Level

LEVELS = ('caution', 'warning', 'danger')
CHUNK_S = 300.0


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog='vjepa-ros score', description=__doc__)
    add = parser.add_argument
    add('recordings', nargs='+', type=Path, metavar='BAG_OR_FOLDER',
        help='rosbag2 (folder, .mcap or .db3 file), video, recording folder, folder of pictures, '
        'or a folder that contains such, at any depth')
    add('--out', type=folder, required=True, metavar='RESULTS', help='folder of the results; what '
        'is done there already is skipped')
    add('--topic', action='append', default=[], metavar='TOPIC', help='image topic of bags, may '
        'be given several times (default: all)')
    add('--rate', type=real(0.01, 1000), metavar='HZ', help='rate at which pictures of folders '
        'without stamps were taken; others keep their stamps')
    add('--params-file', type=Path, metavar='FILE', help='parameters of vjepa_node, as the node '
        'that you compare with has them')
    add('-p', action='append', default=[], dest='words', metavar='NAME:=VALUE',
        help='a parameter of vjepa_node, such as weights:=FILE, device:=cuda or max_rate:=5.0')
    add('--jobs', type=whole(), metavar='N', help='processes, each with a model (default: one per '
        'core)')
    add('--ray', metavar='ADDRESS', help='score on a Ray cluster with --jobs actors; local starts '
        'one here. Recordings and results must have the same paths on its machines')
    add('--chunk', type=positive, default=CHUNK_S, metavar='S', help='length of the parts that '
        'are scored as one task and written as one file; the last of a recording is up to twice '
        'as long (default: %(default)g s)')
    add('--event-level', choices=LEVELS, default='warning', help='level at which an event begins '
        '(default: %(default)s)')
    add('--before', type=real(0, 3600), default=EventRule.before_s, metavar='S',
        help='time added before an event (default: %(default)g s)')
    add('--after', type=real(0, 3600), default=EventRule.after_s, metavar='S',
        help='time added after an event (default: %(default)g s)')
    add('--embeddings', action='store_true', help='also write what `vjepa-ros find` searches, '
        'features of each picture, as a column of the rows')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when everything was scored, 1 when something could not be."""
    args = make_parser().parse_args(argv)
    console = Console()
    try:
        return score(args, shlex.join(['vjepa-ros', 'score', *(argv or [])]), console)
    except (ValueError, OSError) as error:
        return print_error(f'vjepa-ros score: {behind_p(str(error))}')
    except KeyboardInterrupt:
        return print_error('stopped; started again, it goes on with what is left')


def score(args: argparse.Namespace, command: str, console: Console) -> int:
    """Score, write the tables and the page, and tell what could not be scored."""
    arrow()
    config = read_config(args.params_file, args.words, args.embeddings)
    run = fleet.Run(config, args.out)
    found, run.problems = find_recordings(args.recordings)
    if not found:
        raise ValueError('; '.join(run.problems))
    (args.out / ROWS).mkdir(parents=True, exist_ok=True)
    fleet.plan(run, found, args.topic, args.chunk, args.rate, args.jobs or usual_jobs(len(found)))
    jobs = args.jobs or usual_jobs(len(run.chunks))
    fleet.score(run, fleet.cluster(config, args.out, args.ray, jobs) if args.ray else
                fleet.processes(config, args.out, jobs),
                plain_lines(Console(force_terminal=False)))
    speed = f' ({run.new_s / run.wall_s:.1f} times real time)' if run.new_s else ''
    said = [f'{len(run.chunks)} chunks, {run.skipped} done before; {run.new_s:.0f} s of '
            f'recordings in {run.wall_s:.0f} s{speed}']
    try:
        said.append(write_summary(run, EventRule(Level[args.event_level.upper()], args.before,
                                                 args.after), command))
    except OSError as error:
        run.problems.append(f"'{args.out}': tables and page cannot be written ({error.strerror}); "
                            'rows are kept: make room, and start again')
    for text in said:
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    if not run.problems:
        return 0
    for problem in run.problems:
        print_error(problem)
    return print_error(f'{len(run.problems)} problem{"s" * (len(run.problems) > 1)}, listed above'
                       f'{" and on the page" * (len(said) > 1)}; all else is scored')
