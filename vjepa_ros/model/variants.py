# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The sizes of the V-JEPA 2 family and the constants all of them share."""

from __future__ import annotations

from dataclasses import dataclass

PATCH = 16  # pixels per side of a patch
TUBELET = 2  # frames per token layer
# Frames of a clip and their side [px]: what the weights of the package are made for.
NUM_FRAMES, IMAGE_SIZE = 4, 256
# Times of a stream [s]: between the frames of a tubelet, and from the ends of the tubelets in
# memory, the latest first, to the newest frame.
STEP_S, BACK_S = 1 / 15, (0.2,)
MOST_WINDOW = 1 + len(BACK_S)   # tubelets that a tubelet of a stream attends to, itself counted

# Blocks, counted from 0, whose features version 2.1 normalises, by depth of the network.
TAPS = {12: (2, 5, 8, 11), 24: (5, 11, 17, 23), 40: (9, 19, 29, 39), 48: (11, 23, 37, 47)}

IMAGENET_MEAN = (0.485, 0.456, 0.406)  # RGB, for pixels scaled to [0, 1]
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Variant:
    """One encoder size."""

    name: str  # key in `VARIANTS`
    dim: int  # width of a token
    depth: int  # number of transformer blocks
    heads: int  # attention heads per block
    mlp: int  # hidden width of the MLP

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def weights(self) -> int:
        """Return the number of weights in the matrices of the blocks: nearly all of an encoder."""
        return self.depth * self.dim * (4 * self.dim + 2 * self.mlp)

    @property
    def taps(self) -> tuple[int, ...]:
        """Blocks, counted from 0, with a norm of their own in version 2.1."""
        if self.depth not in TAPS:
            raise ValueError(f"model size '{self.name}' does not exist in version 2.1, whose "
                             f'networks have {", ".join(map(str, TAPS))} blocks')
        return TAPS[self.depth]


VARIANTS: dict[str, Variant] = {
    v.name: v
    for v in (
        Variant('tiny', 192, 12, 3, 768),
        Variant('small', 384, 12, 6, 1536),
        Variant('base', 768, 12, 12, 3072),
        Variant('large', 1024, 24, 16, 4096),
        Variant('huge', 1280, 32, 16, 5120),
        Variant('giant', 1408, 40, 22, 6144),
        Variant('gigantic', 1664, 48, 26, 8192),
    )
}


def find_variant(name: str) -> Variant:
    """Return the variant called `name`, or raise ValueError with the known names."""
    if name not in VARIANTS:
        raise ValueError(f"model size '{name}' is unknown; choose one of {', '.join(VARIANTS)}")
    return VARIANTS[name]
