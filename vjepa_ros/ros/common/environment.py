# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Environment variables that make processes with large images and a model run well."""

from __future__ import annotations

from collections.abc import MutableMapping

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


def leave_shared_memory(environ: MutableMapping[str, str]) -> None:
    """Choose transports of Fast DDS without shared memory, unless the user chose others."""
    name = 'FASTDDS_BUILTIN_TRANSPORTS'
    if (environ.get(name) or 'DEFAULT').startswith('DEFAULT'):
        environ[name] = NETWORK_ONLY
