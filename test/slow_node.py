# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A model that is slow, or held, for tests of the timing of its node.

`slowed` makes it so in this process. As a program, this file runs a node with it: the environment
gives SLOW_ENCODE_S, SLOW_HOLD and SLOW_HOW.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from vjepa_ros.ros.perception_node.__main__ import main
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.runtime.prediction import Prediction

log = logging.getLogger('vjepa_ros.slow_node')
HOLD_AT_MOST_S = 300.0   # a test that died does not let go


@contextmanager
def slowed(encode_s: float, folder: Path, how: str) -> Iterator[None]:
    """Let forward passes take at least so long [s]; hold them, or loads, while a file is there.

    The files are ``encode`` and ``load`` of the folder. Meanwhile, `how` is ``torch`` (multiply
    matrices, as a large model does) or ``wait`` (sleep, as for a busy GPU).
    """
    submit, load, matrix = Model.submit, Model.load, torch.rand(256, 256)

    def work_while(busy: Callable[[], bool]) -> None:
        with torch.inference_mode():
            while busy():
                if how == 'torch':
                    torch.mm(matrix, matrix)
                else:
                    time.sleep(0.005)

    def hold(what: str, text: str) -> None:
        if (folder / what).exists():
            log.info(text)
            end = time.monotonic() + HOLD_AT_MOST_S
            work_while(lambda: (folder / what).exists() and time.monotonic() < end)

    def slow_submit(self: Model, *given: object, **more: object) -> list[Prediction]:
        start = time.monotonic()
        outputs = submit(self, *given, **more)
        if threading.current_thread().name == 'vjepa_worker':     # not where a model is warmed
            work_while(lambda: time.monotonic() < start + encode_s)
            hold('encode', 'an inference is held')
        return outputs

    def slow_load(config: ModelConfig) -> Model:
        log.info('loading begins')
        hold('load', 'a load is held')
        return load(config)

    Model.submit, Model.load = slow_submit, slow_load
    try:
        yield
    finally:
        Model.submit, Model.load = submit, load


if __name__ == '__main__':
    with slowed(float(os.environ['SLOW_ENCODE_S']), Path(os.environ['SLOW_HOLD']),
                os.environ['SLOW_HOW']):
        main()
