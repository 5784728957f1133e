# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run many operators of PyTorch on a CPU as one call, without Python between them.

Python needs its global lock between two operators. Where another thread works in Python, too, each
waits for the other again and again, and a thread that slept wakes later than most operators take.
TorchScript is deprecated for torch.compile, which needs a C++ compiler on the robot. Where it does
not serve, the functions run as they are: with the same results, only slower.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

log = logging.getLogger(__name__)

# What the compiler raises for code that it does not know, and in builds that lack an operator.
PROBLEMS = (RuntimeError, TypeError, ValueError, AttributeError, OSError)
MOST_TRACES = 16    # of one function
WARM_RUNS = 2       # in which TorchScript learns what it runs


@lru_cache
def scripted(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a function compiled for TorchScript, control flow included."""
    try:
        with _quiet():
            return torch.jit.script(function)
    except PROBLEMS as error:
        _say_why(function.__name__, error)
        return function


class Traced:
    """A function of tensors as recorded for the shapes it is called with.

    What it does may depend on their shapes, but not on their values, and other tensors that it
    reads must stay the same.
    """

    def __init__(self, function: Callable[..., Tensor], name: str):
        self._function, self._name = function, name
        self._made: OrderedDict[tuple[torch.Size, ...], Callable[..., Tensor]] = OrderedDict()
        self._making = threading.Lock()

    def __call__(self, *given: Tensor) -> Tensor:
        shapes = tuple(one.shape for one in given)
        with self._making:
            made = self._made.get(shapes)
            if made is None:
                while len(self._made) >= MOST_TRACES:
                    self._made.popitem(last=False)
                made = self._made[shapes] = self._trace(given)
        return made(*given)

    def _trace(self, given: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        try:
            with _quiet():
                made: Any = torch.jit.trace(self._function, given, check_trace=False)
            for _ in range(WARM_RUNS):
                made(*given)
        except PROBLEMS as error:
            _say_why(self._name, error)
            return self._function
        return made


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')     # deprecated; and shapes are recorded as they are
        yield


def _say_why(name: str, error: Exception) -> None:
    log.info('%s runs operator by operator, because TorchScript does not take it: %s', name,
             str(error).strip().partition('\n')[0])
