# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Load a new model in the background while the old one keeps serving."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from vjepa_ros.perception.pipeline import Perception
from vjepa_ros.ros.common.logs import Logger, tell_error
from vjepa_ros.ros.perception_node.parameters import NodeConfig
from vjepa_ros.ros.perception_node.worker import Worker, let_go
from vjepa_ros.runtime.memory import is_out_of_memory
from vjepa_ros.runtime.model import Model


class Swapper:
    """Turn requested configurations into ready models; only the newest request counts.

    Parameters
    ----------
    worker
        Serves one model and takes the next.
    log
        The node's logger.
    """

    def __init__(self, worker: Worker, log: Logger) -> None:
        self._worker = worker
        self._log = log
        self._lock = threading.Lock()
        self._wanted: NodeConfig | None = None
        self._latest = _key(worker.config)
        self._thread: threading.Thread | None = None
        self._closed = False
        self._kept: Perception | None = None    # made, but a newer request came meanwhile
        self.error = ''
        self.starved = False                    # whether memory ran out while a model was loaded
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

    @property
    def busy(self) -> bool:
        """Whether a model is being made ready, or waits for its clips to fill."""
        with self._lock:
            return self._thread is not None or self._worker.swapping

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
            try:
                if config is None:
                    self._give_up(self._worker.perception)
                    return
                self._make(config)
            except Exception as error:
                # The next request must still find a loader.
                self._fail(error)
                if config is None:
                    return

    def _make(self, config: NodeConfig) -> None:
        # From here on nothing can be adopted, so the engine that serves now stays alive. A change
        # before this one that waits for its clips is kept: it outlives a failure of this one.
        serving, earlier = self._worker.take_back()
        earlier, self._kept = earlier or self._kept, None
        made, self.error = earlier, ''
        try:
            ready = [serving] if earlier is None else [serving, earlier]
            made = self._load(config, ready)
        except Exception as error:
            # Whatever goes wrong is a failed change, not a failed node: say why, keep serving.
            self._fail(error, earlier is not None)
        finally:
            self.loading = ''
        with self._lock:
            if made is not serving:
                self._kept = made
            if self._kept is not None and not self._closed and self._wanted is None:
                self._worker.offer(self._kept)
                self._kept = None
        if earlier is not None and earlier is not made:
            let_go(earlier, serving, *([] if made is None else [made]))

    def _give_up(self, serving: Perception) -> None:
        """Release what was made and is not wanted any more."""
        unused, self._kept = self._kept, None
        if unused is not None:
            let_go(unused, serving)

    def _load(self, config: NodeConfig, ready: Sequence[Perception]) -> Perception:
        """Return this configuration: one that is ready, or with a ready engine, or loaded."""
        engine = next((each.engine for each in ready if each.engine.config == config.engine),
                      None)
        for each in ready:
            if _key(config) == _key_of(each):
                return each
        self.loading = f'{config.engine.model_size} on {config.engine.device}'
        shared = engine is not None
        engine = engine or Model.load(config.engine)
        try:
            engine.noise_floor()     # measured now, and not when it serves
            return Perception(engine, config.track, list(ready[0].tracks))
        except BaseException:
            if not shared:
                engine.close()
            raise

    def _fail(self, error: Exception, earlier: bool = False) -> None:
        self.error = f'{type(error).__name__}: {error}'
        self.starved = is_out_of_memory(error)
        next_one = 'the change before it is still made' if earlier else 'the old one keeps serving'
        tell_error(self._log, f'model not changed, {next_one}: {self.error}', error)


def _key(config: NodeConfig) -> tuple[object, object]:
    return config.engine, config.track


def _key_of(perception: Perception) -> tuple[object, object]:
    return perception.engine.config, perception.config
