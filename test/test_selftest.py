# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The self-test passes where all is right, and fails loudly for each thing that may be wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from vjepa_ros import cli
from vjepa_ros.cli import selftest
from vjepa_ros.cli.selftest import LIMITS, Network, Reference
from vjepa_ros.runtime.model import Model, ModelConfig
from vjepa_ros.runtime.prediction import Prediction
from vjepa_ros.sources import PlayOptions

pytestmark = pytest.mark.usefixtures('one_thread')


@pytest.mark.slow
def test_a_sound_machine_passes_and_the_file_tells_all(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(selftest, 'DRIVE', PlayOptions(rate=4.0, start_s=5.5, max_frames=11))
    out = tmp_path / 'selftest.json'
    assert cli.main(['selftest', '--device', 'cpu', '--json', str(out)]) == 0
    text = out.read_text()
    told = json.loads(text)
    assert told['ok'] is True and told['problems'] == [] and 'fp16' in told['left_out']
    assert {path['path'] for path in told['paths']} >= {'fp32', 'bf16', 'image to assessment'}
    for path in told['paths']:
        assert path['ok'] and path['encode_ms'] > 0
        # A path compared with itself would say nothing.
        assert path['checks'].get('features', {'error': 1})['error'] > 0
    assert 'collision_probability' in told['paths'][-1]['checks']
    for private in (os.uname().nodename, str(tmp_path), str(Path.home())):   # safe to send in
        assert private not in text
    assert 'SELF-TEST PASSED' in capsys.readouterr().out


def reused_buffer(first, newest):
    first[0].features[...] = newest[0].features
    return [Prediction(first[0].features, newest[0].heads), *newest[1:]]


def zero_token(_, newest):
    newest[0].features[0, 0, 0] = 0.0
    return newest


def not_finite(_, newest):
    newest[0].features[0, 0, 0, 0] = np.nan
    return newest


def stale_input(first, newest):
    return first


def mixed_clips(_, newest):
    return newest[::-1]


@pytest.fixture(scope='module')
def reference():
    return Reference(Network('tiny', '2.1', 4, 96), '')     # enough to see whether it is found


@pytest.fixture(scope='module')
def engine():
    return Model.load(ModelConfig(num_frames=4, image_size=96, device='cpu', precision='bf16',
                                  model_version='2.1'))


@pytest.mark.parametrize(('fault', 'check'), [
    (None, ''), (reused_buffer, 'kept'), (stale_input, 'features'), (zero_token, 'worst token'),
    (not_finite, 'features'), (mixed_clips, 'together')])
def test_each_fault_is_found_by_its_check(reference, engine, monkeypatch, fault, check):
    run, outputs = engine.run, []

    def spoiled(clips, **more):
        outputs.append(run(clips, **more))
        return fault(outputs[0], outputs[-1]) if fault else outputs[-1]

    monkeypatch.setattr(engine, 'run', spoiled)
    checks = reference.compare(engine, LIMITS['bf16'])
    wrong = {name for name, (error, limit) in checks.items() if not error <= limit}
    assert check in wrong if check else not wrong


def test_a_device_that_is_not_there_is_no_success(tmp_path, capsys):
    out = tmp_path / 'selftest.json'
    assert cli.main(['selftest', '--device', 'cuda:9', '--json', str(out)]) == 1
    assert 'SELF-TEST NOT DONE' in capsys.readouterr().out
    told = json.loads(out.read_text())
    assert told['ok'] is False and "'cuda:9' is not available" in told['problems'][0]
