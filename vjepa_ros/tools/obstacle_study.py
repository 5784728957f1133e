# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Measure how far obstacles in metres lie from where surfaces really are, on rendered clips.

Each clip is one moment of a random robot with its own camera (0.1 to 2 m above the ground), lens
with distortion, pitch and roll. The truth is the depth of every pixel. What is compared is what
`~/NAME/obstacle_points` would hold; `docs/nav2.md` shows the figures.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from vjepa_ros.perception.config import TrackConfig
from vjepa_ros.perception.obstacles_config import ObstacleSettings
from vjepa_ros.perception.settings import Settings
from vjepa_ros.runtime.device import DeviceError, choose_device, device_name
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.tools.blocks import fill
from vjepa_ros.tools.evaluate_jobs import Workers, recipe_of, usual_jobs
from vjepa_ros.tools.evaluate_run import Setup
from vjepa_ros.tools.evaluate_table import NONE, Grid, markdown
from vjepa_ros.tools.json_file import write_json
from vjepa_ros.tools.machine import hardware, versions
from vjepa_ros.tools.obstacle_cases import FACTOR, Tally, Way, figures, judged_part
from vjepa_ros.training.seeds import STUDY_SEED

FIRST_SEED = STUDY_SEED + 2_000_000     # clips that no number was chosen on
PART = 20                               # clips of one seed
BLOCK = 'distances'
GROUND = ObstacleSettings(distance='ground')
WAYS = {
    'odometry': Way(ObstacleSettings(distance='odometry')),
    'auto': Way(),
    'auto, odometry 10 % too fast': Way(odometry=1.1),
    'ground alone': Way(GROUND, odometry=math.nan),
    'ground alone, pitch 2° wrong': Way(GROUND, odometry=math.nan, tilt=math.radians(2)),
    'auto, without heads': Way(method='geometric'),
    'ground alone, without heads': Way(GROUND, 'geometric', math.nan),
}
COLUMNS = {   # figure: head of the column
    'error': 'error', 'error_still': 'still', 'error_moving': 'moving',
    'error_below_2m': 'below 2 m', 'bias': 'bias',
    'within_30_percent': 'within 30 %', 'within_two_sigma': 'within 2 σ',
    'points_nearer_than_truth': 'points nearer', 'with_nothing_there': 'nothing there',
    'ways_found': 'blocked found', 'ways_blocked_falsely': 'free blocked'}
LEGEND = (
    'error: median of the relative error of the distance of a column, of what stands still, '
    'moves, is nearer than 2 m. bias: median of estimate over truth, minus one. points nearer: '
    'part of the columns whose points, one standard error nearer, are nearer than the surface. '
    'nothing there: part of the columns that show no surface in the band. blocked found: part of '
    'the clips whose way (0.6 m wide) is blocked within 4 m in which it is found blocked within '
    f'{FACTOR:g} times that distance. free blocked: part of the clips with a free way of more '
    'than 7.5 m in which anything is put into it within 5 m. published: the others are '
    'withheld.')


def study(args: argparse.Namespace, console: Console, command: str) -> dict[str, Any]:
    """Render, judge and compute; ready for JSON."""
    device = choose_device(args.device)
    engine = Engine.load(EngineConfig(device=args.device, require_device=args.device != 'auto'))
    setup = Setup(('fused', 'geometric'), Settings(), TrackConfig(
        num_frames=engine.config.num_frames, image_size=engine.config.image_size), engine)
    ways = list(WAYS.values())
    pieces = [(judged_part, FIRST_SEED + i, min(PART, args.clips - i * PART), str(device.device),
               ways) for i in range(math.ceil(args.clips / PART))]
    jobs = args.jobs or usual_jobs(len(pieces), device.device.type != 'cpu')
    with Progress(console=console) as progress, Workers(jobs, recipe_of(setup), setup) as workers:
        bar = progress.add_task('rendered clips', total=args.clips)
        parts = workers.run(pieces, lambda part: progress.advance(bar, part[0].clips))
    engine.close()
    rows = []
    for index, (name, way) in enumerate(WAYS.items()):
        whole = Tally()
        for part in parts:
            whole.add(part[index])
        rows.append({'name': name, **{key: None if value != value else value      # NaN
                                      for key, value in figures(whole, way.how).items()}})
    on = 'no GPU' if device.device.type == 'cpu' else device_name(device.device)
    return {'command': command, 'date': f'{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}',
            'machine': f'{hardware()["logical_cores"]} cores of {hardware()["cpu"]}, {on}, '
                       f'PyTorch {versions()["torch"]}',
            'clips': args.clips, 'first_seed': FIRST_SEED,
            'weights_sha256': engine.report.sha256, 'rows': rows}


def document(found: dict[str, Any]) -> str:
    """The table as Markdown, with where it comes from."""
    def text(value: float | None) -> str:
        return NONE if value is None else f'{100 * value:.0f} %'

    grid = Grid('', ('way', 'published', 'columns', *COLUMNS.values()),
                tuple((row['name'], f'{row["published"]}/{row["clips"]}', str(row['columns']),
                       *(text(row[key]) for key in COLUMNS)) for row in found['rows']))
    return (f'`{found["command"]}`: {found["clips"]} clips from seed {found["first_seed"]} on; '
            f'{found["date"]}, {found["machine"]}; weights {found["weights_sha256"][:12]}.\n\n'
            f'{markdown(grid)}\n{LEGEND}\n')


def make_parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros obstacle-study', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--clips', type=int, default=300, metavar='N', help='rendered clips '
                        '(default: 300, some minutes on two cores)')
    parser.add_argument('--jobs', type=int, default=0, metavar='N',
                        help='processes; 0: one for each core that has something to do')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write all figures')
    parser.add_argument('--document', type=Path, metavar='FILE', help='write the table between '
                        f'the marks <!-- {BLOCK}:begin --> and <!-- {BLOCK}:end --> of a '
                        'Markdown file')
    parser.add_argument('--device', default='auto', help='of the model and of what is '
                        'rendered: auto, cpu, cuda or cuda:N')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 when everything was written."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = make_parser().parse_args(words)
    console = Console()
    try:
        if args.clips < 1 or args.jobs < 0:
            raise ValueError(f'--clips {args.clips} must be at least 1, --jobs {args.jobs} 0 or '
                             'more')
        page = args.document.read_text(encoding='utf-8') if args.document else ''
        if args.document:
            fill(page, BLOCK, '')           # refused before minutes are spent
        found = study(args, console, shlex.join(['vjepa-ros', 'obstacle-study', *words]))
        if args.json:
            write_json(args.json, found)
        if args.document:
            args.document.write_text(fill(page, BLOCK, document(found)), encoding='utf-8')
    except (DeviceError, ValueError, OSError) as error:
        console.print(f'vjepa-ros obstacle-study: {error}', style='red', markup=False,
                      highlight=False, soft_wrap=True)
        return 1
    console.print(document(found), markup=False, highlight=False, soft_wrap=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
