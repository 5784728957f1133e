# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The faults that are injected, each with what diagnostics must show of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from vjepa_ros.cli.soak.attack import Attack, CAMERA, GUARD, MODEL, PERCEPTION, SILENCES, STATE
from vjepa_ros.model.variants import IMAGE_SIZE, NUM_FRAMES
from vjepa_ros.ros.collision_guard.parameters import SECTIONS
from vjepa_ros.ros.common.parameter import LIVE, Param
from vjepa_ros.ros.common.processes import ros_arguments
from vjepa_ros.ros.perception_node.parameters import SCHEMA

NS = 1_000_000_000
SIZES = ((320, 240), (640, 480), (424, 240))
STORM = 40               # parameters set at once
# Not those that invariants rely on, nor those that make an obstacle of the still scene.
KEPT = ('max_frame_age', 'no_frame_timeout', 'thresholds.', 'looming.method', 'calibration.')
STORMED = {PERCEPTION: [row for row in SCHEMA.rows if row.effect == LIVE
                        and not row.name.startswith(KEPT) and not isinstance(row.default, tuple)],
           GUARD: [row for row in SECTIONS['Release'] if row.name != 'forget']}
READER = 'recorder'
SWAP_S = 90.0            # longest time to load a model
Fault = Callable[[Attack, Random], object]


def images(how: str, least_s: float, most_s: float, *counted: str) -> Fault:
    """Make a fault of all images of some time; counters with a prefix must show it."""
    def fault(attack: Attack, rng: Random) -> None:
        if counted:
            attack.expect_counted(*counted)
        if how == 'black' and attack.sees:
            attack.expect(how, CAMERA, lambda told: told.get('level') == 'unknown')
        attack.how = how
        attack.wait(rng.uniform(least_s, most_s))

    return fault


def another_view(attack: Attack, rng: Random) -> None:
    """Change rate, encoding and size."""
    attack.expect_counted('resets.size_change')
    attack.rate = attack.usual_rate * rng.uniform(0.5, 1.5)
    attack.encoding = rng.choice(('rgb8', 'bgr8', 'mono8'))
    attack.size = rng.choice([each for each in SIZES if each != attack.size])
    attack.wait(2.5)


def wrong_stamps(attack: Attack, rng: Random) -> None:
    """Stamp images with another time, then rightly again: once time goes backward."""
    attack.expect_counted('resets.time_backwards')
    attack.ahead_ns = round(rng.choice((-1, 1)) * rng.uniform(2.0, 100.0) * NS)
    attack.wait(rng.uniform(0.5, 2.5))
    attack.ahead_ns = 0
    attack.wait(0.3)      # before a next fault can hide it: another size resets the ring as well


def of_node(node: str) -> tuple[Fault, Fault, Fault]:
    """Return faults of a node: it is killed, hangs, or changes its state and back."""
    def kill(attack: Attack, rng: Random) -> None:
        attack.stop(node)
        attack.wait(rng.uniform(0.5, 2.0))

    def lifecycle(attack: Attack, rng: Random) -> None:
        if attack.runs(node):
            attack.transition(node, 'deactivate')
            attack.wait(rng.uniform(0.0, 1.5))
            attack.transition(node, *rng.choice(((), ('cleanup', 'configure'))), 'activate')

    return kill, lambda attack, rng: attack.stop(node, rng.uniform(0.8, 2.5)), lifecycle


def value_of(row: Param, rng: Random, right: bool) -> Any:
    """Draw a value of a parameter that is allowed, or one that is not."""
    if not right:
        return 'wrong' if row.kind is not str else 7.5
    if row.choices:
        return rng.choice(list(row.choices))
    if row.low is None or row.high is None:
        return rng.random() < 0.5 if row.kind is bool else row.default
    return row.kind(rng.uniform(row.low, row.high))


def parameter_storm(attack: Attack, rng: Random) -> None:
    """Set parameters of a node all at once, right and wrong ones, then all back."""
    node = rng.choice(list(STORMED))
    if not attack.runs(node):
        return
    drawn = [(row, rng.random() < 0.6) for row in rng.choices(STORMED[node], k=STORM)]
    answers = attack.set_parameters(
        node, [(row.name, value_of(row, rng, right)) for row, right in drawn])
    for (row, right), answer in zip(drawn, answers, strict=True):
        # Right ones may be refused because of others.
        attack.require('parameters', answer is not None and (right or not answer),
                       f'{row.name} of {node}, right: {right}, answer: {answer}')
    attack.wait(rng.uniform(0.0, 2.0))
    back = [(row.name, row.default) for row, _ in drawn]
    attack.set_parameters(node, back)        # in any order they may not fit together at first
    answers = attack.set_parameters(node, back)
    attack.require('parameters', all(answers), f'{node} does not take {back}: {answers}')


def swap_model(attack: Attack, rng: Random) -> None:
    """Load another number of frames or another size of images in the background."""
    if attack.runs(PERCEPTION):
        name, values = rng.choice((('num_frames', (4, NUM_FRAMES)),
                                   ('image_size', (128, IMAGE_SIZE))))
        now = attack.told[MODEL].get(name)
        value = next(value for value in values if str(value) != now)
        answers = attack.set_parameters(PERCEPTION, [(name, value)])
        attack.require('parameters', answers == [True], f'{name}: {answers}')
        attack.expect(f'{name} {value}', MODEL, lambda told: told.get(name) == str(value), SWAP_S)


def subscriber(attack: Attack, rng: Random) -> None:
    """Kill the subscriber of all outputs that hangs; start one that reads, and then hangs."""
    if READER in attack.children.all:
        attack.children.all[READER].kill()
    reader = attack.children.start(READER, 'vjepa_ros.ros.sim.recorder', ros_arguments(
        READER, {'folder': str(attack.children.log_folder / READER)}))
    attack.wait(rng.uniform(4.0, 8.0))
    reader.suspend()


def command(speed: float | None, least_s: float, most_s: float) -> Fault:
    """Send commands that are not a number, or none for a while."""
    def fault(attack: Attack, rng: Random) -> None:
        if speed is not None and attack.runs(GUARD):
            attack.expect('NaN', STATE, lambda told: told.get('action') == 'fault')
        attack.command = speed
        attack.wait(rng.uniform(least_s, most_s))

    return fault


def clock_jump(attack: Attack, rng: Random) -> None:
    """Let the simulated clock jump by more than what counts as one."""
    attack.recover()
    attack.expect_counted('clock_jumps', part=STATE)
    attack.expect_counted('resets.')
    attack.lose('clock jump')
    attack.offset_ns += round(rng.choice((-1, 1)) * rng.uniform(5.0, 500.0) * NS)
    attack.wait(rng.uniform(0.0, 2.0))


def clock_stands(attack: Attack, rng: Random) -> None:
    """Let the simulated clock stand, and go on from there."""
    attack.recover()
    begin_ns = attack.lose('clock stands')
    attack.clock_runs = False
    attack.wait(rng.uniform(2.5, 4.0))
    end_ns = time.time_ns()
    attack.offset_ns -= end_ns - begin_ns
    attack.clock_runs = True
    attack.at(end_ns, attack.base.clock_runs, end_ns)


FAULTS: dict[str, Fault] = {
    'drop': images('drop', 1.0, 4.0), 'late': images('late', 0.6, 2.0),
    'stall': images('silent', 1.5, 4.0, 'resets.gap', SILENCES),
    'reorder': images('reorder', 1.5, 3.0, 'frames.reordered'),
    'duplicate': images('duplicate', 1.0, 2.0, 'frames.duplicate'),
    'damaged': images('damaged', 1.0, 3.0, 'input.'), 'black': images('black', 2.5, 4.0),
    'camera restart': images('restart', 0.5, 3.0), 'view': another_view, 'stamps': wrong_stamps,
    'parameter storm': parameter_storm, 'model swap': swap_model, 'subscriber': subscriber,
    'silent controller': command(None, 0.7, 1.5), 'command no number': command(math.nan, 2.5, 2.5)}
# Rare in long runs: what grows shows in processes that live long.
KILLS: dict[str, Fault] = {}
for _node in (PERCEPTION, GUARD):
    KILLS[f'{_node} killed'], FAULTS[f'{_node} hangs'], FAULTS[f'{_node} lifecycle'] = \
        of_node(_node)
CLOCK: dict[str, Fault] = {'clock jump': clock_jump, 'clock stands': clock_stands}


def draw(rng: Random, simulated: bool, minutes: float) -> Iterator[tuple[str, Fault]]:
    """Yield faults for ever, each kind as often; kills about as often as in 5 minutes in all."""
    while True:
        rare = KILLS if rng.random() < 5.0 / max(5.0, minutes) else {}
        deck = [*FAULTS.items(), *rare.items(), *(3 * [*CLOCK.items()] if simulated else ())]
        rng.shuffle(deck)
        yield from deck
