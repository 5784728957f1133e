# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The planning thread. The executor submits a job and polls for its answer.

Nothing is published after `PlannerWorker.pause` has returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np

from vjepa_ros.planning.base_world import Clip
from vjepa_ros.planning.goal_planner import Plan, Planner
from vjepa_ros.planning.search import CANCELLED
from vjepa_ros.ros.action_planner.clip_memory import ClipMemory, TooFew
from vjepa_ros.ros.action_planner.parameters import PlannerConfig
from vjepa_ros.ros.common.logs import tell_error
from vjepa_ros.ros.common.message_conversion import ImageError, decode


@dataclass
class Job:
    """One requested plan.

    Attributes
    ----------
    image, goal
        Newest message of the camera and of the goal.
    state
        State (7,) float64; of a base its twist (3,).
    config
        Configuration at the request.
    publish
        Publishes the plan; called on the thread of an active worker.
    stop
        Takes the last twist back; called after an error.
    recent
        Of a base: stamps [ns] and messages of a clip, the newest last.
    focal
        Of a base: returns fx and fy [px] of pictures of a size, None where they are not known.
    cancel
        Set to end the plan.
    done
        Set when the answer is ready.
    answer
        Whether there is a plan to act on, and the message of the service; None before `done`.
    """

    image: Any
    goal: Any
    state: np.ndarray
    config: PlannerConfig
    publish: Callable[[Plan], None]
    stop: Callable[[], object] = lambda: None
    recent: Sequence[tuple[int, Any]] = ()
    focal: Callable[[tuple[int, int]], tuple[float, float] | None] = lambda size: None
    cancel: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    answer: tuple[bool, str] | None = None

    def settle(self, success: bool, message: str) -> bool:
        """Set the answer unless there is one; return whether it was set."""
        first = self.answer is None
        if first:
            self.answer = (success, message)
        return first


class PlannerWorker:
    """Plans one job at a time.

    Parameters
    ----------
    planner
        Owned by the worker, with its world model, which the thread releases at its end.
    log
        Logger of the node.

    Attributes
    ----------
    last
        The last plan; None before the first.
    plans, errors, last_error
        Number of plans and of failures, and the last error.
    """

    def __init__(self, planner: Planner, log: Any) -> None:
        self.planner = planner
        self.last: Plan | None = None
        self.plans = self.errors = 0
        self.last_error = ''
        self._log = log
        self._goal: Any = None        # message of the current goal
        self._memory = ClipMemory()
        self._wake = threading.Condition()
        self._running = True
        self._job: Job | None = None
        self._gate = threading.Lock()  # held while publishing and settling answers
        self._active = False
        self._thread = threading.Thread(target=self._loop, name='planner', daemon=True)

    # -- called by the executor --------------------------------------------------------------

    def start(self) -> None:
        """Start the thread (paused)."""
        self._thread.start()

    def resume(self) -> None:
        """Start publishing (on activate)."""
        with self._gate:
            self._active = True

    def pause(self) -> None:
        """End the plan in progress; nothing is published after this has returned."""
        with self._gate:
            self._active = False
        self.cancel('the node was deactivated')

    def cancel(self, why: str) -> bool:
        """End the plan in progress with a reason; return whether there was one."""
        with self._gate:      # a published plan is not cancelled, nor a cancelled one published
            job = self._job
            if job is None or not job.settle(False, f'refused: {why}'):
                return False
            job.cancel.set()
        job.done.set()
        return True

    @property
    def busy(self) -> bool:
        """Whether a plan is in progress, even one that was cancelled and has not ended."""
        return self._job is not None

    @property
    def alive(self) -> bool:
        """Whether the thread runs; only a bug ends it early."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Start a job. Not while `busy`."""
        with self._wake:
            self._job = job
            self._wake.notify()

    def stop(self) -> None:
        """End the thread after its current step; it releases the model itself."""
        self.pause()
        with self._wake:
            self._running = False
            self._wake.notify()
        if not self._thread.is_alive():
            self.planner.world.close()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; return False when it is still planning."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    # -- the thread --------------------------------------------------------------------------

    def _loop(self) -> None:
        while True:
            with self._wake:
                while self._running and self._job is None:
                    self._wake.wait()
                job = self._job
                if not self._running or job is None:
                    break
            answer = (False, 'refused: the planner has failed; see its log')
            try:
                answer = self._serve(job)
            finally:
                with self._gate:
                    job.settle(*answer)
                    # First free for the next job: the caller may submit it at once.
                    self._job = None
                job.done.set()
        self.planner.world.close()

    def _serve(self, job: Job) -> tuple[bool, str]:
        """Plan and publish; return the answer."""
        try:
            plan = self._plan(job)
        # Failures of a device, a picture or memory cost one plan; anything else is a bug and ends
        # the thread.
        except (RuntimeError, ValueError, MemoryError, FloatingPointError, cv2.error) as error:
            return self._failed(job, 'planning', error)
        answer = (not plan.refusal, str(plan))
        with self._gate:
            if self._active and job.answer is None and plan.stopped != CANCELLED:
                try:
                    job.publish(plan)
                # Errors of messages or the middleware cost one plan, too.
                except Exception as error:
                    return self._failed(job, 'publishing', error)
                job.settle(*answer)      # from here on it cannot be cancelled
        self.last = plan
        self.plans += 1
        # Plans that nobody asked for one by one would fill the log.
        (self._log.debug if job.config.plan_rate else self._log.info)(str(plan))
        return answer

    def _failed(self, job: Job, what: str, error: Exception) -> tuple[bool, str]:
        """Count and log an error, and take the last twist back; return the answer."""
        if self._active:
            job.stop()
        self.errors += 1
        self.last_error = f'{type(error).__name__}: {error}'
        tell_error(self._log, f'{what} failed: {error}', error)
        return False, f'refused: {what} failed: {self.last_error}'

    def _plan(self, job: Job) -> Plan:
        planner, config = self.planner, job.config
        planner.space, planner.config, planner.gap = config.space, config.search, config.gap
        if job.goal is not self._goal:
            planner.set_goal(_picture('goal', job.goal, config))
            self._goal = job.goal
        try:
            seen, state = self._start(job)
        except TooFew as error:
            return planner.refused(str(error))
        return planner.plan(seen, state, budget_s=config.time_budget, cancel=job.cancel,
                            seed=config.search_seed)

    def _start(self, job: Job) -> tuple[np.ndarray | Clip, np.ndarray]:
        """Return what plans start from: picture or clip, and state."""
        config = job.config
        if config.mount is None:
            return _picture('image', job.image, config), job.state

        def read(message: Any) -> tuple[np.ndarray, tuple[int, int]]:
            picture = _picture('image', message, config)
            return self.planner.world.fit(picture), (picture.shape[1], picture.shape[0])

        self._memory.add(job.recent, read)
        clip, size, interval_s = self._memory.clip()
        return clip, config.mount.view(size, job.focal(size), interval_s, job.state)


def _picture(what: str, msg: Any, config: PlannerConfig) -> np.ndarray:
    """Return the RGB pixels of the goal or the image; ImageError names which is unreadable."""
    try:
        return decode(msg, config.max_image_pixels)
    except ImageError as error:
        raise ImageError(error.kind, f'the {what} cannot be used: {error}') from error
