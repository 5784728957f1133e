# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive episodes over DDS: simulated robot, perception node, planner and guard as processes."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from vjepa_ros.lab.drive.loop import CAMERA, MODES, Moment, Outcome, SETS
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.ros.common.processes import (
    Child,
    Children,
    free_domain,
    keep_logs,
    ros_arguments,
    ros_environment,
)

START_LIMIT_S = 120.0     # loading PyTorch from a cold disk takes its time
EPISODE_LIMIT_S = 300.0   # for an episode of at most 20 s on a slow, busy computer
SETTLE_S = 4.0            # the robot waits for the first clip and the release of the guard
_TICK_S = 0.1
_WANTS_M_S, _FREE_S = 0.2, 2.0     # see `drive.loop`
NODE, GUARD, ROBOT = 'vjepa_node', 'collision_guard', 'simulated_robot'
PLANNER, PLANNED = 'local_planner', 'cmd_vel_planned'
COMMON = {'use_sim_time': True, 'autostart': True}     # parameters of all nodes but the robot


@dataclass
class _Lines:
    """Output of a robot."""

    moments: list[Moment] = field(default_factory=list)
    outcome: dict[str, Any] | None = None

    def take(self, line: str) -> None:
        record = json.loads(line)
        kind = record.pop('kind')
        if kind == 'moment':
            self.moments.append(Moment(**{f.name: record[f.name] for f in fields(Moment)}))
        else:
            self.outcome = record


@dataclass(frozen=True)
class RosRun:
    """Settings of a drive over DDS."""

    # seed, set: of the episodes, and which, one of `SETS`
    seed: int
    set: str = 'stop'
    # rate, width: images per second [Hz] and their width [px]
    rate: float = 10.0
    width: int = 384
    node: dict[str, object] = field(default_factory=dict)  # parameters of the perception node
    follow: frozenset[int] = frozenset()  # numbers of the episodes that are filmed
    film: Path | None = None  # folder for their images, by mode; None writes none

    def drive(self, numbers: Sequence[int], modes: Sequence[str], logs: Path,
              done: Callable[[int], object]) -> dict[str, list[Outcome]]:
        """Drive episodes one after the other."""
        work = Path(tempfile.mkdtemp(prefix='vjepa_ros_drive_'))
        found: dict[str, list[Outcome]] = {mode: [] for mode in modes}
        try:
            with free_domain() as domain, Children(
                    ros_environment(domain, work / 'ros', os.environ), work) as children:
                if set(modes) - {MODES[0]}:
                    children.start('node', 'vjepa_ros.ros.perception_node', ros_arguments(NODE, {
                        **COMMON, f'{CAMERA}.transport': 'raw', **self.node}))
                for mode in modes:
                    for number in numbers:
                        found[mode].append(self._episode(children, mode, number))
                        done(1)
            return found
        except BaseException:
            keep_logs(work, logs)
            raise
        finally:
            shutil.rmtree(work, ignore_errors=True)

    @property
    def episode(self) -> EpisodeConfig:
        """Return the robot and how it drives."""
        return replace(EpisodeConfig(), rate=self.rate, settle_s=SETTLE_S)

    def _planned(self, number: int) -> dict[str, object]:
        """Return parameters of the planner for the robot of an episode."""
        bank, config = TextureBank.procedural(BANK_SEED), self.episode
        episode = SETS[self.set](self.seed, number, Materials(bank.groups, bank.walks), config)
        robot = config.robot
        return {f'{CAMERA}.height': episode.camera_height, f'{CAMERA}.x': 0.5 * robot.length,
                'cruise': episode.route.cruise, 'robot.half_width': robot.half_width,
                'robot.length': robot.length, 'robot.height': robot.height,
                'robot.clearance': robot.clearance, 'max_turn': config.drive.turn}

    def _episode(self, children: Children, mode: str, number: int) -> Outcome:
        guarded, planned = mode != MODES[0], mode == 'with_planner'
        lines = _Lines()
        mine: list[Child] = []
        if guarded:
            # A new one for each episode, because its memory of the path is outdated.
            words = ros_arguments(GUARD, {**COMMON, 'odometry': told_speed()})
            if planned:
                words += ['-r', f'cmd_vel_in:={PLANNED}']
            mine.append(children.start('guard', 'vjepa_ros.ros.collision_guard', words))
        if planned:
            mine.append(children.start('planner', 'vjepa_ros.ros.local_planner', [
                *ros_arguments(PLANNER, {
                    **COMMON, 'speed_from': 'odometry' if told_speed() else 'sent',
                    **self._planned(number)}),
                '-r', f'cmd_vel_out:={PLANNED}', '-r', 'cmd_vel_sent:=cmd_vel_out']))
        watched = 'node' in children.all
        film = ''
        if self.film is not None and number in self.follow:
            film = str((self.film / mode / f'{number:04d}').absolute())
        robot = children.start('robot', 'vjepa_ros.ros.sim.simulated_robot', [*ros_arguments(
            ROBOT, {'publish_clock': True, 'seed': self.seed, 'episode': number,
            'set': self.set, 'goal': planned and self.set == 'get_past',
            'film': film, 'rate': self.rate, 'width': self.width,
            'settle': SETTLE_S if watched else 0.5, 'wait_for_camera': watched}), '-r',
            f'cmd_vel_out:={"cmd_vel_out" if guarded else "cmd_vel_in"}'], on_line=lines.take)
        mine.append(robot)
        begin = time.monotonic()
        while robot.returncode is None:
            children.check(may_end=('robot',))
            limit = EPISODE_LIMIT_S if lines.moments else START_LIMIT_S
            if time.monotonic() - begin > limit:
                raise robot.failure(f'did not end its episode within {limit:.0f} s')
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
    """Return the outcome from the output of a robot; stops are counted as in `Loop`."""
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


def told_speed() -> bool:
    """Return whether guard and planner receive the speed of the robot."""
    return importlib.util.find_spec('nav_msgs') is not None
