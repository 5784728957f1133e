# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The world model of the planner: pictures to features, plans to energies.

Encoder and predictor are those of V-JEPA 2-AC (arXiv 2506.09985). The energy of a plan is the mean
absolute difference between the features predicted for its last step and those of a goal picture.
S plans, T steps, N patches, D width of the encoder.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.clip.resize import View
from vjepa_ros.model.ac_predictor import ACTION_DIM, ActionPredictor, normalised
from vjepa_ros.model.checkpoint.download import located
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.checkpoint.inspection import load_network
from vjepa_ros.model.checkpoint.load import RANDOM, WeightsReport, load_encoder
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import PATCH, TUBELET, Variant, find_variant
from vjepa_ros.planning.energy_test import Change, unchanged
from vjepa_ros.runtime.device import (
    DeviceChoice,
    SessionError,
    all_operators_on,
    choose_device,
    device_name,
    load_on,
)
from vjepa_ros.runtime.forward.fused_rollout import World, prepare_world
from vjepa_ros.runtime.memory import is_out_of_memory, release_memory
from vjepa_ros.runtime.session import EncoderSession

log = logging.getLogger(__name__)

PUBLISHED = (1024, 24, 16)  # width, depth and heads of the published predictor
ACTION_TOKENS = 2      # tokens of a step besides the patches: action and state
GPU_SHARE = 0.6        # fraction of the free memory of a GPU for plans
HOST_BYTES = 2 << 30   # memory for plans elsewhere
MAX_PLANS = 400        # in one pass: larger ones are no faster


@dataclass(frozen=True)
class WorldConfig:
    """How the world model is loaded.

    Attributes
    ----------
    model_size : str
        Row of `VARIANTS` of the encoder, always of version 2.0.
    weights : str
        Checkpoint of the encoder, such as the published 'vjepa2-ac-vitg.pt'. '' takes the bundled
        one of this size, 'random' random weights.
    weights_part : str
        Encoder of a file with several, see `load_encoder`.
    predictor : str
        Checkpoint of the predictor; '' takes that of `weights`, 'random' random weights.
    random_predictor : (int, int, int)
        Width, depth and heads of a predictor with random weights.
    allow_random_weights : bool
        Whether it may run untrained.
    image_size : int
        Side of the input [px], a multiple of 16; 256 as published.
    resize_mode : str
        How a picture is fitted to it, see `vjepa_ros.clip.resize`; as published 'crop', the
        centre.
    steps : int
        Maximum number of steps of a plan.
    device, require_device, precision : str, bool, str
        See `choose_device`.
    seed : int
        Seed of random weights.
    cpu_threads : int
        CPU threads of PyTorch for the whole process; 0 keeps the default.
    batch : int
        Maximum number of plans in one pass; 0: by memory, up to `MAX_PLANS`.
    fetched : tuple of str, optional
        Names on the Hugging Face hub that may be downloaded, see `located`; all when omitted.
    """

    model_size: str = 'giant'
    weights: str = ''
    weights_part: str = 'auto'
    predictor: str = ''
    random_predictor: tuple[int, int, int] = PUBLISHED
    allow_random_weights: bool = False
    image_size: int = 256
    resize_mode: str = 'crop'
    steps: int = 2
    device: str = 'auto'
    require_device: bool = False
    precision: str = 'auto'
    seed: int = 0
    cpu_threads: int = 0
    batch: int = 0
    fetched: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.image_size < PATCH or self.image_size % PATCH:
            raise ValueError(f'image_size is {self.image_size}, but must be a multiple of {PATCH} '
                             'and at least that')
        if self.steps < 1:
            raise ValueError(f'steps is {self.steps}, but must be at least 1')


@dataclass(frozen=True)
class Shapes:
    """Sizes of the networks, and the arithmetic and memory of a plan that follow from them.

    Floating-point operations are those of matrix products and attention, two for each
    multiplication with its addition; norms, activations and rotations, below 1 %, are left out.

    Attributes
    ----------
    encoder : Variant
        Size of the encoder.
    width, depth : int
        Size of the predictor, whose MLP is four times as wide.
    patches : int
        Patches of one picture.
    """

    encoder: Variant
    width: int
    depth: int
    patches: int

    @classmethod
    def of(cls, encoder: Variant, predictor: ActionPredictor, patches: int) -> Shapes:
        """Return the sizes of two networks and the patches of a picture."""
        return cls(encoder, predictor.predictor_norm.normalized_shape[0],
                   len(predictor.predictor_blocks), patches)

    @property
    def tokens(self) -> int:
        """Tokens of one step of a plan."""
        return self.patches + ACTION_TOKENS

    def encode_flops(self) -> int:
        """Return the operations to encode one picture."""
        n, d = self.patches, self.encoder.dim
        block = n * (8 * d * d + 4 * d * self.encoder.mlp) + 4 * n * n * d
        return self.encoder.depth * block + 2 * n * d * 3 * TUBELET * PATCH * PATCH

    def step_flops(self, step: int) -> int:
        """Return the operations of a step (from 1) of one plan, with those before cached."""
        n, p, d = self.tokens, self.width, self.encoder.dim
        block = 24 * n * p * p + 4 * n * (step * n) * p
        return self.depth * block + 2 * (2 * self.patches * d * p)

    def rollout_flops(self, steps: int) -> int:
        """Return the operations of all steps of one plan."""
        return sum(self.step_flops(step) for step in range(1, steps + 1))

    def bytes_per_plan(self, itemsize: int, steps: int) -> int:
        """Return the peak memory of one plan of a pass [bytes], by the bytes of a number."""
        n, p, d = self.tokens, self.width, self.encoder.dim
        # Keys and values before the last step, stored beside the queries where they were computed
        # first; while they are concatenated, those of one block twice.
        kept = self.depth * (steps - 1) * n * 3 * p + 2 * steps * n * 2 * p if steps > 1 else 0
        block = n * p * (1 + 3 + 1 + 1 + 4 + 1)   # norm, queries keys values, attention, MLP
        passing = 4 * n * p * 2 + 4 * n * d * 3   # residual stream and features in float32
        return itemsize * (kept + block + n * d) + passing


class WorldModel:
    """A world model ready to use. Make one with `WorldModel.load` or from its networks.

    Parameters
    ----------
    encoder, predictor : Encoder, ActionPredictor
        On the CPU in float32; owned by this object from then on.
    choice : DeviceChoice
        Device and precision.
    config : WorldConfig
        Image size, steps, batch and threads.
    reports : (WeightsReport, WeightsReport or None)
        Sources of the weights of both; None for a random predictor.

    Attributes
    ----------
    trained : bool
        False when either network has random weights.
    kind : str
        'plain', or 'fused' with the kernels of this package.
    batch : int
        Plans in one pass; halved when memory runs out.
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
            self.batch = self._plans_that_fit() if config.batch == 0 else config.batch
        except BaseException:
            self.close()
            raise

    @classmethod
    def load(cls, config: WorldConfig) -> WorldModel:
        """Load and warm up a world model; a failure leaves nothing allocated.

        Raises
        ------
        WeightsError
            Without trained weights when random ones are not allowed, or when a file does not fit.
        DeviceError, SessionError, ValueError
            With the parameter, its value and the remedy.
        """
        width, depth = config.random_predictor[:2]
        need = 2 * (find_variant(config.model_size).weights + 12 * depth * width ** 2)
        choice = choose_device(config.device, config.require_device, config.precision,
                               need_bytes=need)
        if config.cpu_threads:
            torch.set_num_threads(config.cpu_threads)
        return load_on(choice, lambda chosen: cls._on(chosen, config), config.require_device,
                       config.precision)

    @classmethod
    def _on(cls, choice: DeviceChoice, config: WorldConfig) -> WorldModel:
        files = replace(config, **{
            name: str(located(value, name, config.fetched))
            for name, value in (('weights', config.weights), ('predictor', config.predictor))
            if value})
        encoder, report = load_encoder(config.model_size, '2.0', files.weights,
                                       config.allow_random_weights, config.seed,
                                       config.weights_part)
        predictor, predictor_report = load_predictor(files, encoder.variant.dim)
        world = cls(encoder, predictor, choice, config, (report, predictor_report))
        log.info("world model '%s' is ready on %s in %s (%s): pictures of %d pixels, %d plans in "
                 'one pass', config.model_size, device_name(choice.device), choice.precision,
                 world.kind, config.image_size, world.batch)
        return world

    @property
    def steps(self) -> int:
        """Greatest number of steps of a plan."""
        return self.config.steps

    def fit(self, picture: np.ndarray) -> np.ndarray:
        """Return the input of the encoder (S, S, 3) of a picture (H, W, 3)."""
        size = (picture.shape[1], picture.shape[0])
        return View(self.config.resize_mode, size, self.config.image_size).apply(picture)

    def difference(self, context: Tensor, goal: Tensor) -> float:
        """Return how different newest picture and goal are, as the energy of a plan."""
        return float((context - goal).abs().mean())

    def arrived(self, seen: np.ndarray, goal: np.ndarray) -> bool:
        """Return False: when an arm is there is not told by the published model."""
        return False

    def warm(self, plans: Sequence[int], steps: int) -> None:
        """On CUDA, run passes of so many plans each.

        Libraries select and build kernels for each shape, and the memory may not suffice for so
        many plans at once.

        Raises
        ------
        SessionError
            When energies are not finite.
        """
        if self.choice.device.type != 'cuda':
            return
        side = self.config.image_size
        (grey,) = self.encode([np.full((side, side, 3), 128, np.uint8)])
        for count in plans:
            still = torch.zeros(count, steps, ACTION_DIM)
            if not torch.isfinite(self.energies(grey, grey, still, still)).all():
                raise SessionError(f'the world model gives values that are not finite on '
                                   f'{self.choice.device} in {self.choice.precision}; set '
                                   '`precision: fp32`')

    def encode(self, views: Sequence[np.ndarray], change: Change = unchanged) -> list[Tensor]:
        """Encode pictures (S, S, 3) uint8 to normalised features (Hp, Wp, D) on the device.

        `change` is applied to the pixels before.
        """
        self._set_threads()
        found = []
        for picture in views:
            still = np.stack([change(picture)] * TUBELET)  # a tubelet without motion
            features = torch.from_numpy(self._session.encode([still])[0][0])
            found.append(normalised(features.to(self.choice.device)))
        return found

    @torch.inference_mode()
    def energies(self, context: Tensor, goal: Tensor, actions: Tensor, states: Tensor,
                 begin: Callable[[], None] = lambda: None) -> Tensor:
        """Compute the energies of plans.

        Parameters
        ----------
        context, goal : Tensor
            Features (Hp, Wp, D) of the newest picture and of the goal, from `encode`.
        actions, states : Tensor
            (S, T, 7) float32 on the CPU: actions in the terms of the model, and the states before
            them.
        begin : callable
            Called before each step of each pass, with the device idle; may raise.

        Returns
        -------
        Tensor
            (S,) float32 on the CPU.

        Raises
        ------
        SessionError
            When the model is closed, or without memory for a single plan.
        """
        self._set_threads()
        found: list[Tensor] = []
        done = 0
        while done < len(actions):
            left = len(actions) - done
            passes = math.ceil(left / self.batch)  # of about the same size
            part = slice(done, done + math.ceil(left / passes))
            problem = ''
            try:
                found.append(self._pass(context, goal, actions[part], states[part], begin))
                done = part.stop
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                problem = str(error).partition('\n')[0]
            if problem:  # here, because the traceback keeps the allocations of the failed pass
                self._halve_batch(part.stop - part.start, problem)
        return torch.cat(found)

    def _pass(self, context: Tensor, goal: Tensor, actions: Tensor, states: Tensor,
              begin: Callable[[], None]) -> Tensor:
        if self._world is None:
            raise SessionError('the world model is closed')
        device, steps = self.choice.device, actions.shape[1]
        rollout = self._world.rollout(context, steps)
        actions, states = actions.to(device), states.to(device)

        def predicted(step: int) -> Tensor:
            self._synchronize()
            begin()
            return rollout.step(actions[:, step], states[:, step])

        for step in range(steps - 1):
            predicted(step)
        features = predicted(steps - 1)
        # In place: the difference would be as large as the features.
        return features.sub_(goal.flatten(0, 1)).abs_().mean(dim=(1, 2)).cpu()

    def _set_threads(self) -> None:
        """Set the number of CPU threads, which PyTorch keeps for each calling thread."""
        if self.config.cpu_threads and torch.get_num_threads() != self.config.cpu_threads:
            torch.set_num_threads(self.config.cpu_threads)

    def _synchronize(self) -> None:
        """Wait until the device is idle, so that measured times are those of the work."""
        if self.choice.device.type == 'cuda':
            torch.cuda.synchronize(self.choice.device)
        elif self.choice.device.type == 'mps':
            torch.mps.synchronize()

    def _plans_that_fit(self) -> int:
        """Return the number of plans in one pass that fit into memory."""
        free = HOST_BYTES
        if self.choice.device.type == 'cuda':
            release_memory(self.choice.device)
            free = int(GPU_SHARE * torch.cuda.mem_get_info(self.choice.device)[0])
        each = self.shapes.bytes_per_plan(self.choice.dtype.itemsize, self.config.steps)
        return max(1, min(MAX_PLANS, free // each))

    def _halve_batch(self, failed: int, problem: str) -> None:
        release_memory(self.choice.device)
        if failed <= 1:
            raise SessionError(f'{self.choice.device} has no memory for a single plan '
                               f'({problem}); choose a smaller image_size, fewer steps or half '
                               'precision')
        self.batch = failed // 2
        log.warning('%s has no memory for %d plans in one pass (%s); at most %d from now on',
                    self.choice.device, failed, problem, self.batch)

    def about(self) -> dict[str, object]:
        """Return what diagnostics say of the model."""
        return {'execution': self.kind, 'model': self.config.model_size,
                'image_size': self.config.image_size, 'plans_in_one_pass': self.batch,
                'weights': ', '.join('random' if one is None or not one.trained else one.path
                                     for one in self.reports)}

    def memory_bytes(self) -> int:
        """Return the bytes of weights and, on CUDA, of the encoder's buffers; 0 when closed."""
        model = self._predictor
        held = 0 if model is None else sum(p.numel() * p.element_size()
                                           for p in model.parameters())
        return held + self._session.memory_bytes()

    def close(self) -> None:
        """Release both networks. May be called twice, not during another call."""
        self._world = self._predictor = None
        self._session.close()
        release_memory(self.choice.device)


def load_predictor(config: WorldConfig, dim: int) -> tuple[ActionPredictor, WeightsReport | None]:
    """Load the predictor on the CPU in float32.

    Parameters
    ----------
    config : WorldConfig
        How to load it.
    dim : int
        Width of the encoder.

    Returns
    -------
    tuple of ActionPredictor and WeightsReport, optional
        The report is None for random weights.

    Raises
    ------
    WeightsError
        Without a file when random weights are not allowed, or when a file does not fit.
    """
    path = config.predictor or config.weights
    if path and path != RANDOM:
        network, report = load_network(path, 'predictor')
        if not isinstance(network, ActionPredictor):
            raise WeightsError(f"'{path}' has a predictor without actions; set `predictor` to a "
                               'file of V-JEPA 2-AC')
        if network.predictor_embed.in_features != dim:
            raise WeightsError(f"the predictor in '{path}' expects features of width "
                               f'{network.predictor_embed.in_features}, but those of '
                               f"`model_size` '{config.model_size}' have {dim}; set another one")
        return network, report
    if not config.allow_random_weights:
        raise WeightsError('there are no trained weights of a predictor with actions, and the '
                           'package has none; set `weights` to a checkpoint such as '
                           "'vjepa2-ac-vitg.pt', or `allow_random_weights: true` to run untrained")
    width, depth, heads = config.random_predictor
    with torch.device('meta'):
        predictor = ActionPredictor(dim, width, depth, heads)
    predictor.requires_grad_(False).eval().to_empty(device='cpu').init_random(config.seed)
    log.warning('the world model runs with random weights (seed %d): its plans mean nothing',
                config.seed)
    return predictor, None
