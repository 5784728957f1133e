# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The options of `vjepa-ros train`, and the configuration that they make."""

from __future__ import annotations

import argparse

from vjepa_ros.clip.view import MODES
from vjepa_ros.lab.training.ablation import TOKENS_KEPT
from vjepa_ros.lab.training.config import OPTIMIZERS, PRECISIONS, TrainConfig
from vjepa_ros.lab.training.network import OBJECTIVES
from vjepa_ros.model.variants import VARIANTS

DEFAULTS = {f.name: f.default for f in TrainConfig.__dataclass_fields__.values()}
DEFAULT_CLIPS = 200_000      # when neither --clips nor --seconds is given


def make_parser(text: str) -> argparse.ArgumentParser:
    """The parser of the command, described by the docstring of its module."""
    intro, _, examples = text.partition('Examples\n--------\n')
    parser = argparse.ArgumentParser(
        prog='vjepa-ros train', description=intro.strip(), epilog='examples:\n\n' + examples,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    _length(parser.add_argument_group('where and how long'))
    _model(parser.add_argument_group('model and objective'))
    _clips(parser.add_argument_group('clips'))
    _own(parser.add_argument_group('your own backbone and recordings'))
    _means(parser.add_argument_group('learning rate and machine'))
    _judging(parser.add_argument_group('judging'))
    return parser


def _add(group: argparse._ArgumentGroup, flag: str, text: str, **kind: object) -> None:
    """An option that is a field of `TrainConfig`, with its default."""
    name = flag.lstrip('-').replace('-', '_')
    default = DEFAULTS[name]
    shown = '' if default in ('', False, ()) or default is None else f' (default {default})'
    if default is False:
        group.add_argument(flag, action='store_true', help=text)
        return
    kind.setdefault('type', type(default))
    group.add_argument(flag, default=default, help=(text + shown).replace('%', '%%'), **kind)


def _length(group: argparse._ArgumentGroup) -> None:
    group.add_argument('--out', required=True, metavar='FOLDER', help='folder for everything '
                       'that is written: the weights file, its model card, metrics.json, '
                       'curves.png and state.pt to go on from')
    _add(group, '--clips', 'length of the run in clips seen; the learning rate falls to its end '
         f'over it (without --clips and --seconds: {DEFAULT_CLIPS:,})', metavar='N')
    _add(group, '--seconds', 'length of the run in seconds of training instead, over all calls; '
         'start-up, validation and writing do not count', metavar='S')
    _add(group, '--stop-after', 'end this call after so many seconds since it began and write a '
         'checkpoint; 0: never. Go on with --resume', metavar='S')
    group.add_argument('--resume', action='store_true', help='go on exactly where the run in '
                       '--out was stopped; give the same options again. Starts a new run when '
                       'there is none')
    _add(group, '--checkpoint-s', 'seconds between checkpoints', metavar='S')
    group.add_argument('--ablation', action='store_true', help='train with every objective for '
                       'the same length and compare: writes ablation.md')


def _model(group: argparse._ArgumentGroup) -> None:
    _add(group, '--model-size', 'size of the encoder', choices=tuple(VARIANTS))
    _add(group, '--objective', 'supervised: the labels of the world train encoder and heads. '
         'jepa: the encoder learns to predict hidden parts of a clip, as V-JEPA 2 does, and '
         'only the heads see labels. both: the sum', choices=OBJECTIVES)
    _add(group, '--auxiliary', 'also ask each patch when it will be in the way, how far it is and '
         'where it goes; this is thrown away after training')
    _add(group, '--seed', 'decides start weights and data; the same seed gives the same run on '
         'the same machine', metavar='N')
    _add(group, '--weights', 'safetensors file to start from; its heads are taken over when it '
         'has any (default: random weights)', metavar='FILE')


def _clips(group: argparse._ArgumentGroup) -> None:
    _add(group, '--batch', 'clips per step (and per process)', metavar='N')
    _add(group, '--num-frames', 'frames per clip', metavar='N')
    _add(group, '--image-sizes', 'pixels per side, a multiple of 16. Several with their parts of '
         "the run, such as '128:0.7,192:0.3': small pictures first train faster. The last one is "
         'what the result is for', metavar='N')
    group.add_argument('--tokens-kept', default=None, metavar='SHARE', help='part of the patches '
                       'the encoder sees, 0..1; the others cost nothing. Several with their '
                       "parts of the run, such as '0.5:0.8,1.0:0.2' (default: "
                       + ', '.join(f'{value} for {key}' for key, value in TOKENS_KEPT.items())
                       + ')')
    _add(group, '--reuse', 'how many steps use a rendered clip, each time mirrored and thinned '
         'anew; above 1 where rendering is slower than training', metavar='N')
    _add(group, '--textures', 'painted textures of the world; another set is kept for judging',
         metavar='N')
    group.add_argument('--photos', nargs='+', default=(), metavar='PATH', help='photographs '
                       '(files or folders) to cut as many further textures from; any pictures '
                       'will do, they are not kept')


def _own(group: argparse._ArgumentGroup) -> None:
    _add(group, '--heads-only', 'keep the encoder of --weights as it is and train heads for it; '
         'they are saved in a file of their own that records which encoder they belong to')
    _add(group, '--lora-rank', 'also train low-rank adapters of this rank in the frozen encoder, '
         'such as 16; 0: none', metavar='N')
    _add(group, '--cached-clips', 'encode so many rendered clips once, keep their features in '
         'memory and train on them over and over; 0: encode new clips all the time. For large '
         'encoders on slow machines', metavar='N')
    group.add_argument('--recording', dest='recordings', nargs='+', default=(), metavar='PATH',
                       help='also learn from these: recording folders (frames/ and labels.csv), '
                       'or rosbag2 with --label-topic')
    _add(group, '--recording-share', 'part of every batch that comes from recordings, 0..1',
         metavar='SHARE')
    _add(group, '--image-topic', 'image topic of the bags (default: the first)', metavar='NAME')
    _add(group, '--label-topic', 'topic of the bags that tells when the robot touched something: '
         'Bool (a bumper), Range, Float32, Int32 ..., or any type with --label-field',
         metavar='NAME')
    _add(group, '--label-field', 'field of the label message, with dots for fields of fields; a '
         'list counts as contact when it is not empty (default: data, or range)',
         metavar='NAME')
    _add(group, '--label-threshold', "what of a number means contact, such as '<0.3' or '>10'; "
         'a bare number means below for Range, above for others', metavar='X')
    _add(group, '--label-horizon', 'seconds ahead that the column `collision` of a recording '
         'folder speaks about', metavar='S')
    _add(group, '--resize-mode', 'how recordings are fitted into the square; run the node with '
         'the same', choices=MODES)


def _means(group: argparse._ArgumentGroup) -> None:
    _add(group, '--optimizer', 'adamw, or muon: orthogonalised steps for the matrices of the '
         'blocks, adamw for the rest', choices=OPTIMIZERS)
    _add(group, '--lr', 'highest learning rate', metavar='X')
    _add(group, '--weight-decay', 'of the matrices', metavar='X')
    _add(group, '--warmup', 'part of the run over which the learning rate rises', metavar='SHARE')
    _add(group, '--clip-norm', 'largest norm of a gradient', metavar='X')
    _add(group, '--average', 'how much of the running mean of the weights a step keeps; the mean '
         'is what is saved', metavar='X')
    _add(group, '--device', 'auto, cpu, cuda or cuda:N; with torchrun each process takes the GPU '
         'of its number', metavar='NAME')
    _add(group, '--precision', 'of the matrix products; auto: bf16 where the machine computes it '
         'fast', choices=PRECISIONS)
    _add(group, '--compile', 'compile the blocks of the encoder (a minute at the start; faster on '
         'GPUs)')
    _add(group, '--compile-world', 'compile the renderer')
    _add(group, '--workers', 'threads that draw scenes ahead', metavar='N')


def _judging(group: argparse._ArgumentGroup) -> None:
    _add(group, '--validations', 'how often the run is judged while it goes on', metavar='N')
    _add(group, '--validation-clips', 'rendered clips for that', metavar='N')
    _add(group, '--calibration-clips', 'rendered clips to calibrate on at the end; 0: none',
         metavar='N')
    _add(group, '--held-out-clips', 'rendered clips for the final figures; 0: none', metavar='N')
    _add(group, '--progress-s', 'seconds between reports', metavar='S')


def make_config(args: argparse.Namespace) -> TrainConfig:
    """Options as typed to a configuration (ValueError in words)."""
    values = {k: v for k, v in vars(args).items() if k not in ('resume', 'ablation')}
    for name in ('recordings', 'photos'):
        values[name] = tuple(values[name])
    if values['tokens_kept'] is None:
        values['tokens_kept'] = TOKENS_KEPT[args.objective]
    if not args.clips and not args.seconds:
        values['clips'] = DEFAULT_CLIPS
    return TrainConfig(**values)
