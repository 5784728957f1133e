# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test the closed loop: random episodes, figures, the command line, a drive with perception."""

from __future__ import annotations

import json
import math
from functools import partial

import numpy as np
import pytest

from vjepa_ros import cli
from vjepa_ros.cli import drive
from vjepa_ros.lab.drive.loop import Loop, MODES, Outcome, Recipe
from vjepa_ros.lab.drive.page import figures
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig, draw_stop
from vjepa_ros.lab.world.episodes.world import EpisodeWorld, LONGEST_WAIT_S, WorldClock
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.runtime.model import Model, ModelConfig

SHORT = EpisodeConfig(speed=(0.8, 1.2), travel_s=(2.5, 3.0), rate=8.0, settle_s=3.3)
PERIOD_S = 0.1


def wall(materials, config):
    """An episode with a wall across the way."""
    return next(e for e in (draw_stop(1, n, materials, config) for n in range(99))
                if e.scenario == 'wall')


def outcome(number: int, collided: bool, progress: float, stops: int = 0) -> Outcome:
    return Outcome(number=number, collided=collided, progress=progress, scenario='static',
                   place='room', cruise=1.0, struck=False, touched='box' if collided else '',
                   stops=stops, needless_stops=stops)


def test_figures_count_collisions_and_compare_progress_on_free_episodes():
    found = figures({
        'without_guard': [outcome(0, True, 0.5), outcome(1, False, 1.0)],
        'with_guard': [outcome(0, True, 0.3), outcome(1, False, 0.9, stops=1)]})
    assert found['without_guard'] == {'collisions_per_episode': 0.5, 'progress': 0.75}
    assert found['progress_kept'] == pytest.approx(0.9)      # of episode 1
    details = found['details']
    assert details['times_fewer_collisions']['with_guard'] == 1.0
    assert details['with_guard']['needless_stops_per_episode'] == 0.5
    assert [row['number'] for row in details['with_guard']['collided']] == [0]


def test_the_command_writes_figures_and_a_page(bank, tmp_path, monkeypatch, capsys):
    short = EpisodeConfig(speed=(0.8, 1.2), travel_s=(1.0, 1.2), rate=4.0, settle_s=1.0)
    model = ModelConfig(num_frames=4, image_size=64, device='cpu', weights='random',
                         allow_random_weights=True)
    monkeypatch.setattr(TextureBank, 'procedural', lambda *more: bank)
    monkeypatch.setattr(drive, 'Recipe', partial(Recipe, episode=short, width=96))
    monkeypatch.setattr(drive, 'ModelConfig', lambda **more: model)
    file, page = tmp_path / 'figures.json', tmp_path / 'page.html'
    words = ['drive', '--episodes', '1', '--seed', '1', '--device', 'cpu', '--jobs', '1']
    assert cli.main([*words, '--json', str(file), '--page', str(page)]) == 0
    result = json.loads(file.read_text())
    assert set(result) == {*MODES, 'progress_kept', 'configuration'}
    for mode in MODES:
        assert set(result[mode]) == {'collisions_per_episode', 'progress'}
        assert 0 <= result[mode]['progress'] <= 1
    assert result['configuration']['details']['episodes'] == 1
    assert 'image/webp' in (text := page.read_text()) and 'image/svg+xml' in text
    assert 'collisions per episode' in capsys.readouterr().out


@pytest.mark.slow
def test_guard_and_planner_stop_what_drives_into_a_wall_without_them():
    bank = TextureBank.procedural(BANK_SEED)
    episode = wall(Materials(bank.groups, bank.walks), SHORT)
    engine, follow = Model.load(ModelConfig(device='cpu')), frozenset([episode.number])
    before, guarded, planned = (
        Loop(EpisodeWorld([episode], SHORT, bank, 160), mode, engine, follow).run()[0]
        for mode in ('without_guard', 'with_guard', 'with_planner'))
    engine.close()
    assert before.collided and before.touched == 'wall'
    assert not guarded.collided and not planned.collided
    assert 0 < guarded.progress < before.progress + 0.05
    moments = [m for m in guarded.moments if m.time > 0]
    assert any(m.state in ('slowed', 'stopped') for m in moments)
    assert min(m.distance for m in moments) > 0.05
    assert any(math.isfinite(m.time_to_contact) for m in moments)


class Hung(EpisodeWorld):
    """Its camera sends the same view from the start of the drive on, with fresh noise."""

    seen: np.ndarray | None = None

    def pictures(self, which: np.ndarray) -> np.ndarray:
        if self.seen is None or self.time_s < 0.0:
            self.seen = super().pictures(which)
        noise = np.random.default_rng(self.frame).normal(0.0, 3.0, self.seen.shape)
        return np.clip(self.seen + noise, 0, 255).astype(np.uint8)


def test_a_robot_whose_camera_hangs_with_noise_stops_before_the_wall(bank, materials):
    slow = EpisodeConfig(speed=(0.4, 0.5), travel_s=(6.0, 6.5), rate=6.0, settle_s=2.3)
    episode = wall(materials, slow)
    engine = Model.load(ModelConfig(device='cpu'))
    ended = Loop(Hung([episode], slow, bank, 160), 'with_guard', engine,
                 frozenset([episode.number])).run()[0]
    engine.close()
    begun, last = next(m for m in ended.moments if m.time >= 0), ended.moments[-1]
    assert not ended.collided and last.speed == 0 and 'frozen' in last.reason
    assert begun.distance > 1.0 and 0.3 < begun.distance - last.distance < 0.6


class Run:
    """A simulation with a steady clock in the hand of the test."""

    def __init__(self) -> None:
        self.steady_s = 50.0
        self.waiting: list[tuple[float, float]] = []      # until when, and stamp
        self.newest_s, self.oldest_s = math.inf, 0.0      # assessment, and its greatest age
        self.clock = WorldClock(1000.0, PERIOD_S, steady_s=lambda: self.steady_s)

    def go(self, seconds: float, assess_after_s: float = math.inf) -> float:
        """Let real time pass, what was drawn is assessed after a while; the time simulated."""
        end, begun = self.steady_s + seconds, self.clock.now_s
        while self.steady_s < end - 1e-9:
            self.steady_s += 0.01
            while self.waiting and self.waiting[0][0] <= self.steady_s:
                self.newest_s = self.waiting.pop(0)[1]
                self.clock.assessed(self.newest_s)
            self.clock.advance()
            self.oldest_s = max(self.oldest_s, self.clock.now_s - self.newest_s)
            if self.clock.due:
                self.clock.drawn()
                self.waiting.append((self.steady_s + assess_after_s, self.clock.now_s))
        return self.clock.now_s - begun


def test_it_waits_for_a_slow_perception_which_is_then_no_later_than_elsewhere():
    run = Run()
    run.go(1.0, assess_after_s=0.5)       # the first assessments: nobody was waited for yet
    run.oldest_s = 0.0
    # Two pictures on the way at most, so at least half a second for two of them.
    assert 0.2 < run.go(6.0, assess_after_s=0.5) / 6.0 < 0.41
    assert run.oldest_s <= 2 * PERIOD_S + 1e-3


def test_a_perception_that_dies_does_not_stop_the_world_and_is_waited_for_again():
    run = Run()
    run.go(2.0, assess_after_s=0.05)
    assert run.go(LONGEST_WAIT_S + 3.0) == pytest.approx(3.0, abs=0.2)
    run.clock.assessed(run.clock.now_s)
    assert run.go(1.0) < 3 * PERIOD_S + 1e-6
