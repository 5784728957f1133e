# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Attack perception, guard and watchdog for a while, and check that they keep their promises.

The nodes are processes with the settings of `guarded.launch.py`; camera, controller and base are
played. Faults are drawn from a seed. In runs of two minutes or more the second half has a
simulated clock. The exit code is 1 where an invariant was broken.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
from rich.console import Console

from vjepa_ros.cli.console import plain_lines, positive, print_error, save, whole
from vjepa_ros.cli.demo_processes import end_like_ctrl_c, ros_problem
from vjepa_ros.cli.soak.invariants import Ledger
from vjepa_ros.ros.common.environment import LARGE_IMAGES
from vjepa_ros.ros.common.processes import (
    Children,
    ProcessFailed,
    free_domain,
    keep_logs,
    ros_environment,
)

SIMULATED_FROM = 2.0     # minutes: shorter runs have the clock of the system alone
START_S = 180.0
MOST_RATE = 60.0         # half as much again is drawn, and images are sent every 10 ms at most
SETTLE_S = 1.0           # in which the robot stands, if the last fault makes it
OVER = 0.7               # of the faults are over before the next one
LOGS = Path('soak_logs')


def soak(args: argparse.Namespace, ledger: Ledger, say: Callable[[str], None],
         work: Path) -> None:
    """Inject faults and judge; `work` takes the logs."""
    from vjepa_ros.cli.soak.attack import Attack
    from vjepa_ros.cli.soak.faults import draw

    begin_ns, latencies_s = time.time_ns(), list[float]()
    clocks = (False, True) if args.minutes >= SIMULATED_FROM else (False,)
    for simulated in clocks:
        with ExitStack() as stack:
            domain = stack.enter_context(free_domain())
            # Those of the launch files; this process takes part.
            env = ros_environment(domain, work / 'ros', os.environ)
            os.environ.clear()
            os.environ.update(env, FASTDDS_BUILTIN_TRANSPORTS=LARGE_IMAGES)
            children = stack.enter_context(Children(os.environ, work))
            attack = Attack(ledger, begin_ns, children, domain, simulated, args.rate)
            stack.callback(attack.close)
            say(f'starting the nodes with a {"simulated" if simulated else "system"} clock')
            if not attack.moves(START_S):
                raise ProcessFailed(f'the robot does not begin to move: {attack.said()}')
            end_s = time.monotonic() + 60 * args.minutes / len(clocks)
            for name, fault in draw(Random(f'{args.seed} {simulated}'), simulated, args.minutes):
                if time.monotonic() > end_s:
                    break
                ledger.events.append({'fault': name, 'at_s': round(attack.at_s(), 2)})
                say(f'{len(ledger.events)}: {name}')
                rng = Random(f'{args.seed} {len(ledger.events)}')
                fault(attack, rng)
                attack.calm()
                if rng.random() < OVER:
                    attack.recover()
            attack.wait(SETTLE_S)
            attack.recover()
        latencies_s += attack.latencies_s
    ledger.check('latency', float(np.percentile(latencies_s, 99)),
                 (time.time_ns() - begin_ns) / 1e9, why='of the whole run')


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 when all invariants held."""
    parser = argparse.ArgumentParser(prog='vjepa-ros soak', description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--minutes', type=positive, default=5.0, metavar='N',
                        help='how long to inject faults (default: %(default)g)')
    parser.add_argument('--seed', type=whole(0), default=0, metavar='N',
                        help='what they are drawn from (default: %(default)s)')
    parser.add_argument('--rate', type=positive, default=20.0, metavar='HZ',
                        help='images a second, between faults (default: %(default)g)')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write all that was found there')
    args, ledger = parser.parse_args(argv), Ledger()
    if args.rate > MOST_RATE:
        parser.error(f'--rate is {args.rate:g}, at most {MOST_RATE:g} can be sent')
    if problem := ros_problem():
        return print_error(f'vjepa-ros soak: {problem}')
    end_like_ctrl_c()
    console = Console()
    tell = partial(console.print, markup=False, highlight=False, soft_wrap=True)
    with TemporaryDirectory(prefix='vjepa_ros_soak_') as folder:
        try:
            soak(args, ledger, plain_lines(console), Path(folder))
        except KeyboardInterrupt:
            tell('interrupted')
        except ProcessFailed as error:
            return print_error(f'vjepa-ros soak: {error}')
        if ledger.failed:
            keep_logs(Path(folder), LOGS)
    tell(f'{len(ledger.events)} faults, seed {args.seed}')
    for row in ledger.rows.values():
        tell(str(row))
    if ledger.failed:
        tell(f'Logs are in {LOGS}. The same faults again: vjepa-ros soak --minutes '
             f'{args.minutes:g} --seed {args.seed} --rate {args.rate:g}')
    rows = {name: asdict(row) for name, row in ledger.rows.items()}
    text = json.dumps({'events': ledger.events, 'invariants': rows}, indent=1) + '\n'
    return save('--json', args.json, lambda path: path.write_text(text, encoding='utf-8'),
                console) or int(bool(ledger.failed))
