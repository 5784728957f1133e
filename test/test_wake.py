# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""A GPU starts in a thread while weights are read; trouble there is met again where it matters."""

import logging
import threading

import pytest
import torch

from vjepa_ros.runtime.cuda import prewarm
from vjepa_ros.runtime.cuda.prewarm import waking


def test_the_thread_is_over_when_the_block_is(monkeypatch):
    begun, ended = threading.Event(), threading.Event()

    def work(device, dtype):
        assert (device, dtype) == (torch.device('cuda:1'), torch.bfloat16)
        begun.wait(10)
        ended.set()

    monkeypatch.setattr(prewarm, '_wake', work)
    with pytest.raises(KeyError), waking(torch.device('cuda:1'), torch.bfloat16):
        assert not ended.is_set()
        begun.set()
        raise KeyError
    assert ended.is_set()


def test_trouble_of_any_kind_ends_no_thread(monkeypatch, caplog):
    def trouble(*args):
        threads.append(threading.current_thread())
        raise AttributeError('no such symbol')

    threads, uncaught = [], []
    monkeypatch.setattr(threading, 'excepthook', uncaught.append)
    monkeypatch.setattr(prewarm.torch.cuda, 'device', trouble)
    with caplog.at_level(logging.DEBUG), waking(torch.device('cuda:0'), torch.bfloat16):
        pass
    assert 'AttributeError: no such symbol' in caplog.text
    assert not uncaught
    assert threads[0].name == 'wake' and threads[0].daemon    # a driver may hang


@pytest.mark.skipif(not torch.cuda.is_available(), reason='no CUDA device here')
def test_a_gpu_starts(caplog):
    with caplog.at_level(logging.DEBUG), waking(torch.device('cuda:0'), torch.float16):
        pass
    assert 'did not start' not in caplog.text
