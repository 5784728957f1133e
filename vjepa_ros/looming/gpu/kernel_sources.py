# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The CUDA source of all kernels of looming, with the constants of the plain path."""

from __future__ import annotations

import math

from vjepa_ros.looming import affine, camera_cells, camera_motion, expansion
from vjepa_ros.looming.estimator import MOST_EXPANSION
from vjepa_ros.looming.expansion import WANTED_S, WIDER_GAIN, WIDER_INLIERS, WIDER_SEEN
from vjepa_ros.looming.flow import BLUR, COARSE, EDGE_PX, SAMPLE_PX, grain
from vjepa_ros.looming.gpu.evidence_source import (
    EVIDENCE,
    GUESS,
    MATCH,
    SHARE,
    SHIFT,
    SMOOTH,
    TABLE,
    TRUST,
)
from vjepa_ros.looming.gpu.fit_source import FIT, MOST_BLOCKS
from vjepa_ros.looming.gpu.motion_cells_source import MOST_CELLS
from vjepa_ros.looming.gpu.motion_source import MOTION
from vjepa_ros.looming.gpu.pace_source import CHOOSE, MOST_PACES, PACE
from vjepa_ros.looming.gpu.rates_source import RATES
from vjepa_ros.looming.gpu.sources import MOST_VALUES, RANKS, SEARCH, SPREAD, WIDEN
from vjepa_ros.looming.rotation import LEAST_DEPTH


def sources(steps: int, stiffness: float, fake: float) -> dict[str, tuple[str, str]]:
    """The source and the name of each kernel."""
    known = (f'#define STEPS {steps}\n#define STIFFNESS {stiffness}f\n#define FAKE {fake}f\n'
             f'#define MOST_BLOCKS {MOST_BLOCKS}\n#define MOST_VALUES {MOST_VALUES}\n'
             f'#define WANTED {WANTED_S[0]}f\n#define SHARE {WANTED_S[1]}f\n'
             f'#define SEEN {WIDER_SEEN}f\n#define GAIN {WIDER_GAIN}f\n'
             f'#define INLIERS {WIDER_INLIERS}f\n')
    motion = _defined(
        MOST_CELLS=MOST_CELLS, LEAST_CELLS=camera_motion.LEAST, LEAST_DEPTH=LEAST_DEPTH,
        AGREE=camera_cells.AGREE, SOFT=camera_cells.SOFT, TURN_PRIOR=camera_cells.TURN_PRIOR,
        LOOSE_PX=camera_cells.LOOSE_PX, LOOSE_SHARE=camera_cells.LOOSE_SHARE,
        NEAR_PX=camera_cells.NEAR_PX, WALL_ROUNDS=camera_cells.WALL_ROUNDS,
        BEHIND=camera_cells.BEHIND, LEAST_VARIANCE=camera_cells.LEAST_VARIANCE,
        STILL_SHARE=camera_motion.STILL_SHARE, FIXED_SHARE=camera_motion.FIXED_SHARE,
        TURN_SHARE=camera_motion.TURN_SHARE, MOVE_GAIN=camera_motion.MOVE_GAIN)
    rates = _defined(
        PI=math.pi, LEAST_DEPTH=LEAST_DEPTH, FINEST=expansion.FINEST, TAPER=expansion.TAPER,
        STATIC_ODDS=expansion.STATIC_ODDS, ANY_LOOMING=expansion.ANY_LOOMING,
        DOUBT=expansion.DOUBT_S[0], DOUBT_SHARE=expansion.DOUBT_S[1])
    evidence = _defined(
        SAMPLE_PX=SAMPLE_PX, UNIT=f'{affine.UNIT}f', EDGE_PX=f'{EDGE_PX[0]}f',
        LAST_PX=f'{EDGE_PX[1]}f', GRAIN_1=f'{grain(1)}f', GRAIN_2=f'{grain(2)}f',
        COARSE=COARSE, MOST_EXPANSION=f'{MOST_EXPANSION}f',
        **{f'SMOOTH_{k}': f'{BLUR[2 + k]}f' for k in range(3)})
    return {'first': (f'{known}#define ROUND 0\n{SEARCH}', 'search'),
            'second': (f'{known}#define ROUND 1\n{SEARCH}', 'search'),
            'spread': (SPREAD, 'spread'), 'fit': (known + FIT, 'fit'),
            'expose': (known + RANKS, 'expose'), 'quarter': (known + RANKS, 'quarter'),
            'widen': (known + WIDEN, 'widen'), 'move': (motion + MOTION, 'motion'),
            'loom': (rates + RATES, 'rates'),
            'smooth': (evidence + SMOOTH, 'smooth'), 'shift': (evidence + SHIFT, 'shift'),
            'evidence': (evidence + EVIDENCE, 'evidence'), 'share': (evidence + SHARE, 'share'),
            'table': (evidence + TABLE, 'table'), 'believe': (evidence + TRUST, 'believe'),
            'match': (MATCH, 'match'), 'guess': (evidence + GUESS, 'guess'),
            'pace': (f'#define MOST_PACES {MOST_PACES}\n{PACE}', 'pace'),
            'choose': (evidence + CHOOSE, 'choose')}


def _defined(**values: float | str) -> str:
    return ''.join(f'#define {name} {value}\n' for name, value in values.items())
