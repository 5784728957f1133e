# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Check the pickle of a checkpoint before it is loaded: what it calls, and what it would cost.

`torch.load` runs no foreign code, but a small pickle can still cost it minutes or gigabytes. So
its instructions are followed here without making its objects: only their weight, which is how
many objects they consist of, and their depth are kept.
"""

from __future__ import annotations

import pickletools
import re
from collections.abc import Callable
from typing import Any

MIB = 1 << 20
# A giant checkpoint with two encoders and its optimiser has 0.3 MB, 95 000 instructions and
# 6 000 calls.
MOST_BYTES = 4 * MIB          # also of other descriptions: indices, headers, JSON
MOST_OPCODES = 400_000
MOST_CALLS = 60_000
MOST_COPIED = 3_000_000       # objects that calls take in
MOST_DEPTH = 50
CALLED = re.compile(
    r'collections (OrderedDict|Counter)|(__builtin__|builtins) (set|complex)|_codecs encode'
    r'|torch\._utils _rebuild_(tensor(_v[23])?|parameter(_with_state)?|qtensor)'
    r'|torch(\.storage)? (\w*Storage|Size|device|bool|per_\w+|[bcqu]*(int|float|complex)\w*)')

Cell = list[int]              # weight and depth of an object; a container's grow with it


class CostlyPickle(ValueError):
    """A pickle needs more than a checkpoint does; the message names the resource."""


class ForeignCall(ValueError):
    """A pickle calls a function that no checkpoint needs; the message is its name."""


def check_pickle(data: bytes) -> None:
    """Refuse a pickle that is costly or calls anything but what tensors are made with."""
    if len(data) > MOST_BYTES:
        raise CostlyPickle(f'{len(data) / MIB:.1f} MiB of description, at most '
                           f'{MOST_BYTES // MIB} are read')
    _Walk().run(data)


class _Walk:
    """Follows the instructions of a pickle; `STEPS` has those that `torch.load` knows."""

    def __init__(self) -> None:
        self.stack: list[Cell] = []
        self.marks: list[list[Cell]] = []
        self.memo: dict[int, Cell] = {}
        self.called: set[int] = set()   # ids of cells that are functions or classes
        self.copied = 0
        self.calls = 0

    def run(self, data: bytes) -> None:
        for number, (opcode, value, _) in enumerate(pickletools.genops(data)):
            if number >= MOST_OPCODES:
                raise CostlyPickle(f'more than {MOST_OPCODES} instructions')
            if opcode.name == 'STOP':
                return
            step = STEPS.get(opcode.name)
            if step is None:
                raise ValueError(f'instruction {opcode.name}')
            step(self, value)

    def atom(self, value: object) -> None:
        size = len(value) // 16 if isinstance(value, str | bytes) else 0
        self.stack.append([1 + size, 0])

    def function(self, name: str) -> None:
        if not CALLED.fullmatch(name):
            raise ForeignCall(name.replace(' ', '.', 1))
        cell = [1, 0]
        self.memo[-1 - len(self.called)] = cell   # kept: no other cell gets its id
        self.called.add(id(cell))
        self.stack.append(cell)

    def mark(self, value: object) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def to_mark(self) -> list[Cell]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def join(self, target: Cell, items: list[Cell]) -> Cell:
        """Put items into a container. Weights end at the limit: shared objects count again."""
        target[0] = min(target[0] + sum(item[0] for item in items), MOST_COPIED + 1)
        target[1] = max(target[1], 1 + max((item[1] for item in items), default=0))
        if target[1] > MOST_DEPTH:
            raise CostlyPickle(f'objects in each other more than {MOST_DEPTH} deep')
        return target

    def tuple(self, value: object) -> None:
        items = self.to_mark()
        self.stack.append(self.join([1, 0], items))

    def few(self, count: int) -> None:
        items = [self.stack.pop() for _ in range(count)]
        self.stack.append(self.join([1, 0], items))

    def append(self, value: object) -> None:
        item = self.stack.pop()
        self.join(self.stack[-1], [item])

    def extend(self, value: object) -> None:
        items = self.to_mark()
        self.join(self.stack[-1], items)

    def set_item(self, value: object) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.put_in([key, value])

    def set_items(self, value: object) -> None:
        self.put_in(self.to_mark())

    def put_in(self, items: list[Cell]) -> None:
        for key in items[::2]:
            self.pay(key[0])      # it is hashed, with all that is in it
        self.join(self.stack[-1], items)

    def call(self, value: object) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if id(function) not in self.called:
            raise ValueError('a call of what is no function')
        self.calls += 1
        self.pay(arguments[0])
        self.stack.append([1 + arguments[0], arguments[1]])

    def build(self, value: object) -> None:
        state = self.stack.pop()
        self.calls += 1
        self.pay(state[0])
        self.join(self.stack[-1], [state])

    def storage(self, value: object) -> None:
        self.calls += 1
        self.pay(self.stack.pop()[0])
        self.stack.append([1, 0])

    def pay(self, weight: int) -> None:
        self.copied += weight
        if self.copied > MOST_COPIED or self.calls > MOST_CALLS:
            raise CostlyPickle(f'more than {MOST_CALLS} calls' if self.calls > MOST_CALLS else
                               'far more copies of objects than a checkpoint')

    def remember(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def recall(self, place: int) -> None:
        self.stack.append(self.memo[place])


Step = Callable[[_Walk, Any], None]
STEPS: dict[str, Step] = {
    'PROTO': lambda walk, value: None, 'GLOBAL': _Walk.function, 'MARK': _Walk.mark,
    'TUPLE': _Walk.tuple, 'REDUCE': _Walk.call, 'BUILD': _Walk.build, 'BINPERSID': _Walk.storage,
    'APPEND': _Walk.append, 'APPENDS': _Walk.extend, 'SETITEM': _Walk.set_item,
    'SETITEMS': _Walk.set_items,
    **dict.fromkeys(('NONE', 'NEWTRUE', 'NEWFALSE', 'EMPTY_TUPLE', 'EMPTY_LIST', 'EMPTY_DICT',
                     'EMPTY_SET', 'BININT', 'BININT1', 'BININT2', 'BINFLOAT', 'BINUNICODE',
                     'SHORT_BINSTRING', 'LONG1'), _Walk.atom),
    **dict.fromkeys(('BINGET', 'LONG_BINGET'), _Walk.recall),
    **dict.fromkeys(('BINPUT', 'LONG_BINPUT'), _Walk.remember),
    **{f'TUPLE{n}': lambda walk, value, n=n: walk.few(n) for n in (1, 2, 3)}}
