# SPDX-License-Identifier: Apache-2.0
"""Drive episodes over DDS: simulated robot, perception node, planner and guard as processes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from vjepa_ros.tools.drive_loop import CAMERA, MODES, Moment, Outcome
from vjepa_ros.tools.processes import (
    Child,
    Children,
    free_domain,
    keep_logs,
    ros_arguments,
    ros_environment,
)
from vjepa_ros.world.bank import TextureBank
from vjepa_ros.world.clips import BANK_SEED
from vjepa_ros.world.episode import EpisodeConfig, draw
from vjepa_ros.world.materials import Materials

START_LIMIT_S = 120.0     # loading PyTorch from a cold disk takes its time
EPISODE_LIMIT_S = 120.0   # of an episode of at most 20 s on a computer that is busy
SETTLE_S = 5.0            # the robot stands: a clip fills, and the guard releases
_TICK_S = 0.1
_WANTS_M_S, _FREE_S = 0.2, 2.0     # see `drive_loop`
NODE, GUARD, ROBOT = 'vjepa_node', 'collision_guard', 'simulated_robot'
PLANNER, PLANNED = 'twist_planner', 'cmd_vel_planned'


@dataclass
class _Lines:
    """What a robot told."""

    moments: list[Moment] = field(default_factory=list)
    outcome: dict[str, Any] | None = None

    def take(self, line: str) -> None:
        record = json.loads(line)
        kind = record.pop('kind')
        if kind == 'moment':
            self.moments.append(Moment(**record))
        else:
            self.outcome = record


@dataclass(frozen=True)
class RosRun:
    """What is driven over DDS.

    Attributes
    ----------
    seed
        Of the episodes.
    rate, width
        Pictures per second [Hz] and their width [px].
    node, guard, planner
        Parameters of the nodes.
    """

    seed: int
    rate: float = 10.0
    width: int = 384
    node: dict[str, object] = field(default_factory=dict)
    guard: dict[str, object] = field(default_factory=dict)
    planner: dict[str, object] = field(default_factory=dict)

    def drive(self, numbers: Sequence[int], modes: Sequence[str], logs: Path,
              done: Callable[[int], None],
              moment: Callable[[], None] = lambda: None) -> dict[str, list[Outcome]]:
        """Drive episodes one after the other, in real time.

        Parameters
        ----------
        numbers, modes
            Which; modes of `MODES`.
        logs
            Takes the logs of the processes when something fails.
        done
            Told how many episodes have ended.
        moment
            Called about ten times a second.

        Raises
        ------
        ProcessFailed
            When a process ends that should run, or an episode does not come to its end.
        """
        work = Path(tempfile.mkdtemp(prefix='vjepa_ros_drive_'))
        found: dict[str, list[Outcome]] = {mode: [] for mode in modes}
        try:
            with free_domain() as domain, Children(
                    ros_environment(domain, work / 'ros', os.environ), work) as children:
                if set(modes) - {MODES[0]}:
                    children.start('node', 'vjepa_ros.ros.main', ros_arguments(NODE, {
                        'autostart': True, f'{CAMERA}.transport': 'raw', **self.node}))
                for mode in modes:
                    for number in numbers:
                        found[mode].append(self._episode(children, mode, number, moment))
                        done(1)
            return found
        except BaseException:
            keep_logs(work, logs)
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)

    def _camera_height(self, number: int) -> float:
        """Of the robot in an episode [m]."""
        bank = TextureBank.procedural(BANK_SEED)
        config = replace(EpisodeConfig(), rate=self.rate, settle_s=SETTLE_S)
        return draw(self.seed, number, Materials(bank.groups, bank.walks), config).camera_height

    def _episode(self, children: Children, mode: str, number: int,
                 tick: Callable[[], None]) -> Outcome:
        guarded, planned = mode != MODES[0], mode == 'with_planner'
        lines = _Lines()
        mine: list[Child] = []
        odometry = importlib.util.find_spec('nav_msgs') is not None
        if guarded:
            # A new one for each episode: what it remembers of the way is not true any more.
            words = ros_arguments(GUARD, {'autostart': True, 'odometry': odometry, **self.guard})
            if planned:
                words += ['-r', f'cmd_vel_in:={PLANNED}']
            mine.append(children.start('guard', 'vjepa_ros.ros.guard_main', words))
        if planned:
            mine.append(children.start('planner', 'vjepa_ros.ros.twist_main', [
                *ros_arguments(PLANNER, {
                    'autostart': True, 'speed_from': 'odometry' if odometry else 'sent',
                    f'{CAMERA}.height': self._camera_height(number), **self.planner}),
                '-r', f'cmd_vel_out:={PLANNED}', '-r', 'cmd_vel_sent:=cmd_vel_out']))
        robot = children.start('robot', 'vjepa_ros.ros.simulated_robot', ros_arguments(ROBOT, {
            'seed': self.seed, 'episode': number, 'rate': self.rate, 'width': self.width,
            'settle': SETTLE_S if guarded else 0.5, 'wait_for_camera': guarded,
            'command_topic': 'cmd_vel_out' if guarded else 'cmd_vel_in'}), on_line=lines.take)
        mine.append(robot)
        begin = time.monotonic()
        while robot.returncode is None:
            children.check(may_end=('robot',))
            limit = EPISODE_LIMIT_S if lines.moments else START_LIMIT_S
            if time.monotonic() - begin > limit:
                raise robot.failure('did not come to the end of its episode within '
                                    f'{limit:.0f} s')
            tick()
            time.sleep(_TICK_S)
        robot.wait(5.0)
        children.check(may_end=('robot',))
        if lines.outcome is None:
            raise robot.failure('ended before its episode did')
        for child in mine:
            child.interrupt()
            child.wait(10.0)
            child.kill()
        for name in ('guard', 'planner', 'robot'):
            children.all.pop(name, None)
        return outcome_of(lines.outcome, lines.moments)


def outcome_of(record: dict[str, Any], moments: Sequence[Moment]) -> Outcome:
    """The outcome of what a robot told; stops are counted as in one process."""
    stops = needless = 0
    before = False
    for m in moments:
        stopped = m.state in ('stopped', 'fault') and m.wanted > _WANTS_M_S and m.time > 0
        if stopped and not before:
            stops += 1
            needless += m.distance >= min(8.0, _FREE_S * record['cruise'])
        before = stopped
    known = {f.name for f in fields(Outcome)}
    return replace(Outcome(stops=stops, needless_stops=needless, **{
        k: v for k, v in record.items() if k in known}), moments=tuple(moments))


def lateness(outcomes: Mapping[str, Sequence[Outcome]]) -> str:
    """What to say where the guard stopped because assessments came too late; ''."""
    late = 0
    for mode, rows in outcomes.items():
        for outcome in rows if mode != MODES[0] else ():
            held = [m.state == 'fault' and 'timeout' in m.reason
                    for m in outcome.moments if m.time > 0]
            late += sum(now and not before
                        for before, now in zip([False, *held], held, strict=False))
    if not late:
        return ''
    return (f'{late} times the guard stopped because an assessment was too old: this machine is '
            'too slow now for simulation and perception at once, and the figures show that more '
            'than the guard. Without --ros time is simulated, however slow the machine')
