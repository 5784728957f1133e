# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Recognise the networks in a checkpoint, their sizes, and the clips they were trained on."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.files import ANEW, Opened, WeightsError, foreign, unmap
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import Binned, Calibration, HEADS
from vjepa_ros.model.variants import VARIANTS, Variant

AUTO = 'auto'
ENCODERS = ('target_encoder', 'ema_encoder', 'encoder')  # the default is the first there is
# Words without meaning before the names of parameters.
WRAPPERS = ('module', 'backbone', 'model', 'vjepa2', '_orig_mod', 'state_dict', 'checkpoint',
            'net', 'network', 'weights', 'params', 'model_state_dict')
UNUSED = ('pos_embed', 'predictor_pos_embed')  # learned positions, which RoPE replaced
POSITIONS = (2048, 8192, 18432)                # of V-JEPA 2 as published: 16 or 64 frames
# Networks on top of an encoder that may lie among its parameters.
ON_TOP = ('head', 'fc', 'fc_norm', 'classifier', 'cls_head', 'linear', 'pooler', 'probe')

ENCODER = 'encoder'
PREDICTOR = 'predictor'
DENSE = 'dense predictor'
ACTIONS = 'action predictor'
PROBE = 'probe'
COLLISION = 'collision head'
LEARNED = 'heads'

META = 'Meta'
HUGGING_FACE = 'Hugging Face'
KEY = 'vjepa_ros'  # of the safetensors metadata, and the layout of the files of this package

# How names of parameters begin, which tells kinds apart, first match first; names of Meta, then of
# Hugging Face.
SIGNS = (
    (ACTIONS, r'(?:action|state|extrinsics)_encoder\.'),
    (DENSE, r'predictor_proj_context\.|predictor_embed\.[02]\.'),
    (PREDICTOR, r'predictor_|mask_tokens|embeddings\.(?:predictor_embeddings|mask_tokens)'),
    (PROBE, r'pooler\.'),
    (COLLISION, r'temporal_processor\.'),
    (ENCODER, r'patch_embed\.|blocks\.\d+\.attn\.|embeddings\.patch_embeddings\.|'
              r'layer\.\d+\.attention\.'))
SIGN = re.compile(rf'(?:^|\.)({"|".join(sign for _, sign in SIGNS)})')
THEIRS = re.compile(r'embeddings\.|layer\.\d|layernorm\.|pooler\.(self|cross)_attention_layer')
SHARED = ((r'^layer\.', 'blocks.'), (r'\.attention\.', '.attn.'))
RENAMED = {  # Hugging Face to Meta
    ENCODER: (*SHARED, (r'^embeddings\.patch_embeddings\.', 'patch_embed.'),
              (r'^layernorm\.', 'norm.')),
    PREDICTOR: ((r'^layer\.', 'predictor_blocks.'), SHARED[1],
                (r'^embeddings\.predictor_embeddings\.', 'predictor_embed.'),
                (r'^embeddings\.mask_tokens$', 'mask_tokens'),
                (r'^layernorm\.', 'predictor_norm.'), (r'^proj\.', 'predictor_proj.')),
}
# The layer that Hugging Face splits in three.
SPLIT = re.compile(r'(.*\.attn)\.(query|key|value)\.(\w+)')

LISTED, SHOWN = 12, 5   # names in an error: the parameters of one block, and examples
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Stored:
    """One parameter as it lies in a file, perhaps in several pieces along its first axis."""

    pieces: tuple[Tensor, ...]

    @property
    def shape(self) -> torch.Size:
        first = self.pieces[0].shape
        if len(self.pieces) == 1:
            return first
        return torch.Size((sum(len(piece) for piece in self.pieces), *first[1:]))

    @property
    def dtype(self) -> torch.dtype:
        return self.pieces[0].dtype

    def read(self, dtype: torch.dtype) -> Tensor:
        """Return a copy in `dtype`; the memory of the file is released."""
        whole = torch.empty(self.shape, dtype=dtype)
        targets = [whole]
        if len(self.pieces) > 1:
            targets = whole.split([len(piece) for piece in self.pieces])
        for target, piece in zip(targets, self.pieces, strict=True):
            target.copy_(piece)
            unmap(piece)
        return whole


@dataclass(frozen=True)
class Part:
    """One network in a checkpoint."""

    name: str  # in the file, such as 'target_encoder'; '' when it has none
    kind: str  # what it is, such as `ENCODER`; '' when it is nothing known
    layout: str  # whose names it has, `META` or `HUGGING_FACE`
    stored: dict[str, Stored]  # its parameters under the names of this package
    root: str = ''  # what the names of its parameters begin with in the file
    ignored: tuple[str, ...] = ()  # parameters of the file that are not needed

    @property
    def label(self) -> str:
        return self.name or self.kind

    @property
    def dtype(self) -> str:
        """Return the number formats, such as 'float16'; several are joined by '+'."""
        return '+'.join(sorted({str(one.dtype).removeprefix('torch.')
                                for one in self.stored.values()}))


def parts_of(opened: Opened, parameter: str) -> list[Part]:
    """Find the networks in a checkpoint, in the order of the file."""
    name = f"{parameter} file '{opened.path}'"
    with foreign(name, parameter):
        parts = _parts_of(opened.tensors)
        positions = [(part, opened.tensors.get(part.root + 'pos_embed')) for part in parts
                     if part.kind == ENCODER]
        for part, embed in positions:
            if embed is not None and embed.any() and embed.shape[1] not in POSITIONS:
                raise WeightsError(
                    f'{name} looks like V-JEPA 1: its {part.label} was trained with a position '
                    f'embedding ({part.root}pos_embed {tuple(embed.shape)}), without which its '
                    f'features mean nothing; set `{parameter}` to a checkpoint of V-JEPA 2 or '
                    '2.1, which have none')
    return parts


def _parts_of(tensors: Mapping[str, Tensor]) -> list[Part]:
    roots = {key[:sign.start(1)] for key in tensors if (sign := SIGN.search(key))}
    groups: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        root = _root_of(key, roots)
        groups.setdefault(root, {})[key.removeprefix(root)] = tensor
    parts = []
    for root, group in groups.items():
        kind = next((kind for kind, sign in SIGNS if any(re.match(sign, key) for key in group)),
                    '')
        tops: dict[str, dict[str, Tensor]] = {}
        if kind == ENCODER:
            for key in list(group):
                first, _, rest = key.partition('.')
                if rest and first in ON_TOP:
                    tops.setdefault(first, {})[rest] = group.pop(key)
        parts.append(_part(root, kind, group))
        parts += [_part(f'{root}{first}.', '', top) for first, top in tops.items()]
    return parts


def _root_of(key: str, roots: set[str]) -> str:
    """Return the longest root that a name begins with, or else its first word."""
    at = len(key)
    while at >= 0:
        at = key.rfind('.', 0, at)
        if key[:at + 1] in roots:
            return key[:at + 1]
    return key.partition('.')[0] + '.'


def _part(root: str, kind: str, tensors: Mapping[str, Tensor]) -> Part:
    words = [word for word in root.split('.') if word and word not in WRAPPERS]
    name = next((word for word in words if word in ENCODERS), '.'.join(words))
    if name == LEARNED:
        kind = LEARNED
    ignored = tuple(key for key in tensors if key in UNUSED)
    needed = {key: value for key, value in tensors.items() if key not in UNUSED}
    theirs = any(THEIRS.match(key) for key in needed)
    if theirs and kind in RENAMED:
        stored = _from_hugging_face(kind, needed)
    else:
        stored = {key: Stored((value,)) for key, value in needed.items()}
    return Part(name, kind, HUGGING_FACE if theirs and kind else META, stored, root, ignored)


def _from_hugging_face(kind: str, tensors: Mapping[str, Tensor]) -> dict[str, Stored]:
    stored: dict[str, Stored] = {}
    split: dict[str, dict[str, Tensor]] = {}
    for key, value in tensors.items():
        for old, new in RENAMED[kind]:
            key = re.sub(old, new, key)
        match = SPLIT.fullmatch(key)
        if match:
            split.setdefault(f'{match[1]}.{{}}.{match[3]}', {})[match[2]] = value
        elif key == 'mask_tokens' and value.ndim > 0 and len(value) <= value.numel():
            stored |= {f'mask_tokens.{i}': Stored((one,)) for i, one in enumerate(value)}
        else:
            stored[key] = Stored((value,))
    for key, pieces in split.items():
        whole = [pieces[piece] for piece in ('query', 'key', 'value') if piece in pieces]
        if len(whole) == 3 and whole[0].ndim and len({(one.dtype, one.shape[1:])
                                                      for one in whole}) == 1:
            stored[key.format('qkv')] = Stored(tuple(whole))
        else:   # not complete, or they do not belong together: their names go into the error
            stored |= {key.format(piece): Stored((one,)) for piece, one in pieces.items()}
    return stored


def choose_encoder(parts: Sequence[Part], which: str, name: str) -> Part:
    """Choose the encoder called `which`, or with 'auto' the first of `ENCODERS`."""
    encoders = [part for part in parts if part.kind == ENCODER]
    found = {part.name: part for part in encoders}
    if not found:
        keys = [part.root + key for part in parts if not part.kind for key in part.stored]
        there = [*filter(None, (part.kind for part in parts)), *keys[:5]]
        raise WeightsError(f'{name} has no encoder of V-JEPA 2, but: {", ".join(there)}; set '
                           '`weights` to a checkpoint with an encoder')
    if which != AUTO:
        if which not in found:
            there = ', '.join(f"'{one}'" for one in found if one) or 'an encoder without a name'
            raise WeightsError(f"{name} has no '{which}', but: {there}")
        return found[which]
    named = [one for one in ENCODERS if one in found]
    if len(encoders) > max(1, len(named)):
        raise WeightsError(f'{name} has several encoders '
                           f'({", ".join(repr(part.root) for part in encoders)}); save the wanted '
                           'one alone')
    return found[named[0]] if named else encoders[0]


def compare(want: Mapping[str, Tensor], found: Mapping[str, Tensor | Stored]
            ) -> tuple[list[str], list[str], list[str]]:
    """Return names that are missing, unexpected, and of a wrong shape with both shapes."""
    return (sorted(want.keys() - found.keys()), sorted(found.keys() - want.keys()),
            sorted(f'{key} {tuple(found[key].shape)} instead of {tuple(want[key].shape)}'
                   for key in want.keys() & found.keys() if found[key].shape != want[key].shape))


def differences(want: Mapping[str, Tensor], found: Mapping[str, Tensor | Stored],
                limit: int = LISTED) -> str:
    """Say why `found` does not fill `want`, with so many names; '' if it does."""
    problems = zip(('missing', 'unexpected', 'wrong shape'), compare(want, found), strict=True)
    return '; '.join(f'{len(names)} {what} ({_listed(names, limit)})'
                     for what, names in problems if names)


def version_of(part: Part) -> str:
    new = ('norms_block.', 'patch_embed_img.', 'video_mod_embed', 'img_mod_embed')
    return '2.1' if any(key.startswith(new) for key in part.stored) else '2.0'


def variant_of(part: Part) -> Variant | None:
    """Return the size of an encoder by its shapes; None for none of `VARIANTS`."""
    found = (_size(part, 'patch_embed.proj.weight', 0), _depth(part),
             _size(part, 'blocks.0.mlp.fc1.weight', 0))
    return next((v for v in VARIANTS.values() if (v.dim, v.depth, v.mlp) == found), None)


def fits(part: Part) -> bool:
    """Return whether an encoder has exactly the parameters of one in this package."""
    try:
        return not differences(wanted_by(part), part.stored)
    except ValueError:
        return False


def wanted_by(part: Part) -> dict[str, Tensor]:
    """Return the parameters that an encoder must have, by its shapes and without memory."""
    variant = variant_of(part)
    if variant is None:
        raise ValueError(f'it looks like version {version_of(part)} and fits none of the '
                         f'sizes {", ".join(VARIANTS)}')
    with torch.device('meta'):
        # Only the names of parameters count here, and not how large the window is.
        return Encoder(variant, version_of(part), int('interval_embed' in part.stored),
                       matches(part)).state_dict()


def matches(part: Part) -> bool:
    """Return whether an encoder compares its frames."""
    return 'matching.stem.weight' in part.stored


def fill(network: Encoder, part: Part, misfit: str, name: str) -> None:
    """Copy the parameters of a part into an encoder that has no memory yet, in float32."""
    want = network.state_dict()
    problem = differences(want, part.stored)
    if problem:
        advice = 'It is damaged, or its network was changed (`vjepa-ros inspect` lists all).'
        variant = variant_of(part)
        size = (f'fits none of the sizes {", ".join(VARIANTS)}' if variant is None else
                f"is nearest to model size '{variant.name}'")
        if fits(part):  # of another size: no long lists
            problem = differences(want, part.stored, limit=2)
            advice = 'Set `model_size` to that, or `weights` to another file.'
        raise WeightsError(f'{misfit}: {problem}. The file {size} version {version_of(part)}. '
                           f'{advice}')
    check_numbers(part, name)
    state = {key: stored.read(torch.float32) for key, stored in part.stored.items()}
    if broken := not_finite(state):
        raise WeightsError(f'{name} is damaged: there is NaN or infinity in {broken}; {ANEW}')
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False)


def not_finite(state: Mapping[str, Tensor]) -> str:
    """Name the tensors with numbers that are not finite; '' for none."""
    return _listed([key for key, value in state.items()
                    if not all(bound.isfinite() for bound in value.aminmax())], SHOWN)


def _listed(names: Sequence[str], most: int) -> str:
    return ', '.join(names[:most]) + f' and {len(names) - most} more' * (len(names) > most)


def check_numbers(part: Part, name: str) -> None:
    """Raise WeightsError when parameters are not floating point numbers, as after quantisation."""
    wrong = [f'{key} {str(one.dtype).removeprefix("torch.")}' for key, one in part.stored.items()
             if one.dtype not in FLOATS]
    if wrong:
        raise WeightsError(f'{name} has parameters of the wrong type ({_listed(wrong, SHOWN)}); '
                           'get it in float16, bfloat16 or float32')


def _size(part: Part, key: str, axis: int) -> int:
    """One side of a parameter; 0 where it is not there or has no such axis."""
    shape = part.stored[key].shape if key in part.stored else ()
    return shape[axis] if axis < len(shape) else 0


def _depth(part: Part) -> int:
    """Blocks by the highest number; those that lack others count."""
    blocks = filter(None, (re.match(r'blocks\.(\d+)\.', key) for key in part.stored))
    return 1 + max((int(block[1]) for block in blocks), default=-1)


FORMAT = 1
RATE = 4.0  # of pre-training and of the action-conditioned model [Hz]
CONVERTED = 'vjepa_ros_checkpoint'  # of the safetensors metadata of converted files
COLLISION_RATE = 8.0  # of the published collision head [Hz]
# Borders of the bins of heads, which a file repeats: they must not change.
EDGES = {f'{spec.name}_edges': spec.kind.bins.edges for spec in HEADS.values()
         if isinstance(spec.kind, Binned)}


@dataclass(frozen=True)
class BundleMeta:
    """Description of an encoder with heads, or of heads alone."""

    variant: str  # of the encoder that the file holds or was trained on
    version: str
    num_frames: int  # of the clips of training
    image_size: int
    resize_mode: str  # how images were brought to that size
    # Shortest and longest time between two frames in training [s]
    interval_s: tuple[float, float]
    # `half_width` and `height` [m] of the volume that `course`, `contact` and `clearance` are
    # about
    robot: dict[str, float]
    # How often a frame stood in a clip: twice as with a camera at half the rate of the clip
    holds: tuple[int, ...] = (1, 2)
    calibration: Calibration = field(default_factory=Calibration)  # belongs to the heads
    # For heads alone the hash of the FILE of their encoder, else that of the encoder's tensors.
    # `save_bundle` fills in both.
    backbone_sha256: str = ''
    has_encoder: bool = False  # whether the encoder is in the file
    # training, metrics: seed, command, hardware; figures on held-out data
    training: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    licence: str = 'Apache-2.0'  # of the numbers in the file
    window: int = 0  # tubelets that a tubelet attends to in a block-causal encoder; 0 in others
    # Further ways to bring images to that size that training showed
    other_modes: tuple[str, ...] = ()

    def to_json(self) -> str:
        data = {'format': FORMAT, **vars(self), **EDGES, 'calibration': self.calibration.to_json()}
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> BundleMeta:
        """Read what `to_json` wrote; ValueError with the reason for anything else."""
        try:
            data = json.loads(text)
            if data['format'] != FORMAT:
                raise ValueError(f'its format is {data["format"]}, and this version of vjepa_ros '
                                 f'reads format {FORMAT}')
            for name, ours in EDGES.items():
                theirs = data[name]
                if len(theirs) != len(ours) or not all(map(math.isclose, theirs, ours)):
                    raise ValueError(f'its {name} are not those of this version of vjepa_ros')
            shortest, longest = map(float, data['interval_s'])
            return cls(
                str(data['variant']), str(data['version']), int(data['num_frames']),
                int(data['image_size']), str(data['resize_mode']), (shortest, longest),
                {key: float(value) for key, value in data['robot'].items()},
                tuple(map(int, data['holds'])), Calibration.from_json(data['calibration']),
                str(data['backbone_sha256']), bool(data['has_encoder']), dict(data['training']),
                dict(data['metrics']), str(data['licence']), int(data.get('window', 0)),
                tuple(map(str, data.get('other_modes', ()))))
        except KeyError as error:
            raise ValueError(f'its description lacks {error}') from error
        except (TypeError, AttributeError, OverflowError, RecursionError,
                json.JSONDecodeError) as error:
            raise ValueError(f'its description is damaged: {error}') from error


def meta_of(opened: Opened, parameter: str) -> BundleMeta | None:
    """Read the description in a file of this package; None in other files."""
    if KEY not in opened.metadata:
        return None
    try:
        return BundleMeta.from_json(opened.metadata[KEY])
    except ValueError as error:
        raise WeightsError(f"{parameter} file '{opened.path}' cannot be used: {error}; set "
                           f'`{parameter}` to another file') from error


@dataclass(frozen=True)
class HeadsReport:
    """Where the heads come from."""

    path: str
    sha256: str  # of the file
    meta: BundleMeta  # description of its training; check it before you trust the heads


@dataclass(frozen=True)
class Profile:
    """The clips that weights were trained on; '' or None for what is unknown."""

    resize_mode: str = ''  # 'meta', 'hf' or 'squash'
    image_size: int | None = None  # pixels per side
    num_frames: int | None = None  # frames of a clip
    clip_fps: float | None = None  # rate [Hz]
    window: int = 0  # see `BundleMeta`

    def __str__(self) -> str:
        return ', '.join((
            f'resize mode {self.resize_mode or "unknown"}',
            f'{self.image_size} pixels' if self.image_size else 'size unknown',
            f'{self.num_frames} frames' if self.num_frames else 'frames unknown',
            f'{self.clip_fps:g} Hz' if self.clip_fps else 'rate unknown'))


def profile_of(opened: Opened, parts: Iterable[Part], encoder: Part | None, parameter: str
               ) -> Profile:
    """Return the profile of a checkpoint: published files do not say, but their layouts do."""
    meta = meta_of(opened, parameter)
    if meta is not None:  # rates are a range there
        return Profile(meta.resize_mode, meta.image_size, meta.num_frames,
                       window=meta.window if meta.has_encoder else 0)
    if CONVERTED in opened.metadata:
        return _converted(opened.metadata[CONVERTED])
    kinds = {part.kind for part in parts}
    if COLLISION in kinds:
        return Profile('squash', 256, 16, COLLISION_RATE)
    if encoder is not None and encoder.layout == HUGGING_FACE:
        config = opened.config
        # Classifiers were trained at a step of frames in videos of other rates.
        tuned = 'Classification' in str(config.get('architectures'))
        return Profile('hf', _count(config.get('crop_size')),
                       _count(config.get('frames_per_clip')), None if tuned else RATE)
    if ACTIONS in kinds:
        return Profile('meta', 256, 8, RATE)
    if encoder is None:
        return Profile()
    # Pixels of training follow from the names of published files alone.
    name, size = opened.path.name, None
    if version_of(encoder) == '2.1':
        size = 384 if re.match(r'vjepa2_1_vit\w+_384\.', name) else None
    elif match := re.match(r'vit[lhg](-384)?\.pth?$', name):
        size = 384 if match[1] else 256
    return Profile('meta', size, None, RATE)


def _converted(text: str) -> Profile:
    """Return the profile in the metadata of a converted file; empty if unreadable."""
    try:
        found = json.loads(text)['profile']
        return Profile(str(found['resize_mode']), _count(found['image_size']),
                       _count(found['num_frames']),
                       float(found['clip_fps']) if found['clip_fps'] else None,
                       _count(found.get('window')) or 0)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Profile()


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
