# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The CUDA kernels of an encoder by operators of PyTorch, for computers without a GPU."""

import torch
import torch.nn.functional as F

from vjepa_ros.model.rope import rotate


class PlainKernels:
    """`vjepa_ros.runtime.forward.cuda.Kernels` on the CPU; `wrong` leaves the rotation out."""

    def __init__(self, head_dim, wrong=False):
        self.head_dim, self.wrong = head_dim, wrong

    def norm(self, x, branch, norm, out):
        if branch is not None:
            x.add_(branch)
        out.copy_(norm(x))

    def rotate(self, qkv, cosine, sine):
        if self.wrong:
            return
        both = qkv[..., :qkv.shape[-1] // 3 * 2].unflatten(-1, (-1, self.head_dim))
        turned = rotate(both.transpose(1, 2).float(), *(
            table if table.ndim == 2 else table[:, None] for table in (cosine, sine)))
        both.copy_(turned.transpose(1, 2))

    def remember(self, qkv, cosine, sine, kept, slots, room):
        self.rotate(qkv, cosine, sine)
        parts = qkv.unflatten(2, (3, -1, self.head_dim)).permute(2, 3, 0, 1, 4)
        kept[:, :, slots[:, -1]] = parts[1:]
        torch.index_select(kept, 2, slots.flatten(), out=room)

    def gelu(self, values):
        values.copy_(F.gelu(values.float()))
