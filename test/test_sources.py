# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Sources deliver frames with the times at which they were taken, and refuse what is none."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
from recordings import BagMaker, S, video_packets
from scenes import texture

from vjepa_ros.clip.optics import Distortion
from vjepa_ros.fleet.recordings import find_recordings, looked_at
from vjepa_ros.sources import PlayOptions, SourceError, open_source
from vjepa_ros.sources.video import MESSAGES, PacketDecoder, pixels_of


def picture(value: int, size: tuple[int, int] = (32, 24)) -> np.ndarray:
    """RGB picture whose grey level tells its number."""
    return np.full((size[1], size[0], 3), value, np.uint8)


def opened(path, **options):
    return open_source(path, PlayOptions(**options))


def write(folder: Path, names) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        assert cv2.imwrite(str(folder / f'{name}.png'), picture(10 * number))


def values(frames) -> list[int]:
    return [round(frame.rgb.mean() / 10) for frame in frames]


def stamps_s(frames) -> list[float]:
    return [round((frame.stamp_ns - S) / 1e9, 4) for frame in frames]


def test_a_folder_plays_in_natural_order_at_its_rate(tmp_path):
    write(tmp_path, [*(f'frame{n}' for n in range(11)), '1\u00b23'])
    with pytest.raises(SourceError, match=r'1²3\.png.*--rate'):
        opened(tmp_path)
    with opened(tmp_path, rate=4.0) as source:
        frames = list(source)
        assert (source.size, source.rate_hz, source.frame_count) == ((32, 24), 4.0, 12)
    assert values(frames) == [11, *range(11)]
    assert stamps_s(frames) == [n / 4 for n in range(12)]
    with pytest.raises(SourceError, match='no frames to repeat'):
        next(iter(opened(tmp_path, loop=True, start_s=5.0, rate=10.0)))


LABELS = 'frame,stamp_s,collision,time_to_contact_s'


def test_a_recording_has_its_stamps_and_truth(tmp_path):
    folder = tmp_path / 'rec'
    write(folder / 'frames', range(4))
    (folder / 'labels.csv').write_text(f'{LABELS}\n0.png,1700000000.5,0,\n')
    assert next(iter(opened(folder))).stamp_ns == 1_700_000_000_500_000_000    # of a real clock
    (folder / 'labels.csv').write_text(
        f'{LABELS}\n0.png,0.0,0,inf\n1.png,0.1,,2.5\n2.png,0.35,1,\n')
    (folder / 'frames' / '2.png').unlink()
    (folder / 'frames' / '2.png').symlink_to(folder / 'frames' / '3.png')
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


NS = [1403636579763555584 + n * 33_333_333 for n in range(5)]
FACTS = [{'n': n, 'ns': ns, 'ms': ns // 10**6, 's': n / 30, 'sec': ns // 10**9,
          'nsec': f'{ns % 10**9:09d}'} for n, ns in enumerate(NS)]


def check(path: Path) -> None:
    frames = list(open_source(path))
    assert values(frames) == list(range(5))
    np.testing.assert_allclose([frame.stamp_ns - frames[0].stamp_ns for frame in frames],
                               [n * 33_333_333 for n in range(5)], atol=1e6)


LAYOUTS = {              # folder of the pictures and their names; table, its heading and rows
    'euroc': ('data', '{ns}', 'data.csv', '#timestamp [ns],filename', '{ns},{ns}.png'),
    'tum': ('rgb', '{n:05d}', 'rgb.txt', '# file: "a time.bag"\n# timestamp filename',
            '{sec}.{nsec} rgb/{n:05d}.png'),
    'kitti': ('data', '{n:010d}', 'timestamps.txt', '#', '2014-06-24 19:02:59.{nsec}'),
    'kitti odometry': ('frames', '{n:06d}', 'times.txt', '#', '{s:.9e}'),
    'ours': ('frames', '{n:05d}', 'stamps.csv', 'index,seconds', '{n},{s}'),
    'labels': ('frames', '{n:05d}', 'labels.csv', LABELS, '{n:05d}.png,{s:.9f},,')}


@pytest.mark.parametrize('layout', LAYOUTS)
def test_stamps_come_from_the_table_of_a_data_set_wherever_one_points(tmp_path, layout):
    place, name, table, head, row = LAYOUTS[layout]
    root = tmp_path / 'set' / 'cam0'
    write(root / place, [name.format(**each) for each in FACTS])
    write(root / 'depth', [each['ns'] for each in FACTS])
    (root / table).write_text('\n'.join([head, *(row.format(**each) for each in FACTS)]))
    check(root)
    check(root / place)
    assert len(list(open_source(root, PlayOptions(rate=15.0)))) == 3         # which thins
    assert find_recordings([tmp_path]) == ([root], [])
    (camera,), problems = looked_at(root)
    assert not problems and camera.duration_s == pytest.approx(5 / 30, rel=1e-3)


@pytest.mark.parametrize('name', ['{ns}', 'frame-{ms}', 'rgb_{sec}.{nsec}', '{sec}_{nsec}'])
def test_stamps_come_from_names(tmp_path, name):
    write(tmp_path, [name.format(**each) for each in FACTS])
    check(tmp_path)


@pytest.mark.parametrize('names', [
    ['frame_000123', 'frame_000124'], ['2026113012', '2026113013'], ['v1.0', 'v1.1']])
def test_counted_pictures_have_no_stamps_and_a_rate_is_asked_for(tmp_path, names):
    write(tmp_path, names)
    assert '--rate' in looked_at(tmp_path)[1][0]
    stamps = [frame.stamp_ns for frame in open_source(tmp_path, PlayOptions(rate=4.0))]
    assert stamps[1] - stamps[0] == 250_000_000




@pytest.mark.parametrize(('row', 'problem'), [
    (b'1.0,../secret.png', 'outside'), (b'1.0,/etc/secret.png', 'outside'),
    (b'1.0,link.png', 'outside'), (b'nan,0.png', "'nan' is no time"), (b'1e400,0.png', 'no time'),
    (b'soon,0.png', 'no time'), (b'0.0,1.png', 'not after'), (b'1.0,none.png', 'does not exist'),
    (b'1.0,1.png,maybe', "collision 'maybe'"), (b'1.0,\xff\xfe', 'UTF-8'),
    (b'1.0,' + b'a' * 5000, 'correct the name')], ids=range(11))
def test_a_line_that_leads_elsewhere_or_is_wrong_is_refused_by_its_number(tmp_path, row, problem):
    place = tmp_path / 'set' / 'frames'
    write(place, range(2))
    write(place.parent, ['secret'])
    write(tmp_path, ['secret'])
    (place / 'link.png').symlink_to(tmp_path / 'secret.png')
    (place.parent / 'labels.csv').write_bytes(
        b'#stamp_s,frame,collision,time_to_contact_s\n0.5,0.png\n' + row + b'\n')
    with pytest.raises(SourceError, match=rf"labels\.csv' line 3.*{problem}"):
        opened(place.parent)


@pytest.mark.parametrize(('rate', 'expected'), [(5.0, [0, 4, 8, 12, 16]), (60.0, range(20))])
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
    assert times == pytest.approx(np.array(expected) / 20)
    assert source.rate_hz == min(rate, 20.0)


UNEVEN = [0, 33, 133, 153, 203, 236, 269, 669, 702, 735]       # ms


@pytest.mark.parametrize('suffix', ['mp4', 'mkv', 'avi'])
def test_pictures_of_a_video_have_their_own_times(tmp_path, suffix):
    av = pytest.importorskip('av')
    with av.open(tmp_path / f'film.{suffix}', 'w') as film:
        stream = film.add_stream('libx264', rate=30, options={'bf': '0'})
        stream.width, stream.height, stream.pix_fmt = 64, 48, 'yuv420p'
        stream.codec_context.time_base = Fraction(1, 1000)
        for n, time_ms in enumerate(UNEVEN):
            frame = av.VideoFrame.from_ndarray(picture(10 * n, (64, 48)), format='rgb24')
            frame.pts, frame.time_base = time_ms, Fraction(1, 1000)
            film.mux(stream.encode(frame))
        film.mux(stream.encode(None))
    frames = list(opened(tmp_path / f'film.{suffix}'))
    assert values(frames) == list(range(10))
    np.testing.assert_allclose([f.stamp_ns - S for f in frames], np.array(UNEVEN) * 1e6, atol=1e6)


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
    with BagMaker(tmp_path / 'bag') as bag:
        bag.store.register(get_types_from_msg(MESSAGES[kind], kind))
        for n, packet in enumerate(packets[1:]):
            bag.add('/eye/video', kind, S + n * S // 10, frame_id='eye', format='h264',
                    timestamp=bag.header(S).stamp, data=np.frombuffer(packet, np.uint8))
    source = opened(tmp_path / 'bag', loop=True, max_frames=12)
    assert values(source) == [4, 5, 8, 9, 10, 11] * 2
    told, = caplog.messages
    assert told.startswith('5 of 11 packets') and '/eye/video' in told and 'key frame' in told


FRAMES = [texture((200, 160))[2 * n:2 * n + 96, n:n + 128] for n in range(24)]


@pytest.mark.parametrize(('codec', 'options'), [
    ('h264', {'x264-params': 'ref=4:cqm=jvt:slices=3', 'profile': 'high'}),
    ('hevc', {'preset': 'ultrafast'})])
@pytest.mark.parametrize('lost', [(), (0, 9, 10, 11)])
def test_no_wrong_picture_comes_from_a_video_with_losses(codec, options, lost):
    """A picture that is missing in H.264 is concealed by FFmpeg, which does not say so."""
    packets, decoder, got = video_packets(FRAMES, codec, 8, **options), PacketDecoder(codec), []
    for n, packet in enumerate(packets):
        if n in lost:
            continue
        try:
            picture = pixels_of(decoder.picture(packet))
        except SourceError as error:
            assert 'packet' in str(error)
        else:
            got.append(n)
            assert np.abs(picture.astype(int) - FRAMES[n]).mean() < 8
    assert got == [n for n in range(24) if not any(n // 8 * 8 <= m <= n for m in lost)]


def test_b_frames_are_refused_with_the_remedy():
    decoder = PacketDecoder('h264')
    for packet in video_packets(FRAMES, 'h264', bf='2', **{'b-adapt': '0'})[:9]:
        with pytest.raises(SourceError, match=r'without .*zerolatency'):
            decoder.picture(packet)
