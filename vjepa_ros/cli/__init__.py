# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The console command `vjepa-ros`, which runs one of its tools."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from vjepa_ros import __version__

COMMANDS = {  # name: (module with main(argv) -> exit code, or another function; what it does)
    'demo': ('demo', 'run camera and node as processes over DDS and write a report'),
    'watch': ('watch', 'run the perception on a camera, video, folder or bag, without ROS'),
    'echo': ('see:echo', 'print assessments, regions and states of a topic as YAML or JSON lines'),
    'top': ('see:top', 'show a live table of rates, latency, drops, levels and states of nodes'),
    'doctor': ('doctor', 'say why perception is slow, silent or UNKNOWN here, and what to '
               'do'),
    'score': ('score', 'score recordings, one or thousands: tables of assessments and events'),
    'view': ('view', 'show cameras, maps, looming, levels and states in Rerun, also in a browser'),
    'find': ('find', 'find moments of scored recordings that look like a picture or an event'),
    'inspect': ('weights:inspect', 'show what is in a checkpoint, and whether it is complete'),
    'convert': ('weights:convert', 'write a checkpoint as safetensors, without training state'),
    'export': ('weights:export', 'write a model as an ONNX graph for other runtimes'),
    'download': ('weights:download', 'fetch published weights'),
    'drive': ('drive', 'drive simulated robots through random episodes, with and without guard'),
    'train': ('train', 'train encoder and heads on rendered scenes and on your recordings'),
    'evaluate': ('evaluate', 'measure accuracy on recordings and on rendered clips'),
    'benchmark': ('benchmark', 'measure the speed of a model, alone and from image to '
                  'assessment, against baselines'),
    'selftest': ('selftest', 'test that this machine computes the right numbers, and how fast'),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is 0 on success."""
    words = list(sys.argv[1:] if argv is None else argv)
    for stream in (sys.stdout, sys.stderr):      # a terminal may lack characters, as with LANG=C
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')
    # Only the first word is parsed here, and only the module of that tool is loaded.
    command = make_parser().parse_args(words[:1]).command
    # NumPy reads it when loaded: idle threads of its matrix library spin on cores that the encoder
    # needs, which nearly doubles the time per result on two cores.
    os.environ.setdefault('OPENBLAS_NUM_THREADS', '1')
    # PyTorch reads it when loaded: by default a waiting thread spins for milliseconds and keeps
    # the core from the thread that it waits for.
    os.environ.setdefault('GOMP_SPINCOUNT', '1000')
    try:
        module, _, function = COMMANDS[command][0].partition(':')
        tool = import_module(f'vjepa_ros.cli.{module}')
    except ModuleNotFoundError as error:
        if not error.name or error.name.startswith('vjepa_ros'):
            raise
        print(f"vjepa-ros {command} needs the Python package '{error.name}', which is not "
              f'installed (pip install {error.name})', file=sys.stderr)
        return 1
    return getattr(tool, function or 'main')(words[1:])


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the first word."""
    wide = max(map(len, COMMANDS))
    parser = argparse.ArgumentParser(
        prog='vjepa-ros', usage='vjepa-ros [-h] [--version] COMMAND ...',
        description='V-JEPA 2 obstacle and collision perception.',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='commands:\n' + '\n'.join(
            f'  {name:<{wide}}  {text}' for name, (_, text) in COMMANDS.items())
        + '\n\n`vjepa-ros COMMAND --help` explains the options of a command.')
    parser.add_argument('--version', action='version', version=f'vjepa-ros {__version__}')
    parser.add_argument('command', metavar='COMMAND', choices=tuple(COMMANDS),
                        help='one of the commands below')
    return parser
