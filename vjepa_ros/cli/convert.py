# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Write a checkpoint as safetensors, without training state, perhaps in another number format."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from rich.console import Console

from vjepa_ros.cli.console import CHECKPOINT, print_error
from vjepa_ros.cli.inspect import view
from vjepa_ros.model.checkpoint.conversion import DTYPES, KEEP, convert
from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.checkpoint.layouts import AUTO


def main(argv: Sequence[str]) -> int:
    """Run the command line; 0 when the file was written."""
    parser = argparse.ArgumentParser(prog='vjepa-ros convert', description=__doc__)
    parser.add_argument('input', help=CHECKPOINT)
    parser.add_argument('output', help='file to write; it must not exist')
    parser.add_argument('--dtype', choices=(KEEP, *(name for name in DTYPES if '64' not in name)),
                        default=KEEP, help='number format (default: %(default)s)')
    parser.add_argument('--weights-part', default=AUTO, metavar='NAME',
                        help='encoder to take, such as encoder or target_encoder (default: the '
                        'first of target_encoder, ema_encoder, encoder)')
    parser.add_argument('--encoder-only', action='store_true',
                        help='leave out predictors')
    args = parser.parse_args(argv)
    try:
        written = convert(args.input, args.output, args.dtype, args.weights_part,
                          args.encoder_only)
    except (WeightsError, OSError) as error:
        return print_error(error, args=args)
    Console().print(view(written))
    return 0
