# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tell what a measurement ran on, and write its figures."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import time
from collections.abc import Mapping, Sequence
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any, TYPE_CHECKING

import cv2
import numpy as np
import psutil

import vjepa_ros
from vjepa_ros.sources.base import printable

if TYPE_CHECKING:
    import torch


def hardware() -> dict[str, Any]:
    """Describe this machine, without its name."""
    return {'cpu': _cpu_name(), 'architecture': platform.machine(),
            'cores': psutil.cpu_count(logical=False) or os.cpu_count(),
            'logical_cores': os.cpu_count(), 'system': platform.system(),
            'memory_gb': round(psutil.virtual_memory().total / 2**30, 1)}


def accelerator(device: torch.device) -> dict[str, Any]:
    """Describe a device other than the CPU."""
    if device.type == 'mps':
        return {'gpu': 'Apple MPS'}
    if device.type != 'cuda':
        return {}
    import torch

    about = {'gpu': torch.cuda.get_device_name(device),
             'gpu_memory_gb': round(torch.cuda.get_device_properties(device).total_memory / 2**30,
                                    1)}
    # PyTorch calls devices of AMD cuda, too.
    return {**about, 'rocm' if torch.version.hip else 'cuda': torch.version.hip
            or torch.version.cuda}


def provenance(tool: str, words: Sequence[str], device: torch.device | None) -> dict[str, Any]:
    """Tell when and by which command a measurement was made, and on what."""
    found = {} if device is None else accelerator(device)
    return {'command': command(tool, words), 'date': date.today().isoformat(),
            'hardware': {**hardware(), **found}, 'versions': versions()}


def process_age() -> float:
    """Return the seconds since this process began."""
    return time.time() - psutil.Process().create_time()


def _cpu_name() -> str:
    info = Path('/proc/cpuinfo')
    if info.is_file():
        for line in info.read_text(encoding='utf-8', errors='replace').splitlines():
            if line.startswith('model name'):
                return line.split(':', 1)[1].strip()
    return platform.processor() or 'unknown'


def versions() -> dict[str, str]:
    """Return the versions of the libraries that matter."""
    return {'vjepa_ros': vjepa_ros.__version__, 'python': platform.python_version(),
            'torch': metadata.version('torch'), 'numpy': np.__version__,
            'opencv': cv2.__version__}


def write_json(path: Path, result: Mapping[str, Any]) -> None:
    """Write figures as strict JSON and make the folder (`OSError` when impossible)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(json_safe(result), indent=1, ensure_ascii=False, allow_nan=False)
    path.write_text(text + '\n', encoding='utf-8', errors='surrogateescape')


def command(tool: str, words: Sequence[str]) -> str:
    """Return the command line of a tool for the record."""
    return printable(shlex.join(['vjepa-ros', tool, *words]))


def without(words: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return a command line without some options and their values."""
    kept, skip = [], False
    for word in words:
        if skip or word in options:
            skip = not skip
        elif not word.startswith(tuple(f'{name}=' for name in options)):
            kept.append(word)
    return kept


def json_safe(value: Any) -> Any:
    """Convert values for JSON: NaN to None, infinities to strings, arrays to lists."""
    if isinstance(value, dict):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return json_safe(value.tolist())
    if isinstance(value, list | tuple):
        return [json_safe(item) for item in value]
    if isinstance(value, np.generic):
        return json_safe(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else 'inf' if value > 0 else '-inf'
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)
