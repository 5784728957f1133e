# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Compile the CUDA kernels of the package at run time, and try them before they are used.

NVRTC, which comes with PyTorch, compiles the `.cu` files: a robot needs neither a compiler nor
headers. PyTorch offers it from 2.9 on by a private function, which this module alone calls.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from threading import Thread
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from vjepa_ros.runtime.memory import OutOfMemory, SMALLER, is_out_of_memory

log = logging.getLogger(__name__)

Grid = tuple[int, int, int]
# A compiled kernel: called with blocks, threads of a block, and tensors and integers.
Kernel = Callable[[Grid, Grid, list[Any]], None]
Compile = Callable[[str, str], Kernel]      # from a source and the name of a kernel in it
Made = TypeVar('Made')


class KernelsMissing(RuntimeError):
    """The kernels are unavailable here; the message gives the reason."""


def compiler() -> Compile:
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
    try:
        return compiler()(source, name)
    except KernelsMissing:
        raise
    except (RuntimeError, OSError) as error:
        raise KernelsMissing(f'kernel {name}: {error}') from error


def one_each(count: int, threads: int) -> tuple[Grid, Grid]:
    """Return blocks, and threads of a block, where each of `count` things has a thread."""
    return (-(-count // threads), 1, 1), (threads, 1, 1)


@contextmanager
def loading_on(device: torch.device) -> Iterator[None]:
    """Load compiled kernels into a device, in any thread."""
    with torch.cuda.device(device):
        # A new thread has no CUDA context, and modules are loaded into one, until it does work.
        torch.zeros(1, device=device)
        yield


def kernels_for(what: str, device: torch.device, plain: Made, make: Callable[[], Made],
                trial: Callable[[Made], Tensor], bound: float) -> tuple[Made | None, str]:
    """Make what runs kernels; None, and why, where a trial is not within `bound` of `plain`."""
    try:
        wanted = trial(plain)
        made = make()
        difference = float((trial(made) - wanted).norm() / wanted.norm())
    # PyTorch raises SyntaxError for some faulty sources; ValueError: the results are no numbers.
    except (RuntimeError, SyntaxError, ValueError) as error:
        if is_out_of_memory(error):
            raise OutOfMemory(f'{device} has no memory to try the kernels for {what}; '
                              f'{SMALLER}') from error
        # Missing kernels are normal on some machines; failing ones are not.
        level = logging.INFO if isinstance(error, KernelsMissing) else logging.WARNING
        log.log(level, 'no kernels for %s on %s: %s', what, device, error)
        return None, str(error)
    if difference <= bound:
        return made, ''
    problem = f'they differ by {difference:.2g} from PyTorch, allowed is {bound:g}'
    log.warning('the kernels for %s are wrong on %s: %s; it runs without them, which is slower',
                what, device, problem)
    return None, problem


@contextmanager
def waking(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Start in a thread what takes seconds to start on CUDA: context, libraries, compiler."""
    if device.type != 'cuda':
        yield
        return
    # A driver that hangs must not keep the process from ending.
    thread = Thread(target=_wake, args=(device, dtype), name='wake', daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@torch.no_grad()
def _wake(device: torch.device, dtype: torch.dtype) -> None:
    try:
        with torch.cuda.device(device):
            rows = torch.zeros(64, 64, device=device, dtype=dtype)
            torch.addmm(rows[0], rows, rows)
            tokens = rows[None, None]
            F.scaled_dot_product_attention(tokens, tokens, tokens)
            compiler()('extern "C" __global__ void nothing() {}', 'nothing')
            torch.cuda.synchronize(device)
    # Libraries of drivers raise anything. The model meets the same error where it needs them, and
    # reports it.
    except Exception as error:
        log.debug('%s did not start before its time: %s: %s', device, type(error).__name__,
                  error)
