# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run the nodes as the launch file does, beside a hostile peer, and watch what they do."""

from __future__ import annotations

import heapq
import itertools
import os
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import psutil

from vjepa_ros.cli.soak.invariants import BaseWatch, Delays, Ledger, OutputWatch, SAMPLE_NS, growth
from vjepa_ros.perception.types import Level, Quality
from vjepa_ros.ros import read
from vjepa_ros.ros.common.processes import Child, Children, ros_arguments
from vjepa_ros.ros.sim.hostile_peer import HostilePeer

# As `guarded.launch.py watchdog:=true` runs them. What a fault made the guard remember it forgets.
PERCEPTION, GUARD, WATCHDOG = 'vjepa_node', 'collision_guard', 'command_watchdog'
NODES: dict[str, tuple[str, dict[str, object], list[str]]] = {
    PERCEPTION: ('perception_node', {'autostart': True}, []),
    GUARD: (GUARD, {'autostart': True, 'heartbeat': 0.4, 'forget': 1.0}, []),
    WATCHDOG: (WATCHDOG, {}, ['-r', 'cmd_vel:=cmd_vel_out', '-r',
                              f'heartbeat:={GUARD}/heartbeat'])}
SELF = 'this process'
RESPAWN_S = 0.2
MODEL, CAMERA, STATE = f'{PERCEPTION}: model', f'{PERCEPTION}: camera camera', f'{GUARD}: guard'
SILENCES = 'input.silences'
# Who may be late without a fault of its own where a limit is exceeded, if not the guard.
ANSWERS = {**dict.fromkeys(('age', 'latency', 'recovery'), PERCEPTION), 'guard': WATCHDOG}
LAG_S = 3.0              # in which all that was published before has arrived here
SHOWN_S = 12.0           # in which diagnostics must show a fault
AFTER_HANG_NS = 500_000_000              # in which a node ends the pass it hung in
SEES_S = 1.0             # since the last assessment, while perception sees
HEARD_S = 1.0            # in which a guard that goes on is heard again
POLL_S = 0.02
RECOVERY_S = 65.0


class Attack(HostilePeer):
    """Perception, guard and watchdog, and what surrounds them, from now on until `close`.

    `latencies_s` are from image to assessment [s], those beyond the limit less what the machine
    delayed. `samples` are of each process, once a second: age [s], memory [MB], open files and
    threads.
    """

    def __init__(self, ledger: Ledger, begin_ns: int, children: Children, domain: int,
                 simulated: bool, rate: float) -> None:
        self.ledger, self.children, self._begin_ns = ledger, children, begin_ns
        self.simulated, self.usual_rate, self.rate = simulated, rate, rate
        self._lives = Counter[str]()             # how often each was started or configured
        self._running: dict[str, Child] = {}
        self._due_s: dict[str, float] = {}       # when a killed node is started again
        self._expected: list[Callable[[], bool]] = []
        self._timeline: list[tuple[Any, ...]] = []
        self._order = itertools.count()
        self._moved_ns = self._resumed_ns = 0
        self._seen_s = self._hung_s = 0.0        # the latter of perception, before it went on
        self._awake_s = 0.0                      # when the guard went on
        self._delays = Delays()
        self.latencies_s: list[float] = []
        self.samples: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        self.base = BaseWatch(self._check, time.time_ns())
        self.output = OutputWatch(self._check)
        self.begin(domain)
        for name in NODES:
            self._start(name)
        threading.Thread(target=self._measure, daemon=True).start()

    # -- what is heard -----------------------------------------------------------------------

    def at_s(self, at_ns: int | None = None) -> float:
        """Return the time of the run [s], now by default."""
        return ((time.time_ns() if at_ns is None else at_ns) - self._begin_ns) / 1e9

    def _check(self, name: str, value: float, at_ns: int, why: str = '') -> float:
        """Judge a time [s] less what the machine let those wait who made it exceed its limit."""
        delay_s = 0.0
        if name not in ('origin', 'order') and value > self.ledger.rows[name].limit:
            delay_s = sum(self._delays.between(each, at_ns - round(value * 1e9), at_ns)
                          for each in (ANSWERS.get(name, GUARD), SELF))
        if name == 'age' and 0 <= at_ns - self._resumed_ns < AFTER_HANG_NS:
            delay_s += self._hung_s     # it hung after it had judged the age
        if name != 'latency':           # that of all together is judged
            self.ledger.check(name, value, self.at_s(at_ns), delay_s, why)
        return value - delay_s

    def _measure(self) -> None:
        for number in itertools.count():
            if self._ended.wait(SAMPLE_NS / 1e9):
                return
            self._delays.sample(SELF, os.getpid(), time.time_ns())
            for name, child in list(self._running.items()):
                self._delays.sample(name, child.pid, time.time_ns())
                with suppress(psutil.Error):
                    if number % 10 == 0:
                        process = psutil.Process(child.pid)
                        self.samples[f'{name} {child.pid}'].append((
                            time.time() - process.create_time(), process.memory_info().rss / 2**20,
                            process.num_fds(), process.num_threads()))

    def at(self, at_ns: int, act: Callable[..., object], *words: object) -> None:
        """Let `act` happen in the order of time [ns], which is `LAG_S` behind."""
        heapq.heappush(self._timeline, (at_ns, next(self._order), act, words))

    def on_image(self, stamp_ns: int, captured_ns: int, sent_ns: int, truthful: bool) -> None:
        """Note an image."""
        self.output.sent(stamp_ns, captured_ns, sent_ns, truthful)

    def on_message(self, kind: str, at_ns: int, msg: Any) -> None:
        """Note a message; it is judged in its turn."""
        if kind == 'command':
            self.at(at_ns, self.base.commanded, at_ns)
        elif kind == 'out':
            moving = bool(msg.linear.x)
            self._moved_ns = at_ns if moving else self._moved_ns
            self.at(at_ns, self.base.sent, at_ns, moving)
        else:
            self._seen_s = time.monotonic()
            self.at(at_ns, self._on_assessment, at_ns, msg)

    def _on_assessment(self, at_ns: int, msg: Any) -> None:
        seen = read.assessment(msg)
        stale = Quality.STALE in seen.flags
        image = self.output.assessed(seen.stamp_ns, at_ns, stale)
        if image is not None and not stale:
            self.latencies_s.append(self._check('latency', (at_ns - image.sent_ns) / 1e9, at_ns))
            if image.truthful and seen.level != Level.UNKNOWN:
                self.base.seen(image.captured_ns)

    # -- what is done ------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        module, settings, words = NODES[name]
        self._lives[name] += 1
        clock = 'simulated' if self.simulated else 'system'
        self._running[name] = self.children.start(
            f'{name}_{clock}_{self._lives[name]}', f'vjepa_ros.ros.{module}',
            [*ros_arguments(name, {**settings, 'use_sim_time': self.simulated}), *words])

    def stop(self, name: str, hang_s: float = 0.0) -> None:
        """Stop a node by SIGSTOP for a while [s], or by SIGKILL; then it is started again soon."""
        if name in self._due_s:
            return
        if name == GUARD:
            # A guard that is stopped again before it was heard is one silence.
            if self.runs(GUARD) and time.monotonic() - self._awake_s > HEARD_S:
                self.expect_counted('stops', part=f'{WATCHDOG}: guard')
            self.lose('guard')
        if not hang_s:
            self._running[name].kill()
            self._due_s[name] = time.monotonic() + RESPAWN_S
            return
        self._running[name].suspend()
        self.wait(hang_s)
        if name == PERCEPTION:
            self._resumed_ns, self._hung_s = time.time_ns(), hang_s
        self._running[name].resume()
        if name == GUARD:
            self._awake_s = time.monotonic()

    def transition(self, node: str, *labels: str) -> None:
        """Request transitions, each of which must succeed."""
        for label in labels:
            self._lives[node] += label == 'configure'
            done = self.change_state(node, label)
            if label == 'configure':
                self._forget(node)               # its counters begin anew
            self.require('alive', done is True, f'{label} of {node}: {done}')
            if (node, label) == (GUARD, 'deactivate'):
                self.lose('guard')

    def lose(self, what: str) -> int:
        """Let the base lose something now, see `BaseWatch.lost`; return the time [ns]."""
        now_ns = time.time_ns()
        self.at(now_ns, self.base.lost, what, now_ns)
        return now_ns

    def require(self, name: str, holds: bool, why: str) -> None:
        """Count something that must hold."""
        self.ledger.check(name, float(not holds), self.at_s(), why=why)

    def expect(self, what: str, part: str, test: Callable[[Mapping[str, str]], object],
               patience_s: float = SHOWN_S) -> None:
        """Expect diagnostics to pass a test soon, unless the node is another one by then."""
        node, until_s = part.partition(':')[0], time.monotonic() + patience_s
        life = self._lives[node]

        def settled() -> bool:
            shown, other = bool(test(self.told.get(part, {}))), self._lives[node] != life
            over = other or shown or time.monotonic() > until_s
            if over and not other:
                self.require('visible', shown, what)
            return over

        self._expected.append(settled)

    def expect_counted(self, *prefixes: str, part: str = CAMERA) -> None:
        """Expect counters with these prefixes to rise, where perception sees now."""
        def count(told: Mapping[str, str]) -> int:
            return sum(int(value) for key, value in told.items() if key.startswith(prefixes)
                       and (key != SILENCES or SILENCES in prefixes))

        if self.sees:
            before = count(self.told.get(part, {}))
            self.expect(' '.join(prefixes), part, lambda told: count(told) > before)

    @property
    def sees(self) -> bool:
        """Whether perception gives assessments now."""
        return self.runs(PERCEPTION) and time.monotonic() - self._seen_s < SEES_S

    def runs(self, node: str) -> bool:
        """Whether a node is known to be active, and was not killed."""
        part = MODEL if node == PERCEPTION else STATE
        return node not in self._due_s and self.told.get(part, {}).get('state') == 'active'

    # -- watching ----------------------------------------------------------------------------

    def wait(self, seconds: float, until: Callable[[], object] = lambda: False) -> None:
        """Watch for so long, or until a condition is true."""
        end_s = time.monotonic() + seconds
        while not until() and time.monotonic() < end_s:
            until_ns = time.time_ns() - round(LAG_S * 1e9)
            while self._timeline and self._timeline[0][0] <= until_ns:
                _, _, act, words = heapq.heappop(self._timeline)
                act(*words)
            self.base.judge(until_ns)
            for name in NODES:
                self._keep(name, time.monotonic())
            self._expected = [settled for settled in self._expected if not settled()]
            time.sleep(POLL_S)

    def _keep(self, name: str, now_s: float) -> None:
        """Start a node again that was killed, or has ended, which it must not."""
        if now_s >= self._due_s.get(name, now_s + 1):
            del self._due_s[name]
            self._forget(name)
            self._start(name)
        elif name not in self._due_s and (code := self._running[name].returncode) is not None:
            self.require('alive', False, f'{name} ended with exit code {code}')
            self._due_s[name] = now_s

    def _forget(self, name: str) -> None:
        """Drop the diagnostics of a node."""
        for part in [*self.told]:
            if part.startswith(f'{name}:'):
                del self.told[part]

    def moves(self, limit_s: float) -> bool:
        """Wait until the robot moves from now on; whether it does."""
        begin_ns = time.time_ns()
        self.wait(limit_s, lambda: self._moved_ns > begin_ns)
        return self._moved_ns > begin_ns

    def recover(self) -> None:
        """Wait until the robot moves again, and judge how long that takes."""
        begin_ns = time.time_ns()
        self.moves(RECOVERY_S)
        now_ns = time.time_ns()
        self._check('recovery', (now_ns - begin_ns) / 1e9, now_ns, self.said())

    def said(self) -> str:
        """Return what the nodes say of themselves."""
        return '; '.join(f'{part}: {self.told.get(part, {}).get("message", "silent")}'
                         for part in (MODEL, CAMERA, STATE))

    def close(self) -> None:
        """End all processes in order, and judge the rest."""
        self.wait(LAG_S)
        for child in self.children.all.values():
            if child in self._running.values():
                child.interrupt()
            else:
                child.kill()                     # what hangs would not end
        for name, child in self._running.items():
            code = child.wait(20.0)
            self.require('alive', code == 0, f'{name} ended with exit code {code} after SIGINT')
        super().close()
        for child in self.children.all.values():
            log = child.log.read_text(encoding='utf-8', errors='replace')
            self.require('alive', 'Traceback' not in log, f'traceback in {child.log.name}')
        for process, samples in self.samples.items():
            for column, what in enumerate(('memory', 'descriptors', 'threads'), 1):
                grown = growth(samples, column)
                if grown is not None:
                    self.ledger.check(what, grown, self.at_s(), why=process)
