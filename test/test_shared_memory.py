# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A process that replaces a killed one is not kept waiting by what that left in shared memory."""

from __future__ import annotations

import fcntl

import pytest

pytest.importorskip('rclpy')


from vjepa_ros.ros.common import environment
from vjepa_ros.ros.common.environment import NETWORK_ONLY, avoiding_abandoned_queues

pytestmark = pytest.mark.ros


@pytest.mark.parametrize(('environ', 'expected'), [
    ({}, ['fastdds_port7001', 'fastdds_port7411', 'fastrtps_port7413']),
    ({'ROS_DOMAIN_ID': '4', 'FASTDDS_BUILTIN_TRANSPORTS': 'SHM'},
     ['fastdds_port7001', 'fastdds_port8411']),
    ({'ROS_DOMAIN_ID': 'four'}, []), ({'FASTDDS_BUILTIN_TRANSPORTS': NETWORK_ONLY}, [])])
def test_queues_that_are_written_to_but_not_read_are_avoided(
        tmp_path, monkeypatch, environ, expected):
    monkeypatch.setattr(environment, 'FOLDER', tmp_path)
    for process, names in (('12', ['fastdds_port7411', 'fastdds_port7415', 'fastdds_port7001']),
                           ('34', ['fastdds_port7411', 'fastrtps_port7413 (deleted)', 'fastdds_a7',
                                   'fastdds_port8411'])):
        (tmp_path / process).mkdir()
        (tmp_path / process / 'maps').write_text(''.join(
            f'7f00-7f01 rw-s 00000000 00:17 9    /dev/shm/{name}\n' for name in names))
    (tmp_path / '56').mkdir()                             # has ended
    with open(tmp_path / 'fastdds_port7415_el', 'w') as reader:
        fcntl.flock(reader, fcntl.LOCK_EX)
        with avoiding_abandoned_queues(environ, tmp_path) as avoided:
            assert avoided == expected
            for name in expected:
                with open(tmp_path / f'{name}_el') as other, pytest.raises(BlockingIOError):
                    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for name in expected:                                 # no longer than the block lasts
        with open(tmp_path / f'{name}_el') as other:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
