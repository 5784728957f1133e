# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write the tables of docs/performance.md from docs/benchmarks/*.json.

    python -m vjepa_ros.cli.benchmark.report.performance [DOCUMENT] [FOLDER]

Only what stands between the marks of a block is replaced; everything else is written by hand.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vjepa_ros.cli.benchmark.report.performance_targets import Results, Standing, standings
from vjepa_ros.cli.benchmark.suite import SUITES
from vjepa_ros.lab.report.document_blocks import fill

NOT = 'not measured'


def load(folder: Path) -> dict[str, dict[str, Any]]:
    """All files of a folder by name.

    Raises
    ------
    ValueError
        For a file that is no JSON.
    """
    found = {}
    for path in sorted(folder.glob('*.json')):
        try:
            found[path.stem] = json.loads(path.read_text(encoding='utf-8'))
        except json.JSONDecodeError as error:
            raise ValueError(f'{path} is no JSON: {error}; measure it again') from error
    return found


def blocks(results: Results, folder: str) -> dict[str, str]:
    """Contents of the blocks of the document by name; `folder` is where its links lead."""
    runs = {name: r for name, r in results.items() if 'encode_ms' in r and 'baselines' in r}
    nodes = {name: r for name, r in results.items() if 'overhead_ms' in r}
    expected = [f'{suite}_{row}' for suite, rows in SUITES.items() for row in rows]
    names = [*expected, *(name for name in runs if name not in expected)]
    return {
        'goals': _goals(standings(results)),
        'speeds': _speeds(names, runs, folder),
        'whole': _whole(names, runs),
        'node': _node(nodes, folder),
        'commands': _commands([*names, *nodes], {**runs, **nodes}, folder),
        'stages': _stages(results.get('cpu')),
        'errors': _errors({n: r for n, r in results.items() if 'paths' in r})}


def _goals(found: Sequence[Standing]) -> str:
    rows = []
    for each in found:
        goal = each.goal
        rows.append([goal.what, NOT if each.value is None else _unit(each.value, goal.unit),
                     _unit(goal.reach, goal.unit, goal.more),
                     _unit(goal.better, goal.unit, goal.more), each.verdict,
                     f'`{each.row}`' if each.row else ''])
    return _table(('what', 'measured', 'reach', 'better', 'verdict', 'row'), 'lrrrll', rows)


def _speeds(names: Sequence[str], runs: Results, folder: str) -> str:
    rows = []
    for name in names:
        if name not in runs:
            rows.append([f'`{name}`', NOT, *[''] * 8])
            continue
        run = runs[name]
        c, base, ratios = run['configuration'], run['baselines'], run['ratios']
        shape = (f'{c["model_size"]} {c["model_version"]}, {c["cameras"]} x {c["num_frames"]} x '
                 f'{c["image_size"]} px, {c["precision"]}')
        how = c['execution'] or 'eager'
        rows.append([
            f'[`{name}`]({folder}/{name}.json)', shape, how, _ms(run['encode_ms']['median']),
            f'{_ms(run["encode_ms"]["p95"])} / {_ms(run["encode_ms"]["p99"])}',
            *(_baseline(base.get(key), ratios.get(key))
              for key in ('hf_eager', 'hf_compiled', 'floor')),
            f'{run["memory_bytes"]["engine"] / 2**20:.0f}',
            f'{run["start"]["ready_s"]:.1f}' if 'ready_s' in run['start'] else ''])
    head = ('row', 'model and input', 'runs as', 'encode', 'p95 / p99', 'HF eager (/ ours)',
            'HF compiled (/ ours)', 'floor (ours /)', 'MiB', 'ready s')
    return _table(head, 'lllrrrrrrr', rows)


def _whole(names: Sequence[str], runs: Results) -> str:
    rows = []
    for name in names:
        run = runs.get(name)
        if run is None or 'end_to_end_ms' not in run:
            continue
        whole, stages = run['end_to_end_ms'], run['stages_ms']
        rows.append([
            f'`{name}`', 'x'.join(map(str, run['configuration']['source'])),
            _ms(whole['median']), f'{_ms(whole["p95"])} / {_ms(whole["p99"])}',
            _ms(run['encode_call_ms']['median']),
            _ms(run.get('beyond_encode_ms', {}).get('median')),
            ', '.join(f'{stage} {_ms(ms)}' for stage, ms in stages.items())])
    if not rows:
        return f'{NOT}\n'
    head = ('row', 'images', 'end to end', 'p95 / p99', 'encode call', 'beyond encode', 'stages')
    return _table(head, 'llrrrrl', rows)


def _node(nodes: Results, folder: str) -> str:
    rows = []
    for name, run in nodes.items():
        c, over = run['configuration'], run['overhead_ms']
        parts = [f'{part} {_ms(found["median"])}' for part, found in run['parts_ms'].items()
                 if part != 'session']
        rows.append([
            f'[`{name}`]({folder}/{name}.json)',
            f'{c["model_size"]} {c["model_version"]}, {c["num_frames"]} x {c["image_size"]} px, '
            f'{c["precision"]} on {c["device"]}, {c["looming_method"]}',
            f'{"x".join(map(str, c["source"]))} {c["transport"]}, {c["rate_hz"]:g} Hz',
            *(_ms(run[f'{key}_ms']['median']) for key in ('latency', 'session', 'overhead')),
            f'{_ms(over["p95"])} / {_ms(over["p99"])}', ', '.join(parts),
            _ms(run['beyond_model_ms']['median']), str(run['counts']['results'])])
    if not rows:
        return f'{NOT}\n'
    head = ('row', 'model and input', 'images', 'stamp to received', 'session', 'overhead',
            'p95 / p99', 'its parts', 'beyond the model alone', 'results')
    return _table(head, 'lllrrrrlrr', rows)


def _commands(names: Sequence[str], runs: Results, folder: str) -> str:
    rows = [[f'[`{name}`]({folder}/{name}.json)', run['date'], _machine(run),
             f'`{run["command"]}`'] for name, run in ((n, runs[n]) for n in names if n in runs)]
    if not rows:
        return f'{NOT}\n'
    return _table(('row', 'date', 'hardware', 'command'), 'llll', rows)


def _stages(run: Mapping[str, Any] | None) -> str:
    if run is None:
        return f'{NOT}\n'
    rows = [[s['name'], s['what'], _ms(s['median_ms']), _ms(s['p95_ms']),
             _ms(s['cpu_ms']) if 'cpu_ms' in s else ''] for s in run['stages']]
    return (f'`{run["command"]}`, {run["date"]}, {_machine(run)}\n\n'
            + _table(('stage', 'what', 'median', 'p95', 'CPU'), 'llrrr', rows))


def _errors(found: Results) -> str:
    if not found:
        return f'{NOT}\n'
    parts = []
    for name, run in found.items():
        rows = [[p['model'], p['path'], p['execution'] or 'eager',
                 _percent(p['checks'].get('features', {}).get('error')),
                 _percent(p['checks'].get('features', {}).get('limit')),
                 _ms(p['encode_ms']), 'ok' if p['ok'] else f'**failed** {p["problem"]}']
                for p in run['paths']]
        parts.append(f'`{name}`: `{run["command"]}`, {run["date"]}, {run["device"]}, PyTorch '
                     f'{run["versions"]["torch"]}\n\n' + _table(
                         ('model', 'path', 'runs as', 'error', 'allowed', 'encode', ''),
                         'lllrrrl', rows))
    return '\n'.join(parts)


def _machine(run: Mapping[str, Any]) -> str:
    machine = run['hardware']
    cores = f'{machine["cpu"]}, {machine["cores"]} cores'
    torch = f'PyTorch {run["versions"]["torch"]}'
    return ', '.join([machine['gpu'], cores, torch] if 'gpu' in machine else [cores, torch])


def _baseline(found: Mapping[str, Any] | None, ratio: float | None) -> str:
    if found is None or 'left_out' in found:
        return ''
    if ratio is None:
        return 'failed'
    return f'{_ms(found["median"])} ({ratio:.2f})'


def _ms(value: float | None) -> str:
    if value is None:
        return ''
    return f'{value:.0f}' if value >= 100 else f'{value:.2f}'


def _percent(value: float | None) -> str:
    return '' if value is None else f'{100 * value:.2g} %'


def _unit(value: float | None, unit: str, more: bool = False) -> str:
    if value is None or value != value:
        return ''
    return f'{value:.3g}{unit}' + (' or more' if more else '')


def _table(head: Sequence[str], align: str, rows: Iterable[Sequence[str]]) -> str:
    lines = ['| ' + ' | '.join(head) + ' |',
             '|' + '|'.join('---:' if a == 'r' else '---' for a in align) + '|']
    lines += ['| ' + ' | '.join(cell.replace('|', r'\|') for cell in row) + ' |' for row in rows]
    return '\n'.join(lines) + '\n'


def write(document: Path, folder: Path) -> None:
    """Replace the blocks of a document.

    Raises
    ------
    ValueError
        When a mark is missing or a file is no JSON.
    OSError
        When the document cannot be read or written.
    """
    text = document.read_text(encoding='utf-8')
    for name, content in blocks(load(folder), folder.name).items():
        text = fill(text, name, content)
    document.write_text(text, encoding='utf-8')


def main(argv: Sequence[str] | None = None) -> int:
    """Command line: rewrite the blocks; 0 when done."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('document', type=Path, nargs='?', default=Path('docs/performance.md'))
    parser.add_argument('folder', type=Path, nargs='?', default=Path('docs/benchmarks'))
    args = parser.parse_args(argv)
    try:
        write(args.document, args.folder)
    except (ValueError, OSError) as error:
        print(f'cannot write the tables: {error}', file=sys.stderr)
        return 1
    print(f'written: {args.document}')
    return 0


if __name__ == '__main__':
    sys.exit(main())
