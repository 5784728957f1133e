# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Prove that a change of structure changes nothing that a user has.

    python test/reference_run.py --before COMMIT [--parts recordings nodes ...]

Runs the code of a commit and the code of this checkout with the same inputs on this machine, one
after the other, and compares everything that comes out: assessments, maps and flags of all
recordings and of the demo scene (fixed stamps, one thread), `evaluate` on rendered clips, episodes
of `drive`, parameters, topics, types and QoS of all nodes, and `--help` of the commands. Numbers
may differ by 1e-6. It uses only what both must have: console scripts, `ObstacleDetector`, topics
and services. Exits 1 when anything differs, and lists what.

Both runs are on one machine because other processors round otherwise, so no file of results is
kept: any commit can be the reference.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve()
REPOSITORY = HERE.parents[1]
TOLERANCE = 1e-6
SHOWN = 20                # differences that are listed in each part
COMMANDS = ('demo', 'watch', 'inspect', 'convert', 'download', 'export', 'train', 'evaluate',
            'drive', 'benchmark', 'selftest')
VIDEO_HZ = {'cup.mp4': 26.8, 'box.mp4': 30.0, 'motorway.mp4': 25.0}
FOLDER_HZ = {'kitti_street': 10.0, 'euroc_still': 20.0}
EPISODES, EPISODE_SEED = 20, 7000
CLIPS = 200
Frames = Iterator[tuple[np.ndarray, float]]       # RGB and stamp [s]


# -- inputs ---------------------------------------------------------------------------------------

def recordings(data: Path, demo: Path) -> Iterator[tuple[str, Frames]]:
    """All recordings by name, and the demo scene as the reference drew it."""
    yield 'demo', (lambda kept: ((rgb, 1.0 + n / 15.0) for n, rgb in enumerate(kept['frames'])))(
        np.load(demo))
    for path in sorted(data.iterdir()):
        if path.suffix == '.mp4':
            yield path.name, video(path, VIDEO_HZ[path.name])
        elif (path / 'frames').is_dir():
            yield path.name, folder(path)
        elif list(path.glob('*.mcap')):
            yield path.name, bag(path)


def video(path: Path, rate_hz: float) -> Frames:
    import cv2

    film = cv2.VideoCapture(str(path))
    number = 0
    while True:
        there, bgr = film.read()
        if not there:
            return
        yield bgr[..., ::-1].copy(), 1.0 + number / rate_hz
        number += 1


def folder(path: Path) -> Frames:
    import cv2

    lines = (path / 'labels.csv').read_text(encoding='utf-8').splitlines()
    at = lines[0].split(',').index('stamp_s')
    stamps = [float(line.split(',')[at]) for line in lines[1:] if line]
    files = sorted(p for p in (path / 'frames').iterdir() if p.suffix in ('.png', '.jpg'))
    for file, stamp in zip(files, stamps, strict=True):
        yield cv2.imread(str(file))[..., ::-1].copy(), 1.0 + stamp


def bag(path: Path) -> Frames:
    import cv2
    from rosbags.highlevel import AnyReader

    with AnyReader([path]) as reader:
        images = [c for c in reader.connections if c.msgtype.endswith('CompressedImage')]
        for connection, _, raw in reader.messages(images):
            msg = reader.deserialize(raw, connection.msgtype)
            bgr = cv2.imdecode(np.asarray(msg.data), cv2.IMREAD_COLOR)
            yield (bgr[..., ::-1].copy(), msg.header.stamp.sec + 1e-9 * msg.header.stamp.nanosec)


def draw_demo(out: Path) -> None:
    """The demo scene, drawn by the reference: both runs see the same frames."""
    from vjepa_ros.sources.base import PlayOptions
    from vjepa_ros.sources.video import SyntheticSource

    source = SyntheticSource('approach', PlayOptions(rate=15.0, size=(320, 240)))
    np.savez_compressed(out, frames=np.stack([frame.rgb for frame in source]))


# -- what is recorded -----------------------------------------------------------------------------

def record_recordings(args: argparse.Namespace) -> dict[str, Any]:
    """Assessments, levels, flags, regions and maps of every frame."""
    import cv2
    import torch

    from vjepa_ros import ObstacleDetector

    torch.set_num_threads(1)
    cv2.setNumThreads(1)              # sums of its threads differ from run to run
    found: dict[str, Any] = {}
    for name, frames in recordings(args.data, args.demo):
        rows = []
        with ObstacleDetector(device='cpu', precision='fp32', cpu_threads=1) as detector:
            for rgb, stamp in frames:
                detector.add_frame(rgb, stamp)
                result = detector.result()
                if result is not None:
                    rows.append(row_of(result))
        found[name] = rows
        print(f'  {name}: {len(rows)} assessments', flush=True)
    return found


def row_of(result: Any) -> dict[str, Any]:
    """What a result says, as numbers and words."""
    seen = result.assessment
    row = {field.name: plain(getattr(seen, field.name)) for field in dataclasses.fields(seen)
           if field.name not in ('latency_ms', 'timings')}
    row |= {'method': result.method, 'heads_problem': result.heads_problem}
    for name in ('motion_map', 'looming_map'):
        row[name] = plain(getattr(result, name))
    learned = result.learned
    row['moving_map'] = None if learned is None else plain(learned.moving)
    row['embedding'] = None if result.features is None else plain(
        result.features.mean(axis=(0, 1, 2)))
    return row


def plain(value: Any) -> Any:
    """Plain lists, numbers and words of anything that a result holds."""
    if isinstance(value, np.ndarray):
        return [None if value is None else plain(v) for v in value.tolist()]
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if isinstance(value, (bool, str)) or value is None:
        return value
    return int(value) if isinstance(value, (int, np.integer)) else float(value)


def record_help(args: argparse.Namespace) -> dict[str, Any]:
    """What the commands that stay say of themselves."""
    return {name: subprocess.run([*script('vjepa-ros'), name, '--help'], check=True,
                                 capture_output=True, text=True,
                                 env={**os.environ, 'COLUMNS': '100'}).stdout
            for name in COMMANDS}


def record_evaluate(args: argparse.Namespace) -> dict[str, Any]:
    """Figures of rendered clips."""
    return tool(args, 'evaluate', '--world', str(CLIPS), '--device', 'cpu')


def record_drive(args: argparse.Namespace) -> dict[str, Any]:
    """What guard and planner did at every picture of the episodes."""
    return tool(args, 'drive', '--episodes', str(EPISODES), '--seed', str(EPISODE_SEED),
                '--device', 'cpu', '--follow', *map(str, range(EPISODES)))


def tool(args: argparse.Namespace, *words: str) -> dict[str, Any]:
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


# -- nodes ----------------------------------------------------------------------------------------

SMALL = {'weights': 'random', 'allow_random_weights': True, 'device': 'cpu', 'autostart': True}
NODES: dict[str, tuple[bool, dict[str, Any]]] = {     # whether it has a lifecycle, parameters
    'vjepa_node': (True, {**SMALL, 'cameras': ['front', 'rear']}),
    'collision_guard': (True, {'autostart': True, 'ranges': ['sonar']}),
    'local_planner': (True, {'autostart': True}),
    'camera_source': (False, {'source': 'synthetic'}),
    'simulated_robot': (False, {})}


def record_nodes(args: argparse.Namespace) -> dict[str, Any]:
    """Parameters, topics, types, QoS and services of every node while it is active."""
    import rclpy

    os.environ.update({'ROS_DOMAIN_ID': str(100 + os.getpid() % 100),
                       'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET',
                       'FASTDDS_BUILTIN_TRANSPORTS': 'SHM?max_msg_size=64KB&sockets_size=4MB'})
    rclpy.init()
    probe = rclpy.create_node('reference_probe')
    try:
        return {name: node_facts(probe, name, *how) for name, how in NODES.items()}
    finally:
        probe.destroy_node()
        rclpy.shutdown()


def node_facts(probe: Any, name: str, managed: bool, params: dict[str, Any]) -> dict[str, Any]:
    """Start one node, ask it everything, end it."""
    from lifecycle_msgs.srv import GetState
    from rcl_interfaces.srv import DescribeParameters, GetParameters, ListParameters
    from rclpy.parameter import parameter_value_to_python

    words = [word for key, value in params.items()
             for word in ('-p', f'{key}:={json.dumps(value)}')]
    with subprocess.Popen([*script(name), '--ros-args', *words], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as process:
        try:
            if managed:
                end = time.monotonic() + 120.0
                while ask(probe, GetState, f'/{name}/get_state').current_state.label != 'active':
                    assert time.monotonic() < end, f'{name} does not become active'
            names = sorted(ask(probe, ListParameters, f'/{name}/list_parameters').result.names)
            values = ask(probe, GetParameters, f'/{name}/get_parameters', names=names).values
            told = ask(probe, DescribeParameters, f'/{name}/describe_parameters',
                       names=names).descriptors
            return {'parameters': {
                key: {'value': plain_value(parameter_value_to_python(value)), 'type': one.type,
                      'read_only': one.read_only, 'ranges': str(
                          [*one.floating_point_range, *one.integer_range]),
                      'constraints': one.additional_constraints}
                for key, value, one in zip(names, values, told, strict=True)},
                **endpoints(probe, name)}
        finally:
            process.terminate()


def plain_value(value: Any) -> Any:
    """A value of a parameter as JSON has it."""
    return list(value) if hasattr(value, '__len__') and not isinstance(value, str) else value


def ask(probe: Any, kind: Any, name: str, **request: Any) -> Any:
    """Call a service that is there sooner or later."""
    import rclpy

    client = probe.create_client(kind, name)
    try:
        assert client.wait_for_service(120.0), f'no service {name}'
        future = client.call_async(kind.Request(**request))
        rclpy.spin_until_future_complete(probe, future, timeout_sec=60.0)
        return future.result()
    finally:
        probe.destroy_client(client)


def endpoints(probe: Any, name: str) -> dict[str, Any]:
    """Topics with their types and QoS, and services."""
    def qos(infos: list[Any]) -> list[str]:
        return sorted(f'{i.qos_profile.reliability.name} {i.qos_profile.durability.name}'
                      for i in infos if i.node_name == name)

    time.sleep(2.0)          # discovery of what was created last
    out = {}
    for what, topics, infos in (
            ('published', probe.get_publisher_names_and_types_by_node(name, '/'),
             probe.get_publishers_info_by_topic),
            ('subscribed', probe.get_subscriber_names_and_types_by_node(name, '/'),
             probe.get_subscriptions_info_by_topic)):
        out[what] = {topic: [*kinds, *qos(infos(topic))] for topic, kinds in sorted(topics)}
    out['services'] = dict(sorted(probe.get_service_names_and_types_by_node(name, '/')))
    return out


PARTS = {'recordings': record_recordings, 'nodes': record_nodes, 'help': record_help,
         'evaluate': record_evaluate, 'drive': record_drive}


# -- comparison -----------------------------------------------------------------------------------

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
    elif not same(before, after):
        yield f'{where}: {str(before)[:200]} -> {str(after)[:200]}'


def same(before: Any, after: Any) -> bool:
    """Whether two values are equal, numbers up to the tolerance."""
    if isinstance(before, float) and isinstance(after, float):
        return (math.isnan(before) and math.isnan(after)) or before == after or (
            abs(before - after) <= TOLERANCE * max(1.0, abs(before)))
    return type(before) is type(after) and before == after


# -- both runs ------------------------------------------------------------------------------------

def run(tree: Path, args: argparse.Namespace, *words: str) -> None:
    """Run this script with the package of a checkout."""
    subprocess.run([sys.executable, str(HERE), *words, '--data', str(args.data), '--demo',
                    str(args.demo)], cwd=tree, check=True,
                   env={**os.environ, 'PYTHONPATH': str(tree), 'OMP_NUM_THREADS': '1',
                        'OPENBLAS_NUM_THREADS': '1'})


def compare(args: argparse.Namespace) -> int:
    """Record both, print what differs; the exit code."""
    work = Path(args.work or tempfile.mkdtemp(prefix='reference_run_'))
    work.mkdir(parents=True, exist_ok=True)
    tree, args.demo, bad = work / 'tree', work / 'demo.npz', 0
    git = ['git', '-C', str(REPOSITORY), 'worktree']
    subprocess.run([*git, 'add', '--force', '--detach', str(tree), args.before], check=True)
    try:
        run(tree, args, '--draw-demo')
        for part in args.parts:
            for where, name in ((tree, 'before'), (REPOSITORY, 'after')):
                out = work / f'{part}_{name}.json'
                if name == 'before' and out.exists():
                    continue             # recorded by an earlier run into the same folder
                print(f'{part}, {name}', flush=True)
                run(where, args, '--record', part, '--out', str(out))
            found = list(differences(*(json.loads((work / f'{part}_{name}.json').read_text())
                                       for name in ('before', 'after')), part))
            bad += len(found)
            print(f'{part}: {len(found) or "no"} differences')
            print(''.join(f'  {line}\n' for line in found[:SHOWN]), end='')
    finally:
        subprocess.run([*git, 'remove', '--force', str(tree)], check=True)
        if not args.work:
            shutil.rmtree(work)
    return 1 if bad else 0


def main() -> int:
    """Compare, or record one part for that."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--before', metavar='COMMIT', help='the reference')
    parser.add_argument('--parts', nargs='+', choices=PARTS, default=list(PARTS))
    parser.add_argument('--data', type=Path, default=REPOSITORY.parent / 'shared' / 'data',
                        help='folder of the recordings')
    parser.add_argument('--work', type=Path, help='folder that keeps the records, also for a '
                        'second comparison with the same commit')
    parser.add_argument('--record', choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument('--draw-demo', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--out', type=Path, help=argparse.SUPPRESS)
    parser.add_argument('--demo', type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.draw_demo:
        draw_demo(args.demo)
    elif args.record:
        args.out.write_text(json.dumps(PARTS[args.record](args)), encoding='utf-8')
    elif args.before:
        return compare(args)
    else:
        parser.error('--before is missing')
    return 0


if __name__ == '__main__':
    sys.exit(main())
