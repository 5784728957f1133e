# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Diagnostics of the action planner."""

from __future__ import annotations

from dataclasses import dataclass

from diagnostic_msgs.msg import DiagnosticStatus

from vjepa_ros.ros.action_planner.inputs import NS, PlannerInputs
from vjepa_ros.ros.action_planner.worker import PlannerWorker
from vjepa_ros.ros.common.diagnostics import OK, WARN, status


@dataclass(frozen=True)
class Situation:
    """State of the node for a report."""

    node: str
    state: str
    worker: PlannerWorker | None
    inputs: PlannerInputs | None
    last_failure: str
    last_refusal: str
    now_ns: int


def report(now: Situation) -> DiagnosticStatus:
    """Return the status: WARN without trained weights, after a failure or a refusal."""
    values: dict[str, object] = {'state': now.state}
    problems = [now.last_failure] if now.last_failure else []
    hardware = ''
    if now.worker is not None:
        worker, world = now.worker, now.worker.planner.world
        hardware = str(world.choice.device)
        values |= {
            'device': world.choice.device, 'device_reason': world.choice.reason,
            'precision': world.choice.precision, **world.about(), 'trained': world.trained,
            'model_memory_mb': f'{world.memory_bytes() / 2**20:.0f}', 'busy': worker.busy,
            'plans': worker.plans, 'errors': worker.errors,
            'last_error': worker.last_error or 'none',
            'last_refusal': now.last_refusal or 'none'}
        if not world.trained:
            problems.append('untrained: random weights, plans are meaningless')
        if world.choice.fell_back:
            problems.append(world.choice.reason)
        if now.last_refusal:
            problems.append(now.last_refusal)
        values |= _last(worker)
    if now.inputs is not None:
        values['goal'] = ('none' if now.inputs.goal is None else
                          f'{(now.now_ns - now.inputs.goal_ns) / NS:.1f} s old')
    return status(f'{now.node}: planner', WARN if problems else OK,
                  '; '.join(problems) or now.state, values, hardware)


def _last(worker: PlannerWorker) -> dict[str, object]:
    plan = worker.last
    if plan is None:
        return {}
    values: dict[str, object] = {
        'last_plan_iterations': f'{plan.iterations} of {plan.wanted}',
        'last_plan_stopped': plan.stopped or 'no',
        'last_plan_energy_now': f'{plan.energy_now:.6g}'}
    values |= {f'last_plan_{part}_s': f'{took:.3f}' for part, took in plan.seconds.items()}
    if plan.gap is not None:
        values |= {'last_plan_energy': f'{plan.gap.energy:.6g}',
                   'last_plan_gap': f'{plan.gap.mean:.4g}',
                   'last_plan_gap_sigma': f'{plan.gap.sigma:.4g}'}
    return values
