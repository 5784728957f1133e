# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The environment of processes with large images and a model, and queues of killed ones in it."""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

# Frames of several hundred kilobytes come and go at camera rate: by default glibc maps and unmaps
# fresh pages for each. Of its arenas, by default up to eight a core, `malloc_trim` gives back what
# is free at the end of the first alone. Idle threads of NumPy's matrix library would spin on the
# cores that the encoder needs; threads of PyTorch that wait for each other would do so for
# milliseconds, in which nothing else gets their core.
TUNING = {'MALLOC_MMAP_THRESHOLD_': str(32 << 20), 'MALLOC_TRIM_THRESHOLD_': str(128 << 20),
          'MALLOC_ARENA_MAX': '1', 'OPENBLAS_NUM_THREADS': '1', 'GOMP_SPINCOUNT': '300'}
# Value of FASTDDS_BUILTIN_TRANSPORTS: with the default the datagrams of Fast DDS are too small for
# its fragments of a raw image to arrive.
LARGE_IMAGES = 'DEFAULT?max_msg_size=64KB&sockets_size=4MB'
# The same without shared memory. There, each reader of Fast DDS has a queue with a lock. A process
# that is stopped or killed while it holds one keeps all others from writing to that reader for the
# second that they wait for the lock.
NETWORK_ONLY = 'UDPv4?max_msg_size=64KB&sockets_size=4MB'
FOLDER = Path('/dev/shm')
QUEUE = re.compile(rb'/dev/shm/(fast(?:dds|rtps)_port(\d+))\b')
OF_ALL = range(7000, 7400)       # numbers of queues that are not of one domain
FIRST, OF_DOMAIN = 7400, 250     # those of a domain, by the rule of RTPS for its ports
LOOKED_AT_S = 0.02               # for so long Fast DDS holds the lock of a queue to look at it


def leave_shared_memory(environ: MutableMapping[str, str]) -> None:
    """Choose transports of Fast DDS without shared memory, unless the user chose others."""
    name = 'FASTDDS_BUILTIN_TRANSPORTS'
    if (environ.get(name) or 'DEFAULT').startswith('DEFAULT'):
        environ[name] = NETWORK_ONLY


@contextmanager
def avoiding_abandoned_queues(environ: Mapping[str, str], processes: Path = Path('/proc')
                              ) -> Iterator[list[str]]:
    """Keep what takes part in DDS here from queues that others still write to for killed readers.

    A reader of Fast DDS takes the first number that is free for its queue: after a SIGKILL that of
    the killed reader. Writers notice after one to four seconds, sometimes never
    (https://github.com/eProsima/Fast-DDS/issues/5469), that it is another queue; until then the
    new reader gets nothing. While the locks of such queues are held, Fast DDS takes other numbers.
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
