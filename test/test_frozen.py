# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test that a camera is frozen while it sends the same picture, but not before a still scene."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from recordings import video_packets
from scenes import Approach, texture

from vjepa_ros.looming.structure import StillView, WHOLE_VIEW
from vjepa_ros.perception.camera_state import CameraState
from vjepa_ros.perception.settings import TrackConfig
from vjepa_ros.sources.video_packets import PacketDecoder, pixels_of

NOISE = np.random.default_rng(0).integers(0, 200, (20, 120, 160, 3), np.uint8)
STILL = NOISE[0]
VIEW = texture((320, 240), 3)


def watch(pictures, stamps_s=None) -> StillView:
    seen = StillView()
    for i, picture in enumerate(pictures):
        seen.show(picture, round((i / 10 if stamps_s is None else stamps_s[i]) * 1e9))
    return seen


@pytest.mark.parametrize(('pictures', 'frozen', 'unchanged_s'), [
    ([STILL] * 6, True, 0.5), ([STILL] * 5, False, 0.4), ([STILL] * 2, False, 0.1),
    ([STILL], False, 0.0), ([*[STILL] * 20, STILL + np.uint8(1)], False, 0.0),
    (list(STILL + NOISE % 2), False, 0.0),                       # the noise of a sensor
    ([picture for picture in NOISE[:8] for _ in range(3)], False, 0.2)])     # a slow driver
def test_the_same_picture_for_half_a_second_is_frozen(pictures, frozen, unchanged_s):
    seen = watch(pictures)
    assert (seen.frozen, seen.unchanged_s) == (frozen, pytest.approx(unchanged_s))


def test_a_buffer_that_is_used_again_does_not_look_frozen():
    buffer, seen = STILL.copy(), StillView()
    for i in range(20):
        buffer[:] = i
        seen.show(buffer, i * 100_000_000)
        seen.look()
    assert not seen.frozen


def test_a_reset_begins_anew_and_a_clock_that_is_set_back_hides_nothing():
    seen = watch([STILL] * 10, [1000.0, 1000.1, *(500 + n / 10 for n in range(8))])
    assert seen.frozen and not seen.still_s < 0
    seen.reset()
    assert not seen.frozen and seen.unchanged_s == 0.0


def test_a_look_is_due_five_times_a_second_and_at_once_where_pictures_are_rare():
    for rate, at_once in ((15.0, False), (4.0, True)):
        seen = StillView()
        for number in range(8):
            seen.show(VIEW if number < 7 else np.full_like(VIEW, 90), round(1e9 * number / rate))
        assert (seen.sight < 0.2) is at_once
        seen.look()
        seen.show(np.full_like(VIEW, 90), round(1e9 * 12 / rate))
        assert seen.sight < 0.2


@pytest.mark.parametrize('stamped', [True, False])
def test_a_camera_that_stamps_nothing_freezes_too(stamped):
    track = CameraState('camera', TrackConfig(num_frames=4, image_size=64, geometry='host'))
    for number in range(1, 11):
        now_ns = 10 ** 12 + number * 100_000_000
        track.push(STILL, now_ns if stamped else 0, 'camera', now_ns)
    assert track.still.frozen and track.still.unchanged_s == pytest.approx(0.9)


# -- a view that stands, whatever is added to it -------------------------------------------------

RATE = 10.0


def with_noise(picture, number: int, spread: float = 4.0) -> np.ndarray:
    noise = np.random.default_rng(number).normal(0.0, spread, picture.shape)
    return np.clip(picture + noise, 0, 255).astype(np.uint8)


def jpeg(picture) -> np.ndarray:
    return cv2.imdecode(cv2.imencode('.jpg', picture, [cv2.IMWRITE_JPEG_QUALITY, 30])[1], 1)


def with_clock(picture, number: int) -> np.ndarray:
    text = f'2026-11-29 10:{number % 60:02d}:{7 * number % 60:02d}.{37 * number % 1000:03d}'
    return cv2.putText(picture.copy(), text, (5, 230), 0, 0.8, (255, 255, 255), 2)


def with_hot_pixels(picture, number: int) -> np.ndarray:
    rng, picture = np.random.default_rng(number), picture.copy()
    picture[rng.integers(0, 240, 100), rng.integers(0, 320, 100)] = 255
    return picture


def behind_a_grille(picture) -> np.ndarray:
    picture = picture.copy()
    for row in range(0, 240, 20):
        picture[row:row + 12] = 30
    for column in range(0, 320, 20):
        picture[:, column:column + 12] = 30
    return picture


STANDING = {
    'noise': lambda n: with_noise(VIEW, n), 'night': lambda n: with_noise(VIEW // 2, n, 6.0),
    'jpeg': lambda n: jpeg(with_noise(VIEW, n)), 'clock': lambda n: with_clock(VIEW, n),
    'hot pixels': lambda n: with_noise(with_hot_pixels(VIEW, n), n, 2.0),
    'a photograph, lit by what passes': lambda n: with_noise(
        VIEW * (0.8 + 0.3 * np.sin(n / 4)), n),
    'a grille': lambda n: with_noise(behind_a_grille(APPROACH.frame(n / RATE)), n)}
APPROACH = Approach(contact_s=12.0)


def still_s(pictures, rate: float = RATE, roi=WHOLE_VIEW) -> list[float]:
    """How long the view of each picture stands."""
    seen, found = StillView(), []
    seen.roi = roi
    for number, picture in enumerate(pictures):
        seen.show(picture, round((1 + number / rate) * 1e9))
        seen.look()
        found.append(seen.still_s)
    return found


@pytest.mark.parametrize('kind', STANDING)
def test_a_view_stands_whatever_is_added_to_its_picture(kind):
    found = still_s([STANDING[kind](number) for number in range(16)])
    assert found[-1] == pytest.approx(1.5)


def test_a_view_stands_behind_a_video_codec():
    packets = video_packets([with_noise(VIEW, n) for n in range(30)], 'h264', b='200k')
    decoder = PacketDecoder('h264')
    pictures = [pixels_of(decoder.picture(packet)[0]) for packet in packets]
    assert still_s(pictures)[-1] > 2.0


def far(number: int, seconds: float = RATE) -> np.ndarray:
    """A view without anything nearer than 30 m, while the robot drives at 0.3 m/s."""
    scale = 30.0 / (30.0 - 0.3 * number / seconds)
    middle = cv2.getRotationMatrix2D((159.5, 119.5), 0.0, scale)
    return cv2.warpAffine(VIEW, middle, (320, 240), flags=cv2.INTER_CUBIC,
                          borderMode=cv2.BORDER_REFLECT)


@pytest.mark.parametrize(('picture', 'rate', 'longest'), [
    (lambda n: APPROACH.frame(n / RATE), RATE, 0.3), (far, RATE, 1.0),
    (lambda n: far(n, 1.0), 1.0, 1.0),                          # one frame a second
    (lambda n: np.roll(VIEW, 3 * n, 1), RATE, 0.0),             # turns
    (lambda n: with_noise(np.roll(VIEW // 3, n, 1), n, 8.0), RATE, 0.1)])       # at night
def test_the_view_of_a_robot_that_drives_does_not_stand(picture, rate, longest):
    found = still_s([with_noise(picture(n), n, 2.0) for n in range(20 if rate > 1 else 8)], rate)
    longest += 0.1          # not each picture is looked at
    assert max(value for value in found if not math.isnan(value)) <= longest + 1e-6


def test_what_slides_along_its_own_edges_and_what_belongs_to_the_robot_does_not_count():
    stripes = np.repeat(texture((320, 1), 5), 240, 0)           # moves up, unseen
    assert math.isnan(still_s([with_noise(stripes, n, 1.0) for n in range(12)])[-1])

    def with_hood(n: int) -> np.ndarray:
        picture = APPROACH.frame(n / RATE)
        picture[110:] = VIEW[110:]
        return picture

    pictures = [with_hood(number) for number in range(12)]
    assert still_s(pictures)[-1] > 1.0
    assert still_s(pictures, roi=(0.0, 0.0, 1.0, 0.45))[-1] < 0.4


@pytest.mark.parametrize('size', [(1, 1), (240, 320), (30, 1000), (2000, 2), (60, 60)])
def test_a_picture_that_shows_nothing_does_not_stand(size):
    plain = np.full((*size, 3), 90, np.uint8)
    assert not still_s([with_noise(plain, n) for n in range(9)])[-1] > 0     # 0, or unknown


@pytest.mark.parametrize('name', ['walk_turning', 'walk_office', 'drone_approach_a'])
def test_real_views_move_and_stand_as_the_camera_does(shared_data, name):
    files = sorted((shared_data / name / 'frames').iterdir())[60:]
    pictures = [cv2.imread(str(file)) for file in files[:24]]
    assert max(still_s(pictures)[2:]) < 0.3
    assert still_s([with_noise(pictures[0], n) for n in range(12)])[-1] == pytest.approx(1.1)
