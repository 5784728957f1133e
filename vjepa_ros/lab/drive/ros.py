# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Drive episodes over DDS: simulated robot, perception node, planner and guard as processes."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from vjepa_ros.lab.drive.loop import CAMERA, FREE_S, MODES, Moment, Outcome, Recipe, WANTS_M_S
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes.episode import SETS
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
NODE, GUARD, ROBOT = 'vjepa_node', 'collision_guard', 'simulated_robot'
PLANNER, PLANNED = 'local_planner', 'cmd_vel_planned'
COMMON = {'use_sim_time': True, 'autostart': True}     # parameters of all nodes but the robot


def drive_over_dds(recipe: Recipe, modes: Sequence[str], numbers: Sequence[int], logs: Path,
                   done: Callable[[int], object]) -> dict[str, list[Outcome]]:
    """Drive episodes one after the other; what failed leaves its logs."""
    work = Path(tempfile.mkdtemp(prefix='vjepa_ros_drive_'))
    found: dict[str, list[Outcome]] = {mode: [] for mode in modes}
    node = {'device': recipe.engine.device, 'weights': recipe.engine.weights,
            'model_size': recipe.engine.model_size, f'{CAMERA}.transport': 'raw'}
    try:
        with free_domain() as domain, Children(
                ros_environment(domain, work / 'ros', os.environ), work) as children:
            if set(modes) - {MODES[0]}:
                children.start('node', 'vjepa_ros.ros.perception_node',
                               ros_arguments(NODE, {**COMMON, **node}))
            for mode in modes:
                for number in numbers:
                    found[mode].append(_drive_one(recipe, children, mode, number))
                    done(1)
        return found
    except BaseException:
        keep_logs(work, logs)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _planned(recipe: Recipe, number: int) -> dict[str, object]:
    bank, config = TextureBank.procedural(BANK_SEED), recipe.episode
    episode = SETS[recipe.set](recipe.seed, number, Materials(bank.groups, bank.walks), config)
    robot = config.robot
    return {f'{CAMERA}.height': episode.camera_height, f'{CAMERA}.x': 0.5 * robot.length,
            'cruise': episode.route.cruise, 'robot.half_width': robot.half_width,
            'robot.length': robot.length, 'robot.height': robot.height,
            'robot.clearance': robot.clearance, 'max_turn': config.drive.turn}


def _drive_one(recipe: Recipe, children: Children, mode: str, number: int) -> Outcome:
    guarded, planned = mode != MODES[0], mode == 'with_planner'
    moments: list[Moment] = []
    ended: dict[str, Any] = {}
    mine: list[Child] = []

    def take(line: str) -> None:
        record = json.loads(line)
        if record['kind'] == 'moment':
            moments.append(Moment(**{f.name: record[f.name] for f in fields(Moment)}))
        else:
            ended.update(record)

    if guarded:
        # A new one for each episode, because its memory of the path is outdated.
        words = ros_arguments(GUARD, {**COMMON, 'odometry': True})
        if planned:
            words += ['-r', f'cmd_vel_in:={PLANNED}']
        mine.append(children.start('guard', 'vjepa_ros.ros.collision_guard', words))
    if planned:
        mine.append(children.start('planner', 'vjepa_ros.ros.local_planner', [
            *ros_arguments(PLANNER, {
                **COMMON, 'speed_from': 'odometry', **_planned(recipe, number)}),
            '-r', f'cmd_vel_out:={PLANNED}', '-r', 'cmd_vel_sent:=cmd_vel_out']))
    watched = 'node' in children.all
    film = ''
    if recipe.film is not None and number in recipe.follow:
        film = str((recipe.film / mode / f'{number:04d}').absolute())
    robot = children.start('robot', 'vjepa_ros.ros.sim.simulated_robot', [*ros_arguments(ROBOT, {
        'publish_clock': True, 'seed': recipe.seed, 'episode': number, 'set': recipe.set,
        'goal': planned and recipe.set == 'get_past', 'film': film,
        'rate': recipe.episode.rate, 'width': recipe.width, 'wait_for_camera': watched,
        'settle': recipe.episode.settle_s if watched else 0.5}),
        '-r', f'cmd_vel_out:={"cmd_vel_out" if guarded else "cmd_vel_in"}'], on_line=take)
    mine.append(robot)
    _await_end(children, robot, moments)
    if not ended:
        raise robot.failure('ended before its episode did')
    for child in mine:
        child.interrupt()
        child.wait(10.0)
        child.kill()
    for name in ('guard', 'planner', 'robot'):
        children.all.pop(name, None)
    return outcome_of(ended, moments)


def _await_end(children: Children, robot: Child, moments: Sequence[Moment]) -> None:
    begin = time.monotonic()
    while robot.returncode is None:
        children.check(may_end=('robot',))
        limit = EPISODE_LIMIT_S if moments else START_LIMIT_S
        if time.monotonic() - begin > limit:
            raise robot.failure(f'did not end its episode within {limit:.0f} s')
        time.sleep(_TICK_S)
    robot.wait(5.0)
    children.check(may_end=('robot',))


def outcome_of(record: dict[str, Any], moments: Sequence[Moment]) -> Outcome:
    """Return the outcome from the output of a robot; stops are counted as in `Loop`."""
    stops = needless = 0
    before = False
    for m in moments:
        stopped = m.state in ('stopped', 'fault') and m.wanted > WANTS_M_S and m.time > 0
        if stopped and not before:
            stops += 1
            needless += m.distance >= min(8.0, FREE_S * record['cruise'])
        before = stopped
    said = {f.name: record[f.name] for f in fields(Outcome) if f.name in record}
    return Outcome(stops=stops, needless_stops=needless, moments=tuple(moments), **said)
