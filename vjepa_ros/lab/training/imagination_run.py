# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Train a predictor of twists on rendered futures, for the encoder and heads of a weights file.

``python -m vjepa_ros.lab.training.imagination_run --weights FILE --out FOLDER --seconds 1000``
writes ``twists.safetensors``, the predictor alone, and ``twists.json``, how good it is. With
``--stop-after`` a call ends in time, and the same command with ``--resume`` goes on; what has been
trained so far is written at the end of each call. ``--join FILE`` trains nothing: it writes
encoder, heads and the predictor in ``--out`` as one file, with its card beside it.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.lab.report.measurement import accelerator, hardware, versions
from vjepa_ros.lab.report.report import json_safe
from vjepa_ros.lab.training.imagination import (
    Pasts,
    half,
    imagination_losses,
    make_futures,
    make_pasts,
)
from vjepa_ros.lab.training.imagination_figures import (
    PLANS,
    config_of,
    features_figures,
    figures,
    imagined,
    make_world,
)
from vjepa_ros.lab.training.model_card import model_card
from vjepa_ros.lab.training.network import Network
from vjepa_ros.lab.training.state import RunState, has_state, read_state, write_state
from vjepa_ros.lab.world.clips import BANK_SEED, ClipWorld
from vjepa_ros.lab.world.scenes.sampler import Sample
from vjepa_ros.lab.world.scenes.scene_spec import WORLDS
from vjepa_ros.lab.world.seeds import HELD_OUT_SEED, derive
from vjepa_ros.lab.world.textures.bank import TextureBank
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.checkpoint.load import load_model
from vjepa_ros.model.checkpoint.twist_files import load_twists, save_twists
from vjepa_ros.model.twist_predictor import TwistPredictor
from vjepa_ros.model.variants import TUBELET

AHEAD = 6                   # scenes drawn ahead
FILE, FIGURES = 'twists.safetensors', 'twists.json'
SHOWN_S = 20.0              # between two lines of progress
WARM = 100                  # steps until the full rate
AVERAGE = 0.999


def samples(worlds: list[ClipWorld], seed: int, first: int, batch: int,
            workers: ThreadPoolExecutor) -> Iterator[tuple[ClipWorld, Sample, int]]:
    """Yield endless samples of the worlds in turn from a number on, drawn ahead in threads."""
    waiting: list[tuple[ClipWorld, Future[Sample], int]] = []
    step = first
    while True:
        while len(waiting) < AHEAD:
            own = derive(seed, 'pasts', step)
            world = worlds[step % len(worlds)]
            waiting.append((world, workers.submit(world.sample, own, batch), own))
            step += 1
        world, sample, own = waiting.pop(0)
        yield world, sample.result(), own


@torch.no_grad()
def judge(predictor: TwistPredictor, network: Network, world: ClipWorld, count: int,
          batch: int) -> dict[str, Any]:
    """Return the figures of a predictor on held-out pasts of a world."""
    risks, whens, features = [], [], []
    for number in range(math.ceil(count / batch)):
        own = HELD_OUT_SEED + number
        pasts = make_pasts(world, network, world.sample(own, batch), own, even=True)
        futures = make_futures(world, pasts, own, PLANS)
        risk, seen = imagined(predictor, pasts, futures)
        risks.append(risk)
        whens.append(futures.contact_s.cpu().numpy())
        features.append(seen)
    return {'pasts': len(risks) * batch, 'plans': PLANS,
            **figures(np.concatenate(risks), np.concatenate(whens)),
            'features': features_figures(features)}


class Training:
    """One run: the predictor, its average and its optimiser.

    Parameters
    ----------
    args
        Options of the command line.
    network
        Encoder and heads.
    size
        Side of its pictures [px].
    """

    def __init__(self, args: argparse.Namespace, network: Network, size: int) -> None:
        self.args, self.network, self.size = args, network, size
        self.device = torch.device(args.device)
        self.predictor = TwistPredictor(network.encoder.variant.dim, network.heads.hidden)
        self.predictor.init_random(args.seed)
        self.predictor.to(self.device)
        self.average = {k: v.clone() for k, v in self.predictor.state_dict().items()}
        self.optimizer = torch.optim.AdamW(self.predictor.parameters(), args.lr, (0.9, 0.98),
                                           weight_decay=0.02)
        self.step = self.made = 0
        self.seconds = 0.0

    def resume(self) -> None:
        """Go on from the state in the folder."""
        state = read_state(self.args.out)
        if state.config != options(self.args):
            raise WeightsError(f"'{self.args.out}' holds a run with other options: {state.config}")
        self.predictor.load_state_dict(state.network)
        self.average = {k: v.to(self.device) for k, v in state.average.items()}
        self.optimizer.load_state_dict(state.optimizer)
        self.step, self.made, self.seconds = state.step, state.clips, state.seconds

    def save(self) -> None:
        """Write the state."""
        write_state(self.args.out, RunState(
            options(self.args), self.predictor.state_dict(), self.average,
            self.optimizer.state_dict(), self.step, self.made, self.seconds))

    def run(self, worlds: list[ClipWorld], until_s: float) -> None:
        """Train until a time of the clock, but on one batch at least, or until the run is over."""
        args, kept = self.args, []
        begun, before, shown = time.monotonic(), self.seconds, 0.0
        spent = {'film': 0.0, 'train': 0.0}
        losses: dict[str, Tensor] = {}
        with ThreadPoolExecutor(args.workers) as pool:
            for world, sample, own in samples(worlds, args.seed, self.made, args.batch, pool):
                mark = time.monotonic()
                if self.seconds >= args.seconds or (kept and mark > until_s):
                    break
                made = make_pasts(world, self.network, sample, own, args.batch // 2)
                self._wait()
                self.made += 1
                kept.append((world, made))
                del kept[:-args.keep]
                spent['film'] += time.monotonic() - mark
                mark = time.monotonic()
                draws = random.Random(own)
                for number in range(args.reuse):
                    losses = self.learn(*(kept[-1] if not number else draws.choice(kept)))
                self._wait()
                spent['train'] += time.monotonic() - mark
                self.seconds = before + time.monotonic() - begun
                if time.monotonic() - shown > SHOWN_S:
                    shown = time.monotonic()
                    print(f'{self.seconds:.0f} s, step {self.step}, {self.made * args.batch} '
                          'pasts', {k: round(v.item(), 4) for k, v in losses.items()},
                          {k: round(v) for k, v in spent.items()}, flush=True)

    def learn(self, world: ClipWorld, pasts: Pasts) -> dict[str, Tensor]:
        """Take one step on new plans of some pasts."""
        args = self.args
        share = min(1.0, self.seconds / args.seconds)
        rate = args.lr * min(1.0, (self.step + 1) / WARM) * 0.5 * (1 + math.cos(math.pi * share))
        for group in self.optimizer.param_groups:
            group['lr'] = rate
        futures = make_futures(world, pasts, derive(args.seed, 'step', self.step), args.plans)
        with half(self.device):
            losses = imagination_losses(self.predictor, pasts, futures)
        self.optimizer.zero_grad(set_to_none=True)
        torch.stack([loss.float() for loss in losses.values()]).sum().backward()
        torch.nn.utils.clip_grad_norm_(self.predictor.parameters(), 1.0)
        self.optimizer.step()
        self.step += 1
        keep = min(AVERAGE, self.step / (self.step + 10))
        with torch.no_grad():
            for name, value in self.predictor.state_dict().items():
                self.average[name].lerp_(value, 1 - keep)
        return losses

    def _wait(self) -> None:
        if self.device.type == 'cuda':
            torch.cuda.synchronize()


def options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options that decide about a run."""
    return {name: str(value) for name, value in vars(args).items()
            if name not in ('out', 'join', 'resume', 'stop_after', 'device', 'workers',
                            'compile_world', 'held_out')}


def finish(run: Training, begun: float) -> None:
    """Write the average, judge it, and write it with its figures."""
    args = run.args
    rounded = {name: value.half().float() for name, value in run.average.items()}
    run.predictor.load_state_dict(rounded)
    found: dict[str, Any] = {}
    given = {name: value for name, value in options(args).items() if name != 'weights'}
    about = {'training': {
        'steps': run.step, 'pasts': run.made * args.batch, 'plans_of_a_past': args.plans,
        'seconds': round(run.seconds), 'options': given, 'versions': versions(),
        'hardware': {**hardware(), **accelerator(run.device)}}, 'metrics': found}
    save_twists(args.out / FILE, args.weights, rounded, about, alone=True)
    for name in WORLDS if args.held_out else ():
        print(f'judging, {name} world', flush=True)
        world = make_world(name, run.network.encoder.window, run.size, run.device)
        found[name] = json_safe(judge(run.predictor.eval(), run.network, world, args.held_out,
                                      min(args.batch, args.held_out)))
    save_twists(args.out / FILE, args.weights, rounded, about, alone=True)
    (args.out / FIGURES).write_text(json.dumps(about, indent=1) + '\n')
    print(json.dumps(found, indent=1))
    print(f'written to {args.out}, {time.monotonic() - begun:.0f} s in this call')


def join(args: argparse.Namespace) -> None:
    """Write encoder, heads and predictor as one file, with its card."""
    found = load_twists('tiny', args.weights, args.out / FILE)
    meta = save_twists(args.join, args.weights, found.predictor.state_dict(), found.meta.twists)
    print(f'written: {args.join}')
    if meta.training:       # of the encoder
        card = args.join.with_suffix('.md')
        card.write_text(model_card(meta, args.join.name, args.join.stat().st_size / 1e6))
        print(f'written: {card}')


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--weights', type=Path, required=True, help='file with a block-causal '
                        'encoder and heads, which stay as they are')
    parser.add_argument('--out', type=Path, required=True, help='folder for the results')
    parser.add_argument('--join', type=Path, metavar='FILE', help='write encoder, heads and '
                        'predictor there, and its card')
    parser.add_argument('--seconds', type=float, default=1000, help='of training, over all calls')
    parser.add_argument('--stop-after', type=float, default=math.inf, metavar='S',
                        help='end this call so many seconds after its start')
    parser.add_argument('--resume', action='store_true', help='go on with the run in --out')
    parser.add_argument('--batch', type=int, default=128, help='pasts of a step; half of them are '
                        'filmed on along one plan')
    parser.add_argument('--plans', type=int, default=16, help='of a past in a step')
    parser.add_argument('--reuse', type=int, default=16, help='steps for each batch that is '
                        'filmed: one on it, the others on any that is kept')
    parser.add_argument('--keep', type=int, default=1500, help='batches that are kept, 20 MB each')
    parser.add_argument('--lr', type=float, default=1e-3)
    parser.add_argument('--held-out', type=int, default=512, help='pasts of each world that judge')
    parser.add_argument('--textures', type=int, default=300)
    parser.add_argument('--workers', type=int, default=8, help='threads that draw scenes')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--compile-world', action='store_true', help='compile the renderer')
    return parser


def main(argv: list[str] | None = None) -> None:
    """Train, judge and write."""
    begun, args = time.monotonic(), make_parser().parse_args(argv)
    if min(args.batch, args.reuse, args.keep) < 1 or args.plans < 3:
        raise SystemExit('--batch, --reuse and --keep must be at least 1, --plans at least 3')
    if args.join:
        join(args)
        return
    args.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision('high')
    encoder, heads, report = load_model('tiny', weights=args.weights)
    if heads is None or report.heads is None or not encoder.window:
        raise SystemExit(f"'{args.weights}' has no heads, or its encoder is not block-causal")
    network = Network(encoder, heads).eval().requires_grad_(False).to(args.device)
    run = Training(args, network, report.heads.meta.image_size)
    if args.resume and has_state(args.out):
        run.resume()
    bank = TextureBank.procedural(derive(args.seed, 'textures') + BANK_SEED + 1, args.textures)
    worlds = [ClipWorld(run.size, TUBELET * encoder.window, run.device, bank, config_of(name),
                        compile=args.compile_world) for name in WORLDS]
    run.run(worlds, begun + args.stop_after)
    run.save()
    finish(run, begun)


if __name__ == '__main__':
    main()
