# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""What people see of a planner: episodes from above, and the film of one."""

from __future__ import annotations

import cv2
import numpy as np
from scenes import texture

from vjepa_ros.lab.drive.loop import Moment
from vjepa_ros.lab.drive.page import FRAME, GOAL, SIZE, TopView, WAY, film_of
from vjepa_ros.lab.world.episodes.episode import EpisodeConfig, draw_get_past
from vjepa_ros.lab.world.episodes.world import EpisodeWorld
from vjepa_ros.planning.local_planner import CANDIDATE

CONFIG = EpisodeConfig(rate=8.0, settle_s=0.2)


def test_the_way_goal_and_chosen_twist_are_drawn(bank, materials):
    world = EpisodeWorld([draw_get_past(3, 0, materials, CONFIG)], CONFIG, bank)
    view = TopView(world)

    def blue(image):
        return int((np.abs(image.astype(int) - WAY).sum(-1) < 30).sum())
    before = view.draw()
    assert before.shape == (SIZE[1], SIZE[0], 3)
    assert (np.abs(before.astype(int) - GOAL).sum(-1) < 30).sum() > 100
    table = np.zeros(2, CANDIDATE)
    table['vx'], table['omega'], table['rank'], table['risk'] = 1.0, (0.8, -0.8), (1, 0), (1, 0)
    chosen = view.draw(table)
    assert blue(chosen) > blue(before) + 100        # the arc of the chosen one, to the right
    columns = np.flatnonzero((np.abs(chosen.astype(int) - WAY).sum(-1) < 30).any(0))
    assert columns.mean() > SIZE[0] / 2
    world.robots.place[0] = (0.0, 2.0)
    assert blue(view.draw()) > blue(before) + 100   # the way


def test_the_film_shows_camera_and_map_from_the_start_on(tmp_path):
    moments = tuple(Moment(0.2 * n - 1.0, 0.5, 1.0, 3.0, 2.0 + n, n % 4, 'free', '')
                    for n in range(14))
    for end in ('', '_map'):
        (folder := tmp_path / f'0003{end}').mkdir()
        for n in range(14):
            cv2.imwrite(str(folder / f'{n:04d}.png'), texture((96, 72), n))
    frames = [*film_of(tmp_path / '0003', moments)]
    assert len(frames) == 11 and frames[0].shape == (FRAME[1], FRAME[0], 3)   # from -0.5 s on
    assert min(frame[20:200, -200:].std() for frame in frames) > 10
