# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Score chunks on many machines with Ray: tasks decode, a pool of actors with a model scores."""

from __future__ import annotations

import importlib
import os
import pickle
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vjepa_ros.fleet.config import ScoreConfig
from vjepa_ros.fleet.decoding import decoded_apart, decoded_here
from vjepa_ros.fleet.recordings import Chunk
from vjepa_ros.fleet.run import Backend, scorer_of
from vjepa_ros.fleet.tables import ROWS
from vjepa_ros.fleet.workers import ATTEMPTS

# Ray's remarks on its own plans; what fails comes as an exception. It reads these when it starts.
QUIET = {'RAY_DATA_LOG_LEVEL': 'ERROR', 'RAY_BACKEND_LOG_LEVEL': 'fatal'}


class _Actor:
    """Scores chunks in a process of the cluster."""

    def __init__(self, config: ScoreConfig, folder: Path, decoder_cpus: int | None) -> None:
        self._score = scorer_of(config, folder, 1, decoded_here if decoder_cpus is None else
                                decoded_apart(decoder_cpus))

    def __call__(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        answers = []
        for packed in batch['chunk']:
            try:
                answers.append((self._score(pickle.loads(packed)), ''))
            except (ValueError, OSError) as error:      # of recordings, files and disks
                answers.append((None, str(error)))
        return {'number': batch['number'], 'answer': [pickle.dumps(a) for a in answers]}


def share_of_gpu(gpus: int, actors: int) -> float:
    """Return the part of a GPU for each of some actors, none of which is split over two."""
    return 1 / -(-actors // gpus) if 0 < gpus < actors else 1


def cluster(config: ScoreConfig, folder: Path, address: str, actors: int,
            apart: bool = False) -> Backend:
    """Return what scores chunks on a Ray cluster.

    Recordings and results must have the same paths on all its machines. Where the model runs on
    CUDA each actor has a GPU of its own, or its share of one where there are more actors than GPUs
    when the run begins, and a task on a core of any machine decodes for it. Else it has a core, on
    which it also decodes.
    """
    for name, level in QUIET.items():
        os.environ.setdefault(name, level)
    try:
        ray = importlib.import_module('ray')
        data = importlib.import_module('ray.data')
    except ImportError as error:
        raise ValueError(f"--ray needs Ray ({error}): pip install 'ray[data]<2.64'") from error

    def run(chunks: Sequence[Chunk], done: Callable[[Chunk, Any, str], object]) -> None:
        try:
            ray.init(address=address, log_to_driver=False, logging_level='error')
        except (ConnectionError, ValueError) as error:
            raise ValueError(f"--ray '{address}': {error}") from error
        try:
            _play(ray, data, chunks, done)
        finally:
            ray.shutdown()

    def _play(ray: Any, data: Any, chunks: Sequence[Chunk],
              done: Callable[[Chunk, Any, str], object]) -> None:
        context = data.DataContext.get_current()
        context.enable_progress_bars = False
        # A block is a chunk: one that kills its actor each time loses no other.
        context.max_errored_blocks = -1
        on_gpu = config.engine.device.startswith('cuda') or (
            config.engine.device == 'auto' and 'GPU' in ray.cluster_resources())
        most = min(actors, len(chunks))
        share = share_of_gpu(int(ray.cluster_resources().get('GPU', 0)), most) if on_gpu else 0
        items = data.from_items([{'number': n, 'chunk': pickle.dumps(chunk)}
                                 for n, chunk in enumerate(chunks)],
                                override_num_blocks=len(chunks))
        with warnings.catch_warnings():
            warnings.simplefilter('ignore', DeprecationWarning)     # of the last three keywords
            answers = items.map_batches(
                _Actor, fn_constructor_args=(config, folder.resolve() / ROWS,
                                             1 if on_gpu else 0 if apart else None), batch_size=1,
                # A pool of variable size does not grow while each actor has one task at most.
                compute=data.ActorPoolStrategy(size=most, max_tasks_in_flight_per_actor=1),
                num_cpus=0 if on_gpu else 1, num_gpus=share, max_restarts=-1,
                max_task_retries=ATTEMPTS - 1)      # that Ray 2.64 will refuse
        left = set(range(len(chunks)))
        for row in answers.iter_rows():
            left.remove(row['number'])
            done(chunks[row['number']], *pickle.loads(row['answer']))
        for number in sorted(left):
            done(chunks[number], None, f'its process ended {ATTEMPTS} times, perhaps for lack of '
                 'memory')

    return run
