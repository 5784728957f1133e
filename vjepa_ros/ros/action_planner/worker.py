# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The one thread that plans. The executor leaves a job here and looks for its answer later.

Nothing is published after `PlannerWorker.pause` has returned.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import cv2
import numpy as np

from vjepa_ros.planning.goal_planner import Plan, Planner
from vjepa_ros.planning.search import CANCELLED
from vjepa_ros.ros.action_planner.parameters import PlannerConfig
from vjepa_ros.ros.common.logs import tell_error
from vjepa_ros.ros.common.message_conversion import ImageError, decode


@dataclass
class Job:
    """One plan that was asked for.

    Attributes
    ----------
    image, goal
        Newest message of the camera, and of the goal.
    state
        (7,) float64.
    config
        Parameters when it was asked for.
    publish
        Publishes the plan; called on the thread of the worker while it is active.
    cancel
        Set to end it.
    done
        Set when the answer may be given to who asked.
    answer
        Whether there is a plan to act on, and the words of the service; None before.
    """

    image: Any
    goal: Any
    state: np.ndarray
    config: PlannerConfig
    publish: Callable[[Plan], None]
    cancel: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    answer: tuple[bool, str] | None = None

    def settle(self, success: bool, message: str) -> bool:
        """Let this be the answer, unless there is one already; whether it is."""
        first = self.answer is None
        if first:
            self.answer = (success, message)
        return first


class PlannerWorker:
    """Plans one job at a time.

    Parameters
    ----------
    planner
        Owned by the worker from now on, with its world model, which the thread releases at its
        end.
    log
        The node's logger.

    Attributes
    ----------
    last
        The last plan; None before the first.
    plans, errors, last_error
        Counts of plans and of those that failed, and why the last one did.
    """

    def __init__(self, planner: Planner, log: Any) -> None:
        self.planner = planner
        self.last: Plan | None = None
        self.plans = self.errors = 0
        self.last_error = ''
        self._log = log
        self._goal: Any = None        # message that the planner's goal was made of
        self._wake = threading.Condition()
        self._running = True
        self._job: Job | None = None
        self._gate = threading.Lock()  # held while publishing and settling answers
        self._active = False
        self._thread = threading.Thread(target=self._loop, name='planner', daemon=True)

    # -- called by the executor ------------------------------------------------------------

    def start(self) -> None:
        """Start the thread (paused)."""
        self._thread.start()

    def resume(self) -> None:
        """Begin to take jobs (on activate)."""
        with self._gate:
            self._active = True

    def pause(self) -> None:
        """End the plan under way; nothing is published once this has returned."""
        with self._gate:
            self._active = False
        self.cancel('the node was deactivated')

    def cancel(self, why: str) -> bool:
        """End the plan under way, whose caller is told why; whether there was one."""
        with self._gate:      # what is published is not cancelled any more, nor the other way
            job = self._job
            if job is None or not job.settle(False, f'refused: {why}'):
                return False
            job.cancel.set()
        job.done.set()
        return True

    @property
    def busy(self) -> bool:
        """Whether a plan is under way, also one that was cancelled and has not ended yet."""
        return self._job is not None

    @property
    def alive(self) -> bool:
        """Whether the thread runs; it ends before its time only by a fault of the code."""
        return self._thread.is_alive()

    def submit(self, job: Job) -> None:
        """Plan it. Not while `busy`."""
        with self._wake:
            self._job = job
            self._wake.notify()

    def stop(self) -> None:
        """End the thread after the step it may be in; it releases the model itself."""
        self.pause()
        with self._wake:
            self._running = False
            self._wake.notify()
        if not self._thread.is_alive():
            self.planner.world.close()

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; False when it is still planning."""
        if self._thread.is_alive():
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    # -- the thread ------------------------------------------------------------------------

    def _loop(self) -> None:
        while True:
            with self._wake:
                while self._running and self._job is None:
                    self._wake.wait()
                if not self._running:
                    break
            job, answer = self._job, (False, 'refused: the planner has failed; see its log')
            try:
                answer = self._serve(job)
            finally:
                with self._gate:
                    job.settle(*answer)
                    # First free for the next job: who gets the answer may ask for it at once.
                    self._job = None
                job.done.set()
        self.planner.world.close()

    def _serve(self, job: Job) -> tuple[bool, str]:
        """Plan and publish; the answer."""
        try:
            plan = self._plan(job)
        # Whatever a device, a picture or memory does to one plan must not end the service of the
        # next; anything else is a fault of the code and ends the thread loudly.
        except (RuntimeError, ValueError, MemoryError, FloatingPointError, cv2.error) as error:
            return self._failed('planning', error)
        answer = (not plan.refusal, str(plan))
        with self._gate:
            if self._active and job.answer is None and plan.stopped != CANCELLED:
                try:
                    job.publish(plan)
                # Whatever messages or the middleware make of one plan must not end the service of
                # the next: its caller and the log are told.
                except Exception as error:
                    return self._failed('publishing', error)
                job.settle(*answer)      # from here on there is nothing to cancel
        self.last = plan
        self.plans += 1
        self._log.info(str(plan))
        return answer

    def _failed(self, what: str, error: Exception) -> tuple[bool, str]:
        """Count and log an error; the answer."""
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
        return planner.plan(_picture('image', job.image, config), job.state,
                            budget_s=config.time_budget, cancel=job.cancel,
                            seed=config.search_seed)


def _picture(what: str, msg: Any, config: PlannerConfig) -> np.ndarray:
    """RGB pixels of the goal or the image; ImageError says which of them cannot be read."""
    try:
        return decode(msg, config.max_image_pixels)
    except ImageError as error:
        raise ImageError(error.kind, f'the {what} cannot be used: {error}') from error
