# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Say why perception is slow, silent or UNKNOWN: look at machine, ROS graph and parameters.

Without ROS, the machine and parameter files are looked at. With it, the graph is watched for some
seconds: topics with types, rates and ages, QoS, parameters and diagnostics of running nodes. Each
problem comes with its remedy. Exit code 1 means that there is an error.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import psutil
from rich.console import Console
from rich.text import Text

from vjepa_ros.cli.console import positive, ros_problem
from vjepa_ros.parameter import schemas
from vjepa_ros.ros.common.process import LARGE_IMAGES
from vjepa_ros.ros.common.processes import FOREIGN, middleware_hint, takes_large_images
from vjepa_ros.ros.doctor import ERROR, Finding, NOTE, OK, WARNING, judge, judge_file

MARKS = {OK: ('✓', 'green'), NOTE: ('·', 'cyan'), WARNING: ('!', 'yellow'),
         ERROR: ('✗', 'bold red')}
GB = 2**30
SOCKET_BYTES = 4 << 20       # receive buffer that fragments of a large image need
SOCKETS = Path('/proc/sys/net/core/rmem_max')


def devices() -> Iterator[Finding]:
    """Yield the devices, and which one a model would get."""
    try:
        import torch

        from vjepa_ros.lab.report.measurement import hardware, versions
        from vjepa_ros.runtime import device as policy
    except ModuleNotFoundError as error:
        yield Finding(ERROR, 'python', f'{error.name} is missing: no model runs here',
                      'pip install . in the checkout, or follow docs/get-started.md')
        return
    for about, values in (('machine', hardware()), ('libraries', versions())):
        yield Finding(OK, about, ', '.join(f'{name} {value}' for name, value in values.items()))
    yield Finding(OK, 'PyTorch', f'built for {policy.build()}, {torch.get_num_threads()} threads')
    present = policy.find_devices()
    for each in present.values():
        memory = f', {each.memory_bytes / GB:.0f} GB' if each.memory_bytes else ''
        words = f', {" ".join(sorted(each.features))}' if each.features else ''
        yield (Finding(ERROR, each.title, each.problem, 'install the PyTorch for it') if
               each.problem else Finding(OK, each.title, f'usable{memory}{words}'))
    choice = policy.choose_device(present=present)
    yield Finding(OK, 'choice', f'{choice.device} in {choice.precision}: {choice.reason}')
    nvidia = next(filter(os.path.exists, ('/dev/nvidia0', '/dev/nvhost-gpu', '/dev/nvmap')), '')
    if nvidia and not any(name.startswith('cuda') for name in present):
        yield Finding(ERROR, 'GPU', f'{nvidia} is there, but this PyTorch sees no CUDA device',
                      'install the PyTorch wheel for its CUDA; on a Jetson the one of its '
                      'JetPack (docs/jetson.md); in a container give it the GPU')
    if sys.platform == 'darwin' and 'mps' not in present:
        yield Finding(WARNING, 'GPU', 'macOS, but no MPS', 'use an arm64 Python and macOS 13 or '
                      'later')


def memory() -> Iterator[Finding]:
    """Yield the room in memory and on disks."""
    for name, path, least, remedy in (
            ('memory', '', 1.0, 'end other programs, or choose a smaller model'),
            ('disk', '.', 2.0, 'reports and bags need room'),
            ('temporary files', tempfile.gettempdir(), 2.0, 'remove old ones'),
            ('shared memory', '/dev/shm', 0.25, 'Fast DDS needs it: remove stale fastrtps_* '
             'files, or give a container --ipc=host')):
        if not path or os.path.isdir(path):
            free = shutil.disk_usage(path).free if path else psutil.virtual_memory().available
            low = free < least * GB
            yield Finding(WARNING if low else OK, name, f'{free / GB:.1f} GB free', remedy * low)


def middleware(environ: Mapping[str, str], name: str) -> Iterator[Finding]:
    """Yield distribution and middleware of ROS, and the settings of its transport."""
    variables = ('ROS_DISTRO', 'ROS_DOMAIN_ID', 'RMW_IMPLEMENTATION', 'ROS_LOCALHOST_ONLY',
                 'ROS_AUTOMATIC_DISCOVERY_RANGE', 'FASTDDS_BUILTIN_TRANSPORTS', *FOREIGN)
    given = ', '.join(f'{key}={environ[key]}' for key in variables if environ.get(key))
    yield Finding(OK, 'ROS', f'{environ.get("ROS_DISTRO") or "no ROS sourced: wheels"}, {name}; '
                  + (given or 'no variable sets discovery or transport'))
    known = {**environ, 'RMW_IMPLEMENTATION': name}
    if middleware_hint(known):
        yield Finding(NOTE, 'middleware', middleware_hint(known).strip(' ()'), 'ros2 run '
                      'rmw_zenoh_cpp rmw_zenohd')
    if 'fastrtps' in name:
        profiles = [key for key in FOREIGN if 'PROFILES' in key and environ.get(key)]
        if not environ.get('FASTDDS_BUILTIN_TRANSPORTS') and not profiles:
            yield Finding(WARNING, 'middleware', 'Fast DDS has its default transports: most raw '
                          'images above a megabyte are lost to best-effort readers',
                          f'export FASTDDS_BUILTIN_TRANSPORTS="{LARGE_IMAGES}" for camera and '
                          'node' if takes_large_images(known) else 'use the compressed topic')
        if environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE') == 'LOCALHOST':
            yield Finding(WARNING, 'middleware', 'ROS_AUTOMATIC_DISCOVERY_RANGE=LOCALHOST makes '
                          'rmw_fastrtps ignore the sizes in FASTDDS_BUILTIN_TRANSPORTS',
                          'set it to SUBNET and the transports to SHM?...')
    if environ.get('ROS_LOCALHOST_ONLY', '0') != '0':
        yield Finding(NOTE, 'middleware', 'ROS_LOCALHOST_ONLY is set: nodes of other computers '
                      'are not seen', 'unset it where the camera is on another computer')
    if SOCKETS.is_file() and int(SOCKETS.read_text()) < SOCKET_BYTES:
        yield Finding(NOTE, 'middleware', f'the kernel limits receive buffers to '
                      f'{int(SOCKETS.read_text()) >> 10} kB: images over UDP are lost',
                      f'sudo sysctl -w net.core.rmem_max={SOCKET_BYTES << 2}')


def show(found: dict[str, list[Finding]], console: Console) -> None:
    for section, findings in found.items():
        console.print(Text(section, style='bold'))
        for finding in findings:
            mark, style = MARKS[finding.level]
            line = Text.assemble((f'  {mark} ', style), (f'{finding.about}: ', 'bold'),
                                 finding.text)
            console.print(line, soft_wrap=True)
            if finding.remedy:
                console.print(Text(f'      → {finding.remedy}', style='cyan'), soft_wrap=True)
    levels = [each.level for findings in found.values() for each in findings]
    console.print(Text(f'{levels.count(ERROR)} errors, {levels.count(WARNING)} warnings',
                       style='bold'))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog='vjepa-ros doctor', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=positive, default=4.0, metavar='S',
                        help='how long to watch topics (default: 4)')
    parser.add_argument('--params', type=Path, nargs='+', default=(), metavar='FILE',
                        help='also check these parameter files')
    parser.add_argument('--no-ros', action='store_true', help='do not look at the ROS graph')
    parser.add_argument('--json', action='store_true', help='print the findings as JSON')
    args = parser.parse_args(argv)
    logging.getLogger('vjepa_ros').setLevel(logging.ERROR)
    found = {'machine': [*devices(), *memory()]}
    if args.no_ros:
        found['ROS'] = [Finding(NOTE, 'ROS', 'not looked at (--no-ros)')]
    elif ros_problem():
        found['ROS'] = [Finding(NOTE, 'ROS', f'works without it: {ros_problem()}')]
    else:
        from vjepa_ros.ros.graph import observe

        graph = observe(args.seconds)
        found['ROS'] = [*middleware(os.environ, graph.middleware), *judge(graph)]
    if args.params:
        found['parameter files'] = [finding for path in args.params
                                    for finding in judge_file(path, schemas())]
    if args.json:
        print(json.dumps({section: [asdict(each) for each in findings]
                          for section, findings in found.items()}, indent=1))
    else:
        show(found, Console())
    return int(any(each.level == ERROR for findings in found.values() for each in findings))
