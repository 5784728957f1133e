# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Load encoders and heads from weights files, report on them, convert and save them.

A file of this package is safetensors in float16 with tensors called `encoder.*` and `heads.*` and
a description (`BundleMeta`). Heads are checked by hash to be on the encoder of their training.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from vjepa_ros.model.checkpoint.download import located
from vjepa_ros.model.checkpoint.files import (
    Opened,
    WEIGHTS_FOLDER,
    WeightsError,
    file_sha256,
    files_sha256,
    open_weights,
    tensors_sha256,
    under,
    unmap,
)
from vjepa_ros.model.checkpoint.layouts import (
    AUTO,
    BundleMeta,
    CONVERTED,
    DENSE,
    ENCODER,
    HeadsReport,
    KEY,
    LEARNED,
    PREDICTOR,
    Part,
    Profile,
    Stored,
    check_numbers,
    choose_encoder,
    compare,
    differences,
    fill,
    fits,
    matches,
    meta_of,
    not_finite,
    parts_of,
    profile_of,
    variant_of,
    version_of,
    wanted_by,
)
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import Variant, find_variant

log = logging.getLogger(__name__)

RANDOM = 'random'  # asks for random weights where the package brings trained ones
CHECKPOINT = 'checkpoint'  # what errors call the file that a tool is given
KEEP = 'keep'
DTYPES = ('float32', 'float16', 'bfloat16')  # that `convert` writes, beside `KEEP`
INSTEAD = "a file that `vjepa-ros train` wrote, or to '' to run without it"

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class WeightsReport:
    """Where the weights of an encoder come from; path and hash are '' for random ones."""

    path: str
    sha256: str  # of the file
    trained: bool
    dtype: str  # in the file, such as 'float16'; several are joined by '+'
    variant: str
    version: str
    tensors_sha256: str = ''  # '' for files that this package did not write
    heads: HeadsReport | None = None
    part: str = ''  # network of the file that was taken, such as 'target_encoder'
    layout: str = ''  # whose names the file has: 'Meta', 'Hugging Face' or 'vjepa_ros'
    others: tuple[str, ...] = ()  # what else is in the file and was not read
    profile: Profile | None = None  # the clips that the weights were trained on


def bundled_file(variant: str, version: str = AUTO) -> Path | None:
    """Return the file that the package brings for a model size and version, or None."""
    path = WEIGHTS_FOLDER / f'{variant}.safetensors'
    if not path.is_file():
        return None
    meta = read_meta(path)
    return path if version == AUTO or (meta and meta.version == version) else None


def load_encoder(variant: str | Variant, version: str = AUTO, weights: str | Path | None = None,
                 allow_random_weights: bool = False, seed: int = 0,
                 weights_part: str = AUTO) -> tuple[Encoder, WeightsReport]:
    """Build an encoder on the CPU in float32; `weights`: see docs/weights.md."""
    if isinstance(variant, str):
        variant = find_variant(variant)
    wanted_random = str(weights) == RANDOM
    path = weights if weights and not wanted_random else None
    if not weights:
        path = bundled_file(variant.name, version)
    if path:
        return _load_file(variant, version, located(path, 'weights'), weights_part)
    if not allow_random_weights:
        reason = "`weights` is 'random'" if wanted_random else (
            f"no weights are set for the model size '{variant.name}' of version {version} and the "
            'package brings none for it')
        raise WeightsError(f'{reason}; set `weights` to a checkpoint (file, folder or name on '
                           'the Hugging Face hub) or `allow_random_weights: true` to run '
                           'untrained')
    version = '2.0' if version == AUTO else version
    encoder = _empty(variant, version)
    encoder.to_empty(device='cpu').init_random(seed)
    log.warning("model '%s' runs with random weights (seed %d): its features are untrained",
                variant.name, seed)
    return encoder, WeightsReport('', '', False, 'float32', variant.name, version)


def _empty(variant: Variant, version: str, window: int = 0, matching: bool = False) -> Encoder:
    with torch.device('meta'):  # shapes only: nothing is allocated or initialised twice
        encoder = Encoder(variant, version, window, matching)
    return encoder.requires_grad_(False).eval()


def _load_file(variant: Variant, version: str, path: Path, which: str
               ) -> tuple[Encoder, WeightsReport]:
    name = f"weights file '{path}'"
    opened = open_weights(path, 'weights', 'set `weights` to a checkpoint or '
                          '`allow_random_weights: true` to run untrained')
    parts = parts_of(opened, 'weights')
    part = choose_encoder(parts, which, name)
    own_hash = _own_hash(opened, name)
    version = version_of(part) if version == AUTO else version
    profile = profile_of(opened, parts, part, 'weights')
    encoder = _empty(variant, version, profile.window if version == '2.1' else 0, matches(part))
    with ThreadPoolExecutor(1) as worker:  # a large file takes a second of one core
        hashed = worker.submit(files_sha256, opened.files)
        fill(encoder, part, f"{name} does not fit model size '{encoder.variant.name}' version "
             f'{encoder.version}', name)
    others = (*(one.label for one in parts if one is not part and one.kind != LEARNED),
              *opened.others)
    layout = KEY if own_hash else part.layout
    report = WeightsReport(
        str(opened.path), hashed.result(), True, part.dtype, encoder.variant.name, encoder.version,
        own_hash, part=part.label, layout=layout, others=others, profile=profile)
    log.info("loaded model '%s' %s (%s) of '%s' in '%s' (%s), sha256 %s; names begin with '%s'; "
             'made for %s%s', report.variant, report.version, report.dtype, report.part,
             report.path, layout, report.sha256[:16], part.root, profile,
             f'; not used: {", ".join(others)}' if others else '')
    return encoder, report


def _own_hash(opened: Opened, name: str) -> str:
    """Check the hash of the encoder in a file of this package; '' for other files."""
    meta = meta_of(opened, 'weights')
    if meta is None:
        return ''
    tensors = under('encoder.', opened.tensors)
    found = tensors_sha256(tensors)
    for tensor in tensors.values():
        unmap(tensor)
    if found != meta.backbone_sha256:
        raise WeightsError(f'{name} is damaged: its tensors have the hash {found[:16]}…, and it '
                           f'says {meta.backbone_sha256[:16]}…; download it again')
    return found


def write_safetensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a file; an existing one is replaced atomically."""
    from safetensors.torch import save_file

    half_written = path.with_name(path.name + '.part')
    try:
        save_file(tensors, half_written, metadata)
        os.replace(half_written, path)
    finally:
        half_written.unlink(missing_ok=True)


def save_bundle(path: str | Path, meta: BundleMeta, *, encoder: State | None = None,
                heads: State | None = None) -> BundleMeta:
    """Write a weights file in float16; an existing file is replaced atomically."""
    parts = {'encoder.': encoder, 'heads.': heads}
    tensors = {prefix + key: value.detach().to('cpu', torch.float16).contiguous().clone()
               for prefix, state in parts.items() for key, value in (state or {}).items()}
    if not encoder and not heads:
        raise ValueError('there is neither an encoder nor heads to save')
    if broken := not_finite(tensors):
        raise ValueError(f'numbers of {broken} are not finite in float16')
    own = tensors_sha256(under('encoder.', tensors)) if encoder else meta.backbone_sha256
    if not own:
        raise ValueError('heads are saved with the hash of the file of their encoder '
                         '(backbone_sha256)')
    meta = replace(meta, has_encoder=bool(encoder), backbone_sha256=own)
    write_safetensors(Path(path), tensors, {KEY: meta.to_json()})
    return meta


def read_meta(path: str | Path) -> BundleMeta | None:
    """Read the description of a weights file; None if another program wrote the file."""
    return meta_of(open_weights(Path(path), 'weights'), 'weights')


def load_model(variant: str | Variant, version: str = AUTO, weights: str | Path | None = None,
               heads: str | Path | None = None, allow_random_weights: bool = False,
               seed: int = 0, weights_part: str = AUTO
               ) -> tuple[Encoder, Heads | None, WeightsReport]:
    """Build an encoder as `load_encoder` does, and the heads of its file or of another."""
    encoder, report = load_encoder(variant, version, weights, allow_random_weights, seed,
                                   weights_part)
    if not heads and report.tensors_sha256:
        own = open_weights(Path(report.path), 'weights').tensors
        heads = report.path if under('heads.', own) else None
    if not heads:
        return encoder, None, report
    path = Path(heads).expanduser()
    opened = open_weights(path, 'heads', f'set `heads` to {INSTEAD}')
    meta, state = meta_of(opened, 'heads'), under('heads.', opened.tensors)
    if meta is None or not state:
        raise WeightsError(f"heads file '{path}' has no heads; set `heads` to {INSTEAD}")
    _check_backbone(path, meta, report)
    loaded = _build_heads(path, state, encoder.variant)
    log.info("loaded heads for model '%s' from '%s'", meta.variant, path)
    return encoder, loaded, replace(report, heads=HeadsReport(str(path), file_sha256(path), meta))


def _check_backbone(path: Path, meta: BundleMeta, report: WeightsReport) -> None:
    if (meta.variant, meta.version) != (report.variant, report.version):
        raise WeightsError(f"heads file '{path}' was trained on model size '{meta.variant}' "
                           f"version {meta.version}, but `model_size` is '{report.variant}' "
                           f'version {report.version}; set `model_size` to {meta.variant} or '
                           '`heads` to another file')
    if meta.backbone_sha256 in {report.sha256, report.tensors_sha256} - {''}:
        return
    running = f"'{report.path}' (sha256 {report.sha256[:16]}…)" if report.trained else 'random'
    raise WeightsError(f"heads file '{path}' was trained on other weights (sha256 "
                       f'{meta.backbone_sha256[:16]}…) than those that run: {running}; set '
                       '`weights` to the file the heads were trained on, or `heads` to another '
                       'file')


def _build_heads(path: Path, state: State, variant: Variant) -> Heads:
    first = state.get('dense.1.weight')
    width = first.shape[0] if first is not None and first.ndim else None
    try:
        with torch.device('meta'):
            heads = Heads(variant.dim, width)
        problem = differences(heads.state_dict(), state)
        if problem:
            raise ValueError(problem)
    except (ValueError, RuntimeError) as error:
        raise WeightsError(f"heads file '{path}' does not fit model size '{variant.name}': "
                           f'{error}; train the heads again') from error
    found = {key: value.float() for key, value in state.items()}
    if broken := not_finite(found):
        raise WeightsError(f"heads file '{path}' is damaged: there is NaN or infinity in "
                           f'{broken}; train the heads again')
    heads.load_state_dict(found, assign=True)
    return heads.requires_grad_(False).eval()


@dataclass(frozen=True)
class PartReport:
    """One network in a checkpoint, see `Part`."""

    name: str
    kind: str
    layout: str
    dtype: str
    variant: str  # size of an encoder; '' for others, and for a size that is none of ours
    version: str  # generation of an encoder
    keys: int  # tensors that are used
    parameters: int  # numbers in them
    # Parameters that prevent its use
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    mismatched: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()  # parameters that are not needed
    problem: str = ''  # why there is no such network; '' if there is
    wrapper: str = ''  # what the names of its parameters begin with in the file

    @property
    def complete(self) -> bool:
        return not (self.missing or self.unexpected or self.mismatched or self.problem)


@dataclass(frozen=True)
class Contents:
    """The content of a checkpoint."""

    path: str  # file or folder
    size: int  # bytes of its files with tensors
    sha256: str  # hash of its file, or of the names and hashes of several
    parts: tuple[PartReport, ...]  # its networks
    encoder: str  # name of the encoder that is taken by default; '' without one
    others: tuple[str, ...]  # what else is in it
    profile: Profile  # the clips that the weights were trained on, as far as it is known


def _open_parts(path: str | Path) -> tuple[Opened, list[Part], str]:
    """Open a checkpoint and find its networks; the last is what errors call it."""
    opened = open_weights(located(path, CHECKPOINT), CHECKPOINT)
    return opened, parts_of(opened, CHECKPOINT), f"{CHECKPOINT} file '{opened.path}'"


def _encoder_of(parts: list[Part], which: str, name: str) -> Part | None:
    if any(part.kind == ENCODER for part in parts):
        return choose_encoder(parts, which, name)
    return None


def examine(path: str | Path) -> Contents:
    opened, parts, name = _open_parts(path)
    encoder = _encoder_of(parts, AUTO, name)
    known = [part for part in parts if part.kind]
    if not known:
        choose_encoder(parts, AUTO, name)   # raises, and says what is there
    others = (*(part.name for part in parts if not part.kind), *opened.others)
    profile = profile_of(opened, parts, encoder, CHECKPOINT)
    return Contents(str(opened.path), sum(file.stat().st_size for file in opened.files),
                    files_sha256(opened.files), tuple(map(_report, known)),
                    '' if encoder is None else encoder.label, others, profile)


def _report(part: Part) -> PartReport:
    report = PartReport(
        part.label, part.kind, part.layout, part.dtype, '', '', len(part.stored),
        sum(math.prod(one.shape) for one in part.stored.values()), ignored=part.ignored,
        wrapper=part.root)
    if part.kind != ENCODER:
        return report
    variant = variant_of(part)
    report = replace(report, variant=variant.name if variant else '', version=version_of(part))
    try:
        check_numbers(part, 'it')
        missing, unexpected, mismatched = map(tuple, compare(wanted_by(part), part.stored))
    except ValueError as error:
        return replace(report, problem=str(error))
    return replace(report, missing=missing, unexpected=unexpected, mismatched=mismatched)


def convert(source: str | Path, target: str | Path, dtype: str = KEEP,
            weights_part: str = AUTO, encoder_only: bool = False) -> Contents:
    """Write encoder and predictor of a checkpoint again, without the state of training."""
    target = Path(target).expanduser()
    if target.exists():
        raise WeightsError(f"output '{target}' is there already; choose another name "
                           'or remove it')
    if not target.parent.is_dir():
        raise WeightsError(f"output '{target}': the folder '{target.parent}' does not exist; "
                           'create it or choose another')
    opened, parts, name = _open_parts(source)
    encoder = _encoder_of(parts, weights_part, name)
    kinds = () if encoder_only else (PREDICTOR, DENSE)
    kept = {'encoder': encoder, 'predictor': next((p for p in parts if p.kind in kinds), None)}
    about = {'format': 1, 'source': opened.path.name, 'source_sha256': files_sha256(opened.files),
             'profile': asdict(profile_of(opened, parts, encoder, CHECKPOINT))}
    tensors = {}
    for section, part in kept.items():
        if part is None:
            continue
        check_numbers(part, name)
        if part is encoder and not fits(part):
            raise WeightsError(f'{name} has an encoder that is not complete; `vjepa-ros inspect` '
                               'lists what is missing')
        for key, stored in part.stored.items():
            tensors[f'{section}.{key}'] = _cast(stored, dtype, f"'{key}' of the {part.kind}")
    if not tensors:
        raise WeightsError(f'{name} has no encoder or predictor to convert, but: '
                           f'{", ".join(part.label for part in parts)}; give another checkpoint')
    write_safetensors(target, tensors, {CONVERTED: json.dumps(about), 'format': 'pt'})
    return examine(target)


def _cast(stored: Stored, dtype: str, name: str) -> Tensor:
    value = stored.read(stored.dtype if dtype == KEEP else getattr(torch, dtype))
    if not all(bound.isfinite() for bound in value.aminmax()):
        what = 'numbers that are not finite' if dtype == KEEP else f'numbers too large for {dtype}'
        raise WeightsError(f'{name} has {what}; convert to another type, or download the file '
                           'again')
    return value
