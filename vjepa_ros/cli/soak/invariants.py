# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Judge nodes under attack by what they publish and when; nothing here asks a clock."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from vjepa_ros.clip.ring import REORDER_S
from vjepa_ros.guard.settings import GuardSettings
from vjepa_ros.perception.settings import Settings

WITHIN_S = 0.05          # in which a node acts after a timeout: 20 ms are promised
WARM_UP_S, LIFE_S = 20.0, 60.0      # of a process; growth is judged in this time after that
SAMPLES, SAMPLE_NS = 900, 100_000_000
Check = Callable[[str, float, int], object]     # of what, its value, and when [ns]

# Each invariant: what it is, the greatest value that is right, and the unit of that.
LIMITS: dict[str, tuple[str, float, str]] = {
    'sight': ('image to zero, when sight is lost', GuardSettings.source_timeout + WITHIN_S, 's'),
    'command': ('command to zero, when the controller is silent',
                GuardSettings.command_timeout + WITHIN_S, 's'),
    'guard': ('guard dead to zero', 0.4 + WITHIN_S, 's'),
    'clock jump': ('clock jump to zero', 2 * WITHIN_S, 's'),
    'clock stands': ('clock stands to zero', 2.0 + WITHIN_S, 's'),
    'origin': ('assessment of an image that nobody sent', 0, ''),
    'order': ('assessment repeated or out of order', 0, ''),
    'age': ('age of an assessment not flagged stale', Settings.max_frame_age + WITHIN_S, 's'),
    'latency': ('image to assessment, 99th percentile', GuardSettings.source_timeout, 's'),
    'visible': ('fault that diagnostics do not show', 0, ''),
    'parameters': ('parameter wrongly taken, lost or unanswered', 0, ''),
    'recovery': ('end of a fault to motion', 60.0, 's'),
    'alive': ('process or transition that failed', 0, ''),
    'memory': ('growth of memory', 64.0, 'MB'), 'descriptors': ('growth of open files', 4, ''),
    'threads': ('growth of threads', 2, '')}


@dataclass
class Row:
    """Checks of an invariant: the worst value, less what the machine delayed, and failures."""

    text: str
    limit: float
    unit: str
    checked: int = 0
    worst: float = 0.0
    failures: list[dict[str, Any]] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = f'FAILED {len(self.failures)}' if self.failures else 'holds'
        return '\n'.join((
            f'{self.text:<50}{self.checked:>7} checked, worst {self.worst:.3g} of {self.limit:g} '
            f'{self.unit} {verdict if self.checked else ""}',
            *('    {value:g} at {at_s:.1f} s, after fault {event} {why}'.format_map(each)
              for each in self.failures)))


class Ledger:
    """Counts checks of all invariants in `rows`; `events` are the faults with their `at_s`."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.rows = {name: Row(*limit) for name, limit in LIMITS.items()}

    @property
    def failed(self) -> dict[str, Row]:
        """Return the invariants that were broken."""
        return {name: row for name, row in self.rows.items() if row.failures}

    def check(self, name: str, value: float, at_s: float, delay_s: float = 0.0,
              why: str = '') -> None:
        """Judge a value; the machine caused `delay_s` of it.

        Of failures without a reason at most one a second is noted.
        """
        row, value = self.rows[name], value - delay_s
        row.checked += 1
        row.worst = max(row.worst, value)
        noted = not why and row.failures and at_s - row.failures[-1]['at_s'] < 1.0
        if value > row.limit and not noted:
            row.failures.append({'at_s': at_s, 'value': value, 'why': why, 'event': sum(
                event['at_s'] <= at_s for event in self.events)})


class BaseWatch:
    """Whether a base that follows its last command stands in time; calls come in order of time.

    `check` takes how long ago each thing that permits motion was lost, while the robot moves.
    """

    def __init__(self, check: Check, start_ns: int) -> None:
        self._check, self._moving = check, False
        self._since = {'sight': start_ns, 'command': start_ns}     # [ns]

    def seen(self, captured_ns: int) -> None:
        """Take a valid assessment of an image captured then."""
        if 'clock stands' not in self._since and captured_ns > self._since.get('clock jump', 0):
            self._since.pop('clock jump', None)
            self._since['sight'] = max(captured_ns, self._since['sight'])

    def commanded(self, at_ns: int) -> None:
        """Take a command that is finite."""
        self._since['command'] = at_ns

    def lost(self, what: str, at_ns: int) -> None:
        """From now on the 'guard' is not active, or ages are unknown: 'clock jump' or 'stands'."""
        if what != 'guard' or self._moving:
            self._since[what] = at_ns
        if what == 'clock stands':
            self._since.pop('sight', None)

    def clock_runs(self, at_ns: int) -> None:
        """End 'clock stands'."""
        del self._since['clock stands']
        self._since['sight'] = at_ns

    def sent(self, at_ns: int, moving: bool) -> None:
        """Take what was sent to the base."""
        self.judge(at_ns)
        self._moving = moving
        if not moving:
            self._since.pop('guard', None)

    def judge(self, at_ns: int) -> None:
        """Judge the time until now. Where the guard is dead nobody else keeps its promises."""
        if self._moving:
            for what, since_ns in self._since.items():
                if what == 'guard' or 'guard' not in self._since:
                    self._check(what, (at_ns - since_ns) / 1e9, at_ns)


def waits(*pids: int) -> dict[str, int]:
    """Return how long each thread of processes was ready to run, but had no core [ns].

    Linux counts that in ``/proc``; where it does not, nothing is known to be a delay.
    """
    found = {}
    for pid in pids:
        with suppress(OSError):                  # it has just ended, or one of its threads
            for file in sorted(Path(f'/proc/{pid}/task').glob('*/schedstat')):
                with suppress(OSError):
                    found[str(file)] = int(file.read_text().split()[1])
    return found


class Delays:
    """How long this machine let the threads of processes wait, see `waits`."""

    def __init__(self) -> None:
        self._waited: dict[str, deque[tuple[int, dict[str, int]]]] = {}

    def sample(self, name: str, pid: int, now_ns: int) -> None:
        """Read the counters of a process, ten times a second."""
        self._waited.setdefault(name, deque(maxlen=SAMPLES)).append((now_ns, waits(pid)))

    def between(self, name: str, since_ns: int, until_ns: int) -> float:
        """Return how long the thread that waited longest did, in about that time [s]."""
        near = [waited for at, waited in list(self._waited.get(name, ()))
                if since_ns - SAMPLE_NS <= at <= until_ns + SAMPLE_NS]
        return max((waited_ns - near[0].get(thread, 0) for thread, waited_ns in near[-1].items()),
                   default=0) / 1e9 if near else 0.0


class Sent(NamedTuple):
    """An image: when it was captured and sent [ns], whether its stamp is right, and its era."""

    captured_ns: int
    sent_ns: int
    truthful: bool
    era: int             # a new one begins where stamps go backward


class OutputWatch:
    """Whether assessments belong to images, in their order and not too late."""

    def __init__(self, check: Check) -> None:
        self._check = check
        self._sent: dict[int, Sent] = {}        # by stamp [ns]
        self._newest = self._last = (0, 0)      # era and stamp sent and assessed

    def sent(self, stamp_ns: int, captured_ns: int, sent_ns: int, truthful: bool) -> None:
        """Take an image, before it is published; see `Sent`."""
        era, newest_ns = self._newest
        if stamp_ns < newest_ns - REORDER_S * 1e9:
            era, newest_ns = era + 1, stamp_ns
        self._newest = era, max(newest_ns, stamp_ns)
        self._sent.setdefault(stamp_ns, Sent(captured_ns, sent_ns, truthful, era))

    def assessed(self, stamp_ns: int, at_ns: int, stale: bool) -> Sent | None:
        """Judge an assessment; return the image it is of, None for none."""
        image = self._sent.get(stamp_ns)
        self._check('origin', float(image is None), at_ns)
        if image is not None:
            before, self._last = self._last, (image.era, stamp_ns)
            self._check('order', float(self._last <= before), at_ns)
            if not stale:
                self._check('age', (at_ns - image.captured_ns) / 1e9, at_ns)
        return image


def growth(samples: Sequence[tuple[float, ...]], column: int) -> float | None:
    """Return how much the least of the last quarter of a life is above that of the first.

    `samples` are the age of the process [s], ascending, and what was measured. None where it did
    not live for `LIFE_S` after `WARM_UP_S`. Passing peaks do not count.
    """
    end_s = samples[-1][0] if samples else 0.0
    if end_s < WARM_UP_S + LIFE_S:
        return None
    quarter_s = (end_s - WARM_UP_S) / 4
    first = [row[column] for row in samples if 0 <= row[0] - WARM_UP_S < quarter_s]
    last = [row[column] for row in samples if row[0] >= end_s - quarter_s]
    return min(last) - min(first) if first else None
