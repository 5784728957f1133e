# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Load a predictor of twists, put one into the file of its encoder, and refuse any other.

A predictor reads the features of one encoder, so it belongs to it, by the hash of its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from vjepa_ros.model.checkpoint.files import (
    WEIGHTS_FOLDER,
    WeightsError,
    tensors_sha256,
    under,
)
from vjepa_ros.model.checkpoint.layouts import TWISTS, parts_of
from vjepa_ros.model.checkpoint.load import (
    RANDOM,
    WeightsReport,
    bundled_file,
    load_model,
    save_bundle,
)
from vjepa_ros.model.checkpoint.metadata import BundleMeta, KEY
from vjepa_ros.model.checkpoint.networks import build, fill
from vjepa_ros.model.checkpoint.readers import FLAT, open_weights
from vjepa_ros.model.twist_predictor import TwistPredictor


@dataclass(frozen=True)
class TwistModel:
    """A predictor of twists with what it reads.

    Attributes
    ----------
    predictor : TwistPredictor
        On the CPU in float32.
    meta : BundleMeta
        Description of the file of the encoder, with `twists` of the predictor.
    report : WeightsReport
        Of the encoder whose features it reads.

    """

    predictor: TwistPredictor
    meta: BundleMeta
    report: WeightsReport


def has_twists(model_size: str = 'tiny', weights: str | Path = '') -> bool:
    """Return whether a weights file brings a predictor of twists ('': the bundled one).

    Raises
    ------
    WeightsError
        When the file cannot be read.
    """
    path = weights or bundled_file(model_size)
    if not path or path == RANDOM:
        return False
    return any(one.kind == TWISTS for one in parts_of(open_weights(Path(path), 'weights'),
                                                      'weights'))


def load_twists(model_size: str = 'tiny', weights: str | Path = '', predictor: str | Path = ''
                ) -> TwistModel:
    """Load a predictor of twists for an encoder.

    Parameters
    ----------
    model_size : str
        Row of `VARIANTS` of the encoder.
    weights : str or Path
        File with encoder and heads; '' takes the bundled one.
    predictor : str or Path
        File with the predictor; '' takes that in `weights`, and that of the package beside the
        bundled ones, which have none.

    Raises
    ------
    WeightsError
        If there is no predictor, or it belongs to another encoder.

    """
    path = weights or bundled_file(model_size)
    if not path:
        raise WeightsError(f"the package brings no weights for the model size '{model_size}'; "
                           'set `weights` to a file with encoder, heads and twist predictor')
    _, heads, report = load_model(model_size, weights=path)
    if heads is None or report.heads is None:
        raise WeightsError(f"weights file '{path}' has no heads, with which twist predictors are "
                           'made; set `weights` to a file that has')
    meta = report.heads.meta
    own = report.tensors_sha256
    predictor = predictor or (path if weights else WEIGHTS_FOLDER / 'tiny_twists.safetensors')
    opened = open_weights(Path(predictor), 'predictor')
    part = next((one for one in parts_of(opened, 'predictor') if one.kind == TWISTS), None)
    if part is None:
        raise WeightsError(f"file '{predictor}' has no twist predictor; set "
                           '`predictor` to a file that has, or `weights` to one that brings it '
                           '(`vjepa-ros inspect` shows what a file has)')
    try:
        about = BundleMeta.from_json(opened.metadata[KEY]).twists
        belongs = str(about['belongs_to'])
    except (KeyError, ValueError) as error:
        raise WeightsError(f"file '{opened.path}' does not say to which encoder its twist "
                           f'predictor belongs ({error}); get it anew') from error
    if belongs != own:
        raise WeightsError(f"the twist predictor in '{opened.path}' belongs to other weights "
                           f"(sha256 {belongs[:16]}…) than '{path}' (sha256 {own[:16]}…); set "
                           '`weights` to those it was trained on, or `predictor` to another file')
    name = f"file '{opened.path}'"
    try:
        network = build(part)
    except ValueError as error:
        raise WeightsError(f'{name}: {error}; get it anew') from error
    assert isinstance(network, TwistPredictor)
    fill(network, part, f'{name} has a twist predictor that is not complete', name)
    return TwistModel(network, replace(meta, twists=about), report)


def save_twists(path: str | Path, weights: str | Path, state: Mapping[str, Tensor],
                about: Mapping[str, Any], alone: bool = False) -> BundleMeta:
    """Write a predictor of twists, with its encoder and the heads of that, or alone.

    Parameters
    ----------
    path : str or Path
        The file; it may be `weights`.
    weights : str or Path
        File with the encoder and heads.
    state : mapping of str to Tensor
        Of a `TwistPredictor`.
    about : mapping
        `training` and `metrics`, see `BundleMeta.twists`.
    alone : bool
        Leave encoder and heads out.

    Raises
    ------
    WeightsError
        When `weights` is unreadable or no file of this package.

    """
    opened = open_weights(Path(weights), 'weights')
    if KEY not in opened.metadata:
        raise WeightsError(f"weights file '{weights}' is no file of this package; set `weights` "
                           'to one with encoder and heads')
    tensors = opened.groups[FLAT]
    meta = replace(BundleMeta.from_json(opened.metadata[KEY]), twists={
        **about, 'belongs_to': tensors_sha256(under('encoder.', tensors))})
    if alone:
        return save_bundle(path, meta, twists=state)
    copies = {key: value.clone() for key, value in tensors.items()}    # the file may be replaced
    return save_bundle(path, meta, encoder=under('encoder.', copies),
                       heads=under('heads.', copies), twists=state)
