# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Draw how the cameras of the rough world take their frames: when, through which lens and sensor.

`docs/training.md` lists the distributions.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from vjepa_ros.lab.world.scenes.places import INDOORS
from vjepa_ros.lab.world.scenes.platforms import Ride
from vjepa_ros.lab.world.scenes.scene import Capture, Shapes
from vjepa_ros.lab.world.scenes.scene_rng import SceneRng
from vjepa_ros.lab.world.scenes.scene_spec import SceneSpec

JITTER = 0.12         # greatest standard deviation of the times of pictures, in periods
DROPPED = 0.3         # greatest probability that a picture is lost
ROLLING_SHARE = 0.7   # of the cameras read one row after the other
READOUT_S = (0.008, 0.033)
ARRIVAL_SHARE = 0.5   # of the cameras that training sees are stamped when a picture arrives
DELAY_S, MOST_DELAY = (0.005, 0.1), 0.5   # of the scatter of delays [s], and its most in periods
APART_S = 0.001       # between stamps at least


def clip_times(draws: SceneRng, interval_s: Tensor, period_s: Tensor, frames: int) -> Tensor:
    """Return the times of the frames of clips [s], (B, frames), ascending, the last one 0.

    A camera takes pictures with jitter, and loses some. For each wanted time the clip takes the
    picture nearest to it that it has not taken yet, as the ring of frames does (`clip.ring`).

    `interval_s, period_s`: (B,) time between frames as wanted, and between pictures [s]; at most
    the interval.
    """
    count = frames + round(frames * 1.5 * float((interval_s / period_s).max())) + 8
    tick = -torch.arange(count) * period_s[:, None]                       # B count
    late = draws.normal(1, count).clamp(-2.5, 2.5) * draws.uniform(0, JITTER, 1)
    tick[:, 1:] += (late * draws.chance(0.6, 1) * period_s[:, None])[:, 1:]
    lost = draws.unit(count) < draws.uniform(0, DROPPED, 1) * draws.chance(0.5, 1)
    lost[:, 0] = False
    tick = torch.where(lost, torch.inf, tick)
    number = torch.arange(count)
    taken, last = [torch.zeros(len(tick))], torch.zeros(len(tick), 1)
    for back in range(1, frames):
        off = (tick + back * interval_s[:, None]).abs()
        last = torch.where(number > last, off, torch.inf).argmin(1, keepdim=True)
        taken.append(tick.gather(1, last)[:, 0])
    return torch.stack(taken[::-1], 1)


def arrival_times(draws: SceneRng, times: Tensor, ride: Ride) -> Tensor:
    """Return when drivers say that pictures were taken (B, T) [s], ascending, the last one 0.

    Those that cannot know it take the time of arrival. Delays are half a normal distribution, and
    no picture overtakes another.

    `times`: (B, T) when they were taken [s].
    """
    scatter = torch.minimum(draws.log(*DELAY_S), MOST_DELAY * ride.period_s)[:, None]
    delay = draws.normal(1, times.shape[1]).abs().clamp(max=2.5) * scatter
    least = APART_S * torch.arange(times.shape[1])
    arrival = (times + delay - least).cummax(1).values + least
    wrong = ride.own[:, None] & draws.chance(ARRIVAL_SHARE, 1)
    return torch.where(wrong, arrival - arrival[:, -1:], times)


def bent_lens(draws: SceneRng, spec: SceneSpec, ride: Ride, size: int,
              straight: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Intrinsics and distortion where a wide lens replaces a straight one, see `appearance.lens`.

    Its radial polynomial is off by a little, as no real lens is exactly of its kind. Pictures with
    bars have square pixels.
    """
    intrinsics, distortion = straight
    square = intrinsics[:, [0, 0, 2, 3]]
    intrinsics = torch.where(ride.boxed[:, None], square, intrinsics)
    wide = (ride.bend < 1)[:, None]
    edge = (ride.bend * spec.hfov / 2).tan() / ride.bend
    k1 = 0.04 * draws.uniform(-1, 1) / (edge.square() * (1 + spec.aspect.square().reciprocal()))
    fx = size / 2 / (edge * (1 + k1 * edge.square()))
    bent = torch.cat((fx[:, None], (fx * spec.aspect)[:, None], intrinsics[:, 2:]), 1)
    return (torch.where(wide, bent, intrinsics),
            torch.where(wide, torch.stack((k1, torch.zeros_like(k1)), -1), distortion))


def rough_sensor(draws: SceneRng, spec: SceneSpec, ride: Ride, usual: dict[str, Tensor],
                 times: Tensor) -> dict[str, Tensor]:
    """Make the sensors of platforms as bad as they are; fields of `Scenes` as in `usual`."""
    own = ride.own
    # The light changes at once; the automatic exposure follows with a lag.
    begins = draws.uniform(0, 1, 1) * times[:, :1]
    since = times - begins
    step = draws.normal(0.8, 1) * torch.exp(-since / draws.log(0.05, 1.0, 1))
    step = torch.where((since >= 0) & draws.chance(0.45, 1), step, 0)
    wrong = draws.unit(1)       # set too bright, or too dark
    level = torch.where(wrong < 0.1, draws.uniform(1.5, 3, 1), torch.where(
        wrong > 0.9, draws.uniform(0.25, 0.6, 1), 1.0))
    exposure = usual['exposure'][:, -1:] * level * step.exp()

    cheap = draws.chance(0.35)  # small grey sensors: noisy, soft, dark at the edges
    poor = torch.where(cheap, draws.uniform(0.5, 1), draws.unit())
    rough = {
        'exposure': exposure.clamp(0.12, 5),
        'vignette': torch.where(draws.chance(0.6), draws.uniform(0.05, 0.8) * poor, 0),
        'blur_px': torch.where(cheap, draws.uniform(0.3, 1.4), usual['blur_px']),
        'read_noise': torch.where(cheap, draws.log(1, 8), usual['read_noise']),
        'shot_noise': torch.where(cheap, draws.log(1, 9), usual['shot_noise']),
        'grey': usual['grey'] | cheap, 'shutter': torch.zeros(draws.count),
        'jpeg': torch.where(draws.chance(0.6), draws.unit(), 0),
        'gamma': torch.where(cheap, draws.uniform(0.38, 0.7), usual['gamma'])}
    return usual | {name: torch.where(own.view(-1, *[1] * (values.ndim - 1)), values, usual[name])
                    for name, values in rough.items()}


def glaring(draws: SceneRng, decor: Shapes, ride: Ride) -> Shapes:
    """Let the lamps among the decor, its last two shapes, shine brighter than white."""
    tint, half = decor.tint.clone(), decor.half.clone()
    tint[:, -2:] = draws.log(3, 30, 1, 1)
    half[:, -2:] *= torch.stack((draws.uniform(1, 3), torch.ones(draws.count),
                                 draws.uniform(1, 3)), -1)[:, None]
    own = ride.own[:, None, None]
    return replace(decor, tint=torch.where(own, tint, decor.tint),
                   half=torch.where(own, half, decor.half))


def capture(draws: SceneRng, spec: SceneSpec, ride: Ride, speeds: Tensor,
            spins: Tensor) -> Capture:
    """How the cameras take their frames; on carriers of the standard world they have no faults.

    `speeds, spins`: (B, T, 3), see `Capture`.
    """
    own = ride.own
    indoors = spec.at(*INDOORS)
    least, most = torch.where(indoors, 0.003, 0.0003), torch.where(indoors, 0.033, 0.012)
    opened = torch.minimum(draws.log(least, most), 0.8 * ride.period_s)
    rolls = own & draws.chance(ROLLING_SHARE)

    def some(share: float, low: float, high: float) -> Tensor:
        return torch.where(own & draws.chance(share), draws.log(low, high), 0)

    return Capture(
        velocity=speeds, spin=spins, exposure_s=opened,
        readout_s=torch.where(rolls, draws.uniform(*READOUT_S), 0), bend=ride.bend,
        shown=torch.where(ride.boxed, 1 / spec.aspect, 1.0),
        glare=some(0.4, 0.02, 0.3), pattern=some(0.4, 0.4, 4), stripes=some(0.35, 0.3, 3),
        banding=some(0.3, 0.3, 2.5))
