# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Plan a base towards a goal picture with the bundled model, in rendered rooms."""

from __future__ import annotations

import math
from dataclasses import astuple, replace

import numpy as np
import pytest
import torch

from vjepa_ros.lab.drive import to_picture
from vjepa_ros.lab.world.clips import BANK_SEED
from vjepa_ros.lab.world.episodes import episode
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.lab.world.textures.bank import Materials, TextureBank
from vjepa_ros.model.twist_paths import VIEW_DIM, View
from vjepa_ros.planning.base_world import (
    BASE_SEARCH,
    BaseCamera,
    BaseSpace,
    BaseWorld,
    Clip,
    FRAMES,
    is_base,
)
from vjepa_ros.planning.energy_test import GapConfig
from vjepa_ros.planning.goal_planner import Planner
from vjepa_ros.planning.picture_match import expansion, mismatch
from vjepa_ros.runtime.engine import EngineConfig

pytestmark = pytest.mark.usefixtures('one_thread')

CONFIG = EpisodeConfig()


class Room:
    """A rendered room with a robot that can be put anywhere, as seen from its start."""

    def __init__(self, number: int) -> None:
        bank = TextureBank.procedural(BANK_SEED)
        materials = Materials(bank.groups, bank.walks)
        one = next(found for found in (episode.draw(31, 100 * number + k, materials, CONFIG)
                                       for k in range(50)) if found.scenario == 'free')
        self.world = EpisodeWorld([one], CONFIG, bank)
        self.start, self.yaw = self.world.robots.place[0].copy(), self.world.robots.yaw[0]
        across = math.tan(one.fov / 2)
        self.view = View(one.camera_height, one.pitch, 0.5 * CONFIG.robot.length, across,
                         across / CONFIG.aspect, 0.25)

    def picture(self, ahead=0.0, left=0.0):
        """RGB from so far ahead [m] of the start, turned so far to the left [rad]."""
        robots = self.world.robots
        way = np.array((math.sin(self.yaw), math.cos(self.yaw)))
        robots.place[0], robots.yaw[0] = self.start + ahead * way, self.yaw - left
        return self.world.pictures(np.array([0]))[0]


@pytest.fixture(scope='module')
def room():
    return Room(0)


@pytest.fixture(scope='module')
def base():
    made = BaseWorld.load(EngineConfig(device='cpu', precision='fp32'))
    yield made
    made.close()


def clip_of(base, picture):
    return Clip(np.repeat(base.fit(picture)[None], FRAMES, 0), np.arange(FRAMES) / 4 - 1.75)


def planner_of(base, goal, **more):
    made = Planner(base, BaseSpace(**more), BASE_SEARCH, GapConfig(repetitions=0))
    made.set_goal(goal)
    return made


@pytest.mark.parametrize('left', [0.3, -0.3])
def test_a_goal_to_the_side_is_turned_to(base, room, left):
    planner = planner_of(base, room.picture(left=left))
    plan = planner.plan(clip_of(base, room.picture()), np.array(astuple(room.view)))
    assert not plan.refusal and plan.trained and plan.actions is not None
    assert (plan.actions[:, 2] * math.copysign(1, left)).sum() > 0.1
    assert plan.energies.min() < plan.energy_now


def test_a_goal_ahead_is_driven_to_and_one_that_is_reached_is_not_left(base, room):
    here, ahead = room.picture(), room.picture(ahead=1.0)
    state = np.array(astuple(room.view))
    to = planner_of(base, ahead).plan(clip_of(base, here), state)
    at = planner_of(base, ahead).plan(clip_of(base, ahead), state)
    assert to.actions is not None and to.actions[0, 0] > 0.2 and not to.arrived
    assert at.energy_now < 0.1 < to.energy_now
    assert at.arrived and not at.refusal and not np.any(at.actions)
    assert 'reached' in str(at)


def test_where_the_picture_was_taken_fits_best(base, room):
    goal, here = base.encode([base.fit(room.picture(left=0.25)), base.fit(room.picture())])
    arm = room.view.ahead
    poses = torch.tensor([[-arm * math.sin(left), arm * (math.cos(left) - 1), -left]
                          for left in (0.25, 0.0, -0.25, 0.6)])
    costs = mismatch(goal.patches, here.patches, room.view.tensor(), poses)
    assert costs.argmin() == 0
    (same,) = mismatch(goal.patches, goal.patches, room.view.tensor(), torch.zeros(1, 3))
    assert same == pytest.approx(0.0, abs=0.02)


def test_the_picture_expands_before_the_goal_and_shrinks_behind_it(base, room):
    goal = base.fit(room.picture(ahead=0.6))
    scales = [expansion(base.fit(room.picture(ahead=ahead)), goal)[0] for ahead in (0.3, 0.6, 0.9)]
    assert scales[0] > 0.02 > abs(scales[1]) and scales[2] < -0.02
    nothing = expansion(base.fit(room.picture(left=1.5)), goal)
    assert nothing[1] < 0.5


def test_a_contact_on_the_way_costs_as_much_as_a_picture_that_fits_nowhere(base, room,
                                                                           monkeypatch):
    goal, here = base.encode([base.fit(room.picture(ahead=1.0)), clip_of(base, room.picture())])
    actions = torch.tensor([[[0.4, 0.0, 0.0]] * 2, [[0.0, 0.0, 0.0]] * 2])
    states = torch.tensor(astuple(room.view)).expand(2, 2, VIEW_DIM)
    real = base._imagination.imagine

    def struck(twists, durations):
        found = real(twists, durations)
        found.contact[:] = (twists[..., 0] > 0).any(-1, keepdims=True)
        return found

    free = base.energies(here, goal, actions, states)
    monkeypatch.setattr(base._imagination, 'imagine', struck)
    hit = base.energies(here, goal, actions, states)
    assert free[0] + 0.5 < hit[0] and hit[1] <= free[1] + 1e-6


def test_without_a_field_of_view_the_state_is_refused():
    camera = BaseCamera()
    with pytest.raises(ValueError, match='camera_info'):
        camera.view((640, 480), None, 0.25, (0, 0, 0))
    view = View(*BaseCamera(fov=math.pi / 2).view((640, 480), None, 0.25, (0.1, 0, 0.2)))
    assert (view.across, view.down) == pytest.approx((1.0, 0.75))
    assert (view.vx, view.omega) == (0.1, 0.2)


def test_only_the_bundled_weights_and_files_with_a_predictor_of_twists_are_for_a_base(tmp_path):
    assert is_base('')
    assert not is_base('random') and not is_base('', 'other.pt') and not is_base('ac.pt')


def test_a_short_drive_to_a_picture_is_measured(base, monkeypatch):
    monkeypatch.setattr(to_picture, 'LONGEST_S', 1.0)
    bank = TextureBank.procedural(BANK_SEED)
    world, goal, yaw, picture = to_picture.draw(8000, 6, bank, Materials(bank.groups, bank.walks))
    driven = to_picture.attempt(base, world, goal, yaw, picture)
    assert driven.end < driven.distance and not driven.arrived and not driven.collided
    assert driven.seconds == pytest.approx(1.0)
    found = to_picture.figures([driven, replace(driven, end=0.2, arrived=True)])
    assert (found['attempts'], found['within_goal_m'], found['said_arrived']) == (2, 0.5, 0.5)
    assert found['arrived_within_goal_m'] == 1.0
