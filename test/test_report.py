# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tests of the report of a run."""

from __future__ import annotations

import base64
import json
import math
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pytest

from vjepa_ros.lab.report.live_view import Status
from vjepa_ros.lab.report.report import write_outputs
from vjepa_ros.perception.types import Assessment, Level, Quality

NAN, INF = math.nan, math.inf
S = 10**9
FACTS = {'command': 'vjepa-ros watch x', 'configuration': {}, 'notes': []}


def run(*pairs: tuple[float, float], level: Level = Level.CAUTION) -> Status:
    """A run of estimates of the time to contact with their truth [s]."""
    status = Status('demo', 'a video', model='tiny', device='cpu', trained=False)
    for number, (estimate, truth) in enumerate(pairs):
        stamp = 10**18 + number * S // 10
        if not math.isnan(truth):
            status.truth[stamp] = truth
        status.add(Assessment('camera', stamp, '', 0.4, 0.3, 0.7, estimate, 1 / estimate, -0.1,
                              0.0, level, Quality.UNTRAINED | Quality.LOW_TEXTURE,
                              timings={'encode': 50.0}, latency_ms=10.0 * number))
    status.begin_ns, status.frames_in = 10**18 - S, 50
    return status


def summary(folder: Path) -> dict:
    def refuse(word: str):
        raise AssertionError(f'{word} is not JSON')
    return json.loads((folder / 'summary.json').read_text(), parse_constant=refuse)


class Page(HTMLParser):
    """Collects what a page refers to and what it says."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.links, self.words, self.tags = [], [], []
        self.feed((folder / 'report.html').read_text(encoding='utf-8'))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ('src', 'href')]

    def handle_data(self, data):
        self.words.append(data)


def test_the_summary_has_the_promised_numbers(tmp_path):
    status = run(*[(2.2, 2.0)] * 5)
    write_outputs(tmp_path / 'new', status, [], FACTS)
    found = summary(tmp_path / 'new')
    promised = {'frames_in': 50, 'device': 'cpu', 'model': 'tiny', 'trained': False,
                'assessments_out': 5, 'level_changes': 0, 'ttc_judged': 5,
                'ttc_coverage': 1.0, 'ttc_median_relative_error': pytest.approx(0.1),
                'latency_ms': {'median': 20.0, 'p95': pytest.approx(38.0)}}
    assert {key: found[key] for key in promised} == promised


@pytest.mark.parametrize(('estimate', 'truth', 'error', 'coverage'), [
    ([1.0, 2.0], [INF, 7.0], None, None),                 # nothing to compare with
    ([1.1, NAN, 3.0, 5.0], [1.0, 1.0, 2.0, INF], 0.3, 2 / 3),
    ([INF, 2.2, INF], [2.0, 2.0, 2.0], 10.0, 1.0)])       # mostly blind
def test_the_error_of_time_to_contact_counts_what_is_known_and_judged(tmp_path, estimate, truth,
                                                                      error, coverage):
    write_outputs(tmp_path, run(*zip(estimate, truth, strict=True)), [], FACTS)
    found = summary(tmp_path)
    assert (found['ttc_median_relative_error'], found['ttc_coverage']) == (
        error and pytest.approx(error), coverage and pytest.approx(coverage))


def test_the_page_is_self_contained_and_video_and_pictures_are_valid(tmp_path):
    status = run(*[(6 - 0.1 * i, 6 - 0.1 * i) for i in range(50)])
    pictures = []
    for number, a in enumerate(status.results):
        pictures.append((a.stamp_ns, tmp_path / f'{number}.jpg'))
        cv2.imwrite(str(pictures[-1][1]), np.full((72, 128, 3), 5 * number, np.uint8))
    write_outputs(tmp_path, status, pictures, FACTS)
    page = Page(tmp_path)
    assert 'script' not in page.tags and 'link' not in page.tags
    kinds = [link.partition(';base64,') for link in page.links if link != 'overlay.mp4']
    assert [kind for kind, _, _ in kinds].count('data:image/svg+xml') == 2
    photos = [cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), 1)
              for kind, _, data in kinds if kind == 'data:image/jpeg']
    assert len(photos) == 9 and photos[-1].mean() == pytest.approx(245, abs=2)   # most urgent
    video = cv2.VideoCapture(str(tmp_path / 'overlay.mp4'))
    assert video.get(cv2.CAP_PROP_FPS) == pytest.approx(10)
    assert video.get(cv2.CAP_PROP_FRAME_COUNT) == 50


def test_text_from_outside_is_not_taken_for_markup(tmp_path):
    evil = '<script>alert("x")</script>'
    status = run((NAN, NAN), level=Level.UNKNOWN)
    status.title = status.source = status.device = evil
    write_outputs(tmp_path, status, [], {
        'command': evil, 'notes': [evil], 'configuration': {evil: evil}})
    page = Page(tmp_path)
    assert 'script' not in page.tags
    assert sum(evil in word for word in page.words) >= 6
