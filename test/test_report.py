# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Tests of the run report: numbers, page and video."""

from __future__ import annotations

import base64
import json
import math
from html.parser import HTMLParser
from pathlib import Path

import cv2
import numpy as np
import pytest

from vjepa_ros.lab.report.report import write_report

NAN, INF = math.nan, math.inf
META = {'frames_in': 50, 'device': 'cpu', 'model': 'V-JEPA 2.0 tiny', 'trained': False}


def record(index: int, ttc: float = 2.0, truth: float | None = None, level: int = 1,
           latency: float | None = 80.0, **extra) -> dict:
    found = {'stamp_ns': 10 ** 18 + index * 100_000_000, 'level': level, 'flags': 1,
             'motion_score': 0.4, 'obstacle_score': 0.3, 'collision_probability': 0.2,
             'time_to_contact': ttc, 'looming_rate': 1 / ttc if ttc else NAN, 'bearing': 0.1,
             'true_ttc': truth, 'true_looming': None if truth is None else 1 / truth,
             'latency_ms': latency, 'timings': {'decode': 2.0, 'encode': 50.0, 'strange': 1.0}}
    return {**found, **extra}


def image(width: int = 320, height: int = 240, value: int = 128) -> np.ndarray:
    return np.full((height, width, 3), value, np.uint8)


def strict(path: Path) -> dict:
    def refuse(word: str):
        raise AssertionError(f'{word} is not JSON')
    return json.loads(path.read_text(), parse_constant=refuse)


class Page(HTMLParser):
    """Collects what a page refers to and what it says."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links, self.words, self.tags = [], [], []
        self.feed(path.read_text(encoding='utf-8'))

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [v for k, v in attrs if k in ('src', 'href')]

    def handle_data(self, data):
        self.words.append(data)


def test_the_summary_has_the_promised_numbers(tmp_path):
    records = [record(i, ttc=2.2, truth=2.0, latency=10.0 * i, level=[0, 1, 1, 255, 3][i])
               for i in range(5)]
    result = write_report(tmp_path / 'new' / 'folder', records, [], META)
    stored = strict(tmp_path / 'new' / 'folder' / 'summary.json')
    assert stored == result
    promised = {**META, 'assessments_out': 5, 'level_changes': 3, 'ttc_judged': 5,
                'ttc_coverage': 1.0, 'ttc_median_relative_error': pytest.approx(0.1),
                'latency_ms': {'median': 20.0, 'p95': pytest.approx(38.0)}}
    assert {key: stored[key] for key in promised} == promised


@pytest.mark.parametrize(('estimate', 'truth', 'error', 'coverage'), [
    ([1.0, 2.0], [INF, 7.0], None, None),                 # nothing to compare with
    ([NAN], [2.0], None, 0.0),                            # never known
    ([1.1, NAN, 3.0, 5.0], [1.0, 1.0, 2.0, INF], 0.3, 2 / 3),
    ([INF, 2.2, INF], [2.0, 2.0, 2.0], 10.0, 1.0)])       # mostly blind
def test_the_error_of_time_to_contact_counts_what_is_known_and_judged(tmp_path, estimate, truth,
                                                                      error, coverage):
    records = [record(i, *pair) for i, pair in enumerate(zip(estimate, truth, strict=True))]
    found = write_report(tmp_path, records, [], META)
    assert (found['ttc_median_relative_error'], found['ttc_coverage']) == (
        error and pytest.approx(error), coverage and pytest.approx(coverage))


def test_the_page_is_self_contained_and_its_pictures_are_valid(tmp_path):
    records = [record(i, ttc=6 - 0.1 * i, truth=6 - 0.1 * i) for i in range(50)]
    frames = [(i, image(1280, 720, 5 * i)) for i in range(0, 50, 4)]
    write_report(tmp_path, records, frames, {**META, 'video': 'overlay.mp4'})
    page = Page(tmp_path / 'report.html')
    assert 'script' not in page.tags and 'link' not in page.tags
    pictures = [link.partition(';base64,') for link in page.links if link != 'overlay.mp4']
    kinds = [kind for kind, _, _ in pictures]
    assert kinds.count('data:image/svg+xml') == 2 and kinds.count('data:image/jpeg') == 9
    photo = np.frombuffer(base64.b64decode(pictures[-1][2]), np.uint8)
    assert cv2.imdecode(photo, 1).shape[1] == 720


def test_text_from_outside_is_not_taken_for_markup(tmp_path):
    evil = '<script>alert("x")</script>'
    meta = {**META, 'title': evil, 'source': evil, 'command': evil, 'notes': [evil],
            'device': evil, 'configuration': {evil: evil}, 'video': '"><script>'}
    records = [record(0, timings={evil: 1.0})]
    write_report(tmp_path, records, [(0, image())], meta)
    page = Page(tmp_path / 'report.html')
    assert 'script' not in page.tags
    assert sum(evil in word for word in page.words) >= 6


@pytest.mark.parametrize('records', [
    [],
    [record(i, ttc=NAN, level=255, latency=None, timings={}, motion_score=None,
            obstacle_score=NAN, collision_probability=NAN, looming_rate=NAN) for i in range(3)],
    [{'stamp_ns': 5, 'level': 1}, {'stamp_ns': 5, 'level': 2}]])
def test_runs_with_little_or_strange_content_still_give_a_report(tmp_path, records):
    summary = write_report(tmp_path, records, [(0, image())] if records else [], META)
    assert summary['assessments_out'] == len(records)
    page = Page(tmp_path / 'report.html')
    assert any('safety device' in word for word in page.words)
    strict(tmp_path / 'summary.json')
