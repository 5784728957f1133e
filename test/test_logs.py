# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that an error is told in words where it is expected, and with its traceback where not."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip('rclpy')

from vjepa_ros.model.checkpoint.files import WeightsError
from vjepa_ros.model.variants import find_variant
from vjepa_ros.ros.common.logs import tell_error
from vjepa_ros.runtime.device import choose_device
from vjepa_ros.sources.opening import open_source

pytestmark = pytest.mark.ros


class Log:
    """A logger that keeps what it is told."""

    def __init__(self) -> None:
        self.errors, self.details = [], []
        self.error, self.debug = self.errors.append, self.details.append


def told(work) -> Log:
    log = Log()
    try:
        work()
    except Exception as error:
        tell_error(log, f'it failed: {error}', error)
    return log


EXPECTED = {
    'weights': (lambda: (_ for _ in ()).throw(WeightsError('no file'))),
    'device': lambda: choose_device('cuda:63', True, 'auto'),
    'source': lambda: open_source('/nowhere/at.all'),
    'value': lambda: find_variant('enormous'),
}
UNEXPECTED = {
    'value of a library': lambda: np.zeros(3).reshape(2, 2),
    'value of Python': lambda: int('three'),
    'attribute': lambda: None.missing,
    'runtime': (lambda: (_ for _ in ()).throw(RuntimeError('lost'))),
}


@pytest.mark.parametrize('kind', EXPECTED)
def test_an_expected_error_is_one_line_and_its_traceback_a_matter_of_debugging(kind):
    log = told(EXPECTED[kind])
    [text] = log.errors
    assert text.startswith('it failed: ') and 'Traceback' not in text
    assert len(text.splitlines()) <= 2
    assert 'Traceback' in log.details[0] and text in log.details[0]


@pytest.mark.parametrize('kind', UNEXPECTED)
def test_an_unexpected_error_keeps_its_traceback(kind):
    log = told(UNEXPECTED[kind])
    assert 'Traceback' in log.errors[0]
    assert log.details == []
