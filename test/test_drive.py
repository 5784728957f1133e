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
from vjepa_ros.lab.drive.loop import Driver, Loop, MODES, Outcome, Recipe
from vjepa_ros.lab.drive.page import figures
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig, draw_stop
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.runtime.model import Model, ModelConfig

SHORT = EpisodeConfig(speed=(0.8, 1.2), travel_s=(2.5, 3.0), rate=8.0, settle_s=3.3)


def wall(materials, config):
    """An episode with a wall across the way."""
    return next(e for e in (draw_stop(1, n, materials, config) for n in range(99))
                if e.scenario == 'wall')


def outcome(number: int, collided: bool, progress: float, **more) -> Outcome:
    values = {'scenario': 'static', 'place': 'room', 'cruise': 1.0, 'struck': False,
              'touched': 'box' if collided else '', 'stops': 0, 'needless_stops': 0, **more}
    return Outcome(number=number, collided=collided, progress=progress, **values)


def test_figures_count_collisions_and_compare_progress_on_free_episodes():
    found = figures({
        'without_guard': [outcome(0, True, 0.5), outcome(1, False, 1.0)],
        'with_guard': [outcome(0, True, 0.3), outcome(1, False, 0.9, stops=2, needless_stops=1)]})
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


def test_what_has_ended_is_kept_when_a_drive_breaks_off(bank, tmp_path, monkeypatch, capsys):
    def drive_one(self, mode: str, numbers: list[int]) -> tuple[str, list[Outcome]]:
        if numbers[0] == 2:
            raise OSError('the power went')
        return mode, [outcome(numbers[0], numbers[0] == 0, 1.0)]

    monkeypatch.setattr(TextureBank, 'procedural', lambda *more: bank)
    monkeypatch.setattr(Driver, 'drive', drive_one)
    file = tmp_path / 'figures.json'
    assert cli.main(['drive', '--episodes', '3', '--batch', '1', '--jobs', '1', '--device', 'cpu',
                     '--set', 'get_past', '--modes', 'without_guard', '--json', str(file)]) == 1
    result = json.loads(file.read_text())
    assert result['configuration']['unfinished'] and result['configuration']['command']
    assert result['configuration']['details']['episodes'] == 2
    assert 'the power went' in capsys.readouterr().out


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
