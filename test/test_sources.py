# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Sources deliver the right frames with the right stamps, and refuse what they cannot read."""

from __future__ import annotations

import math
import shutil
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from recordings import BagMaker, S, video_packets

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.sources import PlayOptions, SourceError, open_source
from vjepa_ros.sources.video import MESSAGES


def picture(value: int, size: tuple[int, int] = (32, 24)) -> np.ndarray:
    """RGB picture whose grey level tells its number."""
    return np.full((size[1], size[0], 3), value, np.uint8)


def opened(path, **options):
    return open_source(path, PlayOptions(**options))


def write_pictures(folder: Path, names: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        assert cv2.imwrite(str(folder / name), picture(10 * number))


def write_recording(folder: Path, *rows: str) -> Path:
    write_pictures(folder / 'frames', [f'{n:05d}.png' for n in range(4)])
    (folder / 'labels.csv').write_text(
        '\n'.join(['frame,stamp_s,collision,time_to_contact_s', *rows]) + '\n')
    return folder


def values(frames) -> list[int]:
    return [round(frame.rgb.mean() / 10) for frame in frames]


def stamps_s(frames) -> list[float]:
    return [round((frame.stamp_ns - S) / 1e9, 4) for frame in frames]


def test_a_folder_plays_in_natural_order_at_its_rate(tmp_path):
    write_pictures(tmp_path, [*(f'frame{n}.png' for n in range(11)), '1\u00b23.png'])
    with pytest.raises(SourceError, match=r'1²3\.png.*--rate'):
        opened(tmp_path)
    with opened(tmp_path, rate=4.0) as source:
        frames = list(source)
        assert (source.size, source.rate_hz, source.frame_count) == ((32, 24), 4.0, 12)
    assert values(frames) == [11, *range(11)]
    assert stamps_s(frames) == [n / 4 for n in range(12)]
    with pytest.raises(SourceError, match='no frames to repeat'):
        next(iter(opened(tmp_path, loop=True, start_s=5.0, rate=10.0)))


def test_a_recording_has_its_stamps_and_truth(tmp_path):
    folder = write_recording(tmp_path / 'rec', '00000.png,1700000000.5,0,')
    assert next(iter(opened(folder))).stamp_ns == 1_700_000_000_500_000_000    # of a real clock
    folder = write_recording(tmp_path / 'rec', '00000.png,0.0,0,inf', '00001.png,0.1,,2.5',
                             '00002.png,0.35,1,')
    (folder / 'frames' / '00002.png').unlink()
    (folder / 'frames' / '00002.png').symlink_to(folder / 'frames' / '00003.png')
    (folder / 'calib.txt').write_text('P0: 700 0 15.5 0 0 710 11.5 0 0 0 1 0\nP1: 0')
    (tmp_path / 'linked').symlink_to(folder)         # links within a recording and to it are fine
    source = opened(tmp_path / 'linked', size=(16, 12))
    frames = list(source)
    assert stamps_s(frames) == [0.0, 0.1, 0.35]
    assert source.rate_hz == pytest.approx(2 / 0.35)
    assert [f.truth['collision'] for f in frames] == [False, None, True]
    assert [f.truth['time_to_contact_s'] for f in frames[:2]] == [math.inf, 2.5]
    assert math.isnan(frames[2].truth['time_to_contact_s'])
    assert source.intrinsics == (350.0, 355.0, 7.5, 5.5)  # centres of pixels are whole numbers


@pytest.mark.parametrize(('row', 'problem'), [
    (b'00009.png,0.1,0,', r'00009\.png'), (b'00001.png,1e300,0,1', 'no time'),
    (b'00001.png,0.0,0,', 'not after'), (b'00001.png,0.1,2,', 'collision 2'),
    (b'00001.png,0.1,maybe,', "collision 'maybe'"),
    (b'\xff\xfe,0.2,0,1', 'UTF-8'), (b'a' * 5000 + b',0.1,0,1', 'correct the name'),
    (b'../../secret.png,0.1,0,1', 'outside'), (b'link.png,0.1,0,1', 'outside')], ids=range(9))
def test_a_wrong_label_is_refused_with_its_line(tmp_path, row, problem):
    folder = write_recording(tmp_path / 'rec', '00000.png,0.0,0,1.5')
    frames = folder / 'frames'
    with (folder / 'labels.csv').open('ab') as file:
        file.write(row + b'\n')
    shutil.copy(frames / '00000.png', tmp_path / 'secret.png')
    (frames / 'link.png').symlink_to(tmp_path / 'secret.png')
    with pytest.raises(SourceError, match=rf"labels\.csv' line 3.*{problem}"):
        opened(folder)


@pytest.mark.parametrize(('rate', 'expected'), [
    (5.0, [0, 4, 8, 12, 16]), (60.0, list(range(20))), (8.0, [0, 3, 5, 8, 10, 13, 15, 18])])
def test_a_lower_rate_takes_the_nearest_frames_and_a_higher_one_invents_none(tmp_path, rate,
                                                                             expected):
    writer = cv2.VideoWriter(str(tmp_path / 'clip.avi'), cv2.VideoWriter_fourcc(*'MJPG'), 20.0,
                             (64, 48))
    for number in range(20):
        writer.write(picture(10 * number, (64, 48)))
    writer.release()
    source = opened(tmp_path / 'clip.avi', rate=rate)
    times = stamps_s(source)
    assert source.frame_count == len(times) == len(expected)
    # Two frames may be equally near.
    np.testing.assert_allclose(times, np.array(expected) / 20, atol=0.051 if rate == 8 else 1e-9)
    assert source.rate_hz == min(rate, 20.0)


UNEVEN = [0, 33, 133, 153, 203, 236, 269, 669, 702, 735]       # ms


@pytest.mark.parametrize('suffix', ['mp4', 'mkv', 'avi'])
@pytest.mark.parametrize('times_ms', [UNEVEN, [n * 1000 / 30 for n in range(10)]], ids=range(2))
def test_pictures_of_a_video_have_their_own_times_and_even_ones_stay_even(tmp_path, suffix,
                                                                          times_ms):
    av = pytest.importorskip('av')
    base = Fraction(1, 1000 if times_ms is UNEVEN else 30)
    with av.open(tmp_path / f'film.{suffix}', 'w') as film:
        stream = film.add_stream('libx264', rate=30, options={'bf': '0' if times_ms is UNEVEN
                                                              else '2', 'b-adapt': '0'})
        stream.width, stream.height, stream.pix_fmt = 64, 48, 'yuv420p'
        stream.codec_context.time_base = base
        for n, time_ms in enumerate(times_ms):
            frame = av.VideoFrame.from_ndarray(picture(10 * n, (64, 48)), format='rgb24')
            frame.pts, frame.time_base = round(time_ms / 1000 / base), base
            film.mux(stream.encode(frame))
        film.mux(stream.encode(None))
    frames = list(opened(tmp_path / f'film.{suffix}'))
    assert values(frames) == list(range(10))
    np.testing.assert_allclose([f.stamp_ns - S for f in frames], np.array(times_ms) * 1e6,
                               atol=1e6 if times_ms is UNEVEN else 1e3)


def test_the_synthetic_source_ends_after_a_cycle_unless_it_loops():
    options = {'size': (32, 32), 'rate': 1.0}
    source = opened('synthetic', **options)
    assert source.intrinsics[0] == pytest.approx(25.0)
    assert len(list(source)) == source.frame_count
    more = source.frame_count + 5
    on = stamps_s(opened('synthetic:approach', **options, loop=True, max_frames=more))
    assert on == [float(n) for n in range(more)]


@pytest.mark.parametrize(('name', 'value'), [
    ('rate', 0.0), ('rate', 1e6), ('size', (0, 10)), ('max_frames', 0), ('start_s', math.nan)])
def test_a_wrong_option_is_refused(name, value):
    with pytest.raises(SourceError, match=name):
        PlayOptions(**{name: value})


@pytest.mark.parametrize('storage', ['MCAP', 'SQLITE3'])
def test_a_bag_plays_by_its_headers_and_its_excerpt_by_the_times_of_recording(tmp_path, storage):
    with BagMaker(tmp_path / 'bag', storage) as bag:
        for n in range(5):
            bag.image('/eye/image_raw', (50 + n) * S, picture(10 * n), recorded_ns=(60 + n) * S,
                      encoding='strange' if n == 0 else 'rgb8')
        bag.add('/bumper', 'std_msgs/msg/Bool', 90 * S, data=True)
    with opened(tmp_path / 'bag') as source:
        assert (source.size, source.frame_count) == ((32, 24), 5)
        assert source.rate_hz == pytest.approx(1.0) and source.duration_s == pytest.approx(30.0)
        frames = list(opened(tmp_path / 'bag', start_s=1.0))
        assert values(frames) == [1, 2, 3, 4] and frames[0].frame_id == 'eye'
        assert [f.stamp_ns for f in frames] == [(51 + n) * S for n in range(4)]
        (begin, broken), *parts = source.excerpt(0.0, 3.0)
        assert [begin, *(at for at, _ in parts)] == [0.0, 1.0, 2.0]
        assert values([load() for _, load in parts]) == [1, 2]
        with pytest.raises(SourceError, match='strange'):
            broken()


@pytest.mark.parametrize('rectified', [True, False])
def test_a_bag_tells_the_lens_and_a_rectified_topic_has_none(tmp_path, rectified):
    with BagMaker(tmp_path / 'bag') as bag:
        bag.image('/eye/image_rect_color/compressed' if rectified else '/eye/image_raw', 0,
                  picture(10), recorded_ns=77 * S)
        bag.info(S, d=(-0.3, 0.1, 0.0, 0.0), p=(20, 0, 16, -5, 0, 21, 12, 0, 0, 0, 1, 0))
    source = opened(tmp_path / 'bag')
    assert source.intrinsics == ((20, 21, 16, 12) if rectified else (33, 33, 15.5, 11.5))
    assert source.distortion == (None if rectified else Distortion(
        'plumb_bob', (-0.3, 0.1, 0.0, 0.0)))
    assert next(iter(source)).stamp_ns == 77 * S         # a header without a stamp


def test_packets_without_a_picture_do_not_end_a_bag_and_are_told_once(tmp_path, caplog):
    from rosbags.typesys import get_types_from_msg
    kind = 'foxglove_msgs/msg/CompressedVideo'
    packets = video_packets([picture(10 * n) for n in range(12)], 'h264', 4, sc_threshold='0')
    packets[6] = b'\0\0\1\x41\xff'
    for name, some in (('bag', packets[1:]), ('blind', packets[1:4])):
        with BagMaker(tmp_path / name) as bag:
            bag.store.register(get_types_from_msg(MESSAGES[kind], kind))
            for n, packet in enumerate(some):
                bag.add('/eye/video', kind, S + n * S // 10, frame_id='eye', format='h264',
                        timestamp=bag.header(S).stamp, data=np.frombuffer(packet, np.uint8))
    source = opened(tmp_path / 'bag', loop=True, max_frames=12)
    assert values(source) == [4, 5, 8, 9, 10, 11] * 2
    told, = caplog.messages
    assert told.startswith('5 of 11 packets') and '/eye/video' in told and 'key frame' in told
    with pytest.raises(SourceError, match=r'/eye/video.*key frame'):
        opened(tmp_path / 'blind')


def test_a_bag_that_leads_out_of_its_folder_is_refused(tmp_path):
    with BagMaker(tmp_path / 'bag') as bag:
        bag.image('/eye/image_raw', S, picture(0))
    file = tmp_path / 'bag' / 'bag.mcap'
    file.rename(tmp_path / 'secret.mcap')
    file.symlink_to(tmp_path / 'secret.mcap')
    with pytest.raises(SourceError, match=r"bag\.mcap' .*secret"):
        opened(tmp_path / 'bag')
