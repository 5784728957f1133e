# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Keep away from what killed processes leave behind in the shared memory of Fast DDS."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

FOLDER = Path('/dev/shm')
QUEUE = re.compile(rb'/dev/shm/(fast(?:dds|rtps)_port(\d+))\b')
OF_ALL = range(7000, 7400)       # numbers of queues that are not of one domain
FIRST, OF_DOMAIN = 7400, 250     # those of a domain, by the rule of RTPS for its ports
LOOKED_AT_S = 0.02
_kept: list[ExitStack] = []


def avoid_abandoned_queues(environ: Mapping[str, str], processes: Path = Path('/proc')
                           ) -> list[str]:
    """Keep this process from reading queues that others write to for a reader that was killed.

    A reader of Fast DDS takes the first number that is free for its queue. After a SIGKILL that is
    the number of the killed reader. Writers notice after one to two seconds, sometimes never
    (https://github.com/eProsima/Fast-DDS/issues/5469), that the new reader has another queue of
    the same name; until then it gets nothing. So this holds the locks of such queues, for as long
    as the process lives, and Fast DDS takes another number.

    Parameters
    ----------
    environ
        Of a process that has not started rclpy yet.
    processes
        Folder with the memory maps of all processes. Those of other users cannot be read; what
        they write to is not known then.

    Returns
    -------
    list[str]
        Names of the queues.
    """
    if environ.get('FASTDDS_BUILTIN_TRANSPORTS', '').startswith('UDP'):
        return []
    domain = environ.get('ROS_DOMAIN_ID') or '0'
    if not domain.isdecimal():           # rclpy will refuse it
        return []
    begin = FIRST + OF_DOMAIN * int(domain)
    written = set[str]()
    for maps in processes.glob('[0-9]*/maps'):
        with suppress(OSError):          # it has ended, or is of another user
            written.update(name.decode() for name, number in QUEUE.findall(maps.read_bytes())
                           if int(number) in OF_ALL or begin <= int(number) < begin + OF_DOMAIN)
    # Fast DDS holds the lock of what is abandoned, too, for the moment in which it looks at it.
    first = {name for name in written if _keep(name)}
    time.sleep(LOOKED_AT_S)
    return sorted(first | {name for name in written - first if _keep(name)})


def _keep(name: str) -> bool:
    """Hold the lock of a queue until this process ends; whether nobody else holds it."""
    with suppress(OSError), ExitStack() as stack:
        lock = stack.enter_context(open(os.open(
            FOLDER / f'{name}_el', os.O_RDWR | os.O_CREAT, 0o666), 'rb'))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _kept.append(stack.pop_all())
        return True
    return False
