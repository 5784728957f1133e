# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Ask more of the dense heads while they learn than what they are kept for.

When each patch will be in the robot's way, how far it is and where it goes: one linear layer on
what the dense heads know. It is thrown away after training. A clip has one time to contact, but
its patches have hundreds, so the heads learn sooner what leads to a contact.

B clips, Hp x Wp patches.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from vjepa_ros.lab.training.losses import masked_mean
from vjepa_ros.lab.world.targets import Targets
from vjepa_ros.model.head_specs import CONTACT_BINS, contact_bin
from vjepa_ros.model.heads import full_precision

DEPTH_WEIGHT, FLOW_WEIGHT, ENTER_WEIGHT = 0.25, 0.5, 0.5


class Auxiliary(nn.Module):
    """Entry time, depth and flow of every patch from what the dense heads know of it.

    Parameters
    ----------
    hidden : int
        Width of that, `Heads.hidden`.
    """

    def __init__(self, hidden: int):
        super().__init__()
        self.read = nn.Linear(hidden, CONTACT_BINS + 1 + 3)
        nn.init.zeros_(self.read.weight)
        nn.init.zeros_(self.read.bias)

    def forward(self, known: Tensor, targets: Targets) -> dict[str, Tensor]:
        """Losses by name, each a scalar.

        Parameters
        ----------
        known : Tensor
            (B, Hp, Wp, hidden) float32.
        targets : Targets
            Their dense fields in the same (B, Hp, Wp).
        """
        with full_precision(known.device):
            said = self.read(known.float())
        bins, (depth, right, down) = said[..., :-3], said[..., -3:].unbind(-1)
        when = contact_bin(targets.enter_s / targets.interval_s[:, None, None])
        late = F.cross_entropy(bins.flatten(0, 2), when.flatten(), reduction='none')
        flow = (F.smooth_l1_loss(right, targets.flow_x, reduction='none', beta=0.1)
                + F.smooth_l1_loss(down, targets.flow_y, reduction='none', beta=0.1))
        far = F.smooth_l1_loss(depth, targets.log_depth, reduction='none', beta=0.1)
        known_here = targets.scene_known
        return {'enter': ENTER_WEIGHT * masked_mean(late.view_as(depth), known_here),
                'depth': DEPTH_WEIGHT * masked_mean(far, known_here),
                'flow': FLOW_WEIGHT * masked_mean(flow, known_here)}
