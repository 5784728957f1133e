# SPDX-License-Identifier: Apache-2.0
"""Load a new model in the background while the old one keeps serving."""

from __future__ import annotations

import threading
import traceback

from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.ros.parameters import NodeConfig
from vjepa_ros.ros.worker import Worker
from vjepa_ros.runtime.engine import Engine


class Swapper:
    """Turns requested configurations into ready models; only the newest request counts.

    Parameters
    ----------
    worker
        Serves one model and takes the next.
    log
        The node's logger.
    """

    def __init__(self, worker: Worker, log: object) -> None:
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
        """Make this configuration ready if it is another than the one asked for last.

        With `retry` a configuration that failed is tried again.
        """
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
        while True:
            with self._lock:
                config, self._wanted = self._wanted, None
                if config is None:
                    self._thread = None
                    return
            try:
                self._make(config)
            except Exception as error:
                # The next request must still find a loader.
                self._fail(error)

    def _make(self, config: NodeConfig) -> None:
        # From here on nothing else can be adopted, so the engine that serves now stays alive.
        serving = self._worker.withdraw()
        self.error = ''
        if _key(config) == (serving.engine.config, serving.config):
            return
        self.loading = f'{config.engine.model_size} on {config.engine.device}'
        engine = None
        try:
            if config.engine == serving.engine.config:
                engine = serving.engine
            else:
                engine = Engine.load(config.engine)
            perception = Perception(engine, config.track, list(serving.tracks))
        except Exception as error:
            # Whatever goes wrong is a failed change, not a failed node: say why, keep serving.
            if engine is not None and engine is not serving.engine:
                engine.close()
            self._fail(error)
            return
        finally:
            self.loading = ''
        with self._lock:
            if not self._closed and self._wanted is None:
                self._worker.offer(perception)
                return
        if engine is not serving.engine:
            engine.close()

    def _fail(self, error: Exception) -> None:
        self.error = f'{type(error).__name__}: {error}'
        self._log.error(f'model not changed, the old one keeps serving: {self.error}\n'
                        f'{"".join(traceback.format_exception(error))}')


def _key(config: NodeConfig) -> tuple[object, object]:
    return config.engine, config.track
