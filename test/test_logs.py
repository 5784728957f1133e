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


@pytest.mark.parametrize('work', [
    lambda: (_ for _ in ()).throw(WeightsError('no file')),
    lambda: choose_device('cuda:63', True, 'auto'),
    lambda: open_source('/nowhere/at.all'),
    lambda: find_variant('enormous')])
def test_an_expected_error_is_one_line_and_its_traceback_a_matter_of_debugging(work):
    log = told(work)
    [text] = log.errors
    assert text.startswith('it failed: ') and 'Traceback' not in text
    assert 'Traceback' in log.details[0] and text in log.details[0]


@pytest.mark.parametrize('work', [lambda: np.zeros(3).reshape(2, 2), lambda: int('three'),
                                  lambda: None.missing])
def test_an_unexpected_error_keeps_its_traceback(work):
    log = told(work)
    assert 'Traceback' in log.errors[0]
    assert log.details == []
