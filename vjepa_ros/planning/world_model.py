# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The world model of the planner on its device: pictures to features, plans to energies.

Encoder and predictor are those of V-JEPA 2-AC (arXiv 2506.09985). The energy of a plan is the
mean absolute difference between the features that the last step predicts and those of a picture
of the goal. S plans, T steps, N patches, D width of the encoder.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.model.ac_predictor import ActionPredictor, normalised
from vjepa_ros.model.checkpoint.download import located
from vjepa_ros.model.checkpoint.load import WeightsReport, load_encoder
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import PATCH, TUBELET, find_variant
from vjepa_ros.planning.cost import Shapes
from vjepa_ros.planning.weights import WorldConfig, load_predictor
from vjepa_ros.runtime.device import (
    DeviceChoice,
    SessionError,
    all_operators_on,
    choose_device,
    device_name,
)
from vjepa_ros.runtime.forward.fused_rollout import World, prepare_world
from vjepa_ros.runtime.memory import is_out_of_memory, release_memory
from vjepa_ros.runtime.session import EncoderSession

log = logging.getLogger(__name__)

SHARE = 0.6            # of the free memory of a GPU that plans may take
HOST_BYTES = 2 << 30   # that they may take elsewhere
MOST_PLANS = 400       # in one pass: larger ones are no faster


class WorldModel:
    """A world model ready to serve. Make one with `WorldModel.load` or from its networks.

    Parameters
    ----------
    encoder, predictor : Encoder, ActionPredictor
        On the CPU in float32; owned by this object from then on.
    choice : DeviceChoice
        Device and precision.
    config : WorldConfig
        Of it the size of pictures, the steps and the batch count here.
    reports : (WeightsReport, WeightsReport or None)
        Where the weights of both come from; None for a random predictor.

    Attributes
    ----------
    trained : bool
        False when either network has random weights.
    kind : str
        'plain', or 'fused' where kernels of this package run.
    batch : int
        Plans in one pass. Halved when memory runs out.

    """

    def __init__(self, encoder: Encoder, predictor: ActionPredictor, choice: DeviceChoice,
                 config: WorldConfig, reports: tuple[WeightsReport | None, ...] = (None, None)):
        self.config, self.choice, self.reports = config, choice, reports
        self.trained = all(report is not None and report.trained for report in reports)
        side = config.image_size // PATCH
        self._grid = (side, side)
        self.shapes = Shapes.of(encoder.variant, predictor, side * side)
        self._session = EncoderSession(encoder, choice, TUBELET, config.image_size)
        try:
            predictor.set_branch_precision(choice.dtype)
            self._predictor: ActionPredictor | None = predictor.to(choice.device).eval()
            with all_operators_on(choice.device):
                self._session.warm()
                world, self.kind = prepare_world(predictor, choice, self._grid, config.steps)
            self._world: World | None = world
            self.batch = self._room() if config.batch == 0 else config.batch
        except BaseException:
            self.close()
            raise

    @classmethod
    def load(cls, config: WorldConfig) -> WorldModel:
        """Load and warm a world model; on failure nothing stays allocated.

        Raises
        ------
        WeightsError
            When there are no trained weights and random ones are not allowed, or a file does not
            fit.
        DeviceError, SessionError, ValueError
            With the parameter, its value and the remedy.

        """
        width, depth = config.random_predictor[:2]
        need = 2 * (find_variant(config.model_size).weights + 12 * depth * width ** 2)
        choice = choose_device(config.device, config.require_device, config.precision,
                               need_bytes=need)
        if config.cpu_threads:
            torch.set_num_threads(config.cpu_threads)
        files = replace(config, **{
            name: str(located(value, name, config.fetched))
            for name, value in (('weights', config.weights), ('predictor', config.predictor))
            if value})
        encoder, report = load_encoder(config.model_size, '2.0', files.weights,
                                       config.allow_random_weights, config.seed,
                                       config.weights_part)
        predictor, told = load_predictor(files, encoder.variant.dim)
        world = cls(encoder, predictor, choice, config, (report, told))
        log.info("world model '%s' is ready on %s in %s (%s): pictures of %d pixels, %d plans in "
                 'one pass', config.model_size, device_name(choice.device), choice.precision,
                 world.kind, config.image_size, world.batch)
        return world

    def encode(self, pictures: Sequence[np.ndarray]) -> list[Tensor]:
        """Normalised features (Hp, Wp, D) float32 on the device of pictures (S, S, 3) uint8."""
        self._here()
        found = []
        for picture in pictures:
            still = np.stack([picture] * TUBELET)  # a tubelet in which nothing moves
            features = torch.from_numpy(self._session.encode([still])[0][0])
            found.append(normalised(features.to(self.choice.device)))
        return found

    @torch.inference_mode()
    def energies(self, context: Tensor, goal: Tensor, told: Tensor, states: Tensor,
                 begin: Callable[[], None] = lambda: None) -> Tensor:
        """Energies of plans.

        Parameters
        ----------
        context, goal : Tensor
            (Hp, Wp, D) of the newest picture and of the goal, from `encode`.
        told, states : Tensor
            (S, T, 7) float32 on the CPU: actions, and the states before them.
        begin : callable
            Called before each step of each pass, with the device idle; what it raises goes
            through.

        Returns
        -------
        Tensor
            (S,) float32 on the CPU.

        Raises
        ------
        SessionError
            When the model is closed, or there is no memory for a single plan.

        """
        self._here()
        found: list[Tensor] = []
        done = 0
        while done < len(told):
            left = len(told) - done
            passes = math.ceil(left / self.batch)  # of about the same size
            part = slice(done, done + math.ceil(left / passes))
            problem = ''
            try:
                found.append(self._pass(context, goal, told[part], states[part], begin))
                done = part.stop
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                problem = str(error).partition('\n')[0]
            if problem:  # not above: the traceback keeps what the failed pass has allocated
                self._make_room(part.stop - part.start, problem)
        return torch.cat(found)

    def _pass(self, context: Tensor, goal: Tensor, told: Tensor, states: Tensor,
              begin: Callable[[], None]) -> Tensor:
        if self._world is None:
            raise SessionError('the world model is closed')
        device = self.choice.device
        rollout = self._world.rollout(context, told.shape[1])
        told, states = told.to(device), states.to(device)
        for step in range(told.shape[1]):
            self._settle()
            begin()
            features = rollout.step(told[:, step], states[:, step])
        # One plan after the other in memory, not all at once: the difference is as large as they.
        return features.sub_(goal.flatten(0, 1)).abs_().mean(dim=(1, 2)).cpu()

    def _here(self) -> None:
        """Let this thread work with as many as were asked for: each keeps a number of its own."""
        if self.config.cpu_threads and torch.get_num_threads() != self.config.cpu_threads:
            torch.set_num_threads(self.config.cpu_threads)

    def _settle(self) -> None:
        """Wait until the device is idle, so that times are those of the work."""
        if self.choice.device.type == 'cuda':
            torch.cuda.synchronize(self.choice.device)
        elif self.choice.device.type == 'mps':
            torch.mps.synchronize()

    def _room(self) -> int:
        """Plans for which there is memory in one pass."""
        free = HOST_BYTES
        if self.choice.device.type == 'cuda':
            release_memory(self.choice.device)
            free = int(SHARE * torch.cuda.mem_get_info(self.choice.device)[0])
        each = self.shapes.bytes_per_plan(self.choice.dtype.itemsize, self.config.steps)
        return max(1, min(MOST_PLANS, free // each))

    def _make_room(self, failed: int, problem: str) -> None:
        release_memory(self.choice.device)
        if failed <= 1:
            raise SessionError(f'{self.choice.device} has no memory for a single plan '
                               f'({problem}); choose a smaller image_size, fewer steps or half '
                               'precision')
        self.batch = failed // 2
        log.warning('%s has no memory for %d plans in one pass (%s); at most %d from now on',
                    self.choice.device, failed, problem, self.batch)

    def memory_bytes(self) -> int:
        """Bytes held by the weights, and on CUDA by the encoder's buffers (0 when closed)."""
        model = self._predictor
        held = 0 if model is None else sum(p.numel() * p.element_size()
                                           for p in model.parameters())
        return held + self._session.memory_bytes()

    def close(self) -> None:
        """Release both networks. May be called twice, not during another call."""
        self._world = self._predictor = None
        self._session.close()
        release_memory(self.choice.device)
