# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Heads compute what they say and start sensibly."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from sessions import lively_heads

from vjepa_ros.model.head_specs import CONTACT, Calibration

pytestmark = pytest.mark.usefixtures('one_thread')
DIM = 48


def features(seed=1, shape=(2, 3, 4, 5, DIM)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def test_what_follows_from_the_weights_alone_changes_nothing_when_it_is_computed_once():
    heads, seen = lively_heads(), features()
    with torch.no_grad():
        exact = vars(heads(seen))
        names = set(heads.state_dict())
        fixed = vars(heads.fix()(seen))
        assert set(heads.state_dict()) == names         # a file would have nothing more
    assert all(torch.equal(fixed[name], wanted) for name, wanted in exact.items())


def test_dense_heads_look_at_their_own_patch_of_the_newest_two_tubelets():
    heads, x = lively_heads(DIM), features()
    before = heads(x)
    for tubelet, seen in ((0, False), (1, True), (2, True)):
        moved = x.clone()
        moved[:, tubelet, 3, 4] += torch.linspace(-1, 1, DIM)
        after = heads(moved)
        for name in ('expansion', 'log_scale', 'moving', 'course'):
            changed = getattr(after, name) != getattr(before, name)
            assert changed[:, 3, 4].all() == seen
            changed[:, 3, 4] = False
            assert not changed.any()
        assert not torch.equal(after.contact, before.contact)  # pooling sees all of them


def test_heads_compute_in_float32_where_training_uses_half():
    heads, x = lively_heads(DIM), features()
    exact = heads(x)
    with torch.autocast('cpu', torch.bfloat16):
        same = heads(x)
    for name, value in vars(exact).items():
        assert torch.equal(getattr(same, name), value), name
    assert heads(x.half()).expansion.dtype == torch.float32


def test_times_fall_into_the_bin_whose_edges_enclose_them():
    between = [math.sqrt(a * b) for a, b in pairwise(CONTACT.edges)]
    assert CONTACT.index(torch.tensor(between)).tolist() == list(range(CONTACT.count))
    outside = torch.tensor([[0.0, 0.1], [130.0, math.inf]])
    assert CONTACT.index(outside).tolist() == [[0, 0], [20, 20]]


CALIBRATION = Calibration({'contact': (2.0, 0.7), 'moving': (1.5, -0.25), 'course': (0.5, 1.0),
                           'expansion': (3.0,), 'clearance': (0.8, -0.4)})


def test_calibration_changes_what_it_names_and_nothing_else():
    raw = lively_heads(DIM)(features())
    out = CALIBRATION.apply(raw)
    assert torch.equal(out.expansion, raw.expansion)
    torch.testing.assert_close(out.log_scale.exp(), 3.0 * raw.log_scale.exp())
    torch.testing.assert_close(out.moving, 1.5 * raw.moving - 0.25)
    torch.testing.assert_close(out.course, 0.5 * raw.course + 1.0)
    torch.testing.assert_close(out.contact[:, :-1], raw.contact[:, :-1] / 2)
    torch.testing.assert_close(out.contact[:, -1], raw.contact[:, -1] / 2 + 0.7)
    torch.testing.assert_close(out.clearance[:, :-1], raw.clearance[:, :-1] / 0.8)
    torch.testing.assert_close(out.clearance[:, -1], raw.clearance[:, -1] / 0.8 - 0.4)


@pytest.mark.parametrize('change', [
    {'contact': (0.0, 0.0)}, {'course': (1.0, math.inf)}, {'contact': (1.0,)}])
def test_an_impossible_calibration_is_refused(change):
    with pytest.raises(ValueError, match='calibration'):
        Calibration(change)
