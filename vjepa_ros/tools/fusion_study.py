# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Show what the numbers of the rule that joins heads and geometry decide, on rendered clips.

One number after the other is changed while the rest stay as they are in
`vjepa_ros.perception.belief.Rule`. The clips come from seeds of their own, so that neither
training nor the figures of `vjepa-ros evaluate` have seen them. The numbers are chosen like this:

- geometry_weight, most_geometric: the most that costs at most 2 % of the logarithmic loss of the
  heads alone (weight 0). Less would do as well here; but real pictures are not rendered, and
  there the two are to guard each other;
- believed: of those with which at most 2 % of the clips without danger are warned of, the one
  after the least that gives no false alarm on the recordings of docs/accuracy.md;
- on_course, known_well: hardly matter; what lies in the middle of what does not;
- cautious: a doubted alarm is CAUTION at once, and a WARNING that is believed no more ends.

They hold for every recording; none is chosen per recording.
"""

from __future__ import annotations

import argparse
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from vjepa_ros.evaluation.clips import joined
from vjepa_ros.model.checkpoint import WeightsError
from vjepa_ros.model.variants import VARIANTS
from vjepa_ros.perception.belief import RULE, Rule
from vjepa_ros.perception.config import TrackConfig
from vjepa_ros.perception.settings import Settings
from vjepa_ros.runtime.device import DeviceError, choose_device, device_name
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.tools.evaluate_jobs import Workers, recipe_of, usual_jobs
from vjepa_ros.tools.evaluate_run import Setup
from vjepa_ros.tools.evaluate_table import Grid, markdown, number
from vjepa_ros.tools.fusion_cases import figures, judged_part, merged
from vjepa_ros.tools.json_file import write_json
from vjepa_ros.tools.machine import hardware, versions
from vjepa_ros.training.seeds import SPLIT_BATCH, STUDY_SEED

SEEDS_APART = 10_000      # pieces of clips between two values of --seed
TRIED: dict[str, tuple[Any, ...]] = {
    'geometry_weight': (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 1.0),
    'most_geometric': (0.5, 1.0, 2.0, 3.0, 5.0),
    'known_well': (0.25, 0.5, 1.0),
    'believed': (0.4, 0.5, 0.6, 0.67, 0.75, 0.85),
    'cautious': (0.25, 0.5, 0.75, 1.0),
    'on_course': ((0.05, 0.3), (0.2, 0.5), (0.3, 0.6), (0.3, 0.9), (0.5, 0.8), (0.7, 0.9)),
}
COLUMNS = {   # figure: head of the column
    'auc_1s': 'AUC 1 s', 'auc_3s': 'AUC 3 s', 'log_loss': 'log loss', 'calibration_error': 'ECE',
    'ttc_error': 'TTC error', 'warned': 'warned', 'false_warnings': 'falsely',
    'cautioned': 'cautioned', 'caution_after_s': 'CAUTION s', 'warning_left_after_s': 'left s'}
LEGEND = (
    'Clips with a contact within the time of WARNING: warned and cautioned, part of them at that '
    'level or above. falsely: part of the clips with no contact within one and a half times that. '
    'CAUTION s, left s: seconds until a doubted alarm is CAUTION, and until a WARNING that is '
    'believed no more has ended. A star marks what is used.')


def variations() -> list[tuple[str, Rule]]:
    """Every rule that is tried, with the name of the number that differs; what is used is one."""
    found = []
    for name, values in TRIED.items():
        used = getattr(RULE, name)
        for value in sorted({*values, used}):
            found.append((name, replace(RULE, **{name: value})))
    return found


def study(args: argparse.Namespace, console: Console, command: str) -> dict[str, Any]:
    """Render, judge and compute; ready for JSON."""
    device = choose_device(args.device)
    engine = Engine.load(EngineConfig(
        model_size=args.model_size, weights=args.weights, device=args.device,
        require_device=args.device != 'auto', **({'heads': args.heads} if args.heads else {})))
    if engine.report.heads is None:
        engine.close()
        raise WeightsError('the model has no learned heads to join with geometry; give --heads')
    setup = Setup(('fused',), Settings(), TrackConfig(
        num_frames=engine.config.num_frames, image_size=engine.config.image_size), engine)
    tried = variations()
    rules = [rule for _, rule in tried]
    first = STUDY_SEED + SEEDS_APART * args.seed
    pieces = [(judged_part, first + i, min(SPLIT_BATCH, args.clips - i * SPLIT_BATCH),
               str(device.device), rules) for i in range(math.ceil(args.clips / SPLIT_BATCH))]
    jobs = args.jobs or usual_jobs(len(pieces), device.device.type != 'cpu')
    with Progress(console=console) as progress, Workers(jobs, recipe_of(setup), setup) as workers:
        bar = progress.add_task('rendered clips', total=args.clips)
        parts = workers.run(pieces, lambda part: progress.advance(bar, part[0].interval_s.size))
    engine.close()
    truth, said = joined([t for t, _ in parts]), merged([s for _, s in parts])
    rows = [{'number': name, 'value': getattr(rule, name), 'used': rule == RULE,
             **figures(truth, one, rule, setup.settings)}
            for (name, rule), one in zip(tried, said, strict=True)]
    on = 'no GPU' if device.device.type == 'cpu' else device_name(device.device)
    return {'command': command, 'date': f'{datetime.now().astimezone():%Y-%m-%d %H:%M %Z}',
            'machine': f'{hardware()["logical_cores"]} cores of {hardware()["cpu"]}, {on}, '
                       f'PyTorch {versions()["torch"]}', 'clips': args.clips, 'first_seed': first,
            'weights_sha256': engine.report.sha256,
            'contacts_within_3_s': int((truth.contact_time <= 3).sum()),
            'rule': asdict(RULE), 'rows': rows}


def grids(found: dict[str, Any]) -> list[Grid]:
    """One table for each number of the rule."""
    def text(value: Any) -> str:
        return ' to '.join(f'{v:g}' for v in value) if isinstance(value, tuple | list) \
            else f'{value:g}'

    return [Grid(name, ('value', *COLUMNS.values()), tuple(
        (text(row['value']) + (' *' if row['used'] else ''),
         *(number(row[key], 2 if key.endswith('_s') and 'auc' not in key else 3)
           for key in COLUMNS))
        for row in found['rows'] if row['number'] == name)) for name in TRIED]


def document(found: dict[str, Any]) -> str:
    """All tables as Markdown."""
    parts = ['# What the numbers decide that join heads and geometry\n',
             f'`{found["command"]}`: {found["clips"]} clips from seed {found["first_seed"]} on, '
             f'{found["contacts_within_3_s"]} with a contact within 3 s; {found["date"]}, '
             f'{found["machine"]}; weights {found["weights_sha256"][:12] or "random"}.\n',
             __doc__.split('\n\n', 1)[1], f'{LEGEND}\n', '![all of it](fusion.png)\n']
    return '\n'.join(parts + [f'### {grid.title}\n\n{markdown(grid)}' for grid in grids(found)])


def plot(found: dict[str, Any], path: Path) -> None:
    """What the probability and the warnings lose and win with each number."""
    from matplotlib.figure import Figure
    shown = ('log_loss', 'auc_3s', 'ttc_error', 'warned', 'false_warnings')
    names = [name for name in TRIED if name != 'cautious']      # that one decides times alone
    figure = Figure(figsize=(2.6 * len(names), 1.7 * len(shown)), layout='constrained')
    cells = figure.subplots(len(shown), len(names), sharex='col', sharey='row', squeeze=False)
    for column, name in enumerate(names):
        rows = [r for r in found['rows'] if r['number'] == name]
        values = [r['value'][0] if name == 'on_course' else r['value'] for r in rows]
        places = range(len(rows)) if name == 'on_course' else values
        used = [p for p, r in zip(places, rows, strict=True) if r['used']]
        for line, key in enumerate(shown):
            axes = cells[line][column]
            axes.plot(places, [math.nan if r[key] is None else r[key] for r in rows],
                      color='#0b6bcb', marker='.')
            axes.axvline(used[0], color='#d97706', linewidth=1, linestyle='--')
            axes.grid(True, color='#e2e8f0')
            if column == 0:
                axes.set_ylabel(COLUMNS[key])
        if name == 'on_course':
            cells[-1][column].set_xticks(
                places, ['{:g}–{:g}'.format(*r['value']) for r in rows], rotation=60)
        cells[-1][column].set_xlabel(name)
    figure.savefig(path, dpi=80, metadata={'Software': None})


def make_parser() -> argparse.ArgumentParser:
    """Options of the command."""
    parser = argparse.ArgumentParser(
        prog='vjepa-ros fusion-study', description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--out', type=Path, required=True, metavar='FOLDER',
                        help='for fusion.json, fusion.md and fusion.png')
    parser.add_argument('--clips', type=int, default=400, metavar='N', help='rendered clips '
                        '(default: 400, some minutes on two cores)')
    parser.add_argument('--seed', type=int, default=0, metavar='N', help='other clips for each '
                        'number, 0 to 99')
    parser.add_argument('--jobs', type=int, default=0, metavar='N',
                        help='processes; 0: one for each core that has something to do')
    parser.add_argument('--model-size', default='tiny', choices=tuple(VARIANTS))
    parser.add_argument('--weights', default='', metavar='FILE', help='safetensors file of the '
                        'encoder, with or without heads (default: the one of the package)')
    parser.add_argument('--heads', default='', metavar='FILE', help='safetensors file of heads')
    parser.add_argument('--device', default='auto', help='of the model and of what is '
                        'rendered: auto, cpu, cuda or cuda:N')
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Command line; 0 when everything was written."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = make_parser().parse_args(words)
    console = Console()
    try:
        if args.clips < 1 or args.jobs < 0 or not 0 <= args.seed < 100:
            raise ValueError(f'--clips {args.clips} must be at least 1, --jobs {args.jobs} 0 or '
                             f'more, --seed {args.seed} 0 to 99')
        found = study(args, console, shlex.join(['vjepa-ros', 'fusion-study', *words]))
        write_json(args.out / 'fusion.json', found)
        (args.out / 'fusion.md').write_text(document(found), encoding='utf-8')
        plot(found, args.out / 'fusion.png')
    except (WeightsError, DeviceError, ValueError, OSError) as error:
        console.print(f'vjepa-ros fusion-study: {error}', style='red', markup=False,
                      highlight=False, soft_wrap=True)
        return 1
    console.print(document(found), markup=False, highlight=False, soft_wrap=True)
    for name in ('fusion.json', 'fusion.md', 'fusion.png'):
        console.print(f'wrote {args.out / name}', highlight=False, soft_wrap=True)
    return 0


if __name__ == '__main__':
    sys.exit(main())
