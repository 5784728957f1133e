# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What the tools for checkpoints say alike."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

WHAT = 'checkpoint: .safetensors, .pt or .pth file, folder of Hugging Face, or name on its hub'


def refuse(error: Exception) -> int:
    """Say on the error stream in one line why a tool ends; its exit code."""
    Console(stderr=True).print(f'[red]{escape(str(error))}[/red]', soft_wrap=True)
    return 1
