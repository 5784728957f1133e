# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A model that can be held, for tests of the timing of its node.

`slowed` makes it so in this process. As a program, this file runs a node with it, by the folder in
SLOW_HOLD.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vjepa_ros.ros.perception_node.__main__ import main
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.runtime.prediction import Prediction

log = logging.getLogger('vjepa_ros.slow_node')
HOLD_AT_MOST_S = 300.0   # a test that died does not let go


@contextmanager
def slowed(folder: Path) -> Iterator[None]:
    """Hold forward passes, or loads, while the folder has a file ``encode``, or ``load``."""
    submit, load = Model.submit, Model.load

    def hold(what: str, text: str) -> None:
        if (folder / what).exists():
            log.info(text)
            end = time.monotonic() + HOLD_AT_MOST_S
            while (folder / what).exists() and time.monotonic() < end:
                time.sleep(0.005)

    def slow_submit(self: Model, *given: object, **more: object) -> list[Prediction]:
        outputs = submit(self, *given, **more)
        if threading.current_thread().name == 'vjepa_worker':     # not where a model is warmed
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
    with slowed(Path(os.environ['SLOW_HOLD'])):
        main()
