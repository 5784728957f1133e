# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Open weights files of any origin without reading their numbers and without running their code.

Tensors stay in the file, mapped into memory: only those that are copied cost anything, and
`unmap` gives the pages of a tensor back after that. `torch.load` runs no foreign code, but a small
pickle can still cost it minutes or gigabytes, so `check_pickle` follows its instructions first.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import mmap
import pickle
import pickletools
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import torch
from torch import Tensor

from vjepa_ros.model.variants import PATCH, TUBELET

# One file of the package per model size that it brings: <size>.safetensors.
WEIGHTS_FOLDER = Path(__file__).resolve().parents[2] / 'weights'

ANEW = 'download the file again'
KEY = 'vjepa_ros'  # of the safetensors metadata
# Raised by zipfile, torch.load, json, safetensors and the networks for the bytes, names and shapes
# of a damaged or hostile file.
FOREIGN = (ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError,
           OSError, RuntimeError, TypeError, ValueError, pickle.PickleError, struct.error,
           zipfile.BadZipFile, zlib.error)
LISTED = 12  # names in an error: the parameters of one block


class WeightsError(ValueError):
    """Weights are missing, unreadable or made for another network."""


@contextmanager
def foreign(name: str, parameter: str) -> Iterator[None]:
    """Convert any error that the content of a file raises to WeightsError."""
    try:
        yield
    except WeightsError:
        raise
    except OSError as error:
        raise WeightsError(f'{name} cannot be read: {error}; make `{parameter}` a file that '
                           'can') from error
    except FOREIGN as error:
        reason = (str(error).splitlines() or [''])[0][:200]
        raise WeightsError(f'{name} is truncated or damaged: {type(error).__name__}: {reason}; '
                           f'{ANEW}') from error


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin with `prefix`, without it."""
    return {key.removeprefix(prefix): value for key, value in tensors.items()
            if key.startswith(prefix)}


class Shaped(Protocol):
    """A parameter, wherever it is."""

    @property
    def shape(self) -> torch.Size:
        """Its shape."""
        ...


def compare(want: Mapping[str, Shaped], found: Mapping[str, Shaped]
            ) -> tuple[list[str], list[str], list[str]]:
    """Return names that are missing, unexpected, and of a wrong shape with both shapes."""
    return (sorted(want.keys() - found.keys()), sorted(found.keys() - want.keys()),
            sorted(f'{key} {tuple(found[key].shape)} instead of {tuple(want[key].shape)}'
                   for key in want.keys() & found.keys() if found[key].shape != want[key].shape))


def differences(want: Mapping[str, Shaped], found: Mapping[str, Shaped], limit: int = LISTED
                ) -> str:
    """Say why `found` does not fill `want`, with so many names; '' if it does."""
    problems = compare(want, found)
    if not any(problems):
        return ''
    return '; '.join(f'{len(items)} {what}' + _names(items, limit) for what, items
                     in zip(('missing', 'unexpected', 'wrong shape'), problems, strict=True))


def _names(items: list[str], limit: int) -> str:
    more = ', …' if len(items) > limit else ''
    return f' ({", ".join(items[:limit])}{more})' if items else ''


def tensors_sha256(tensors: Mapping[str, Tensor]) -> str:
    """Hash names, types, shapes and numbers of tensors, whatever their order."""
    digest = hashlib.sha256()
    for key, value in sorted(tensors.items()):
        digest.update(f'{key} {value.dtype} {tuple(value.shape)}\n'.encode())
        # Through bytes, because NumPy knows no bfloat16.
        digest.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def files_sha256(files: Sequence[Path]) -> str:
    """Hash one file, or the names and hashes of several."""
    if len(files) == 1:
        return file_sha256(files[0])
    digest = hashlib.sha256()
    for path in files:
        digest.update(f'{file_sha256(path)}  {path.name}\n'.encode())
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Hash a file."""
    digest = hashlib.sha256()
    with path.open('rb') as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


PATCHES = ('patch_embed.proj.weight', 'embeddings.patch_embeddings.proj.weight')
OURS = (3, TUBELET, PATCH, PATCH)       # shape of a patch in these weights
MERGE = 'merge them into their encoder and save that'
TOGETHER = 'give the file of the encoder'

# What tells families apart, first match first: a part of the name of a parameter, what such a file
# is, and what to do; '' to take a checkpoint of V-JEPA 2.
FAMILIES = tuple((re.compile(sign), what, remedy) for sign, what, remedy in (
    (r'(^|[._])lora_|\.(hada|lokr)_', 'adapters (LoRA) of another network', MERGE),
    (r'(^|\.)(vision_model|text_model|visual|visual_projection)\.|(^|\.)logit_scale$',
     'CLIP or SigLIP', ''),
    (r'(^|\.)videomae\.|\.q_bias$|encoder_to_decoder|(^|\.)decoder\.', 'VideoMAE', ''),
    (r'(^|\.)(vivit|timesformer|temporal_attn|temporal_attention)\b', 'ViViT or TimeSformer', ''),
    (r'\.ls[12]\.gamma$|layer_scale[12]|(register|storage)_tokens', 'DINOv2 or DINOv3', ''),
    (r'(^|\.)(cls_token|class_token|class_embedding)$', 'an image transformer (ViT)', ''),
    (r'(embed_tokens|word_embeddings|wte|lm_head)\.', 'a language model', ''),
    (r'(^|\.)(conv1|stem)\.|(^|\.)layer[1-4]\.\d|running_mean$', 'a convolutional network', ''),
    (r'exp_avg|momentum_buffer', 'the state of an optimiser', TOGETHER),
    (r'^((module|model)\.)*(head|fc|classifier|linear)\.',
     'a classifier without its encoder', TOGETHER)))

# Beginnings of files that are no weights.
STARTS = (
    (b'version https://git-lfs', 'a pointer of Git LFS and not the file itself; run `git lfs '
     'pull` where it lies'),
    (b'<', 'a web page, perhaps of an error or a login; download the file itself'),
    (b'{', 'JSON, such as a configuration or a list of shards; give the folder that it lies in'),
    (b'\x1f\x8b', 'a compressed archive; unpack it and give the checkpoint inside'),
    (b'GGUF', 'a GGUF file, which holds language models'),
    (b'\x89HDF', 'an HDF5 file, as Keras writes them'),
    (b'\x93NUMPY', 'an array of NumPy'),
    (b'\x08', 'perhaps an ONNX network; give the checkpoint that it was exported from'))


def family(parameters: Mapping[str, Shaped]) -> tuple[str, str]:
    """Return what network parameters belong to, and what to do; '' where no sign tells."""
    for sign, what, remedy in FAMILIES:
        if any(map(sign.search, parameters)):
            return what, remedy
    for key in PATCHES:
        shape = tuple(parameters[key].shape) if key in parameters else ()
        if len(shape) == 4:
            return 'an image transformer', ''
        if len(shape) == 5 and shape[1:] != OURS:
            return f'a video transformer with patches of {shape[1:]} instead of {OURS}', ''
    return '', ''


def start_of(start: bytes) -> str:
    """Return what a file is by its first bytes, and what to do; '' where they do not tell."""
    if not start:
        return 'empty; download it again'
    text = start.lstrip()
    return next((what for sign, what in STARTS if text.startswith(sign)), '')


MIB = 1 << 20
# A giant checkpoint with two encoders and its optimiser has 0.3 MB, 95 000 instructions and
# 6 000 calls.
MOST_BYTES = 4 * MIB          # also of other descriptions: indices, headers, JSON
MOST_OPCODES = 400_000
MOST_CALLS = 60_000
MOST_COPIED = 3_000_000       # objects that calls take in
MOST_DEPTH = 50
CALLED = re.compile(
    r'collections (OrderedDict|Counter)|(__builtin__|builtins) (set|complex)|_codecs encode'
    r'|torch\._utils _rebuild_(tensor(_v[23])?|parameter(_with_state)?|qtensor)'
    r'|torch(\.storage)? (\w*Storage|Size|device|bool|per_\w+|[bcqu]*(int|float|complex)\w*)')

Cell = list[int]              # weight and depth of an object; a container's grow with it


class CostlyPickle(ValueError):
    """A pickle needs more than a checkpoint does; the message names the resource."""


class ForeignCall(ValueError):
    """A pickle calls a function that no checkpoint needs; the message is its name."""


def check_pickle(data: bytes) -> None:
    """Refuse a pickle that is costly or calls anything but what tensors are made with."""
    if len(data) > MOST_BYTES:
        raise CostlyPickle(f'{len(data) / MIB:.1f} MiB of description, at most '
                           f'{MOST_BYTES // MIB} are read')
    _Walk().run(data)


class _Walk:
    """Follows the instructions of a pickle; `STEPS` has those that `torch.load` knows."""

    def __init__(self) -> None:
        self.stack: list[Cell] = []
        self.marks: list[list[Cell]] = []
        self.memo: dict[int, Cell] = {}
        self.called: set[int] = set()   # ids of cells that are functions or classes
        self.copied = 0
        self.calls = 0

    def run(self, data: bytes) -> None:
        for number, (opcode, value, _) in enumerate(pickletools.genops(data)):
            if number >= MOST_OPCODES:
                raise CostlyPickle(f'more than {MOST_OPCODES} instructions')
            if opcode.name == 'STOP':
                return
            step = STEPS.get(opcode.name)
            if step is None:
                raise ValueError(f'instruction {opcode.name}')
            step(self, value)

    def atom(self, value: object) -> None:
        size = len(value) // 16 if isinstance(value, str | bytes) else 0
        self.stack.append([1 + size, 0])

    def function(self, name: str) -> None:
        if not CALLED.fullmatch(name):
            raise ForeignCall(name.replace(' ', '.', 1))
        cell = [1, 0]
        self.memo[-1 - len(self.called)] = cell   # kept: no other cell gets its id
        self.called.add(id(cell))
        self.stack.append(cell)

    def mark(self, value: object) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def to_mark(self) -> list[Cell]:
        items, self.stack = self.stack, self.marks.pop()
        return items

    def join(self, target: Cell, items: list[Cell]) -> Cell:
        """Put items into a container. Weights end at the limit: shared objects count again."""
        target[0] = min(target[0] + sum(item[0] for item in items), MOST_COPIED + 1)
        target[1] = max(target[1], 1 + max((item[1] for item in items), default=0))
        if target[1] > MOST_DEPTH:
            raise CostlyPickle(f'objects in each other more than {MOST_DEPTH} deep')
        return target

    def tuple(self, value: object) -> None:
        items = self.to_mark()
        self.stack.append(self.join([1, 0], items))

    def few(self, count: int) -> None:
        items = [self.stack.pop() for _ in range(count)]
        self.stack.append(self.join([1, 0], items))

    def append(self, value: object) -> None:
        item = self.stack.pop()
        self.join(self.stack[-1], [item])

    def extend(self, value: object) -> None:
        items = self.to_mark()
        self.join(self.stack[-1], items)

    def set_item(self, value: object) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.put_in([key, value])

    def set_items(self, value: object) -> None:
        self.put_in(self.to_mark())

    def put_in(self, items: list[Cell]) -> None:
        for key in items[::2]:
            self.pay(key[0])      # it is hashed, with all that is in it
        self.join(self.stack[-1], items)

    def call(self, value: object) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if id(function) not in self.called:
            raise ValueError('a call of what is no function')
        self.calls += 1
        self.pay(arguments[0])
        self.stack.append([1 + arguments[0], arguments[1]])

    def build(self, value: object) -> None:
        state = self.stack.pop()
        self.calls += 1
        self.pay(state[0])
        self.join(self.stack[-1], [state])

    def storage(self, value: object) -> None:
        self.calls += 1
        self.pay(self.stack.pop()[0])
        self.stack.append([1, 0])

    def pay(self, weight: int) -> None:
        self.copied += weight
        if self.copied > MOST_COPIED or self.calls > MOST_CALLS:
            raise CostlyPickle(f'more than {MOST_CALLS} calls' if self.calls > MOST_CALLS else
                               'far more copies of objects than a checkpoint')

    def remember(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def recall(self, place: int) -> None:
        self.stack.append(self.memo[place])


Step = Callable[[_Walk, Any], None]
STEPS: dict[str, Step] = {
    'PROTO': lambda walk, value: None, 'GLOBAL': _Walk.function, 'MARK': _Walk.mark,
    'TUPLE': _Walk.tuple, 'REDUCE': _Walk.call, 'BUILD': _Walk.build, 'BINPERSID': _Walk.storage,
    'APPEND': _Walk.append, 'APPENDS': _Walk.extend, 'SETITEM': _Walk.set_item,
    'SETITEMS': _Walk.set_items,
    **dict.fromkeys(('NONE', 'NEWTRUE', 'NEWFALSE', 'EMPTY_TUPLE', 'EMPTY_LIST', 'EMPTY_DICT',
                     'EMPTY_SET', 'BININT', 'BININT1', 'BININT2', 'BINFLOAT', 'BINUNICODE',
                     'SHORT_BINSTRING', 'LONG1'), _Walk.atom),
    **dict.fromkeys(('BINGET', 'LONG_BINGET'), _Walk.recall),
    **dict.fromkeys(('BINPUT', 'LONG_BINPUT'), _Walk.remember),
    **{f'TUPLE{n}': lambda walk, value, n=n: walk.few(n) for n in (1, 2, 3)}}


FLAT = ''  # group of the tensors at the top level of a file
# Names without meaning.
CONTAINERS = ('state_dict', 'model_state_dict', 'model', 'checkpoint', 'net', 'network', 'weights',
              'module', 'params')
PROBES = 'classifiers'  # a list, in the files of released probes
OTHER = 'set it to a V-JEPA checkpoint: .safetensors, .pt or a Hugging Face folder'
MOST_HEADER = MIB  # of safetensors, parsed at one go; a giant encoder has a tenth of that
LONGEST_NAME = 300  # of a tensor; published ones have fewer than 100 characters
SHARED = 4  # times that groups may share the bytes of a file, as encoder and target encoder do
MADV_DONTNEED = 4  # of Linux


@dataclass(frozen=True)
class Opened:
    """Content of a file or folder."""

    path: Path  # what was opened
    files: tuple[Path, ...]  # files that hold its tensors
    # Tensors by name, by the name of their group; `FLAT` where the file has none
    groups: dict[str, dict[str, Tensor]]
    # What else is at the top of the file, such as the state of an optimiser
    others: tuple[str, ...] = ()
    metadata: dict[str, str] = field(default_factory=dict)  # text of a safetensors file
    config: dict[str, Any] = field(default_factory=dict)  # config.json beside the tensors


def open_weights(path: Path, parameter: str, remedy: str = OTHER) -> Opened:
    """Open a file or folder by its content, whatever its name."""
    name = f"{parameter} file '{path}'"
    with foreign(name, parameter):
        opened = _open(path, name, parameter, remedy)
        _check_tensors(opened, name)
    return opened


def _open(path: Path, name: str, parameter: str, remedy: str) -> Opened:
    if path.is_dir():
        return _open_folder(path, parameter)
    if not path.is_file():
        raise WeightsError(f'{name} does not exist; {remedy}')
    with path.open('rb') as file:
        start = file.read(64)
    what = '' if start[8:9] == b'{' else start_of(start)
    shard = re.search(r'-(\d+)-of-(\d+)\.', path.name)
    if shard and int(shard[2]) > 1:
        what = (f'shard {int(shard[1])} of {int(shard[2])}; give the folder with all of them, '
                'their index and config.json')
    if what:
        raise WeightsError(f'{name} is {what}')
    if start.startswith(b'PK\x03\x04'):
        if path.suffix == '.safetensors':   # PyTorch goes by the name
            raise WeightsError(f'{name} is not safetensors, but a file that torch.save wrote; '
                               f"rename it to '{path.stem}.pt'")
        return _open_zip(path, name, parameter)
    if path.suffix == '.safetensors' or start[8:9] == b'{':
        tensors, metadata = read_safetensors(path, name)
        return Opened(path, (path,), {FLAT: tensors}, (), metadata,
                      _config(path.parent, name, required=False))
    if start[:1] == b'\x80' and start[1:2] <= b'\x05':
        raise WeightsError(f'{name} is a bare pickle, which could run any code and is not opened; '
                           'where you trust it, load it with PyTorch and save its tensors with '
                           f'torch.save or safetensors, and set `{parameter}` to that')
    raise WeightsError(f'{name} is not a checkpoint; {_set(parameter)}')


def _check_tensors(opened: Opened, name: str) -> None:
    """Refuse names that take long to work with, and tensors that are larger than their file."""
    there = sum(file.stat().st_size for file in opened.files)
    for tensors in opened.groups.values():
        longest = max(tensors, key=len, default='')
        if len(longest) > LONGEST_NAME:
            raise WeightsError(f'{name} has a tensor with a name of {len(longest)} characters '
                               f"('{longest[:40]}…'), at most {LONGEST_NAME} are read; {ANEW}")
        claimed = sum(one.numel() * one.element_size() for one in tensors.values())
        if claimed > SHARED * there:
            raise WeightsError(f'{name} has {there} bytes, but tensors of {claimed}; {ANEW}')


def _set(parameter: str) -> str:
    return OTHER.replace('it', f'`{parameter}`', 1)


def read_safetensors(path: Path, name: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Map the tensors of one file and read its metadata; `name` is its name in errors."""
    from safetensors import SafetensorError, safe_open

    with path.open('rb') as file:
        header = int.from_bytes(file.read(8), 'little')
    if MOST_HEADER < header < path.stat().st_size:
        raise WeightsError(f'{name} has a header of {header / MIB:.1f} MiB, at most '
                           f'{MOST_HEADER // MIB} is read; {ANEW}')
    try:
        with safe_open(path, framework='pt') as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            return tensors, file.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise WeightsError(f'{name} is not a readable safetensors file: {error}; it is truncated '
                           f'or something else: {ANEW}') from error


class _Bounded(io.FileIO):
    """A file for ZipFile, which reads its list of entries at once, that refuses a long list."""

    def read(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes."""
        if size is not None and size > MOST_BYTES:
            raise CostlyPickle(f'a list of entries of {size / MIB:.1f} MiB, at most '
                               f'{MOST_BYTES // MIB} are read')
        return super().read(size)


def _open_zip(path: Path, name: str, parameter: str) -> Opened:
    anew = ('where you trust it, load it with PyTorch and save its tensors alone with '
            f'torch.save, and set `{parameter}` to that')
    try:
        with _Bounded(path) as file, zipfile.ZipFile(file) as archive:
            inside = archive.infolist()
        names = [entry.filename.lower() for entry in inside]   # PyTorch ignores case
        if any('/code/' in one for one in names):
            raise WeightsError(f'{name} is a network of TorchScript, and not a checkpoint that '
                               f'torch.save wrote; {_set(parameter)}')
        if sum(one.endswith('/data.pkl') for one in names) != 1:
            raise WeightsError(f'{name} is an archive, but not a checkpoint that torch.save wrote '
                               f'({", ".join(names[:3]) or "empty"}); unpack it, and give the '
                               f'checkpoint inside if it has one, or {_set(parameter)}')
        if any(entry.compress_type or (entry.file_size > MOST_BYTES and '/data/' not in
                                       entry.filename) for entry in inside):
            raise CostlyPickle('entries that are compressed or long')
        reader = torch._C.PyTorchFileReader(str(path))  # as torch.load does
        # The stub lacks this method.
        has = reader.has_record('byteorder')  # pyright: ignore[reportAttributeAccessIssue]
        order = reader.get_record('byteorder') if has else b'little'
        if order.decode() != sys.byteorder:
            raise WeightsError(f'{name} was written with the byte order {order[:9]!r}, and this '
                               f"machine has '{sys.byteorder}'; {anew}")
        check_pickle(reader.get_record('data.pkl'))
    except CostlyPickle as error:
        raise WeightsError(f'{name} needs more than a checkpoint does, {error}; {anew}') from error
    except ForeignCall as error:
        raise WeightsError(f"{name} would run code ('{str(error)[:99]}') when it is opened, and "
                           f'is refused; {anew}') from error
    found = torch.load(path, map_location='cpu', mmap=True, weights_only=True)
    groups, others = _groups(found)
    if not groups:
        there = f' (it has {", ".join(map(repr, others[:5]))})' * bool(others)
        optimiser = ', but looks like the state of an optimiser' * any(
            one.startswith(('param_groups', 'opt')) for one in others)
        raise WeightsError(f'{name} has no tensors by name{there}, so it is not a checkpoint of a '
                           f'model{optimiser}; {_set(parameter)}')
    return Opened(path, (path,), groups, others)


def _groups(found: object) -> tuple[dict[str, dict[str, Tensor]], tuple[str, ...]]:
    """Return the groups of tensors in a loaded file, and the names of everything else."""
    groups: dict[str, dict[str, Tensor]] = {}
    others = []
    for name, value in (found.items() if isinstance(found, Mapping) else ()):
        value = _unnested(value)
        if isinstance(value, Tensor):
            groups.setdefault(FLAT, {})[str(name)] = value
        elif _are_tensors(value):
            groups.setdefault(FLAT if name in CONTAINERS else str(name), {}).update(value)
        elif name == PROBES and isinstance(value, list) and all(map(_are_tensors, value)):
            groups |= {f'{PROBES}.{i}': dict(one) for i, one in enumerate(value)}
        else:
            others.append(str(name))
    return groups, tuple(others)


def _unnested(value: object) -> object:
    """Return the tensors by name in groups that lie in each other, or else the value itself."""
    found: dict[str, object] = {}
    if not isinstance(value, Mapping) or not any(isinstance(one, Mapping)
                                                 for one in value.values()):
        return value
    for name, inner in value.items():
        inner = _unnested(inner)
        if isinstance(inner, Tensor):
            found[str(name)] = inner
        elif _are_tensors(inner):
            found |= {key if name in CONTAINERS else f'{name}.{key}': one
                      for key, one in inner.items()}
    return found if any(key.endswith(PATCHES) for key in found) else value


def _are_tensors(value: object) -> TypeGuard[Mapping[str, Tensor]]:
    return isinstance(value, Mapping) and bool(value) and all(
        isinstance(key, str) and isinstance(one, Tensor) for key, one in value.items())


def _open_folder(path: Path, parameter: str) -> Opened:
    name = f"{parameter} folder '{path}'"
    config = _config(path, name, required=True)
    shards = shards_of(path, name)
    tensors: dict[str, Tensor] = {}
    metadata: dict[str, str] = {}
    for shard in shards:
        if not (path / shard).is_file():
            raise WeightsError(f"{name} lacks '{shard}'; get it complete, or "
                               f'{_instead_of(path)}')
        some, text = read_safetensors(path / shard, f"{parameter} file '{path / shard}'")
        tensors |= some
        metadata |= text
    return Opened(path, tuple(path / shard for shard in shards), {FLAT: tensors}, (), metadata,
                  config)


def shards_of(folder: Path, name: str) -> list[str]:
    """List the safetensors files of a model, by its index where it has one."""
    index = folder / 'model.safetensors.index.json'
    if (folder / 'model.safetensors').is_file() or not index.is_file():
        return ['model.safetensors']
    listed = _json(index, name).get('weight_map')
    if not isinstance(listed, dict) or not listed or not all(
            isinstance(one, str) and Path(one).name == one for one in listed.values()):
        raise WeightsError(f"{name}: '{index.name}' does not list files of the folder; {ANEW}")
    return sorted(set(listed.values()))


def _config(folder: Path, name: str, required: bool) -> dict[str, Any]:
    path = folder / 'config.json'
    if not path.is_file():
        if required:
            raise WeightsError(f'{name} has no config.json; {_instead_of(folder)}')
        return {}
    config = _json(path, name) if required else _json_or_nothing(path)
    if config.get('model_type') == 'vjepa2':
        return config
    if required:
        raise WeightsError(f"{name} holds a model of the type '{config.get('model_type', '')}' "
                           f"({config.get('architectures') or 'no architecture is named'}), not "
                           "'vjepa2'; set it to a V-JEPA 2 folder")
    return {}


def _instead_of(folder: Path) -> str:
    """Say what to give instead of a folder that is not one of a model."""
    if (folder / 'adapter_config.json').is_file():
        return ('it holds adapters (LoRA) and not the encoder: merge them into their encoder and '
                'save that')
    there = sorted(one.name for one in folder.iterdir()
                   if one.suffix in ('.safetensors', '.pt', '.pth', '.bin', '.tar'))
    return (f'set it to a file in it: {", ".join(map(repr, there[:5]))}' if there else
            f'{ANEW}, complete')


def _json(path: Path, name: str) -> dict[str, Any]:
    size = path.stat().st_size
    if size > MOST_BYTES:
        raise WeightsError(f"{name}: '{path.name}' has {size / MIB:.1f} MiB, at most "
                           f'{MOST_BYTES // MIB} are read; {ANEW}')
    try:
        found = json.loads(path.read_text(encoding='utf-8'))
    except (ValueError, RecursionError) as error:  # what is no text or no JSON, or nested too deep
        raise WeightsError(f"{name}: '{path.name}' is not JSON: {error}; {ANEW}") from error
    if not isinstance(found, dict):
        raise WeightsError(f"{name}: '{path.name}' is not an object of JSON; {ANEW}")
    return found


def _json_or_nothing(path: Path) -> dict[str, Any]:
    """Read a config.json that may not belong to the file beside it."""
    try:
        return _json(path, str(path))
    except WeightsError:
        return {}


def unmap(tensor: Tensor) -> None:
    """Release the memory of a tensor of an `Opened`; it is read again when needed.

    The pages came from the file and were never written to, so nothing is lost. Never call this
    with any other tensor. Linux only; no effect elsewhere.
    """
    if sys.platform != 'linux' or not tensor.is_contiguous():
        return
    start = tensor.data_ptr()
    end = start + tensor.numel() * tensor.element_size()
    start = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    end = end // mmap.PAGESIZE * mmap.PAGESIZE
    if end > start:
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), MADV_DONTNEED)


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
