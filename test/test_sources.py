# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Sources deliver the right frames with the right stamps, whatever they are read from."""

from __future__ import annotations

import itertools
import math
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

from vjepa_ros.sources import SUPPORTED, SourceError, SourceLost, encodings, open_source, video
from vjepa_ros.sources.folder import natural_key
from vjepa_ros.sources.pacing import Pacer

S = 1_000_000_000


def picture(value: int, size: tuple[int, int] = (32, 24)) -> np.ndarray:
    """RGB picture whose grey level tells its number."""
    return np.full((size[1], size[0], 3), value, np.uint8)


def write_pictures(folder: Path, names: list[str], size: tuple[int, int] = (32, 24)) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        assert cv2.imwrite(str(folder / name), picture(10 * number, size))


def write_recording(folder: Path, rows: list[str], pictures: int = 4,
                    header: str = 'frame,stamp_s,collision,time_to_contact_s') -> Path:
    write_pictures(folder / 'frames', [f'{n:05d}.png' for n in range(pictures)])
    (folder / 'labels.csv').write_text('\n'.join([header, *rows]) + '\n')
    return folder


def values(frames) -> list[int]:
    return [round(frame.rgb.mean() / 10) for frame in frames]


def stamps_s(frames) -> list[float]:
    return [round((frame.stamp_ns - S) / 1e9, 4) for frame in frames]


@pytest.fixture
def ten(tmp_path) -> str:
    """Folder of ten numbered pictures, taken at 10 Hz unless told otherwise."""
    write_pictures(tmp_path / 'ten', [f'frame{n}.png' for n in range(10)])
    return str(tmp_path / 'ten')


@pytest.fixture
def clip(tmp_path) -> str:
    """Video of 20 numbered frames at 20 Hz."""
    path = str(tmp_path / 'clip.avi')
    writer = cv2.VideoWriter(path, cv2.VideoWriter_fourcc(*'MJPG'), 20.0, (64, 48))
    assert writer.isOpened()
    for number in range(20):
        writer.write(picture(10 * number, (64, 48)))
    writer.release()
    return path


# -- pictures and folders -------------------------------------------------------------------------

def test_a_folder_plays_in_natural_order_at_its_rate(ten):
    with open_source(ten) as source:
        frames = list(source)
        assert (source.size, source.rate_hz, source.frame_count) == ((32, 24), 10.0, 10)
    assert values(frames) == list(range(10))  # frame10 would come after frame9, not frame1
    assert stamps_s(frames) == [round(n / 10, 4) for n in range(10)]
    assert frames[0].stamp_ns > 0
    assert frames[3].truth is None
    assert frames[0].frame_id == 'camera'


def test_the_rate_of_a_folder_says_how_it_was_taken(ten):
    source = open_source(ten, rate=4.0)
    assert stamps_s(source)[:3] == [0.0, 0.25, 0.5]
    assert source.frame_count == 10


def test_natural_order_puts_2_before_10():
    names = ['f10.png', 'f2.png', 'F1.png', 'a.png']
    assert sorted(map(Path, names), key=natural_key) == [
        Path(n) for n in ('a.png', 'F1.png', 'f2.png', 'f10.png')]


def test_a_picture_comes_with_its_stored_bytes_until_it_is_resized(ten):
    frame = next(iter(open_source(ten)))
    assert frame.encoding == 'png'
    assert np.array_equal(encodings.decode_compressed(frame.encoded), frame.rgb)
    small = next(iter(open_source(ten, size=(16, 12))))
    assert small.rgb.shape == (12, 16, 3)
    assert small.encoded is None and small.encoding is None


def test_colours_come_as_rgb(tmp_path):
    red = np.zeros((8, 8, 3), np.uint8)
    red[..., 2] = 255  # OpenCV writes BGR
    cv2.imwrite(str(tmp_path / 'red.png'), red)
    frame = next(iter(open_source(str(tmp_path / 'red.png'))))
    assert frame.rgb[0, 0].tolist() == [255, 0, 0]
    assert frame.rgb.dtype == np.uint8 and frame.rgb.flags.c_contiguous


def test_a_single_picture_is_repeated_without_end(tmp_path):
    write_pictures(tmp_path, ['one.png'])
    source = open_source(str(tmp_path / 'one.png'), rate=20.0)
    assert source.frame_count is None
    assert stamps_s(itertools.islice(source, 300))[-1] == round(299 / 20, 4)
    assert len(list(open_source(str(tmp_path / 'one.png'), max_frames=7))) == 7


def test_a_broken_picture_is_named(ten):
    (Path(ten) / 'frame4.png').write_bytes(b'not a picture')
    frames = iter(open_source(ten))
    assert len(list(itertools.islice(frames, 4))) == 4
    with pytest.raises(SourceError, match=r'frame4\.png.*cannot be read'):
        next(frames)


# -- recordings -----------------------------------------------------------------------------------

def test_a_recording_carries_its_stamps_and_truth(tmp_path):
    folder = write_recording(tmp_path / 'rec', [
        '00000.png,0.0,0,inf', '00001.png,0.1,,2.5', '00002.png,0.35,1,'])
    source = open_source(str(folder))
    frames = list(source)
    assert stamps_s(frames) == [0.0, 0.1, 0.35]
    assert source.rate_hz == pytest.approx(2 / 0.35)
    assert [f.truth['collision'] for f in frames] == [False, None, True]
    assert [f.truth['time_to_contact_s'] for f in frames[:2]] == [math.inf, 2.5]
    assert math.isnan(frames[2].truth['time_to_contact_s'])


def test_stamps_of_a_real_clock_are_kept_as_they_are(tmp_path):
    folder = write_recording(tmp_path / 'rec', ['00000.png,1700000000.5,0,',
                                                '00001.png,1700000000.75,0,'])
    assert [f.stamp_ns for f in open_source(str(folder))] == [
        1_700_000_000_500_000_000, 1_700_000_000_750_000_000]


@pytest.mark.parametrize(('rows', 'header', 'message'), [
    (['00009.png,0,0,'], None, r"line 2: picture '.*00009\.png' does not exist"),
    (['00000.png,soon,0,'], None, "stamp_s 'soon' is not a number"),
    (['00000.png,nan,0,'], None, 'finite'),
    (['00000.png,1,0,', '00001.png,1,0,'], None, 'line 3: stamp_s 1 is not after'),
    (['00000.png,0,maybe,'], None, "collision 'maybe' is not a number"),
    (['00000.png,0,2,'], None, "collision '2' is not 0, 1 or empty"),
    (['00000.png,0,0,never'], None, "time_to_contact_s 'never'"),
    ([], None, 'has no rows'),
    (['00000.png,0'], 'name,time', r"lacks the columns \['frame', 'stamp_s'\]"),
])
def test_a_wrong_label_is_named_with_its_line(tmp_path, rows, header, message):
    more = {} if header is None else {'header': header}
    folder = write_recording(tmp_path / 'rec', rows, **more)
    with pytest.raises(SourceError, match=message):
        open_source(str(folder))


@pytest.mark.parametrize('text', [
    '700 0 15.5 0 0 710 11.5 0 0 0 1 0\n1 2 3', 'P0: 700 0 15.5 0 0 710 11.5 0 0 0 1 0\nP1: 0'])
def test_intrinsics_come_from_a_kitti_calibration(tmp_path, text):
    folder = write_recording(tmp_path / 'rec', ['00000.png,0,0,'])
    (folder / 'calib.txt').write_text(text)
    assert open_source(str(folder)).intrinsics == (700.0, 710.0, 15.5, 11.5)
    half = open_source(str(folder), size=(16, 12)).intrinsics
    assert half == (350.0, 355.0, 7.5, 5.5)  # the centre of a pixel is a whole number


def test_a_broken_calibration_is_an_error(tmp_path):
    folder = write_recording(tmp_path / 'rec', ['00000.png,0,0,'])
    (folder / 'calib.txt').write_text('fx: 700')
    with pytest.raises(SourceError, match=r'calib\.txt.*12 numbers'):
        open_source(str(folder))


# -- time: thinning, looping, skipping ------------------------------------------------------------

@pytest.mark.parametrize(('rate', 'expected'), [
    (10.0, list(range(0, 20, 2))), (5.0, [0, 4, 8, 12, 16]), (20.0, list(range(20))),
    (60.0, list(range(20)))])
def test_a_lower_rate_leaves_frames_out_and_a_higher_one_invents_none(clip, rate, expected):
    source = open_source(clip, rate=rate)
    frames = list(source)
    assert stamps_s(frames) == [round(n / 20, 4) for n in expected]
    assert source.frame_count == len(expected)
    assert source.rate_hz == min(rate, 20.0)


def test_thinning_takes_the_nearest_frames_and_keeps_the_mean_rate(clip):
    times = stamps_s(open_source(clip, rate=8.0))
    assert len(times) == 8
    targets = [n / 8 for n in range(8)]
    assert max(abs(a - b) for a, b in zip(times, targets, strict=True)) <= 0.025 + 1e-9


def test_the_first_seconds_can_be_left_out(clip):
    source = open_source(clip, start_s=0.5)
    frames = list(source)
    assert stamps_s(frames)[0] == 0.5
    assert len(frames) == source.frame_count == 10


def test_a_loop_goes_on_with_rising_stamps(ten):
    frames = list(open_source(ten, loop=True, max_frames=25))
    assert values(frames) == [n % 10 for n in range(25)]
    assert stamps_s(frames) == [round(n / 10, 4) for n in range(25)]


def test_a_loop_can_jump_back_like_a_bag(ten):
    frames = list(open_source(ten, loop=True, loop_mode='jump_back', max_frames=12))
    assert stamps_s(frames)[9:] == [0.9, 0.0, 0.1]


@pytest.mark.parametrize('mode', ['continue', 'jump_back'])
def test_a_loop_starts_again_behind_the_part_left_out(ten, mode):
    frames = list(open_source(ten, loop=True, loop_mode=mode, start_s=0.7, max_frames=5))
    assert values(frames) == [7, 8, 9, 7, 8]
    assert stamps_s(frames) == ([0.7, 0.8, 0.9, 1.0, 1.1] if mode == 'continue'
                                else [0.7, 0.8, 0.9, 0.7, 0.8])


def test_a_loop_of_nothing_is_an_error_not_a_hang(ten):
    with pytest.raises(SourceError, match='no frames to repeat'):
        next(iter(open_source(ten, loop=True, start_s=5.0)))


def test_a_source_plays_from_the_start_each_time(ten):
    source = open_source(ten, max_frames=3)
    assert stamps_s(source) == stamps_s(source) == [0.0, 0.1, 0.2]


def test_overdue_frames_are_skipped_undecoded_and_counted(ten):
    (Path(ten) / 'frame2.png').write_bytes(b'never read')
    source = open_source(ten)
    frames = iter(source)
    assert stamps_s([next(frames)]) == [0.0]
    source.skip_before(S + 450_000_000)
    assert stamps_s([next(frames)]) == [0.5]
    assert source.skipped == 4
    assert stamps_s([next(frames)]) == [0.6]


def test_skipping_in_a_loop_does_not_bend_time(ten):
    source = open_source(ten, loop=True)
    frames = iter(source)
    next(frames)
    source.skip_before(S + 10 * S)  # far behind the end of this pass
    assert stamps_s([next(frames)]) == [1.0]


@pytest.mark.parametrize(('name', 'value'), [
    ('rate', 0.0), ('rate', -1.0), ('rate', 1e6), ('loop_mode', 'again'), ('size', (0, 10)),
    ('max_frames', 0), ('start_s', -1.0), ('start_s', math.nan)])
def test_a_wrong_option_is_refused_by_name(ten, name, value):
    with pytest.raises(SourceError, match=name):
        open_source(ten, **{name: value})


def test_frames_are_due_by_their_stamps_and_a_jump_back_is_one_frame_later():
    pacer = Pacer()
    with pytest.raises(RuntimeError):
        pacer.overdue_before(0)
    now = 5 * S
    assert pacer.due_ns(100 * S, now) == now
    assert pacer.due_ns(100 * S + 40_000_000, now + 99) == now + 40_000_000
    assert pacer.due_ns(100 * S + 80_000_000, now + 10 * S) == now + 80_000_000  # no drift
    assert pacer.overdue_before(now + S) == 101 * S - 40_000_000
    assert pacer.due_ns(90 * S, 0) == now + 120_000_000
    assert pacer.due_ns(90 * S + 40_000_000, 0) == now + 160_000_000


# -- video and cameras ----------------------------------------------------------------------------

def test_a_video_has_the_stamps_of_its_rate(clip):
    source = open_source(clip)
    frames = list(source)
    assert (source.size, source.rate_hz, source.frame_count) == ((64, 48), 20.0, 20)
    assert stamps_s(frames) == [round(n / 20, 4) for n in range(20)]
    assert np.allclose([f.rgb.mean() for f in frames], np.arange(20) * 10, atol=4)


def test_what_is_no_video_says_so(tmp_path):
    (tmp_path / 'notes.mp4').write_text('no video')
    with pytest.raises(SourceError, match=r'notes\.mp4.*cannot be opened as a video'):
        open_source(str(tmp_path / 'notes.mp4'))


class FakeCapture:
    """Stands in for a camera driver: delivers ``left`` frames, then fails."""

    left = 5
    opens = True
    rate = 30.0
    log: list[tuple[int, float]] = []

    def __init__(self, device):
        self.device = device
        self.released = False

    def isOpened(self):
        return self.opens

    def set(self, name, value):
        self.log.append((name, value))

    def get(self, name):
        return self.rate

    def grab(self):
        type(self).left -= 1
        return self.left >= 0

    def retrieve(self):
        return True, picture(70, (64, 48))

    def read(self):
        return (True, picture(70, (64, 48))) if self.grab() else (False, None)

    def release(self):
        self.released = True


@pytest.fixture
def camera(monkeypatch) -> type[FakeCapture]:
    fake = type('Capture', (FakeCapture,), {'log': []})
    monkeypatch.setattr(video.cv2, 'VideoCapture', fake)
    return fake


def test_a_camera_is_stamped_by_the_wall_clock_and_its_loss_is_an_error_of_its_own(
        camera, monkeypatch):
    clock = itertools.count(1_700_000_000 * S, 33_000_000)
    monkeypatch.setattr(video.time, 'time_ns', lambda: next(clock))
    source = open_source('0', size=(64, 48), rate=30.0)
    assert source.live
    assert source.frame_count is None
    assert (cv2.CAP_PROP_FRAME_WIDTH, 64) in camera.log
    frames = []
    with pytest.raises(SourceLost, match='camera 0 stopped'):
        for frame in source:
            frames.append(frame)
    assert len(frames) == 4
    assert frames[0].stamp_ns == 1_700_000_000 * S


@pytest.mark.parametrize('spec', ['3', '/dev/video7', 'rtsp://host/stream'])
def test_a_camera_that_is_not_there_is_named_with_those_that_are(camera, spec):
    camera.opens = False
    with pytest.raises(SourceError, match=rf'{spec}.*video devices here') as error:
        open_source(spec)
    assert not isinstance(error.value, SourceLost)


def test_a_camera_without_a_known_rate_says_so(camera):
    camera.rate = 0.0
    assert math.isnan(open_source('0').rate_hz)
    camera.left = 0
    with pytest.raises(SourceError, match='delivers no picture'):
        open_source('0')


# -- synthetic ------------------------------------------------------------------------------------

def test_the_synthetic_source_has_exact_truth_and_intrinsics():
    source = open_source('synthetic', size=(96, 72), rate=5.0, start_s=6.0, max_frames=4)
    frames = list(source)
    assert stamps_s(frames) == [6.0, 6.2, 6.4, 6.6]
    truth = frames[0].truth
    assert truth['time_to_contact_s'] == pytest.approx(truth['distance_m'] / truth['speed'])
    assert source.intrinsics[0] == pytest.approx(75.0)
    assert frames[0].rgb.shape == (72, 96, 3)
    again = open_source('synthetic:approach', size=(96, 72), rate=5.0, start_s=6.0, max_frames=1)
    assert np.array_equal(next(iter(again)).rgb, frames[0].rgb)


def test_the_synthetic_source_ends_after_a_cycle_unless_it_loops():
    source = open_source('synthetic', size=(32, 32), rate=1.0)
    assert len(list(source)) == source.frame_count
    more = source.frame_count + 5
    on = stamps_s(open_source('synthetic', size=(32, 32), rate=1.0, loop=True, max_frames=more))
    assert on == [float(n) for n in range(more)]
    back = stamps_s(open_source('synthetic', size=(32, 32), rate=1.0, loop=True,
                                loop_mode='jump_back', max_frames=more))
    assert back[-5:] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_an_unknown_scene_is_refused():
    with pytest.raises(SourceError, match="'moon' is unknown: approach"):
        open_source('synthetic:moon')


# -- finding out what it is -----------------------------------------------------------------------

@pytest.mark.parametrize('spec', ['', '   ', 'nothing/here', '~/surely/not/there.mp4'])
def test_what_does_not_exist_is_named_with_what_is_supported(spec):
    with pytest.raises(SourceError) as error:
        open_source(spec)
    assert spec.strip() in str(error.value)
    assert SUPPORTED in str(error.value)


def test_a_folder_of_something_else_says_what_it_holds(tmp_path):
    (tmp_path / 'notes.txt').write_text('')
    with pytest.raises(SourceError, match=r'holds: notes\.txt'):
        open_source(str(tmp_path))
    (tmp_path / 'empty').mkdir()
    with pytest.raises(SourceError, match='holds: nothing'):
        open_source(str(tmp_path / 'empty'))


# -- encodings ------------------------------------------------------------------------------------

RGB = np.random.default_rng(1).integers(0, 255, (6, 8, 3), np.uint8)


def padded(pixels: np.ndarray, padding: int = 5) -> tuple[bytes, int]:
    rows = pixels.reshape(pixels.shape[0], -1).view(np.uint8)
    full = np.full((rows.shape[0], rows.shape[1] + padding), 77, np.uint8)
    full[:, :rows.shape[1]] = rows
    return full.tobytes(), full.shape[1]


@pytest.mark.parametrize(('encoding', 'pixels'), [
    ('rgb8', RGB), ('bgr8', RGB[..., ::-1]), ('8UC3', RGB[..., ::-1]),
    ('rgba8', np.dstack((RGB, RGB[..., :1]))),
    ('bgra8', np.dstack((RGB[..., ::-1], RGB[..., :1])))])
def test_colour_encodings_give_the_same_rgb_with_padded_rows(encoding, pixels):
    data, step = padded(np.ascontiguousarray(pixels))
    assert np.array_equal(encodings.decode_raw(data, 8, 6, encoding, step), RGB)
    assert np.array_equal(  # the padding of the last row may be missing
        encodings.decode_raw(data[:-5], 8, 6, encoding, step), RGB)


@pytest.mark.parametrize('big', [False, True])
def test_grey_of_8_and_16_bit_give_the_same(big):
    grey = RGB[..., 0]
    wide = (grey.astype(np.uint16) * 257).astype('>u2' if big else '<u2')
    data, step = padded(wide)
    for name in ('mono16', '16UC1'):
        assert np.array_equal(encodings.decode_raw(data, 8, 6, name, step, big),
                              np.dstack([grey] * 3))
    data, step = padded(grey.copy())
    assert np.array_equal(encodings.decode_raw(data, 8, 6, 'mono8', step), np.dstack([grey] * 3))


@pytest.mark.parametrize(('encoding', 'order'), [
    ('yuv422', (0, 1)), ('uyvy', (0, 1)), ('yuv422_yuy2', (1, 0)), ('yuyv', (1, 0))])
def test_yuv_of_a_grey_picture_is_grey(encoding, order):
    luma = np.arange(48, dtype=np.uint8).reshape(6, 8) * 4 + 20
    both = np.stack((np.full_like(luma, 128), luma), axis=-1)[..., list(order)]
    data, step = padded(np.ascontiguousarray(both), 4)
    rgb = encodings.decode_raw(data, 8, 6, encoding, step)
    expected = np.clip((luma.astype(float) - 16) * 255 / 219, 0, 255)
    assert np.abs(rgb.astype(float) - expected[..., None]).max() < 3


@pytest.mark.parametrize('bits', [8, 16])
@pytest.mark.parametrize('pattern', ['rggb', 'bggr', 'gbrg', 'grbg'])
def test_bayer_patterns_give_back_their_colour(pattern, bits):
    colour = {'r': 200, 'g': 120, 'b': 40}
    mosaic = np.empty((12, 12), np.uint8)
    for index, letter in enumerate(pattern):
        mosaic[index // 2::2, index % 2::2] = colour[letter]
    pixels = mosaic if bits == 8 else mosaic.astype('<u2') * 257
    data, step = padded(pixels)
    rgb = encodings.decode_raw(data, 12, 12, f'bayer_{pattern}{bits}', step)
    assert (rgb == (200, 120, 40)).all()


@pytest.mark.parametrize(('arguments', 'message'), [
    ((8, 6, '32FC1', 32), "'32FC1' is not supported: rgb8"),
    ((8, 6, 'rgb8', 20), 'must be at least 24'), ((8, 7, 'rgb8', 24), 'needs 168'),
    ((0, 6, 'rgb8', 24), 'sides must be')])
def test_images_that_do_not_fit_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        encodings.decode_raw(RGB.tobytes(), *arguments)


@pytest.mark.parametrize(('text', 'kind'), [
    ('jpeg', 'jpeg'), ('rgb8; jpeg compressed bgr8', 'jpeg'), ('PNG', 'png'),
    ('mono8; png compressed ', 'png')])
def test_compressed_formats_are_known_by_their_words(text, kind):
    assert encodings.compressed_kind(text) == kind


@pytest.mark.parametrize('text', ['16UC1; compressedDepth png', 'h264', ''])
def test_other_compressed_formats_are_refused(text):
    with pytest.raises(ValueError, match='not supported: jpeg, png'):
        encodings.compressed_kind(text)


# -- bags -----------------------------------------------------------------------------------------

class BagMaker:
    """Writes a small bag with the rosbags library."""

    def __init__(self, path: Path, storage: str = 'MCAP'):
        pytest.importorskip('rosbags')
        from rosbags.rosbag2 import StoragePlugin, Writer
        from rosbags.typesys import Stores, get_typestore
        self.store = get_typestore(Stores.ROS2_HUMBLE)
        self.writer = Writer(path, version=9, storage_plugin=StoragePlugin[storage])
        self.writer.open()
        self.connections = {}

    def type(self, name: str):
        return self.store.types[name]

    def header(self, stamp_ns: int, frame_id: str = 'eye'):
        time = self.type('builtin_interfaces/msg/Time')(
            sec=stamp_ns // S, nanosec=stamp_ns % S)
        return self.type('std_msgs/msg/Header')(stamp=time, frame_id=frame_id)

    def add(self, topic: str, kind: str, recorded_ns: int, **fields) -> None:
        if topic not in self.connections:
            self.connections[topic] = self.writer.add_connection(
                topic, kind, typestore=self.store)
        raw = self.store.serialize_cdr(self.type(kind)(**fields), kind)
        self.writer.write(self.connections[topic], recorded_ns, raw)

    def image(self, topic: str, stamp_ns: int, rgb: np.ndarray, encoding: str = 'rgb8',
              recorded_ns: int | None = None) -> None:
        self.add(topic, 'sensor_msgs/msg/Image', recorded_ns or stamp_ns,
                 header=self.header(stamp_ns), height=rgb.shape[0], width=rgb.shape[1],
                 encoding=encoding, is_bigendian=0, step=rgb.shape[1] * 3, data=rgb.reshape(-1))

    def jpeg(self, topic: str, stamp_ns: int, rgb: np.ndarray, text: str = 'jpeg') -> bytes:
        data = cv2.imencode('.jpg', rgb[..., ::-1])[1].reshape(-1)
        self.add(topic, 'sensor_msgs/msg/CompressedImage', stamp_ns,
                 header=self.header(stamp_ns), format=text, data=data)
        return data.tobytes()

    def info(self, topic: str, stamp_ns: int, size: tuple[int, int], focal: float) -> None:
        k = np.array([focal, 0, 15.5, 0, focal, 11.5, 0, 0, 1.0])
        roi = self.type('sensor_msgs/msg/RegionOfInterest')(
            x_offset=0, y_offset=0, height=0, width=0, do_rectify=False)
        self.add(topic, 'sensor_msgs/msg/CameraInfo', stamp_ns, header=self.header(stamp_ns),
                 height=size[1], width=size[0], distortion_model='plumb_bob', d=np.zeros(5),
                 k=k, r=np.eye(3).reshape(-1), p=np.zeros(12), binning_x=0, binning_y=0, roi=roi)

    def close(self) -> None:
        self.writer.close()


@pytest.mark.parametrize('storage', ['MCAP', 'SQLITE3'])
@pytest.mark.parametrize('lone_file', [False, True])
def test_a_bag_plays_its_images_with_their_headers(tmp_path, storage, lone_file):
    bag = BagMaker(tmp_path / 'bag', storage)
    for n in range(5):
        bag.image('/eye/image_raw', 50 * S + n * 100_000_000, picture(10 * n),
                  recorded_ns=60 * S + n * 100_000_000)
    bag.info('/eye/camera_info', 60 * S, (32, 24), 33.0)
    bag.close()
    path = tmp_path / 'bag'
    if lone_file:
        path = next(p for p in path.iterdir() if p.suffix in ('.mcap', '.db3'))
    with open_source(str(path)) as source:
        frames = list(source)
        assert (source.size, source.frame_count) == ((32, 24), 5)
        assert source.rate_hz == pytest.approx(10.0)
        assert source.intrinsics == (33.0, 33.0, 15.5, 11.5)
    assert values(frames) == list(range(5))
    assert [f.stamp_ns for f in frames] == [50 * S + n * 100_000_000 for n in range(5)]
    assert frames[0].frame_id == 'eye'
    assert frames[0].encoded is None


def test_compressed_images_of_a_bag_keep_their_bytes(tmp_path):
    bag = BagMaker(tmp_path / 'bag')
    data = bag.jpeg('/eye/compressed', 5 * S, picture(90), 'rgb8; jpeg compressed bgr8')
    bag.close()
    frame, = open_source(str(tmp_path / 'bag'))
    assert (frame.encoded, frame.encoding) == (data, 'jpeg')
    assert frame.rgb.mean() == pytest.approx(90, abs=2)


def test_the_image_topic_can_be_chosen_and_the_choice_is_said(tmp_path, caplog):
    bag = BagMaker(tmp_path / 'bag')
    for n in range(3):
        bag.image('/left/image_raw', S + n, picture(10))
        bag.image('/right/image_raw', S + n, picture(20))
    bag.jpeg('/left/image_raw/compressedDepth', S, picture(0), 'x; compressedDepth png')
    bag.close()
    path = str(tmp_path / 'bag')
    assert values(open_source(path, topic='/right/image_raw')) == [2, 2, 2]
    assert values(open_source(path, topic='right/image_raw')) == [2, 2, 2]
    assert not caplog.records
    assert values(open_source(path)) == [1, 1, 1]
    assert '/right/image_raw' in caplog.text
    with pytest.raises(SourceError, match=r"no image topic '/up'.*/left/image_raw \(Image\)"):
        open_source(path, topic='/up')


def test_a_bag_without_images_lists_what_it_has(tmp_path):
    bag = BagMaker(tmp_path / 'bag')
    bag.info('/eye/camera_info', S, (32, 24), 33.0)
    bag.close()
    with pytest.raises(SourceError, match=r'no image topic.*/eye/camera_info \(sensor_msgs'):
        open_source(str(tmp_path / 'bag'))


def test_intrinsics_that_do_not_fit_the_images_are_ignored_with_a_word(tmp_path, caplog):
    bag = BagMaker(tmp_path / 'bag')
    bag.image('/eye/image_raw', S, picture(10))
    bag.info('/eye/camera_info', S, (640, 480), 500.0)
    bag.close()
    assert open_source(str(tmp_path / 'bag')).intrinsics is None
    assert 'ignored' in caplog.text


def test_a_header_without_a_stamp_takes_the_time_of_recording(tmp_path):
    bag = BagMaker(tmp_path / 'bag')
    bag.image('/eye/image_raw', 0, picture(10), recorded_ns=77 * S)
    bag.close()
    assert next(iter(open_source(str(tmp_path / 'bag')))).stamp_ns == 77 * S


def test_a_broken_message_is_named_with_its_topic(tmp_path):
    bag = BagMaker(tmp_path / 'bag')
    bag.image('/eye/image_raw', S, picture(10))
    bag.image('/eye/image_raw', 2 * S, picture(10), encoding='strange')
    bag.close()
    frames = iter(open_source(str(tmp_path / 'bag')))
    next(frames)
    with pytest.raises(SourceError, match=r"/eye/image_raw.*'strange' is not supported"):
        next(frames)


def test_a_damaged_bag_is_an_error_of_its_own(tmp_path):
    pytest.importorskip('rosbags')
    (tmp_path / 'bad.mcap').write_bytes(b'nothing of the kind')
    with pytest.raises(SourceError, match=r'bad\.mcap.*cannot be opened'):
        open_source(str(tmp_path / 'bad.mcap'))


def test_a_missing_bag_library_is_named(tmp_path, monkeypatch):
    (tmp_path / 'a.mcap').write_bytes(b'')
    monkeypatch.setitem(sys.modules, 'rosbags.highlevel', None)
    with pytest.raises(SourceError, match='pip install rosbags'):
        open_source(str(tmp_path / 'a.mcap'))


# -- real recordings ------------------------------------------------------------------------------

@pytest.mark.parametrize(('name', 'size', 'rate', 'count'), [
    ('himax_2', (324, 244), 2.0, 34), ('himax_10', (324, 244), 2.0, 32),
    ('kitti_street', (1226, 370), 10.0, 51), ('euroc_still', (752, 480), 20.0, 40),
    ('motorway.mp4', (960, 540), 25.0, 221), ('cup.mp4', (640, 480), 26.8, 217),
    ('box.mp4', (640, 480), 30.0, 455), ('donkey_tub_bag', (160, 120), 20.0, 1000)])
def test_the_shared_recordings_are_read_whole(shared_data, name, size, rate, count):
    if name.endswith('bag'):
        pytest.importorskip('rosbags')
    source = open_source(str(shared_data / name))
    assert source.size == size
    assert source.rate_hz == pytest.approx(rate, rel=0.01)
    assert source.frame_count == pytest.approx(count, abs=1)
    times = [frame.stamp_ns for frame in source]
    assert len(times) == count
    assert (np.diff(times) > 0).all()


def test_the_shared_labels_and_intrinsics_arrive(shared_data):
    frames = list(open_source(str(shared_data / 'himax_2')))
    assert sum(f.truth['collision'] for f in frames) == 11
    assert open_source(str(shared_data / 'kitti_street')).intrinsics[0] == pytest.approx(707.09,
                                                                                        abs=0.01)
