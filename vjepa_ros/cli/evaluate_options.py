# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The options of `vjepa-ros evaluate`."""

from __future__ import annotations

import argparse
from pathlib import Path

from vjepa_ros.lab.evaluation import document as evaluate_document
from vjepa_ros.lab.evaluation.input import MARKS
from vjepa_ros.lab.evaluation.jobs import MOST_ON_GPU
from vjepa_ros.lab.evaluation.recording_replay import METHODS
from vjepa_ros.model.variants import VARIANTS


def make_parser(text: str) -> argparse.ArgumentParser:
    """The parser of the command, described by the docstring of its module."""
    marks = '\n'.join(f'  PATH::{m:<9} {text}' for m, text in MARKS.items() if m)
    parser = argparse.ArgumentParser(
        prog='vjepa-ros evaluate', description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog='What is known of a recording without labels can be said behind its path:\n'
               + marks)
    parser.add_argument('paths', nargs='*', metavar='PATH[::MARK]', help='recording folder '
                        '(frames/ and labels.csv), image folder, video, rosbag2')
    parser.add_argument('--world', type=int, default=0, metavar='N',
                        help='also evaluate on N held-out rendered clips (2000 in the documents)')
    parser.add_argument('--method', nargs='+', choices=METHODS,
                        help='methods to run (default: all that the model allows)')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write all figures')
    parser.add_argument('--html', type=Path, metavar='FILE', help='write a page with plots and '
                        'overlays')
    parser.add_argument('--document', type=Path, metavar='FILE', help='write tables, plots and '
                        f'failures between the marks <!-- {evaluate_document.BLOCK}:begin --> and '
                        f'<!-- {evaluate_document.BLOCK}:end --> of a Markdown file')
    parser.add_argument('--baseline-size', default='large', choices=(*VARIANTS, 'none'),
                        help='encoder of the upstream variance score (default: large, as '
                             'upstream; about 10 s per frame on two CPU cores)')
    parser.add_argument('--baseline-frames', type=int, default=12, metavar='N', help='labelled '
                        'frames of a recording it is computed for, evenly spread (default: 12)')
    parser.add_argument('--baseline-clips', type=int, default=40, metavar='N', help='rendered '
                        'clips it is computed for, evenly spread (default: 40)')
    parser.add_argument('--jobs', type=int, default=0, metavar='N', help='processes to spread '
                        'recordings and rendered clips over; 0: one for each core that has '
                        f'something to do, at most {MOST_ON_GPU} on a GPU')
    parser.add_argument('--model-size', default='tiny', choices=tuple(VARIANTS))
    parser.add_argument('--weights', default='', metavar='FILE', help='safetensors file of the '
                        'encoder, with or without heads (default: the one of the package)')
    parser.add_argument('--heads', default='', metavar='FILE', help='safetensors file of heads')
    parser.add_argument('--num-frames', type=int, default=8, metavar='N')
    parser.add_argument('--image-size', type=int, default=192, metavar='PX')
    parser.add_argument('--device', default='auto', help='of the model and of what is '
                        'rendered: auto, cpu, cuda, cuda:N or mps')
    parser.add_argument('--topic', metavar='TOPIC', help='image topic of bags')
    return parser


def check(args: argparse.Namespace) -> None:
    """Refuse what makes no sense before anything is loaded.

    Raises
    ------
    ValueError
        Naming the option, its value and the remedy.
    """
    if not args.paths and not args.world:
        raise ValueError('there is nothing to evaluate; name recordings, or ask for rendered '
                         'clips with --world N')
    if args.world < 0:
        raise ValueError(f'--world is {args.world}, must be 0 or more')
    for name in ('jobs', 'baseline_clips'):
        if getattr(args, name) < 0:
            raise ValueError(f'--{name.replace("_", "-")} is {getattr(args, name)}, must be 0 or '
                             'more')
    if args.baseline_frames < 1:
        raise ValueError(f'--baseline-frames is {args.baseline_frames}, must be at least 1; '
                         '--baseline-size none leaves the baseline out')
    if args.document and not args.document.is_file():
        raise ValueError(f"--document '{args.document}' is not a file; make it with the two "
                         f'marks of the block {evaluate_document.BLOCK} in it')
