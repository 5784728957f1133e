# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Turn a trained network into files: calibrated, judged on held-out clips, and described."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.feeds import split_batches
from vjepa_ros.lab.training.model_card import model_card
from vjepa_ros.lab.training.network import Batch, Network
from vjepa_ros.lab.training.state import RunState
from vjepa_ros.lab.training.validation import answer, calibrate, figures
from vjepa_ros.lab.world.clips import ClipWorld
from vjepa_ros.lab.world.seeds import CALIBRATION_SEED, HELD_OUT_SEED
from vjepa_ros.lab.world.targets import clip_targets
from vjepa_ros.model.checkpoint.load import WeightsReport, save_bundle
from vjepa_ros.model.checkpoint.metadata import BundleMeta
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.lora import adapter_state
from vjepa_ros.model.variants import TUBELET

log = logging.getLogger(__name__)
Note = Callable[[str, int, int], None]       # task, done, total
Made = TypeVar('Made')


@dataclass(frozen=True)
class Outcome:
    """What a complete run left behind."""

    # weights, card, metrics: the files
    weights: Path
    card: Path
    metrics: Path
    figures: dict[str, Any]  # by world, on held-out clips; {} when there were none


@dataclass(frozen=True)
class TrainedRun:
    """A trained network and how it was made."""

    config: TrainConfig  # options of the run
    network: Network  # with the averaged weights in place
    report: WeightsReport  # where the encoder came from
    state: RunState  # history and length of the run
    command: str  # as typed, for the card


def finish(folder: Path, run: TrainedRun, worlds: Sequence[ClipWorld], note: Note) -> Outcome:
    """Calibrate, judge and write."""
    config, network = run.config, run.network
    round_to_half(network)
    calibration = Calibration()
    if config.calibration_clips:
        answers = answer(network, noted(world_batches(worlds, CALIBRATION_SEED,
                                                      config.calibration_clips),
                                        note, 'calibrating'))
        calibration = calibrate(answers)
    weights = folder / f'{config.model_size}{"-heads" if config.heads_only else ""}.safetensors'
    # Judging takes minutes; a machine that is lost meanwhile takes nothing but the figures.
    save_weights(weights, config, network, describe(run, calibration, {}))
    held_out: dict[str, dict[str, Any]] = {}
    for world in worlds if config.held_out_clips else ():
        if world.config.training:      # judged as by `vjepa-ros evaluate`
            world = ClipWorld(world.size, world.num_frames, world.device, world.bank,
                              replace(world.config, training=False))
        answers = answer(network, noted(world_batches((world,), HELD_OUT_SEED,
                                                      config.held_out_clips),
                                        note, 'judging'))
        held_out[world.config.name] = {
            **figures(answers, calibration),
            'calibration_error_before': figures(answers)['expected_calibration_error']}
    metrics = {'held_out': held_out}
    meta = save_weights(weights, config, network, describe(run, calibration, metrics))
    card = weights.with_suffix('.md')
    card.write_text(model_card(meta, weights.name, weights.stat().st_size / 1e6),
                    encoding='utf-8')
    written = folder / 'metrics.json'
    written.write_text(json.dumps(
        {**metrics, 'calibration': calibration.to_json(), 'training': meta.training,
         'options': config.as_dict(), 'history': run.state.history}, indent=1) + '\n',
        encoding='utf-8')
    return Outcome(weights, card, written, held_out)


def save_weights(path: Path, config: TrainConfig, network: Network,
                 meta: BundleMeta) -> BundleMeta:
    """Write what was trained; the description as it stands in the file."""
    return save_bundle(
        path, meta, encoder=None if config.heads_only else network.encoder.state_dict(),
        heads=network.heads.state_dict(),
        adapters=adapter_state(network.encoder) if config.lora_rank else None)


def describe(run: TrainedRun, calibration: Calibration, metrics: dict[str, Any]) -> BundleMeta:
    """Describe the weights as their file does."""
    config, state = run.config, run.state
    world = config.worlds[0]
    names = ' and '.join(one.name for one in config.worlds)
    data = (f'rendered scenes of `vjepa_ros.lab.world`, {names} world, {config.textures} '
            'painted textures')
    if config.photos:
        data += f' and {config.textures} crops of photographs'
    if config.recordings:
        names = ', '.join(f'`{Path(r).name}`' for r in config.recordings)
        share = config.from_recordings / config.batch
        data = f'{data}; recordings ({names}, {share:.0%} of each batch)' \
            if share < 1 else f'recordings ({names})'
    trained_on = {
        'data': data, 'objective': config.objective, 'seed': config.seed,
        'clips': state.clips, 'steps': state.step, 'seconds': state.seconds,
        'command': run.command, 'encoder_frozen': config.heads_only, 'lora_rank': config.lora_rank,
        'hardware': sorted({call['hardware'] for call in state.calls}),
        'software': ', '.join(sorted({call['software'] for call in state.calls}))}
    encoder = run.network.encoder
    return BundleMeta(
        variant=config.model_size, version=encoder.version, window=encoder.window,
        num_frames=TUBELET * encoder.window or config.num_frames, image_size=config.image_size,
        resize_mode=config.resize_mode, interval_s=world.interval_s,
        robot={'half_width': world.robot.half_width, 'height': world.robot.height},
        calibration=calibration, backbone_sha256=run.report.sha256, training=trained_on,
        metrics=metrics, other_modes=('letterbox',) if any(w.rough for w in config.worlds) else ())


@torch.no_grad()
def round_to_half(network: Network) -> None:
    """Round trained weights as the file does, so that the saved weights are evaluated."""
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.copy_(parameter.half().float())


def world_batches(worlds: Sequence[ClipWorld], first_seed: int, count: int
                  ) -> list[Callable[[], Batch]]:
    """Ways to get the clips of a split with their targets, `count` of each world."""
    def piece(make: Callable) -> Callable[[], Batch]:
        def batch() -> Batch:
            clips = make()
            return Batch(clips.frames, clip_targets(clips), stamps=clips.stamps)
        return batch

    return [piece(make) for world in worlds for make in split_batches(world, first_seed, count)]


def noted(makers: Sequence[Callable[[], Made]], note: Note, what: str) -> Iterator[Made]:
    """Make batches one after the other and report progress."""
    for number, make in enumerate(makers):
        note(what, number, len(makers))
        yield make()
    note(what, len(makers), len(makers))
