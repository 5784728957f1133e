# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Supply the training of a predictor of twists with pasts, judge it, and write it.

It is put into a copy of the file of the encoder and heads that it reads.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vjepa_ros.lab.report.measurement import accelerator, hardware, versions
from vjepa_ros.lab.report.report import json_safe
from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.export_run import Note, Outcome, noted
from vjepa_ros.lab.training.feeds import Draw, MEMORY_SHARE, Order, free_bytes
from vjepa_ros.lab.training.imagination import Imaginer, Lesson, Pasts, make_futures, make_pasts
from vjepa_ros.lab.training.imagination_figures import PLANS, features_figures, figures, imagined
from vjepa_ros.lab.training.model_card import model_card
from vjepa_ros.lab.training.network import Network
from vjepa_ros.lab.training.state import RunState
from vjepa_ros.lab.world.clips import ClipWorld
from vjepa_ros.lab.world.scenes.sampler import Sample
from vjepa_ros.lab.world.seeds import HELD_OUT_SEED, derive, generator
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.checkpoint.load import load_model
from vjepa_ros.model.checkpoint.metadata import BundleMeta
from vjepa_ros.model.checkpoint.twist_files import has_twists, load_twists, save_twists
from vjepa_ros.model.twist_predictor import TwistPredictor

AT_ONCE = 64        # pasts that are judged together
BACK = 100          # batches of pasts that a continued run films again, one in a step


def build(config: TrainConfig) -> tuple[Imaginer, Network]:
    """Build a predictor, and the frozen encoder that it reads with its heads, on the CPU.

    The predictor is that of the weights, where they bring one, or a new one.

    Raises
    ------
    WeightsError
        When the weights do not fit.
    """
    encoder, heads, report = load_model(config.model_size, weights=config.weights)
    if heads is None or report.heads is None or not encoder.window:
        raise WeightsError(f"weights file '{config.weights}' has no heads, or its encoder is not "
                           'block-causal; train one with heads and a window first')
    meta = report.heads.meta
    if (config.num_frames, config.image_sizes) != (meta.num_frames, str(meta.image_size)):
        raise WeightsError(
            f"num_frames {config.num_frames} and image_sizes '{config.image_sizes}' are not those "
            f"of '{config.weights}': give {meta.num_frames} and {meta.image_size}")
    if has_twists(config.model_size, config.weights):
        predictor = load_twists(config.model_size, config.weights).predictor.requires_grad_()
        predictor.reader.requires_grad_(False)
    else:
        predictor = TwistPredictor(encoder.variant.dim, heads.hidden)
        predictor.init_random(derive(config.seed, 'predictor'))
        predictor.read_as(heads)
    network = Network(encoder, heads).eval().requires_grad_(False)
    return Imaginer(predictor), network


class PastFeed:
    """Endless new plans of rendered pasts, from the worlds in turn.

    Pasts are filmed once in `reuse` steps and kept; the steps between draw from all that are
    kept, as many as fit into memory. A continued run films anew what it needs, and those before
    one by one: from few it would learn these by heart.

    Parameters
    ----------
    worlds : sequence of ClipWorld
        They take turns.
    network : Network
        Encoder and heads, on the device of the worlds.
    predictor : TwistPredictor
        Reads the pasts, there, too.
    config : TrainConfig
        `batch` pasts are filmed at once, and half of them are filmed on along one plan.
    draw : Draw
        Seed and rank.
    """

    def __init__(self, worlds: Sequence[ClipWorld], network: Network, predictor: TwistPredictor,
                 config: TrainConfig, draw: Draw) -> None:
        self._worlds, self._network, self._predictor = worlds, network, predictor
        self._count, self._reuse, self._draw = config.batch, config.reuse, draw
        self._pool = ThreadPoolExecutor(config.workers, thread_name_prefix='scenes')
        self._drawn: dict[int, Future[Sample]] = {}
        self._ahead = 2 * config.workers
        self._kept: list[tuple[ClipWorld, Pasts]] = []
        self._most = self._next = 0
        self._before = iter(range(0))

    def __enter__(self) -> PastFeed:
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def batch(self, order: Order) -> Lesson:
        """Return new plans for pasts of the step, or of any before."""
        first = order.step // self._reuse
        if not self._kept:
            self._next, self._before = first, iter(range(max(0, first - BACK), first))
        pick, due = -1, first + len(self._worlds)
        if self._next == due:
            random = generator(self._draw.seed, 'kept', order.step, self._draw.rank)
            pick = int(torch.randint(len(self._kept), (), generator=random))
        # One of each world at the start, so that all renderers are compiled then.
        for number in range(self._next, due):
            self._film(number)
        self._next = due
        for number in itertools.islice(self._before, 1):
            self._film(number)
            self._kept.insert(0, self._kept.pop())     # not the newest
        world, pasts = self._kept[pick]
        own = derive(self._draw.seed, 'plans', order.step, self._draw.rank)
        return Lesson(pasts, make_futures(world, pasts, own, PLANS))

    def _film(self, number: int) -> None:
        for coming in range(number, number + self._ahead):
            if coming not in self._drawn:
                self._drawn[coming] = self._pool.submit(self._world(coming).sample,
                                                        self._seed(coming), self._count)
        world = self._world(number)
        made = make_pasts(world, self._network, self._predictor,
                          self._drawn.pop(number).result(), self._seed(number),
                          -(-self._count // 2))
        if not self._most:
            self._most = max(len(self._worlds), int(
                MEMORY_SHARE * free_bytes(world.device) / (made.present.nbytes
                                                           + made.features.nbytes)))
        self._kept.append((world, made))
        del self._kept[:-self._most]

    def _world(self, number: int) -> ClipWorld:
        return self._worlds[number % len(self._worlds)]

    def _seed(self, number: int) -> int:
        return derive(self._draw.seed, 'pasts', number, self._draw.rank)


def held_out(world: ClipWorld, network: Network, predictor: TwistPredictor, first_seed: int,
             count: int) -> list[Callable[[], Lesson]]:
    """Return functions that film the pasts of a fixed split, in pieces of a fixed size."""
    def lesson(number: int) -> Lesson:
        seed = first_seed + number
        sample = world.sample(seed, min(AT_ONCE, count - number * AT_ONCE))
        pasts = make_pasts(world, network, predictor, sample, seed, even=True)
        return Lesson(pasts, make_futures(world, pasts, seed, PLANS))

    return [lambda number=number: lesson(number) for number in range(math.ceil(count / AT_ONCE))]


@torch.no_grad()
def judge(predictor: TwistPredictor, lessons: Iterable[Lesson]) -> dict[str, Any]:
    """Return the figures of a predictor on some pasts."""
    risks, whens, features = [], [], []
    for lesson in lessons:
        risk, seen = imagined(predictor, lesson.pasts, lesson.futures)
        risks.append(risk)
        whens.append(lesson.futures.contact_s.cpu().numpy())
        features.append(seen)
    risk = np.concatenate(risks)
    return {'pasts': len(risk), 'plans': PLANS, **figures(risk, np.concatenate(whens)),
            'features': features_figures(features)}


def headline(found: dict[str, Any]) -> dict[str, float]:
    """Return few figures of many."""
    return {**{f'auc_{key}s': found[key]['auc_of_a_past'] for key in ('1', '2', '3')},
            'rank': found['rank'], 'calibration': found['3']['calibration_error']}


def save(path: Path, config: TrainConfig, trained: Imaginer, state: RunState,
         metrics: dict[str, Any]) -> BundleMeta:
    """Write encoder, heads and predictor in float16 with their description, which is returned."""
    options = {name: value for name, value in config.as_dict().items()
               if name not in ('out', 'weights') and value != getattr(TrainConfig, name, None)}
    device = next(trained.parameters()).device
    filmed = math.ceil(state.step / config.reuse) * config.batch
    return save_twists(path, config.weights, trained.predictor.state_dict(), {'training': {
        'steps': state.step, 'pasts': filmed * state.clips // max(1, state.step * config.batch),
        'plans_of_a_past': PLANS, 'seconds': round(state.seconds), 'options': options,
        'versions': versions(), 'hardware': {**hardware(), **accelerator(device)}},
        'metrics': metrics})


def finish(config: TrainConfig, trained: Imaginer, network: Network, state: RunState,
           worlds: Sequence[ClipWorld], note: Note) -> Outcome:
    """Write the predictor with the file of its encoder, judge it, and write both again.

    Parameters
    ----------
    config : TrainConfig
        `out` is the folder.
    trained : Imaginer
        With the averaged weights in place, which are rounded to float16.
    network : Network
        Encoder and heads.
    state : RunState
        History and length of the run.
    worlds : sequence of ClipWorld
        Render the held-out pasts, so many in each.
    note : callable
        Called with what is being done, how many batches are done, and of how many.
    """
    with torch.no_grad():
        for parameter in trained.parameters():
            parameter.copy_(parameter.half().float())
    folder = Path(config.out)
    weights = folder / f'{config.model_size}.safetensors'
    found: dict[str, Any] = {}
    # Judging takes minutes; a machine that is lost meanwhile takes nothing but the figures.
    save(weights, config, trained, state, found)
    for world in worlds if config.held_out_clips else ():
        makers = held_out(world, network, trained.predictor, HELD_OUT_SEED,
                          config.held_out_clips)
        found[world.config.name] = json_safe(judge(
            trained.predictor, noted(makers, note, 'judging')))
    meta = save(weights, config, trained, state, found)
    card, written = weights.with_suffix('.md'), folder / 'metrics.json'
    card.write_text(model_card(meta, weights.name, weights.stat().st_size / 1e6),
                    encoding='utf-8')
    written.write_text(json.dumps(
        {'held_out': found, 'training': meta.twists['training'], 'history': state.history},
        indent=1) + '\n', encoding='utf-8')
    return Outcome(weights, card, written, found)
