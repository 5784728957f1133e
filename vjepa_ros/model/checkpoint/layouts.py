# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Recognise the parts of a checkpoint, and translate the names of their parameters.

The networks of this package use the names of Meta's published files. The transformers library
has names of its own, and keeps query, key and value apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.files import KEY, WeightsError, foreign
from vjepa_ros.model.checkpoint.readers import FLAT, Opened, PROBES, unmap
from vjepa_ros.model.checkpoint.strangers import PATCHES, family

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
HEADS = 'heads'
ADAPTERS = 'adapters'
PREDICTORS = (PREDICTOR, DENSE, ACTIONS)
# Names that groups of tensors have in the files of this package: kind -> first part of a name.
SECTIONS = {ENCODER: 'encoder', PREDICTOR: 'predictor', DENSE: 'predictor', ACTIONS: 'predictor',
            PROBE: 'probe', COLLISION: 'collision', HEADS: 'heads', ADAPTERS: 'adapters'}
# Kinds that the name of their group alone tells.
NAMED = {SECTIONS[kind]: kind for kind in (HEADS, ADAPTERS)}

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
            raise WeightsError(f"{name} has no '{which}'{there}; set `weights_part` to "
                               f"{'one of these or to ' * any(found)}'auto'")
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


def to_hugging_face(kind: str, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the parameters of an encoder or predictor as the transformers library does.

    Query, key and value are views of ours, not copies.
    """
    named: dict[str, Tensor] = {}
    masks = [key for key in state if key.startswith('mask_tokens.')]
    if masks:
        named['embeddings.mask_tokens'] = torch.stack([state[f'mask_tokens.{i}']
                                                       for i in range(len(masks))])
    back = {ENCODER: ((r'^patch_embed\.', 'embeddings.patch_embeddings.'), (r'^norm\.',
                      'layernorm.'), (r'^blocks\.', 'layer.'), (r'\.attn\.', '.attention.')),
            PREDICTOR: ((r'^predictor_embed\.', 'embeddings.predictor_embeddings.'),
                        (r'^predictor_norm\.', 'layernorm.'), (r'^predictor_proj\.', 'proj.'),
                        (r'^predictor_blocks\.', 'layer.'), (r'\.attn\.', '.attention.'))}[kind]
    for ours, value in state.items():
        if ours in masks:
            continue
        key = ours
        for old, new in back:
            key = re.sub(old, new, key)
        if '.qkv.' in key:
            for part, piece in zip(PIECES, value.chunk(3), strict=True):
                named[key.replace('.qkv.', f'.{part}.')] = piece
        else:
            named[key] = value
    return named
