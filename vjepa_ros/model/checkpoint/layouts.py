# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Recognise the networks in a checkpoint, their sizes, and the clips they were trained on.

The networks of this package use the names of Meta's published files. The transformers library
has names of its own, and keeps query, key and value apart.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from vjepa_ros.model.checkpoint.files import (
    ANEW,
    FLAT,
    KEY,
    Opened,
    PATCHES,
    PROBES,
    WeightsError,
    differences,
    family,
    foreign,
    unmap,
)
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import Binned, Calibration, HEADS
from vjepa_ros.model.predictor import DensePredictor, Predictor
from vjepa_ros.model.variants import VARIANTS, Variant

WRAPPERS = ('module.', 'backbone.', 'model.', 'vjepa2.', '_orig_mod.')  # left by training code
UNUSED = ('pos_embed', 'predictor_pos_embed')  # learned positions, which RoPE replaced
# Positions of V-JEPA 2 as published (64 frames), and places of an image of V-JEPA 1.
POSITIONS, OLD_PLACES = (8192, 18432), 14 ** 2
# Networks on top of an encoder that may lie among its parameters.
ON_TOP = ('head', 'fc', 'fc_norm', 'classifier', 'cls_head', 'linear', 'pooler', 'probe')
AUTO = 'auto'
ENCODERS = ('target_encoder', 'ema_encoder', 'encoder')  # the default is the first there is

ENCODER = 'encoder'
PREDICTOR = 'predictor'
DENSE = 'dense predictor'
ACTIONS = 'action predictor'
PROBE = 'probe'
COLLISION = 'collision head'
LEARNED = 'heads'
ADAPTERS = 'adapters'
PREDICTORS = (PREDICTOR, DENSE, ACTIONS)
# Names that groups of tensors have in the files of this package: kind -> first part of a name.
SECTIONS = {ENCODER: 'encoder', PREDICTOR: 'predictor', DENSE: 'predictor', ACTIONS: 'predictor',
            PROBE: 'probe', COLLISION: 'collision', LEARNED: 'heads', ADAPTERS: 'adapters'}
# Kinds that the name of their group alone tells.
NAMED = {SECTIONS[kind]: kind for kind in (LEARNED, ADAPTERS)}

META = 'Meta'
HUGGING_FACE = 'Hugging Face'

# What tells kinds apart, first match first; names of Meta, then of Hugging Face.
SIGNS = (
    (ACTIONS, r'(action|state|extrinsics)_encoder\.'),
    (DENSE, r'predictor_proj_context\.|predictor_embed\.[02]\.'),
    (PREDICTOR, r'predictor_|mask_tokens|embeddings\.(predictor_embeddings|mask_tokens)'),
    (PROBE, r'pooler\.'),
    (COLLISION, r'temporal_processor\.'),
    (ENCODER, r'patch_embed|blocks\.|norms_block\.|embeddings\.patch_embeddings\.|layer\.\d'),
)
THEIRS = re.compile(r'embeddings\.|layer\.\d|layernorm\.|pooler\.(self|cross)_attention_layer|'
                    r'classifier\.(weight|bias)$')
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
PIECES = ('query', 'key', 'value')


@dataclass(frozen=True)
class Stored:
    """One parameter as it lies in a file, perhaps in several pieces along its first axis."""

    pieces: tuple[Tensor, ...]

    @property
    def shape(self) -> torch.Size:
        """Shape of the whole."""
        first = self.pieces[0].shape
        if len(self.pieces) == 1:
            return first
        return torch.Size((sum(len(piece) for piece in self.pieces), *first[1:]))

    @property
    def dtype(self) -> torch.dtype:
        """Type of its numbers."""
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

    name: str  # of its group in the file, such as 'target_encoder'; '' when it is all of a file
    kind: str  # what it is, such as `ENCODER`; '' when it is nothing known
    layout: str  # whose names it has, `META` or `HUGGING_FACE`
    stored: dict[str, Stored]  # its parameters under the names of this package
    ignored: tuple[str, ...] = ()  # parameters of the file that are not needed
    # Pieces that a parameter of several lacks, as the file would call them
    incomplete: tuple[str, ...] = ()
    wrapper: str = ''  # what the names of its parameters begin with in the file, and is left out

    @property
    def dtype(self) -> str:
        """Return the number formats, such as 'float16'; several are joined by '+'."""
        return '+'.join(sorted({str(one.dtype).removeprefix('torch.')
                                for one in self.stored.values()}))


def parts_of(opened: Opened, parameter: str) -> list[Part]:
    """Find the networks in a checkpoint, in the order of the file."""
    with foreign(f"{parameter} file '{opened.path}'", parameter):
        return _parts_of(opened, parameter)


def _parts_of(opened: Opened, parameter: str) -> list[Part]:
    groups: dict[str, dict[str, Tensor]] = {}
    wrappers: dict[str, str] = {}
    for group, tensors in opened.groups.items():
        names = _Names(group, tensors)
        for key, tensor in tensors.items():
            name, bare = names.of(key)
            if bare in groups.setdefault(name, {}):
                raise WeightsError(f"{parameter} file '{opened.path}' has several encoders or "
                                   f"other networks under the same names ('{bare}'); save the "
                                   'wanted one alone')
            groups[name][bare] = tensor
        wrappers |= names.wrappers
    parts = [replace(_part(name, tensors), wrapper=wrappers.get(name, ''))
             for name, tensors in groups.items()]
    if KEY not in opened.metadata:
        _refuse_strangers(parts, groups, f"{parameter} file '{opened.path}'", parameter)
    for part in parts:
        wanted = ENCODER if part.name in ENCODERS else part.name
        is_ = PREDICTOR if part.kind in PREDICTORS else part.kind
        if {wanted, is_} == {ENCODER, PREDICTOR}:
            raise WeightsError(f"{parameter} file '{opened.path}' has swapped prefixes: its "
                               f"'{part.name}' has the parameters of a {is_}; rename them or get "
                               'the file anew')
    return parts


class _Names:
    """Names of networks and their parameters in a group of a file.

    An encoder is found by the name of its patch embedding, whatever that begins with.
    """

    def __init__(self, group: str, tensors: Iterable[str]):
        found = {key.removesuffix(end) for key in tensors for end in PATCHES
                 if key == end or key.endswith('.' + end)}
        self._roots = sorted(found, key=len, reverse=True)
        self._named, self._outer = dict[str, str](), list[str]()
        for root in self._roots:
            words = root.split('.')[:-1]
            at = max((at for at, word in enumerate(words) if word in ENCODERS), default=len(words))
            self._named[root] = words[at] if at < len(words) else FLAT
            self._outer += ['.'.join(words[:at]) + '.'] * (at > 0)
        # A group of another name with encoders that have names is a container.
        self._group = FLAT if any(self._named.values()) and group not in ENCODERS else group
        self.wrappers = {self._group or name: root for root, name in self._named.items()
                         if root not in ('', f'{name}.')}

    def of(self, key: str) -> tuple[str, str]:
        """Return the network of a parameter, and its name there."""
        root = next((root for root in self._roots if key.startswith(root)), None)
        if root is None:
            key = key[max((len(one) for one in self._outer if key.startswith(one)), default=0):]
        rest = key[len(root or ''):]
        first, _, more = rest.partition('.')
        on_top = bool(more) and first in ON_TOP
        if root:
            return (first, more) if on_top else (self._group or self._named[root], rest)
        if self._group != FLAT:
            return (first, more) if on_top and root is not None else (self._group, _bare(rest))
        name, bare = _section(rest)
        if name == FLAT and more and (self._roots if root is None else on_top):
            return first, more
        return name, bare


def _refuse_strangers(parts: Sequence[Part], groups: Mapping[str, Mapping[str, Tensor]],
                      name: str, parameter: str) -> None:
    """Raise WeightsError for a checkpoint of another kind, naming what it looks like."""
    encoders = [part for part in parts if part.kind == ENCODER]
    strange = any(family(part.stored)[0] for part in encoders)
    if strange or not any(part.kind for part in parts):
        what, remedy = family({key: one for group in groups.values()
                               for key, one in group.items()})
        if what:
            raise WeightsError(f'{name} looks like {what}, not like an encoder of V-JEPA 2; '
                               + (remedy or f'set `{parameter}` to a checkpoint of V-JEPA 2'))
    for part in encoders:
        positions = groups[part.name].get('pos_embed')
        if positions is not None and _counts(positions, parts):
            raise WeightsError(
                f'{name} looks like V-JEPA 1: its {part.name or ENCODER} was trained with a '
                f'position embedding (pos_embed {tuple(positions.shape)}), without which its '
                f'features mean nothing; set `{parameter}` to a checkpoint of V-JEPA 2 or 2.1, '
                'which have none')


def _counts(positions: Tensor, parts: Iterable[Part]) -> bool:
    """Return whether an encoder was trained with its positions, as those of V-JEPA 1 were.

    Files of V-JEPA 2 may have them, too, but RoPE has replaced them.
    """
    if not positions.any():
        return False
    places = positions.shape[1] if positions.ndim == 3 else 0
    others = [part for part in parts if part.kind in PREDICTORS]
    masks = [sum(key.startswith('mask_tokens.') for key in part.stored) for part in others]
    new = any(count > 2 or part.kind != PREDICTOR
              for count, part in zip(masks, others, strict=True))
    return places % OLD_PLACES == 0 or not (new if others else places in POSITIONS)


def choose_encoder(parts: Iterable[Part], which: str, name: str) -> Part:
    """Choose the encoder called `which`, or with 'auto' the first of `ENCODERS`."""
    found = {part.name: part for part in parts if part.kind == ENCODER}
    if not found:
        raise WeightsError(f'{name} has no encoder'
                           f'{_list(", but: ", [part.kind for part in parts])}; set `weights` to '
                           'a checkpoint with an encoder')
    if which != AUTO:
        if which not in found:
            there = _list(', but: ', found) or ', but an encoder without a name'
            raise WeightsError(f"{name} has no '{which}'{there}")
        return found[which]
    named = [one for one in ENCODERS if one in found]
    if len(found) > 1 and len(named) < len(found):
        raise WeightsError(f'{name} has several encoders ({", ".join(map(repr, found))}); save '
                           'the wanted one alone')
    return found[named[0]] if named else next(iter(found.values()))


def _list(before: str, items: Iterable[str]) -> str:
    text = ', '.join(f"'{item}'" for item in items if item)
    return before + text if text else ''


def _bare(key: str) -> str:
    while key.startswith(WRAPPERS):
        key = key.split('.', 1)[1]
    return key


def _section(key: str) -> tuple[str, str]:
    """Return group and name of a parameter in a file without groups."""
    key = _bare(key)
    first, _, rest = key.partition('.')
    if first in ENCODERS or first in SECTIONS.values():
        return first, _bare(rest)
    if first in ('pooler', 'linear') or first.endswith('_classifier') or (
            re.fullmatch(r'classifier\.(weight|bias)', key)):
        return SECTIONS[PROBE], key
    if first == 'temporal_processor' or key.startswith('classifier.classifier.'):
        return SECTIONS[COLLISION], key
    return FLAT, key


def _part(name: str, tensors: Mapping[str, Tensor]) -> Part:
    ignored = tuple(key for key in tensors if key in UNUSED)
    tensors = {key: value for key, value in tensors.items() if key not in UNUSED}
    kind = NAMED.get(name) or next(
        (kind for kind, sign in SIGNS if any(re.match(sign, key) for key in tensors)), '')
    if name.startswith(PROBES):
        kind = kind and PROBE
    layout = HUGGING_FACE if any(THEIRS.match(key) for key in tensors) else META
    if layout == META or kind not in RENAMED:
        return Part(name, kind, layout if kind else META,
                    {key: Stored((value,)) for key, value in tensors.items()}, ignored)
    stored, incomplete = _from_hugging_face(kind, tensors)
    return Part(name, kind, HUGGING_FACE, stored, ignored, incomplete)


def _from_hugging_face(kind: str, tensors: Mapping[str, Tensor]
                       ) -> tuple[dict[str, Stored], tuple[str, ...]]:
    stored: dict[str, Stored] = {}
    split: dict[str, dict[str, tuple[str, Tensor]]] = {}
    for theirs, value in tensors.items():
        key = theirs
        for old, new in RENAMED[kind]:
            key = re.sub(old, new, key)
        match = SPLIT.fullmatch(key)
        if match:
            split.setdefault(f'{match[1]}.qkv.{match[3]}', {})[match[2]] = (theirs, value)
        elif key == 'mask_tokens' and value.ndim > 0 and len(value) <= value.numel():
            stored |= {f'mask_tokens.{i}': Stored((one,)) for i, one in enumerate(value)}
        else:
            stored[key] = Stored((value,))
    incomplete = []
    for key, pieces in split.items():
        have = next(iter(pieces))
        absent = [piece for piece in PIECES if piece not in pieces]
        incomplete += [pieces[have][0].replace(f'.{have}.', f'.{piece}.') for piece in absent]
        if absent:
            continue
        found = [pieces[piece] for piece in PIECES]
        if len({(one.dtype, one.shape[1:]) for _, one in found}) == 1 and found[0][1].ndim:
            stored[key] = Stored(tuple(one for _, one in found))
        else:   # they do not belong together: keep their names
            stored |= {theirs: Stored((one,)) for theirs, one in found}
    return stored, tuple(incomplete)


FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
HEAD_DIM = 32          # of predictors as published
MOST_BLOCKS = 200


def version_of(part: Part) -> str:
    """Return the generation of an encoder."""
    new = ('norms_block.', 'patch_embed_img.', 'video_mod_embed', 'img_mod_embed')
    return '2.1' if any(key.startswith(new) for key in part.stored) else '2.0'


def variant_of(part: Part) -> Variant | None:
    """Return the size of an encoder by its shapes; None for none of `VARIANTS`."""
    found = (_size(part, 'patch_embed.proj.weight', 0), _depth(part, 'blocks'),
             _size(part, 'blocks.0.mlp.fc1.weight', 0))
    return next((v for v in VARIANTS.values() if (v.dim, v.depth, v.mlp) == found), None)


def advice(part: Part) -> str:
    """Say which network the parameters of an encoder belong to."""
    version, variant = version_of(part), variant_of(part)
    if variant is None:
        return (f'The file looks like version {version} and fits none of the sizes '
                f'{", ".join(VARIANTS)}.')
    if not part.incomplete and fits(part):
        return (f"The file fits model size '{variant.name}' version {version}: set `model_size` "
                'to it, or `weights` to another file.')
    return (f"The file is nearest to model size '{variant.name}' version {version}, but is not "
            'exactly that (`vjepa-ros inspect` lists all differences): it is damaged, or its '
            'network was changed.')


def fits(part: Part) -> bool:
    """Return whether a part has exactly the parameters of some network."""
    try:
        return not differences(build(part).state_dict(), part.stored)
    except ValueError:
        return False


def build(part: Part) -> nn.Module:
    """Build the network of a part by its shapes, without memory for its parameters.

    Predictors get the attention heads of the published ones, which shapes do not tell.
    """
    try:
        with torch.device('meta'):
            network = _build(part)
    except (ArithmeticError, LookupError, RuntimeError, TypeError) as error:
        raise ValueError(f'its shapes make no {part.kind}: {str(error).splitlines()[0]}'
                         ) from error
    return network.requires_grad_(False).eval()


def _build(part: Part) -> nn.Module:
    if part.kind == ENCODER:
        variant = variant_of(part)
        if variant is None:
            raise ValueError(advice(part))
        # Only the names of parameters count here.
        return Encoder(variant, version_of(part), int('interval_embed' in part.stored))
    if part.kind in (PREDICTOR, DENSE):
        return _predictor(part)
    raise ValueError(f"parameters of the kind '{part.kind or 'unknown'}' are no network of "
                     'vjepa_ros')


def _predictor(part: Part) -> nn.Module:
    width = _size(part, 'predictor_norm.weight', 0)
    depth = _depth(part, 'predictor_blocks')
    if not width or not depth:
        raise ValueError("a predictor has the parameters 'predictor_norm.weight' and "
                         "'predictor_blocks'")
    heads = max(1, width // HEAD_DIM)     # shapes do not tell
    masks = sum(key.startswith('mask_tokens.') for key in part.stored)
    if part.kind == PREDICTOR:
        return Predictor(_size(part, 'predictor_embed.weight', 1), width, depth, heads, masks)
    out = _size(part, 'predictor_proj.weight', 0)
    if 'predictor_embed.0.weight' not in part.stored:
        return DensePredictor(_size(part, 'predictor_embed.weight', 1), width, depth, heads,
                              masks, out=out)
    dim = _size(part, 'predictor_embed.0.weight', 0)
    levels = _size(part, 'predictor_embed.0.weight', 1) // max(dim, 1)
    return DensePredictor(dim, width, depth, heads, masks, levels, out)


def fill(network: nn.Module, part: Part, misfit: str, name: str) -> None:
    """Copy the parameters of a part into a network that has no memory yet, in float32."""
    want = network.state_dict()
    problem = differences(want, part.stored)
    if problem:
        if part.kind == ENCODER and fits(part):  # of another size: no long lists
            problem = differences(want, part.stored, limit=2)
        absent = f'; absent from the file: {", ".join(part.incomplete[:5])}' * bool(
            part.incomplete)
        raise WeightsError(f'{misfit}: {problem}{absent}. '
                           + (advice(part) if part.kind == ENCODER else 'Get the file anew.'))
    check_numbers(part, name)
    state: dict[str, Tensor] = {}
    broken = []
    for key, stored in part.stored.items():
        state[key] = stored.read(torch.float32)
        if not all(bound.isfinite() for bound in state[key].aminmax()):
            broken.append(key)
    if broken:
        raise WeightsError(f'{name} is damaged: {len(broken)} of its parameters contain NaN or '
                           f'infinity ({", ".join(broken[:5])}); download the file again')
    network.load_state_dict(state, assign=True)
    network.requires_grad_(False)


def check_numbers(part: Part, name: str) -> None:
    """Raise WeightsError when parameters are not floating point numbers, as after quantisation."""
    wrong = [f'{key} {str(one.dtype).removeprefix("torch.")}' for key, one in part.stored.items()
             if one.dtype not in FLOATS]
    if wrong:
        raise WeightsError(f'{name} has parameters of the wrong type ({", ".join(wrong[:5])}); '
                           'get it in float16, bfloat16 or float32')


def _size(part: Part, key: str, axis: int) -> int:
    """One side of a parameter; 0 where it is not there or has no such axis."""
    shape = part.stored[key].shape if key in part.stored else ()
    return shape[axis] if axis < len(shape) else 0


def _depth(part: Part, name: str) -> int:
    """Blocks, by the highest number: one that is missing between others counts.

    More than `MOST_BLOCKS` would take long to build, and no network has them.
    """
    numbers = [int(key[len(name) + 1:].split('.')[0]) for key in part.stored
               if re.match(rf'{re.escape(name)}\.\d+\.', key)]
    return min(max(numbers, default=-1) + 1, MOST_BLOCKS)


FORMAT = 1
RATE = 4.0  # of pre-training and of the action-conditioned model [Hz]
CONVERTED = 'vjepa_ros_checkpoint'  # of the safetensors metadata of converted files
COLLISION_RATE = 8.0  # of the published collision head [Hz]


@dataclass(frozen=True)
class BundleMeta:
    """Description of an encoder with heads, or of heads alone."""

    # variant, version: encoder that the file holds or was trained on
    variant: str
    version: str
    # num_frames, image_size: clips of training: frames, and pixels per side
    num_frames: int
    image_size: int
    resize_mode: str  # how images were brought to that size
    # Shortest and longest time between two frames in training [s]
    interval_s: tuple[float, float]
    # `half_width` and `height` [m] of the volume that `course`, `contact` and `clearance` are
    # about
    robot: dict[str, float]
    # How many times a frame stood in a clip: (1, 2) is each once, or each twice as with a camera
    # at half the rate of the clip
    holds: tuple[int, ...] = (1, 2)
    calibration: Calibration = field(default_factory=Calibration)  # belongs to the heads
    # For heads alone the hash of the FILE of their encoder. For a file with an encoder the hash
    # of its tensors, which `save_bundle` fills in.
    backbone_sha256: str = ''
    has_encoder: bool = False  # whether the encoder is in the file; `save_bundle` fills it in
    # training, metrics: seed, command, hardware; figures on held-out data
    training: dict[str, Any] = field(default_factory=dict)
    metrics: dict[str, Any] = field(default_factory=dict)
    licence: str = 'Apache-2.0'  # of the numbers in the file
    window: int = 0  # tubelets that a tubelet attends to in a block-causal encoder; 0 in others
    # Further ways to bring images to that size that training showed
    other_modes: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Convert to the text in the metadata of a file."""
        calibration = self.calibration.to_json()
        data = {'format': FORMAT, **vars(self), **_edges(calibration), 'calibration': calibration}
        return json.dumps(data, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> BundleMeta:
        """Read what `to_json` wrote; ValueError with the reason for anything else."""
        try:
            data = json.loads(text)
            if data['format'] != FORMAT:
                raise ValueError(f'its format is {data["format"]}, and this version of vjepa_ros '
                                 f'reads format {FORMAT}')
            for name, ours in _edges(data['calibration']).items():
                theirs = data[name]
                if len(theirs) != len(ours) or not all(map(math.isclose, theirs, ours)):
                    raise ValueError(f'its {name} are not those of this version of vjepa_ros')
            return cls._from(data)
        except KeyError as error:
            raise ValueError(f'its description lacks {error}') from error
        except (TypeError, AttributeError, OverflowError, RecursionError,
                json.JSONDecodeError) as error:
            raise ValueError(f'its description is damaged: {error}') from error

    @classmethod
    def _from(cls, data: Mapping[str, Any]) -> BundleMeta:
        shortest, longest = map(float, data['interval_s'])
        return cls(
            str(data['variant']), str(data['version']), int(data['num_frames']),
            int(data['image_size']), str(data['resize_mode']), (shortest, longest),
            {key: float(value) for key, value in data['robot'].items()},
            tuple(map(int, data['holds'])), Calibration.from_json(data['calibration']),
            str(data['backbone_sha256']), bool(data['has_encoder']), dict(data['training']),
            dict(data['metrics']), str(data['licence']), int(data.get('window', 0)),
            tuple(map(str, data.get('other_modes', ()))))


def _edges(heads: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Borders of the bins of the heads that every file has, and of those named."""
    return {f'{spec.name}_edges': spec.kind.bins.edges for spec in HEADS.values()
            if isinstance(spec.kind, Binned) and (not spec.optional or spec.name in heads)}


@dataclass(frozen=True)
class HeadsReport:
    """Where the heads come from."""

    # path, sha256: file and its hash
    path: str
    sha256: str
    meta: BundleMeta  # description of its training; check it before you trust the heads


@dataclass(frozen=True)
class Profile:
    """The clips that weights were trained on.

    Published files do not say; it follows from their layout, and from their published names where
    the same network exists for several sizes.
    """

    resize_mode: str = ''  # 'meta', 'hf' or 'squash'; '' unknown
    image_size: int | None = None  # pixels per side; None unknown
    num_frames: int | None = None  # frames of a clip; None unknown
    clip_fps: float | None = None  # rate [Hz]; None unknown
    window: int = 0  # see `BundleMeta`

    def to_json(self) -> dict[str, str | float | None]:
        """Convert to what a converted file stores."""
        return asdict(self)

    def __str__(self) -> str:
        return ', '.join((
            f'resize mode {self.resize_mode or "unknown"}',
            f'{self.image_size} pixels' if self.image_size else 'size unknown',
            f'{self.num_frames} frames' if self.num_frames else 'frames unknown',
            f'{self.clip_fps:g} Hz' if self.clip_fps else 'rate unknown'))


def profile_of(opened: Opened, parts: list[Part], encoder: Part | None) -> Profile:
    """Return the profile of a checkpoint, as far as it can be known."""
    if KEY in opened.metadata:  # rates are a range there
        try:
            meta = BundleMeta.from_json(opened.metadata[KEY])
        except ValueError as error:
            raise WeightsError(f"file '{opened.path}' cannot be used: {error}; {ANEW}") from error
        return Profile(meta.resize_mode, meta.image_size, meta.num_frames,
                       window=meta.window if meta.has_encoder else 0)
    if CONVERTED in opened.metadata:
        return _kept(opened.metadata[CONVERTED])
    kinds = {part.kind for part in parts}
    if COLLISION in kinds:
        return Profile('squash', 256, 16, COLLISION_RATE)
    if encoder is not None and encoder.layout == HUGGING_FACE:
        size, frames = (_count(opened.config.get(key)) for key in ('crop_size',
                                                                   'frames_per_clip'))
        # Classifiers were trained at a step of frames in videos of other rates.
        tuned = 'Classification' in str(opened.config.get('architectures'))
        return Profile('hf', size, frames, None if tuned else RATE)
    if ACTIONS in kinds:
        return Profile('meta', 256, 8, RATE)
    if encoder is None:
        return Profile()
    size = _published_size(opened.path.name, 'norms_block.0.weight' in encoder.stored)
    return Profile('meta', size, None, RATE)


def _kept(text: str) -> Profile:
    """Return the profile in the metadata of a converted file; empty if unreadable."""
    try:
        found = json.loads(text)['profile']
        return Profile(str(found['resize_mode']), _count(found['image_size']),
                       _count(found['num_frames']),
                       float(found['clip_fps']) if found['clip_fps'] else None,
                       _count(found.get('window')) or 0)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return Profile()


def _published_size(name: str, is_new: bool) -> int | None:
    """Pixels of training by the name of a published file; None for any other name."""
    if is_new:
        return 384 if re.match(r'vjepa2_1_vit\w+_384\.', name) else None
    match = re.match(r'vit[lhg](-384)?\.pth?$', name)
    return (384 if match[1] else 256) if match else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
