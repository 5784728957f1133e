# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The exported graph computes what the session computes; missing packages are named."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from golden.cases import fill

from vjepa_ros import cli
from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.head_specs import Calibration
from vjepa_ros.model.heads import Heads
from vjepa_ros.model.variants import BACK_S, MOST_WINDOW, TAPS, Variant
from vjepa_ros.runtime import onnx

pytestmark = pytest.mark.usefixtures('one_thread')

SIZE = Variant('test', 96, 2, 2, 384)
CALIBRATION = Calibration({'contact': (1.3, 0.2), 'moving': (1.1, 0.1),
                           'course': (0.9, -0.2), 'expansion': (1.2,), 'clearance': (0.8, 0.1)})


@pytest.fixture
def runtime():
    try:
        return onnx.packages()['onnxruntime']
    except onnx.ExportError as error:
        pytest.skip(str(error))


def test_onnxruntime_computes_the_same_from_the_file(tmp_path, runtime):
    whole = onnx.ClipGraph(fill(Encoder(SIZE)), fill(Heads(96, 64)), CALIBRATION)
    done = onnx.export(whole, tmp_path / 'new' / 'graph.onnx', 4, 32, clips=2)
    assert done.inputs == {'pixels': (2, 4, 32, 32, 3)}
    assert done.outputs['features'] == (2, 2, 2, 2, 96)
    assert len(done.outputs) == 7
    assert [file.name for file in (tmp_path / 'new').iterdir()] == ['graph.onnx']
    clips = np.random.default_rng(1).integers(0, 256, (2, 4, 32, 32, 3), dtype=np.uint8)
    found = runtime.InferenceSession(str(done.files[0])).run(None, {'pixels': clips})
    with torch.inference_mode():
        wanted = whole(torch.from_numpy(clips))
    for got, exact in zip(found, wanted, strict=True):
        assert onnx.deviation(got, exact.numpy()) < onnx.TOLERANCE


W = MOST_WINDOW


@pytest.mark.usefixtures('runtime')
@pytest.mark.parametrize('matching', [False, True])
def test_the_loop_of_the_manual_gives_what_the_whole_stream_gives(tmp_path, monkeypatch,
                                                                  matching):
    # Few blocks: those of a network that exists take ten seconds more to export.
    monkeypatch.setitem(TAPS, 4, (0, 1, 2, 3))
    causal = Encoder(Variant('test', 48, 4, 2, 96), '2.1', W, matching)
    graph = onnx.StreamGraph(fill(causal), fill(Heads(48, 64)), CALIBRATION)
    file = tmp_path / 'step.onnx'
    onnx.export(graph, file, 2 * W, 32)
    page = (Path(__file__).parents[1] / 'docs' / 'export.md').read_text(encoding='utf-8')
    loop, names = re.findall(r'```python\n(.*?)```', page, re.DOTALL)[0], {}
    exec(loop.replace('step.onnx', str(file)), names)
    random = np.random.default_rng(0)
    ends = 1e6 + BACK_S[0] * np.arange(8) + random.uniform(-0.01, 0.01, 8)
    stamps = np.stack((ends - random.uniform(0.06, 0.075, 8), ends), 1).flatten()
    pictures = random.integers(0, 256, (16, 32, 32, 3), dtype=np.uint8)
    found = [names['step'](stamp, picture)
             for stamp, picture in zip(stamps, pictures, strict=True)]
    # Frames of odd number end the tubelets of one clip.
    assert [one is not None for one in found[1::2]] == [False] * (W - 1) + [True] * (9 - W)
    with torch.inference_mode():
        times = graph.encoder.times(torch.from_numpy(stamps)[None])
        whole = graph.encoder(graph._clip(torch.from_numpy(pictures)[None]), times=times)
        for at in range(2 * W - 1, 16, 2):
            seen = whole[:, :at // 2 + 1]
            wanted = zip(graph.names, (seen[:, -1:], *graph._answers(seen[:, -W:])), strict=False)
            for name, exact in wanted:
                assert onnx.deviation(found[at][name], exact.numpy()) < onnx.TOLERANCE, name


def test_missing_packages_are_named_with_the_remedy(monkeypatch, tmp_path, capsys):
    for name in ('onnx', 'onnxscript', 'onnxruntime'):
        monkeypatch.setitem(sys.modules, name, None if name == 'onnxruntime' else json)
    assert cli.main(['export', str(tmp_path / 'x.onnx')]) == 1
    text = capsys.readouterr().err
    assert text.startswith('onnxruntime cannot be imported')
    assert 'pip install' in text
    assert not list(tmp_path.iterdir())
