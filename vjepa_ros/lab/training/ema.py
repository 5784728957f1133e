# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Keep a moving average of trained weights, which is what is saved and judged."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """Exponential moving average of the trained parameters of a module.

    Parameters
    ----------
    module : nn.Module
        The average starts at its present values; frozen parameters are left alone.

    Attributes
    ----------
    values : dict of str to Tensor
        The average by name of the parameter.
    """

    def __init__(self, module: nn.Module):
        self._trained = {n: p for n, p in module.named_parameters() if p.requires_grad}
        self.values = {n: p.detach().clone() for n, p in self._trained.items()}

    @torch.no_grad()
    def update(self, kept: float) -> None:
        """Move the average towards the parameters; `kept` 0..1 is the share of the old one."""
        torch._foreach_lerp_(list(self.values.values()), list(self._trained.values()), 1 - kept)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Let the module hold the average for a while, in place."""
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        trained, average = list(self._trained.values()), list(self.values.values())
        before = [p.detach().clone() for p in trained]
        torch._foreach_copy_(trained, average)
        torch._foreach_copy_(average, before)

    def share(self, module: nn.Module, prefix: str) -> None:
        """Make parameters of another module be this average, from now on and without a copy.

        Parameters
        ----------
        module : nn.Module
            Such as the target encoder.
        prefix : str
            In front of its names among those of the average, such as 'encoder.'.
        """
        for name, parameter in module.named_parameters():
            parameter.requires_grad_(False)
            if prefix + name in self.values:
                parameter.data = self.values[prefix + name]

    def load(self, values: dict[str, Tensor]) -> None:
        """Take over saved values, in place."""
        if values.keys() != self.values.keys():
            raise ValueError('the saved average belongs to another network')
        for name, value in values.items():
            self.values[name].copy_(value)
