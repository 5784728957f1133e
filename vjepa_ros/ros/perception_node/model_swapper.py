# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Load a new model in the background while the old one keeps serving."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from rclpy.impl.rcutils_logger import RcutilsLogger

from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.ros.common.spin import tell_error
from vjepa_ros.ros.perception_node.parameters import NodeConfig
from vjepa_ros.ros.perception_node.worker import Worker, let_go
from vjepa_ros.runtime.model import Model


class Swapper:
    """Turns requested configurations into ready models; only the newest request counts."""

    def __init__(self, worker: Worker, log: RcutilsLogger) -> None:
        self._worker = worker
        self._log = log
        self._lock = threading.Lock()
        self._wanted: NodeConfig | None = None
        self._latest = _key(worker.config)
        self._thread: threading.Thread | None = None
        self._closed = False
        self.error = ''
        self.loading = ''

    def request(self, config: NodeConfig, retry: bool = False) -> None:
        """Make another configuration ready; with `retry` also one that failed."""
        with self._lock:
            again = retry and self.error
            if self._closed or (_key(config) == self._latest and not again):
                return
            self._latest, self._wanted = _key(config), config
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name='vjepa_loader',
                                                daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Refuse further requests; a load in progress is thrown away when it returns."""
        with self._lock:
            self._closed, self._wanted = True, None

    def join(self, timeout_s: float) -> bool:
        """Wait for a load in progress; False when it goes on."""
        thread = self._thread
        if thread is not None:
            thread.join(max(0.0, timeout_s))
        return thread is None or not thread.is_alive()

    def _run(self) -> None:
        made: Perception | None = None      # by the requests so far
        while True:
            with self._lock:
                config, self._wanted = self._wanted, None
                if config is None:
                    self._thread = None
                    if made is not None and not self._closed:
                        self._worker.offer(made)
                        made = None
            try:
                if config is not None:
                    made = self._make(config, made)
                elif made is not None:
                    let_go(made, self._worker.perception)
            except Exception as error:
                # The next request must still find a loader.
                self._fail(error)
            if config is None:
                return

    def _make(self, config: NodeConfig, earlier: Perception | None) -> Perception | None:
        """Return what is to be offered now; what was made earlier outlives a failure."""
        # From here on nothing can be adopted, so the model that serves now stays alive.
        serving, offered = self._worker.take_back()
        earlier = offered or earlier
        made, self.error = earlier, ''
        try:
            made = self._load(config, [serving] if earlier is None else [serving, earlier])
        except Exception as error:
            # Whatever goes wrong is a failed change, not a failed node: say why, keep serving.
            self._fail(error, earlier is not None)
        finally:
            self.loading = ''
        if earlier is not None and earlier is not made:
            let_go(earlier, serving, *([] if made is None else [made]))
        return None if made is serving else made

    def _load(self, config: NodeConfig, ready: Sequence[Perception]) -> Perception:
        """Return this configuration: one that is ready, or with a ready model, or loaded."""
        for each in ready:
            if _key(config) == (each.engine.config, each.config):
                return each
        self.loading = f'{config.engine.model_size} on {config.engine.device}'
        shared = next((each.engine for each in ready if each.engine.config == config.engine), None)
        engine = shared or Model.load(config.engine)
        try:
            engine.noise_floor()     # measured now, and not when it serves
            return Perception(engine, config.track, list(ready[0].tracks))
        except BaseException:
            if shared is None:
                engine.close()
            raise

    def _fail(self, error: Exception, earlier: bool = False) -> None:
        self.error = f'{type(error).__name__}: {error}'
        next_one = 'the change before it is still made' if earlier else 'the old one keeps serving'
        tell_error(self._log, f'model not changed, {next_one}: {self.error}', error)


def _key(config: NodeConfig) -> tuple[object, object]:
    return config.engine, config.track
