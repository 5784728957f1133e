# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the queue between the executor and the worker: bounded, newest wins, evenly thinned."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from vjepa_ros.ros.perception_node.frame_queue import Inbox, Waiting

MS = 1_000_000


def item(i: int, period_ms: float = 33.0, size: int = 100, stamped: bool = True) -> Waiting:
    stamp = round((1000 + i * period_ms) * MS)
    return Waiting(i, stamp if stamped else 0, stamp, size)


def fill(inbox: Inbox, count: int, **more) -> Inbox:
    for i in range(count):
        inbox.put(item(i, **more))
    return inbox


def taken(inbox: Inbox, spacing_ms: float = 0.0) -> list[int]:
    return [w.message for w in inbox.take(round(spacing_ms * MS))[0]]


def test_what_is_put_in_comes_out_in_order_and_only_once():
    inbox = fill(Inbox(), 5)
    assert len(inbox) == 5
    assert taken(inbox) == [0, 1, 2, 3, 4]
    assert taken(inbox) == []
    assert inbox.dropped == 0


def test_an_empty_inbox_gives_nothing():
    assert Inbox().take(0) == ([], 0)


@pytest.mark.parametrize('count', [5, 64, 65, 100, 1000])
def test_the_newest_is_never_dropped_and_every_drop_is_counted(count):
    inbox = fill(Inbox(limit=64), count)
    assert len(inbox) <= 64
    assert inbox.dropped == count - len(inbox)
    assert taken(inbox)[-1] == count - 1


def test_a_full_inbox_keeps_the_whole_time_span():
    inbox = fill(Inbox(limit=16), 200)
    got = taken(inbox)
    assert got[-1] == 199
    assert got[0] < 100
    assert sorted(got) == got


def test_bytes_are_bounded_too():
    inbox = fill(Inbox(limit=64, max_bytes=1000), 50, size=300)
    assert sum(w.size for w in inbox.take(0)[0]) <= 1000


def test_one_message_above_the_limit_still_waits():
    inbox = Inbox(max_bytes=10)
    inbox.put(item(0, size=1000))
    inbox.put(item(1, size=1000))
    assert taken(inbox) == [1]


def test_bytes_are_counted_anew_after_take_and_clear():
    inbox = Inbox(max_bytes=1000)
    for empty in (lambda: inbox.take(0), inbox.clear):
        fill(inbox, 3, size=300)
        empty()
        fill(inbox, 3, size=300)
        assert taken(inbox) == [0, 1, 2]
    assert inbox.dropped == 0


def test_messages_closer_than_the_spacing_are_skipped_and_counted():
    kept, skipped = fill(Inbox(), 16, period_ms=33.0).take(50 * MS)
    assert [w.message for w in kept] == [1, 3, 5, 7, 9, 11, 13, 15]
    assert skipped == 8
    steps = np.diff([w.stamp_ns for w in kept]) / MS
    assert steps == pytest.approx([66.0] * 7)


def test_messages_at_the_spacing_are_all_given():
    assert len(taken(fill(Inbox(), 6, period_ms=50.0), 50.0)) == 6


def test_unstamped_messages_are_all_given():
    assert len(taken(fill(Inbox(), 6, stamped=False), 500.0)) == 6


def test_a_jump_back_in_time_is_not_thinned_away():
    inbox = Inbox()
    for i in (100, 101, 102, 0, 1):
        inbox.put(item(i))
    got = taken(inbox, 50.0)
    assert got[-1] == 1
    assert 102 in got or 101 in got


def test_duplicates_reach_the_ring_which_counts_them():
    inbox = Inbox()
    for i in (3, 3, 4):
        inbox.put(item(i))
    assert taken(inbox, 0.0) == [3, 3, 4]


def test_clear_forgets_what_waits():
    inbox = fill(Inbox(), 3)
    inbox.clear()
    assert len(inbox) == 0
    assert taken(inbox) == []


def test_two_threads_lose_nothing():
    inbox, got, count = Inbox(limit=10_000), [], 5000
    writer = threading.Thread(target=fill, args=(inbox, count))
    writer.start()
    while writer.is_alive() or len(inbox):
        got += taken(inbox)
    writer.join()
    assert got == list(range(count))
    assert inbox.dropped == 0
