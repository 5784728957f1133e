# SPDX-License-Identifier: Apache-2.0
"""Run the node with a model that takes at least a given time, for tests of its timing.

Environment: SLOW_ENCODE_MS and SLOW_LOAD_MS, the least time of one forward pass and of loading
a model [ms]; SLOW_HOW, ``torch`` (multiply matrices, as a large model does) or ``wait`` (sleep, as
for a busy GPU).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence

import numpy as np
import torch

from vjepa_ros.ros.main import main
from vjepa_ros.runtime.engine import Engine, EngineConfig
from vjepa_ros.runtime.outputs import Output

log = logging.getLogger('vjepa_ros.slow_node')


def work_until(end: float, how: str) -> None:
    """Be busy until a time of the monotonic clock [s]."""
    matrix = torch.rand(256, 256)
    with torch.inference_mode():
        while how == 'torch' and time.monotonic() < end:
            torch.mm(matrix, matrix)
    time.sleep(max(0.0, end - time.monotonic()))


def slow_down(encode_s: float, load_s: float, how: str) -> None:
    """Let every forward pass and every load of a model take at least so long."""
    run, load = Engine.run, Engine.load

    def slow_run(self: Engine, clips: Sequence[np.ndarray], features: bool = True) -> list[Output]:
        end = time.monotonic() + encode_s
        outputs = run(self, clips, features)
        work_until(end, how)
        return outputs

    def slow_load(config: EngineConfig) -> Engine:
        log.info('loading begins')
        work_until(time.monotonic() + load_s, how)
        return load(config)

    Engine.run = slow_run
    Engine.load = slow_load


if __name__ == '__main__':
    slow_down(float(os.environ['SLOW_ENCODE_MS']) / 1e3, float(os.environ['SLOW_LOAD_MS']) / 1e3,
              os.environ['SLOW_HOW'])
    main()
