# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compile the CUDA kernels of the package at run time.

Their sources are the `.cu` files of the package. NVRTC, which comes with PyTorch, compiles them:
a robot needs neither a compiler nor headers. PyTorch offers it from 2.9 on by a private function,
which this module alone calls; everything that has kernels has a path without them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.resources import files
from typing import Any, TypeVar

import torch

Grid = tuple[int, int, int]
# A compiled kernel: called with blocks, threads of a block, and tensors and integers.
Kernel = Callable[[Grid, Grid, list[Any]], None]
Compile = Callable[[str, str], Kernel]      # from a source and the name of a kernel in it
Made = TypeVar('Made')


class KernelsMissing(RuntimeError):
    """The kernels are unavailable here; the message gives the reason."""


def compiler() -> Compile:
    """Return what PyTorch compiles kernels with."""
    found = getattr(torch.cuda, '_compile_kernel', None)
    if found is None:
        raise KernelsMissing(f'PyTorch {torch.__version__} does not compile kernels at run time; '
                             '2.9 and later do')
    if torch.version.cuda is None:
        raise KernelsMissing(f'PyTorch {torch.__version__} is not built for CUDA')
    return found


def source_of(package: str, *names: str, **defined: float | str) -> str:
    """Read `.cu` files of a package, one after the other, behind definitions of macros."""
    macros = ''.join(f'#define {name} {value}\n' for name, value in defined.items())
    return macros + ''.join(files(package).joinpath(f'{name}.cu').read_text(encoding='utf-8')
                            for name in names)


def compile_kernel(source: str, name: str) -> Kernel:
    """Compile the kernel `name` of a source for the current device."""
    try:
        return compiler()(source, name)
    except KernelsMissing:
        raise
    except (RuntimeError, OSError) as error:
        raise KernelsMissing(f'kernel {name}: {error}') from error


def one_each(count: int, threads: int) -> tuple[Grid, Grid]:
    """Return blocks, and threads of a block, where each of `count` things has a thread."""
    return (-(-count // threads), 1, 1), (threads, 1, 1)


def begin_build(build: Callable[[torch.device], Made], device: torch.device,
                name: str) -> Future[Made] | None:
    """Begin to compile kernels for a device, in a thread of that name; None off CUDA."""
    if device.type != 'cuda':
        return None
    worker = ThreadPoolExecutor(1, name)
    try:
        return worker.submit(build, device)
    finally:
        worker.shutdown(wait=False)


@contextmanager
def loading_on(device: torch.device) -> Iterator[None]:
    """Load compiled kernels into a device, in any thread."""
    with torch.cuda.device(device):
        # A new thread has no CUDA context, and modules are loaded into one, until it does work.
        torch.zeros(1, device=device)
        yield
