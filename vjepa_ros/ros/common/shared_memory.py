# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Keep away from what killed processes leave behind in the shared memory of Fast DDS."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

FOLDER = Path('/dev/shm')
QUEUE = re.compile(rb'/dev/shm/(fast(?:dds|rtps)_port(\d+))\b')
OF_ALL = range(7000, 7400)       # numbers of queues that are not of one domain
FIRST, OF_DOMAIN = 7400, 250     # those of a domain, by the rule of RTPS for its ports
LOOKED_AT_S = 0.02


@contextmanager
def avoiding_abandoned_queues(environ: Mapping[str, str], processes: Path = Path('/proc')
                              ) -> Iterator[list[str]]:
    """Keep what takes part in DDS here from queues that others still write to for killed readers.

    A reader of Fast DDS takes the first number that is free for its queue. After a SIGKILL that is
    the number of the killed reader. Writers notice after one to four seconds, sometimes never
    (https://github.com/eProsima/Fast-DDS/issues/5469), that the new reader has another queue of
    the same name; until then it gets nothing. Inside the block the locks of such queues are held,
    so that Fast DDS takes other numbers.
    """
    domain, written = environ.get('ROS_DOMAIN_ID') or '0', set[str]()
    if domain.isdecimal() and not environ.get('FASTDDS_BUILTIN_TRANSPORTS', '').startswith('UDP'):
        begin = FIRST + OF_DOMAIN * int(domain)
        for maps in processes.glob('[0-9]*/maps'):
            with suppress(OSError):          # it has ended, or is of another user
                written.update(
                    name.decode() for name, number in QUEUE.findall(maps.read_bytes())
                    if int(number) in OF_ALL or begin <= int(number) < begin + OF_DOMAIN)
    with ExitStack() as kept:
        # Fast DDS holds the lock of what is abandoned, too, while it looks at it.
        first = {name for name in written if _keep(name, kept)}
        time.sleep(LOOKED_AT_S if written else 0.0)
        yield sorted(first | {name for name in written - first if _keep(name, kept)})


def _keep(name: str, kept: ExitStack) -> bool:
    """Hold the lock of a queue; whether nobody else holds it."""
    with suppress(OSError), ExitStack() as stack:
        lock = stack.enter_context(open(os.open(
            FOLDER / f'{name}_el', os.O_RDWR | os.O_CREAT, 0o666), 'rb'))
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        kept.push(stack.pop_all())
        return True
    return False
