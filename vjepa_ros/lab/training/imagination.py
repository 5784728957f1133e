# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Train a predictor of twists: pasts, their futures, targets and losses.

The encoder and its heads stay as they are. A past is filmed and encoded once and then kept: new
plans from it cost no picture, because when the robot touches something follows from positions
alone. Pictures are drawn along one plan of some pasts, and the encoder, which is an average over
its training, says what should have been imagined there. B pasts, the first G of which were filmed
on, F plans, S steps, n cells of the coarse grid, Hp x Wp patches, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from vjepa_ros.lab.training.network import Network, normalised
from vjepa_ros.lab.world.clips import ClipWorld
from vjepa_ros.lab.world.futures import Plans, contact_time, draw_plans, filmed, folded
from vjepa_ros.lab.world.rendering.render import render
from vjepa_ros.lab.world.scenes.sampler import Sample
from vjepa_ros.lab.world.scenes.scene import Scenes
from vjepa_ros.lab.world.scenes.scene_rng import SceneRng
from vjepa_ros.lab.world.seeds import derive
from vjepa_ros.lab.world.tubelets import stream_frames
from vjepa_ros.model.head_specs import CLEARANCE_BINS
from vjepa_ros.model.twist_predictor import (
    CELLS,
    GRID,
    Imagined,
    TwistPredictor,
    coarse,
)

STEPS = 6
GAP_S = 0.25        # longest time between the two frames of a tubelet to come
NOISE = 0.05        # relative, of the twist that the predictor is told


@dataclass(frozen=True)
class Pasts:
    """B pasts, the first G of them with one plan that was filmed.

    Attributes
    ----------
    present : Tensor
        (B, Hp, Wp, C) float16, see `TwistPredictor.present`.
    view : Tensor
        (B, VIEW_DIM), see `View`.
    scenes : Scenes
        The newest frame.
    plan : Plans
        One for each past, those that were filmed.
    features : Tensor
        (G, S, n, D) float16, `coarse` features of the tubelet at the end of each of its steps.
    clearance : Tensor
        (G, S, C+1) what the heads say of the free way there, as probabilities.
    course, looming : Tensor
        (G, S, n) greatest probability of a collision course, and looming rate [1/s], of the
        patches of each cell, by the heads.
    """

    present: Tensor
    view: Tensor
    scenes: Scenes
    plan: Plans
    features: Tensor
    clearance: Tensor
    course: Tensor
    looming: Tensor

    def __len__(self) -> int:
        return len(self.view)


def view_of(scenes: Scenes, ahead: Tensor, draws: SceneRng) -> Tensor:
    """Return the cameras on bases that turn about a point so far behind them, (B, VIEW_DIM).

    The twist is that of the newest frame, with the error of an odometry.
    """
    axes = scenes.camera_rotation[:, -1]
    level = F.normalize(axes[:, 2, 0::2], dim=-1)                                # right, ahead
    moves = scenes.camera_velocity[:, 0::2]
    vx = (moves * level).sum(-1)
    right = moves[:, 0] * level[:, 1] - moves[:, 1] * level[:, 0]
    # The vertical in the axes of the camera leads down, so a turn about it is one to the right.
    omega = -(scenes.camera_spin * axes[..., 1]).sum(-1)
    now = torch.stack((vx, -right - omega * ahead, omega), -1)
    now = now * (1 + NOISE * draws.normal(1.0, 3).to(now.device))
    size = 2 * (scenes.intrinsics[:, 2:].mean(-1) + 0.5)
    return torch.cat((torch.stack((
        -scenes.camera_position[:, -1, 1], -torch.asin(axes[:, 2, 1].clamp(-1, 1)), ahead,
        size / 2 / scenes.intrinsics[:, 0], size / 2 / scenes.intrinsics[:, 1],
        scenes.interval_s.log()), -1), now), -1)


@torch.no_grad()
def make_pasts(world: ClipWorld, network: Network, predictor: TwistPredictor, sample: Sample,
               seed: int, filmed_on: int | None = None, even: bool = False) -> Pasts:
    """Film pasts and one plan of some of them, and encode both.

    Parameters
    ----------
    world : ClipWorld
        With the frames of the window of the encoder.
    network : Network
        With a block-causal encoder on the device of the world.
    predictor : TwistPredictor
        Reads the present, there, too.
    sample : Sample
        Of the world, see `ClipWorld.sample`.
    seed : int
        The same one gives the same plan.
    filmed_on : int, optional
        G; all when omitted.
    even : bool
        Whether plans have the usual steps (`futures.STEP_S`) instead of drawn ones.
    """
    device, window = world.device, network.encoder.window
    # The renderer is compiled for the order in memory, too, which is that of `folded`.
    scenes = sample.scenes.map(lambda values: values.to(device).contiguous())
    draws = SceneRng(derive(seed, 'plans'), len(scenes))
    ahead = draws.uniform(0.0, 0.5).to(device)
    view = view_of(scenes, ahead, draws)
    plan = draw_plans(draws, view[:, 6].cpu(), 3, STEPS, even)      # neither as now nor a stop
    plan = Plans(plan.twists[:, 2:].to(device), plan.duration_s.to(device), ahead)
    stamps = (sample.stamps_s.double() / sample.scenes.interval_s[:, None].double()).to(device)
    chosen = stream_frames(stamps, window)
    told = stamps.gather(1, chosen)
    told = told - told[:, -1:]
    rows = torch.arange(len(scenes), device=device)[:, None]
    before = _drawn(world, scenes)[rows, chosen]
    count = len(scenes) if filmed_on is None else filmed_on
    with half(device):
        features = network.encoder(normalised(before), times=network.encoder.times(told))
    present = predictor.present(features)
    known = Pasts(present.half(), view, _newest(scenes), plan, *_nothing(features))
    if not count:
        return known

    def few(values: Tensor) -> Tensor:
        return values[:count]

    some = scenes.map(few)
    gap = some.interval_s[:, None].clamp(max=GAP_S)
    ends = plan.ends_s.expand(count, -1)
    times = torch.stack((ends - gap, ends), -1).flatten(1)                          # G 2S
    own = Plans(plan.twists[:count], plan.duration_s, plan.offset[:count])
    first = torch.zeros(count, dtype=torch.int64, device=device)
    spare = -times.shape[1] % world.num_frames
    shown = torch.cat((times, times[:, -1:].expand(-1, spare)), 1)
    after = _drawn(world, folded(
        filmed(some, own, first, shown, world.config.robot), world.num_frames))
    after = after.unflatten(0, (count, -1)).flatten(1, 2)[:, :times.shape[1]]
    told = torch.cat((told[:count], times.double() / some.interval_s[:, None].double()), 1)
    with half(device):
        seen = network.encoder(normalised(torch.cat((before[:count], after), 1)),
                               times=network.encoder.times(told))
    # The heads read the newest two tubelets; they count in the time between two frames.
    said = [network.answers(seen[:, end - 2:end])
            for end in range(window + 1, window + 1 + STEPS)]

    def greatest(name: str) -> Tensor:
        found = torch.stack([getattr(one, name) for one in said], 1).float()        # G S Hp Wp
        return F.adaptive_max_pool2d(found, GRID).flatten(2)

    return replace(
        known, features=coarse(seen[:, window:]).half(),
        clearance=torch.stack([one.clearance.softmax(-1) for one in said], 1),
        course=greatest('course').sigmoid(), looming=greatest('expansion') / gap[..., None])


def half(device: torch.device) -> torch.autocast:
    """Compute networks, and nothing of the world, in half precision on a GPU."""
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == 'cuda')


def _drawn(world: ClipWorld, scenes: Scenes) -> Tensor:
    return render(scenes, world.bank, (world.size, world.size), samples=world.samples,
                  compile=world.compile)


def _nothing(like: Tensor) -> list[Tensor]:
    """Return what is known of futures where none was filmed."""
    width = like.shape[-1]
    return [like.new_zeros(0, STEPS, *shape) for shape in (
        (CELLS, width), (CLEARANCE_BINS + 1,), (CELLS,), (CELLS,))]


def _newest(scenes: Scenes) -> Scenes:
    """Return what decides about contacts, without earlier frames."""
    moving = ('position', 'yaw', 'camera_position', 'camera_rotation')
    return replace(scenes, capture=None, **{
        name: getattr(scenes, name)[:, -1:].clone() for name in moving})


@dataclass(frozen=True)
class Futures:
    """F plans of B pasts; the first was filmed.

    Attributes
    ----------
    plans : Plans
        All of them.
    contact_s : Tensor
        (B, F) time of the first touch [s], inf for none.
    """

    plans: Plans
    contact_s: Tensor


def make_futures(world: ClipWorld, pasts: Pasts, seed: int, count: int) -> Futures:
    """Draw new plans of pasts, and say when each touches something.

    Parameters
    ----------
    seed : int
        The same one gives the same plans.
    count : int
        F, at least 3.
    """
    plan = pasts.plan
    drawn = draw_plans(SceneRng(derive(seed, 'futures'), len(pasts)), pasts.view[:, 6].cpu(),
                       count - 1, STEPS)
    plans = replace(plan, twists=torch.cat((plan.twists, drawn.twists.to(plan.twists.device)), 1))
    return Futures(plans, contact_time(pasts.scenes, plans, world.config.robot))


@dataclass(frozen=True)
class Lesson:
    """Pasts of one step of training, and plans for them."""

    pasts: Pasts
    futures: Futures

    def __len__(self) -> int:
        return len(self.pasts)


class Imaginer(nn.Module):
    """A predictor of twists with its losses, see `imagination_losses`."""

    def __init__(self, predictor: TwistPredictor) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, batch: Lesson, target: None = None) -> dict[str, Tensor]:
        """Compute the losses by name, each a scalar; there is no other network to follow."""
        return imagination_losses(self.predictor, batch.pasts, batch.futures)


def imagination_losses(predictor: TwistPredictor, pasts: Pasts, futures: Futures
                       ) -> dict[str, Tensor]:
    """Compute the losses by name, each a scalar: of forced steps, and of rolled-out ones.

    ``forced`` and ``rolled`` are mean absolute differences of features, as published (arXiv
    2506.09985), ``contact`` the log loss of each step before the first touch, ``clearance`` the
    cross entropy to what the heads say, ``course`` that of their probabilities, and ``looming``
    the absolute difference from their rates.
    """
    plans, truth, some = futures.plans, pasts.features.float()[:, None], len(pasts.features)
    seen = predictor.see(pasts.present, pasts.view)
    rolled = predictor.imagine(seen, plans.twists, plans.duration_s)
    forced = predictor.imagine(seen.first(some), plans.twists[:some, :1], plans.duration_s, truth)
    free = rolled.clearance[:some, 0].float().log_softmax(-1)
    return {
        'contact': contact_loss(rolled, futures),
        'forced': F.l1_loss(forced.features, truth),
        'rolled': F.l1_loss(rolled.features[:some, :1], truth),
        'clearance': -0.1 * (pasts.clearance * free).sum(-1).mean(),
        'course': 0.2 * F.binary_cross_entropy_with_logits(
            rolled.course[:some, 0].float(), pasts.course),
        'looming': 0.2 * F.smooth_l1_loss(rolled.looming[:some, 0].float(), pasts.looming)}


def contact_loss(said: Imagined, futures: Futures) -> Tensor:
    """Log loss of the touch in each step, of plans that touched nothing before."""
    when, ends = futures.contact_s[..., None], futures.plans.ends_s
    begins = torch.cat((ends.new_full((1,), -torch.inf), ends[:-1]))
    asked = when > begins
    cost = F.binary_cross_entropy_with_logits(said.contact.float(), (when <= ends).float(),
                                              reduction='none')
    return (cost * asked).sum() / asked.sum().clamp(min=1)
