# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Train with each objective for the same budget and compare them on held-out clips."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from vjepa_ros.lab.training.config import TrainConfig
from vjepa_ros.lab.training.export.model_card import number
from vjepa_ros.lab.training.export.validation import headline
from vjepa_ros.lab.training.network import OBJECTIVES
from vjepa_ros.lab.training.run import Listener, train

# Share of places the encoder sees, by objective: JEPA needs something to predict; together with
# labels the heads should in the end have seen whole clips.
TOKENS_KEPT = {'supervised': '1.0', 'jepa': '0.25', 'both': '0.5:0.8,1.0:0.2'}
log = logging.getLogger(__name__)


def ablate(config: TrainConfig, listener: Listener, *, resume: bool = False, command: str = '',
           stopped: Callable[[], bool] = lambda: False) -> dict[str, dict[str, Any]] | None:
    """Run all objectives one after the other.

    Parameters
    ----------
    config : TrainConfig
        Its objective and tokens kept are replaced; each objective gets a folder in its folder.
    listener, resume, command, stopped
        As for `train`.

    Returns
    -------
    dict or None
        Figures by objective, None when the call ended before all were done.
    """
    results: dict[str, dict[str, Any]] = {}
    for objective in OBJECTIVES:
        own = replace(config, out=str(Path(config.out) / objective), objective=objective,
                      tokens_kept=TOKENS_KEPT[objective])
        log.info('objective %s', objective)
        result = train(own, listener, resume=resume, command=command, stopped=stopped)
        if result.outcome is None:
            return None
        results[objective] = {'clips': result.clips, 'steps': result.step,
                              **headline(result.outcome.figures)}
    folder = Path(config.out)
    (folder / 'ablation.json').write_text(json.dumps(results, indent=1) + '\n', encoding='utf-8')
    (folder / 'ablation.md').write_text(table(results), encoding='utf-8')
    return results


def table(results: dict[str, dict[str, Any]]) -> str:
    """The figures as Markdown, one row per objective."""
    names = list(next(iter(results.values())))
    lines = ['| objective | ' + ' | '.join(names) + ' |', '|' + '---|' * (len(names) + 1)]
    for objective, values in results.items():
        cells = [f'{v:,}' if isinstance(v, int) else number(v) for v in values.values()]
        lines.append(f'| {objective} | ' + ' | '.join(cells) + ' |')
    return '\n'.join(lines) + '\n'
