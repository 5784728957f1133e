# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""The numerics study walks the networks of the node, and low precision costs what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

from vjepa_ros.model.encoder import Encoder
from vjepa_ros.model.variants import Variant
from vjepa_ros.tools import numerics_study
from vjepa_ros.tools.blocks import fill
from vjepa_ros.tools.numerics_study import RECIPES, Recipe, Weights, main, run, video
from vjepa_ros.tools.numerics_table import markdown

pytestmark = pytest.mark.usefixtures('one_thread')

SMALL = Variant('test', 96, 12, 2, 192)
CLIP = video(4, 48)
DTYPES = {'fp32': torch.float32, 'bf16 branches': torch.bfloat16, 'fp16 branches': torch.float16}


@pytest.fixture(scope='module')
def plain():
    return run(Weights(SMALL, '2.0'), CLIP)


@pytest.fixture(scope='module')
def stressed():
    return run(Weights(SMALL, '2.0', stress=True), CLIP)


def encoder_of(weights: Weights) -> Encoder:
    encoder = Encoder(weights.variant, weights.version).eval()
    encoder.patch_embed = weights.patches()
    for number, block in enumerate(weights.blocks()):
        encoder.blocks[number] = block
    if weights.version == '2.0':
        encoder.norm = weights.norm()
    else:
        encoder.norms_block[-1] = weights.norm()
    return encoder


@pytest.mark.parametrize('version', ['2.0', '2.1'])
@pytest.mark.parametrize('name', DTYPES)
def test_a_recipe_of_the_study_is_what_the_session_runs_bit_for_bit(name, version, plain):
    result = plain if version == '2.0' else run(Weights(SMALL, version), CLIP)
    with torch.inference_mode():
        encoder = encoder_of(Weights(SMALL, version))
        encoder.set_branch_precision(DTYPES[name])
        features = encoder(CLIP).flatten(1, 3)
    assert torch.equal(result['features'][name], features)


def test_float32_is_as_exact_as_its_24_bits_allow(plain, stressed):
    for result in (plain, stressed):
        assert 1e-8 < result['found']['fp32'].features < 5e-6


@pytest.mark.parametrize('low', ['bf16', 'fp16'])
@pytest.mark.parametrize('case', ['plain', 'stressed'])
def test_a_low_residual_stream_costs_accuracy_on_top_of_low_branches(low, case, request):
    found = request.getfixturevalue(case)['found']
    branches = found[f'{low} branches']
    assert found[f'{low} branches, residual'].features > 1.1 * branches.features
    assert found[f'{low} branches, residual'].stream[-1] > 1.1 * branches.stream[-1]
    assert found[f'{low} all'].features > 1.1 * branches.features


def test_fp16_keeps_three_more_bits_than_bf16(plain):
    for part in ('branches', 'all', 'norms', 'residual'):
        ratio = (plain['found'][f'bf16 {part}'].features
                 / plain['found'][f'fp16 {part}'].features)
        assert 4 < ratio < 16


def test_loud_channels_are_loud_and_are_left_out_of_the_comparison_of_streams(plain, stressed):
    assert plain['loudest'] < 50 < 100 < stressed['loudest']
    # Were they compared, rounding of the stream would look small beside their size.
    assert stressed['found']['bf16 residual'].stream[-1] > 2e-3


def test_an_overflow_of_fp16_is_counted_and_reported(monkeypatch):
    monkeypatch.setattr(numerics_study, 'OFFSET', 1e5)
    low = next(r for r in RECIPES if r.name == 'fp16 all')
    other = replace(low, name='bf16 all', branches=torch.bfloat16, norms=torch.bfloat16,
                    residual=torch.bfloat16, patches=torch.bfloat16)
    found = run(Weights(SMALL, '2.0', stress=True), CLIP, (low, other))['found']
    assert found['fp16 all'].not_finite > 0
    assert found['bf16 all'].not_finite == 0


def test_the_same_type_everywhere_has_no_error():
    exact = Recipe('again', *[torch.float64] * 4)
    found = run(Weights(SMALL, '2.0'), CLIP, (exact,))['found']['again']
    assert (found.features, found.largest, found.stream) == (0.0, 0.0, [0.0] * SMALL.depth)


def test_the_tables_go_between_the_marks_of_the_document(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(numerics_study, 'find_variant', lambda name: SMALL)
    document, figures = tmp_path / 'numerics.md', tmp_path / 'figures.json'
    document.write_text('Above.\n<!-- numerics:begin -->\nold\n<!-- numerics:end -->\nBelow.\n')
    assert main(['--models', 'test:2.0', '--stress', 'test:2.0', '--size', '32', '--document',
                 str(document), '--json', str(figures)]) == 0
    kept = json.loads(figures.read_text())
    text = document.read_text()
    assert text == fill(text, 'numerics', markdown(kept, kept['rows']))
    assert text.startswith('Above.') and text.endswith('Below.\n') and 'old' not in text
    session = kept['rows'][0]['recipes']['bf16 branches']
    assert f'{100 * session["features"]:.3g} ({100 * session["largest"]:.3g})' in text
    assert [row['stress'] for row in kept['rows']] == [False, True]
    assert 'with loud channels' in text
    assert 'none, in no network and no recipe' in text
    assert '8 tokens' in capsys.readouterr().out


def test_a_row_with_overflow_names_network_and_recipe():
    difference = {'features': float('nan'), 'largest': float('nan'), 'stream': [float('inf')],
                  'not_finite': 7}
    row = {'model': 'test:2.0', 'stress': False, 'loudest': 1.0, 'tokens': 8, 'seconds': 1.0,
           'recipes': {r.name: {**difference, 'not_finite': 7 * (r.name == 'fp16 all')}
                       for r in RECIPES}}
    about = dict.fromkeys(('date', 'cpu', 'logical_cores', 'threads', 'torch', 'command', 'clip'),
                          'x')
    assert 'not a number: test 2.0, fp16 all: 7.' in markdown(about, [row])
