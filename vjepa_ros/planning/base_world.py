# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A world model of a base that drives: the streaming encoder and a predictor of twists.

Where a plan leads follows from its twists. The energy of a plan is how badly the goal picture fits
there (`picture_match`), and the probability that the robot touches something on the way, which the
predictor imagines. S plans, T legs, F frames of S pixels, Hp x Wp patches, D width of the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from vjepa_ros.clip.resize import View as Fit
from vjepa_ros.model.checkpoint.twist_files import has_twists
from vjepa_ros.model.twist_paths import VIEW_DIM, View, poses
from vjepa_ros.planning.action_space import TwistSpace
from vjepa_ros.planning.energy_test import Change, unchanged
from vjepa_ros.planning.picture_match import expansion, mismatch
from vjepa_ros.planning.search import SearchConfig
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.imagination import Imagination

# How long the steps of a plan last [s], as in training. The robot stands in the last one.
STEPS_S = (0.25, 0.55, 0.55, 0.55, 0.55, 0.55)
MOST_LEGS = len(STEPS_S) - 1
FRAMES, CLIP_FPS = 8, 4.0     # of a clip, and the rate at which it is sampled [Hz]
LAYERS = (2, 5)     # of the encoder that are compared: deeper ones tell less about the place
# There: the picture need not expand by more. Far off flow is wrong, and may be for nearly half of
# the picture; so either nearly all must be found there and back, or the picture had to expand by
# EXPANDED before and SURE is found now, or LIKELY in two looks in succession: it has been passed.
THERE, EXPANDED = 0.02, 0.04
ALL, SURE, LIKELY = 0.75, 0.5, 0.3
CONTACT = 1.0       # energy of a certain contact: that of a picture that fits nowhere
BASE_SEARCH = SearchConfig(samples=128, elites=12, iterations=4)


def is_base(weights: str, predictor: str = '') -> bool:
    """Return whether weights are for a base, '' the bundled ones, and not V-JEPA 2-AC.

    Parameters
    ----------
    weights, predictor : str
        See `WorldConfig`; only files of this package, which are safetensors, are for a base.

    Raises
    ------
    WeightsError
        When the file cannot be read.
    """
    if predictor or not weights:
        return not predictor
    path = Path(weights)
    return path.suffix == '.safetensors' and path.is_file() and has_twists(weights=path)


class Clip(NamedTuple):
    """What the camera of a base has seen until now, as the encoder gets it.

    Attributes
    ----------
    pixels : ndarray
        (F, S, S, 3) uint8, of pictures that went through `BaseWorld.fit`, the newest last.
    stamps_s : ndarray
        (F,) when they were taken [s].
    """

    pixels: np.ndarray
    stamps_s: np.ndarray


@dataclass(frozen=True)
class BaseCamera:
    """Where the camera of a base is, which looks ahead.

    Attributes
    ----------
    height : float
        Above the ground [m].
    pitch : float
        Of the optical axis, up positive [rad].
    x : float
        Ahead of the point about which the base turns [m].
    fov : float
        Horizontal field of view [rad] where no camera_info tells it; 0: not known.
    """

    height: float = 0.4
    pitch: float = 0.0
    x: float = 0.3
    fov: float = 0.0

    def view(self, size: tuple[int, int], focal: tuple[float, float] | None, interval_s: float,
             twist: Sequence[float] | np.ndarray) -> np.ndarray:
        """Return the state that plans start from, (VIEW_DIM,), see `View`.

        Parameters
        ----------
        size : (int, int)
            Width and height of a picture [px].
        focal : (float, float), optional
            fx and fy [px]; None where they are not known.
        interval_s : float
            Time between two frames of the clip [s].
        twist : sequence of float
            vx, vy [m/s] and omega [rad/s] of the base now.

        Raises
        ------
        ValueError
            Without a field of view, and for numbers that are out of range.
        """
        if focal is None:
            if not self.fov:
                raise ValueError('the field of view of the camera is not known: publish its '
                                 'camera_info, or set mount.fov')
            of_both = size[0] / 2 / math.tan(self.fov / 2)
            focal = of_both, of_both
        return np.array(astuple(View(
            self.height, self.pitch, self.x, size[0] / 2 / focal[0], size[1] / 2 / focal[1],
            interval_s, *twist)))


class Encoded(NamedTuple):
    """What the encoder makes of the newest picture, or of a goal.

    Attributes
    ----------
    patches : Tensor
        (Hp, Wp, D') of `LAYERS`, of the picture as one in which nothing moves.
    features : ndarray, optional
        (T', Hp, Wp, D) of the clip, which tell what is in the way; None of a single picture.
    """

    patches: Tensor
    features: np.ndarray | None


class BaseSpace(TwistSpace):
    """Legs of a plan of a base: twists, for as long as `BaseWorld` says.

    A state is what plans start from, the `View` of the camera in the order of its fields. It does
    not change within a plan.
    """

    numbers = VIEW_DIM

    def to_model(self, actions: Tensor, states: Tensor) -> Tensor:
        """Return the twists (B, 3), which the model takes as they are."""
        return actions

    def advance(self, states: Tensor, changes: Tensor) -> Tensor:
        """Return the states: they do not change."""
        return states


class BaseWorld:
    """A world model of a base. Make one with `BaseWorld.load`.

    Parameters
    ----------
    engine : Engine
        With the encoder; owned by this object from then on.
    imagination : Imagination
        With the predictor that belongs to it.

    Attributes
    ----------
    trained : bool
        False with random weights.
    choice : DeviceChoice
        Device and precision.
    steps : int
        Greatest number of legs of a plan.
    """

    steps = MOST_LEGS

    def __init__(self, engine: Engine, imagination: Imagination) -> None:
        self.choice = engine.choice
        self.trained = engine.report.trained and imagination.meta is not None
        self._engine, self._imagination = engine, imagination
        self._goal: object = None       # that `arrived` was asked for, and whether
        self._expanded = False          # the picture had to expand to become it,
        self._behind = 0                # and since how many looks it need not
        heads = engine.report.heads
        self._mode = 'squash' if heads is None else heads.meta.resize_mode

    @classmethod
    def load(cls, config: EngineConfig) -> BaseWorld:
        """Load and warm a world model.

        Parameters
        ----------
        config : EngineConfig
            '' as weights: the bundled ones.

        Raises
        ------
        WeightsError, DeviceError, SessionError, ValueError
            With the parameter, its value and the remedy.
        """
        engine = Engine.load(config)
        try:
            imagination = Imagination.load(
                config.model_size, config.weights, device=str(engine.choice.device),
                precision=engine.choice.precision)
        except BaseException:
            engine.close()
            raise
        return cls(engine, imagination)

    def fit(self, picture: np.ndarray | Clip) -> np.ndarray | Clip:
        """Return the input of the encoder (S, S, 3) of a picture (H, W, 3); clips are fitted."""
        if isinstance(picture, Clip):
            return picture
        size = (picture.shape[1], picture.shape[0])
        return Fit(self._mode, size, self._engine.config.image_size).apply(picture)

    def encode(self, views: Sequence[np.ndarray | Clip], change: Change = unchanged
               ) -> list[Encoded]:
        """Encode clips, and pictures (S, S, 3) of goals.

        Parameters
        ----------
        change : callable
            Applied to the newest picture before. Then clips are not encoded as a whole: noise is
            to show what the picture tells, not what is in the way.
        """
        newest = [change(view.pixels[-1] if isinstance(view, Clip) else view) for view in views]
        deep = self._engine.features([np.repeat(one[None], FRAMES, 0) for one in newest], LAYERS)
        found = []
        for view, layers in zip(views, deep, strict=True):
            features = None
            if isinstance(view, Clip) and change is unchanged:
                (out,) = self._engine.run([view.pixels], stamps=[view.stamps_s * CLIP_FPS])
                features = np.array(out.features)
            found.append(Encoded(_newest(layers), features))
        return found

    def difference(self, context: Encoded, goal: Encoded) -> float:
        """Return how badly the goal fits here, which ignores what is on the way."""
        usual = View(0.4, 0.0, 0.0, 1.0, 1.0, 1.0).tensor()     # matters only for other places
        return float(mismatch(goal.patches, context.patches, usual, torch.zeros(1, 3)))

    def arrived(self, seen: np.ndarray | Clip, goal: np.ndarray | Clip) -> bool:
        """Return whether the goal, as `fit` gives it, was taken here or behind."""
        if goal is not self._goal:
            self._goal, self._expanded, self._behind = goal, False, 0
        newest, there = (one.pixels[-1] if isinstance(one, Clip) else one for one in (seen, goal))
        scale, share = expansion(newest, there)
        self._expanded |= share >= LIKELY and scale >= EXPANDED
        self._behind = self._behind + 1 if scale <= THERE and share >= LIKELY else 0
        surely = share >= SURE or self._behind > 1
        return self._behind > 0 and (share >= ALL or (self._expanded and surely))

    @torch.inference_mode()
    def energies(self, context: Encoded, goal: Encoded, actions: Tensor, states: Tensor,
                 begin: Callable[[], None] = lambda: None) -> Tensor:
        """Compute the energies of plans.

        Parameters
        ----------
        context, goal : Encoded
            Of the clip and of the goal. Without features of a clip no contact counts.
        actions, states : Tensor
            (S, T, 3) twists, and (S, T, VIEW_DIM) of which the first is used.
        begin : callable
            Called before the pass; may raise.

        Returns
        -------
        Tensor
            (S,) float32 on the CPU.
        """
        begin()
        view = View(*states[0, 0].tolist())
        twists = torch.zeros(1, len(actions), len(STEPS_S), 3)
        for leg, steps in enumerate(np.array_split(np.arange(MOST_LEGS), actions.shape[1])):
            twists[0, :, steps] = actions[:, leg, None]
        touched = np.zeros(len(actions), np.float32)
        if context.features is not None:
            self._imagination.see(context.features, view)
            touched = self._imagination.imagine(twists[0].numpy(), STEPS_S).contact[:, -1]
        lasts, told = torch.tensor(STEPS_S), view.tensor()
        ends = poses(twists, lasts, told[None, 2], lasts.sum()[None])[0, :, 0]
        return (mismatch(goal.patches, context.patches, told, ends)
                + CONTACT * torch.from_numpy(touched))

    def warm(self, plans: Sequence[int], steps: int) -> None:
        """On CUDA, capture the passes of so many plans each."""
        if self.choice.device.type != 'cuda':
            return
        side = self._engine.config.image_size
        grey = np.full((FRAMES, side, side, 3), 128, np.uint8)
        seen, goal = self.encode([Clip(grey, np.arange(FRAMES) / CLIP_FPS), grey[0]])
        state = torch.tensor(astuple(View(0.4, 0.0, 0.2, 0.7, 0.5, 1 / CLIP_FPS)))
        for count in plans:
            self.energies(seen, goal, torch.zeros(count, steps, 3), state.expand(count, steps, -1))

    def about(self) -> dict[str, object]:
        """Return what diagnostics say of the model."""
        config = self._engine.config
        return {'execution': self._engine.execution, 'model': f'{config.model_size}, for a base',
                'image_size': config.image_size, 'weights': self._engine.report.path}

    def memory_bytes(self) -> int:
        """Return the bytes of the encoder."""
        return self._engine.memory_bytes()

    def close(self) -> None:
        """Release the networks. May be called twice, not during another call."""
        self._engine.close()


def _newest(layers: np.ndarray) -> Tensor:
    """Return the newest patches (Hp, Wp, L D) of layers (L, T', Hp, Wp, D), all of one length."""
    each = torch.from_numpy(np.array(layers[:, -1], np.float32)).unbind()
    return torch.cat([F.layer_norm(one, one.shape[-1:]) for one in each], -1)
