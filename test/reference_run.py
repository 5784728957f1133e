# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Prove that a change of structure changes nothing that a user has.

    python test/reference_run.py --before COMMIT [--parts recordings nodes ...]

Runs the code of a commit and the code of this checkout with the same inputs on this machine and
compares what comes out: assessments, maps and flags of all recordings and of the rendered scene,
`evaluate` on rendered clips, episodes of `drive`, and parameters, topics, types and QoS of all
nodes. Uses only console scripts, `open_source`, `ObstacleDetector`, topics and services, which
both must have. Exits 1 when anything differs, and lists what.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cv2
import rclpy
import torch
from lifecycle_msgs.srv import GetState
from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters
from rclpy.parameter import parameter_value_to_python

HERE = Path(__file__).resolve()
REPOSITORY = HERE.parents[1]
SMALL = {'weights': 'random', 'allow_random_weights': True, 'device': 'cpu', 'autostart': True}
NODES: dict[str, tuple[bool, dict[str, Any]]] = {     # whether it has a lifecycle, parameters
    'vjepa_node': (True, {**SMALL, 'cameras': ['front', 'rear']}),
    'collision_guard': (True, {'autostart': True, 'ranges': ['sonar']}),
    'local_planner': (True, {'autostart': True}),
    'camera_source': (False, {'source': 'synthetic'}),
    'simulated_robot': (False, {})}


def record_recordings(data: Path) -> dict[str, Any]:
    """Assessments, levels, flags, regions and maps of every frame."""
    from vjepa_ros import ObstacleDetector
    from vjepa_ros.sources import PlayOptions, SourceError, open_source

    torch.set_num_threads(1)
    cv2.setNumThreads(1)              # sums of its threads differ from run to run
    found: dict[str, Any] = {}
    for name in ('synthetic:approach', *sorted(map(str, data.iterdir()))):
        scene = {'rate': 15.0, 'size': (320, 240)} if name.startswith('synthetic') else {}
        rows = []
        try:
            with open_source(name, PlayOptions(**scene)) as source, ObstacleDetector(
                    device='cpu', precision='fp32', cpu_threads=1) as detector:
                for frame in source:
                    detector.add_frame(frame.rgb, frame.stamp_ns * 1e-9)
                    result = detector.result()
                    if result is not None:
                        rows.append(row_of(result))
        except SourceError as error:
            print(f'  {error}', flush=True)
            continue
        found[Path(name).name] = rows
        print(f'  {name}: {len(rows)} assessments', flush=True)
    return found


def row_of(result: Any) -> dict[str, Any]:
    """What a result says, as numbers and words."""
    seen, learned = result.assessment, result.learned
    row = {field.name: plain(getattr(seen, field.name)) for field in dataclasses.fields(seen)
           if field.name not in ('latency_ms', 'timings')}
    return row | {
        'heads_problem': result.heads_problem,
        'motion_map': plain(result.motion_map), 'looming_map': plain(result.looming_map),
        'moving_map': None if learned is None else plain(learned.moving),
        'embedding': None if result.features is None else plain(
            result.features.mean(axis=(0, 1, 2)))}


def plain(value: Any) -> Any:
    """Plain lists, numbers and words of anything that a result or a parameter holds."""
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if hasattr(value, 'tolist'):         # arrays and scalars of NumPy, arrays of ROS
        return value.tolist()
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def tool(*words: str) -> dict[str, Any]:
    """The figures that a command writes."""
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / 'figures.json'
        subprocess.run([*script('vjepa-ros'), *words, '--json', str(path)], check=True,
                       stdout=sys.stderr)
        found = json.loads(path.read_text(encoding='utf-8'))
    return {key: value for key, value in found.items() if key not in ('machine', 'date', 'commit')}


def script(name: str) -> list[str]:
    """The command behind a console script of the checkout that runs."""
    text = Path('setup.py').read_text(encoding='utf-8')
    module, function = re.search(rf"'{name} = {{NAME}}\.([\w.]+):(\w+)'", text).groups()
    return [sys.executable, '-c', f'import sys\nfrom vjepa_ros.{module} import {function}\n'
            f'sys.exit({function}())']


def record_nodes(data: Path) -> dict[str, Any]:
    """Parameters, topics, types, QoS and services of every node while it is active."""
    os.environ.update({'ROS_DOMAIN_ID': str(100 + os.getpid() % 100),
                       'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET',
                       'FASTDDS_BUILTIN_TRANSPORTS': 'SHM?max_msg_size=64KB&sockets_size=4MB'})
    rclpy.init()
    probe = rclpy.create_node('reference_probe')
    return {name: node_facts(probe, name, *how) for name, how in NODES.items()}


def node_facts(probe: Any, name: str, managed: bool, params: dict[str, Any]) -> dict[str, Any]:
    """Start one node, ask it everything, end it."""
    words = [word for key, value in params.items()
             for word in ('-p', f'{key}:={json.dumps(value)}')]
    with subprocess.Popen([*script(name), '--ros-args', *words], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            end = time.monotonic() + 120.0
            while managed and ask(probe, GetState, f'/{name}/get_state'
                                  ).current_state.label != 'active':
                assert time.monotonic() < end, f'{name} does not become active'
            names = sorted(ask(probe, ListParameters, f'/{name}/list_parameters').result.names)
            values = ask(probe, GetParameters, f'/{name}/get_parameters', names=names).values
            told = ask(probe, DescribeParameters, f'/{name}/describe_parameters',
                       names=names).descriptors
            return {'parameters': {
                key: {'value': plain(parameter_value_to_python(value)), 'type': one.type,
                      'read_only': one.read_only, 'constraints': one.additional_constraints,
                      'ranges': str([*one.floating_point_range, *one.integer_range])}
                for key, value, one in zip(names, values, told, strict=True)},
                **endpoints(probe, name)}
        finally:
            process.terminate()


def ask(probe: Any, kind: Any, name: str, **request: Any) -> Any:
    """Call a service that is there sooner or later."""
    client = probe.create_client(kind, name)
    assert client.wait_for_service(120.0), f'no service {name}'
    future = client.call_async(kind.Request(**request))
    rclpy.spin_until_future_complete(probe, future, timeout_sec=60.0)
    return future.result()


def endpoints(probe: Any, name: str) -> dict[str, Any]:
    """Topics with their types and QoS, and services."""
    time.sleep(2.0)          # discovery of what was created last
    topics = {'published': (probe.get_publisher_names_and_types_by_node(name, '/'),
                            probe.get_publishers_info_by_topic),
              'subscribed': (probe.get_subscriber_names_and_types_by_node(name, '/'),
                             probe.get_subscriptions_info_by_topic)}
    return {'services': dict(probe.get_service_names_and_types_by_node(name, '/')), **{
        what: {topic: [*kinds, *sorted(
            f'{i.qos_profile.reliability.name} {i.qos_profile.durability.name}'
            for i in infos(topic) if i.node_name == name)] for topic, kinds in named}
        for what, (named, infos) in topics.items()}}


PARTS = {
    'recordings': record_recordings, 'nodes': record_nodes,
    'evaluate': lambda data: tool('evaluate', '--world', '200', '--device', 'cpu'),
    'drive': lambda data: tool('drive', '--episodes', '20', '--seed', '7000', '--device', 'cpu')}


def differences(before: Any, after: Any, where: str = '') -> Iterator[str]:
    """Where two records differ, one sentence each."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in [*before, *(k for k in after if k not in before)]:
            if key not in after or key not in before:
                yield f'{where}.{key}: only {"before" if key in before else "after"}'
            else:
                yield from differences(before[key], after[key], f'{where}.{key}')
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, pair in enumerate(zip(before, after, strict=True)):
            yield from differences(*pair, f'{where}[{number}]')
    elif repr(before) != repr(after) and not (      # NaN is equal to NaN
            type(before) is type(after) is float
            and math.isclose(before, after, rel_tol=1e-6, abs_tol=1e-6)):
        yield f'{where}: {str(before)[:200]} -> {str(after)[:200]}'


def compare(args: argparse.Namespace) -> int:
    """Record both, print what differs; the exit code."""
    bad, git = 0, ['git', '-C', str(REPOSITORY), 'worktree']
    with tempfile.TemporaryDirectory(prefix='reference_run_') as work:
        tree, out = Path(work) / 'tree', Path(work) / 'record.json'
        subprocess.run([*git, 'add', '--force', '--detach', str(tree), args.before], check=True)
        try:
            for part in args.parts:
                records = []
                for where in (tree, REPOSITORY):
                    print(f'{part}, {where}', flush=True)
                    env = {'PYTHONPATH': str(where), 'OMP_NUM_THREADS': '1',
                           'OPENBLAS_NUM_THREADS': '1'}
                    words = ['--record', part, '--out', str(out), '--data', str(args.data)]
                    subprocess.run([sys.executable, str(HERE), *words], cwd=where, check=True,
                                   env=os.environ | env)
                    records.append(json.loads(out.read_text()))
                found = list(differences(*records, part))
                bad += len(found)
                print(f'{part}: {len(found) or "no"} differences', *found[:20], sep='\n  ')
        finally:
            subprocess.run([*git, 'remove', '--force', str(tree)], check=True)
    return 1 if bad else 0


def main() -> int:
    """Compare, or record one part for that."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--before', metavar='COMMIT', help='the reference')
    parser.add_argument('--parts', nargs='+', choices=PARTS, default=list(PARTS))
    parser.add_argument('--data', type=Path, default=REPOSITORY.parent / 'shared' / 'data',
                        help='folder of the recordings')
    parser.add_argument('--record', choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument('--out', type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.record:
        args.out.write_text(json.dumps(PARTS[args.record](args.data)), encoding='utf-8')
        return 0
    if not args.before:
        parser.error('--before is missing')
    return compare(args)


if __name__ == '__main__':
    sys.exit(main())
