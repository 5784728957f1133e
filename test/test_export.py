# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The exported graph computes what the session computes; missing packages are named."""

import json
import sys

import numpy as np
import pytest
import torch
from golden.cases import fill

from vjepa_ros.cli import main as cli
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import Variant
from vjepa_ros.runtime import onnx

pytestmark = pytest.mark.usefixtures('one_thread')

SIZE = Variant('test', 96, 2, 2, 384)
CALIBRATION = Calibration({'contact': (1.3, 0.2), 'moving': (1.1, 0.1),
                           'course': (0.9, -0.2), 'expansion': (1.2,), 'clearance': (0.8, 0.1)})


def clips(count=2):
    return np.random.default_rng(1).integers(0, 256, (count, 4, 32, 32, 3), dtype=np.uint8)


def graph(heads=True):
    return onnx.Graph(fill(Encoder(SIZE)), fill(Heads(96, 64)) if heads else None, CALIBRATION)


@pytest.mark.parametrize('heads', [True, False])
def test_onnxruntime_computes_the_same_from_the_file(heads, tmp_path):
    try:
        runtime = onnx.packages()['onnxruntime']
    except onnx.ExportError as error:
        pytest.skip(str(error))
    whole = graph(heads)
    done = onnx.export(whole, tmp_path / 'new' / 'graph.onnx', 4, 32, clips=2)
    assert done.inputs == {'pixels': (2, 4, 32, 32, 3)}
    assert done.outputs['features'] == (2, 2, 2, 2, 96)
    assert len(done.outputs) == (7 if heads else 1)
    assert [file.name for file in (tmp_path / 'new').iterdir()] == ['graph.onnx']
    found = runtime.InferenceSession(str(done.files[0])).run(None, {'pixels': clips()})
    with torch.inference_mode():
        wanted = whole(torch.from_numpy(clips()))
    for got, exact in zip(found, wanted, strict=True):
        assert onnx.deviation(got, exact.numpy()) < onnx.TOLERANCE


def test_missing_packages_are_named_with_the_remedy(monkeypatch, tmp_path, capsys):
    for name in ('onnx', 'onnxscript', 'onnxruntime'):
        monkeypatch.setitem(sys.modules, name, None if name == 'onnxruntime' else json)
    assert cli.main(['export', str(tmp_path / 'x.onnx')]) == 1
    text = capsys.readouterr().err
    assert text.startswith('onnxruntime cannot be imported')
    assert 'pip install' in text
    assert not list(tmp_path.iterdir())
