# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Images are decoded to the same RGB whatever their encoding, and measured before."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image
from pictures import GREY, flat_png
from scenes import texture

from vjepa_ros.sources import encodings
from vjepa_ros.sources.encodings import ImageError, MAX_SCANS, picture_size, read_compressed

RGB = np.random.default_rng(1).integers(0, 255, (6, 8, 3), np.uint8)


def padded(pixels: np.ndarray, padding: int = 5) -> tuple[bytes, int]:
    rows = pixels.reshape(pixels.shape[0], -1).view(np.uint8)
    full = np.full((rows.shape[0], rows.shape[1] + padding), 77, np.uint8)
    full[:, :rows.shape[1]] = rows
    return full.tobytes(), full.shape[1]


GREY_16 = RGB[..., 0].astype(np.uint16) * 257


@pytest.mark.parametrize(('encoding', 'pixels'), [
    ('rgb8', RGB), ('bgr8', RGB[..., ::-1]), ('8UC3', RGB[..., ::-1]),
    ('rgba8', np.dstack((RGB, RGB[..., :1]))),
    ('bgra8', np.dstack((RGB[..., ::-1], RGB[..., :1]))), ('mono8', RGB[..., 0]),
    *((name, GREY_16.astype(order)) for name in ('mono16', '16UC1') for order in ('<u2', '>u2'))])
def test_encodings_give_the_same_rgb_with_padded_rows(encoding, pixels):
    data, step = padded(np.ascontiguousarray(pixels))
    expected = RGB if pixels.ndim == 3 else np.dstack([RGB[..., 0]] * 3)
    for given in (data, data[:-5]):           # the padding of the last row may be missing
        assert np.array_equal(encodings.decode_raw(
            given, 8, 6, encoding, step, pixels.dtype == '>u2'), expected)


@pytest.mark.parametrize(('encoding', 'order'), [('nv12', (1, 2)), ('nv21', (2, 1))])
def test_planes_of_brightness_and_colour_give_the_colour(encoding, order):
    colour = np.array([180, 90, 60], np.uint8)
    flat = cv2.cvtColor(np.full((6, 8, 3), colour), cv2.COLOR_RGB2YUV_I420).ravel()
    y, u, v = flat[0], flat[48], flat[-1]
    planes = np.empty((9, 8), np.uint8)
    planes[:6] = y
    planes[6:, 0::2], planes[6:, 1::2] = ((y, u, v)[k] for k in order)
    data, step = padded(planes, 4)
    rgb = encodings.decode_raw(data, 8, 6, encoding, step)
    assert np.abs(rgb.astype(float) - colour).max() < 4
    with pytest.raises(ImageError, match='must be even'):
        encodings.decode_raw(data, 8, 5, encoding, step)


@pytest.mark.parametrize('pattern', ['rggb', 'bggr', 'gbrg', 'grbg'])
def test_bayer_patterns_give_back_their_colour(pattern):
    colour = {'r': 200, 'g': 120, 'b': 40}
    mosaic = np.empty((12, 12), np.uint8)
    for index, letter in enumerate(pattern):
        mosaic[index // 2::2, index % 2::2] = colour[letter]
    data, step = padded(mosaic)
    rgb = encodings.decode_raw(data, 12, 12, f'bayer_{pattern}8', step)
    assert (rgb == (200, 120, 40)).all()


SIZE = (96, 64)
PICTURE = texture(SIZE)


def file(suffix: str, *options: int) -> bytes:
    return cv2.imencode(suffix, PICTURE[..., ::-1], list(options))[1].tobytes()


def by_pillow(kind: str, mode: str = 'RGB', **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(PICTURE).convert(mode).save(out, kind, **options)
    return out.getvalue()


def size_of(data: bytes) -> tuple[int, int] | None:
    return picture_size(np.frombuffer(data, np.uint8))


JPEG = file('.jpg')


PROGRESSIVE = file('.jpg', cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
GOOD = {
    'jpeg': JPEG, 'progressive': PROGRESSIVE,
    'restarts': file('.jpg', cv2.IMWRITE_JPEG_RST_INTERVAL, 2), 'png': file('.png'),
    'fill bytes': JPEG[:2] + b'\xff' * 9 + JPEG[2:],
    'exif and profile': by_pillow('JPEG', exif=b'Exif\0\0' + bytes(40_000),
                                  icc_profile=bytes(100_000)),
    'cmyk': by_pillow('JPEG', 'CMYK'), 'grey': by_pillow('JPEG', 'L'),
    'animated png': by_pillow('PNG', save_all=True,
                              append_images=[Image.fromarray(PICTURE[::-1].copy())]),
}


@pytest.mark.parametrize('kind', GOOD)
def test_the_size_is_that_of_the_decoded_picture(kind):
    assert size_of(GOOD[kind]) == SIZE
    assert read_compressed(GOOD[kind]).shape == (*SIZE[::-1], 3)


@pytest.mark.parametrize('kind', ['.webp', '.bmp', '.tiff', '.gif'])
def test_what_is_neither_jpeg_nor_png_is_refused_whatever_opencv_makes_of_it(kind):
    data = by_pillow('GIF') if kind == '.gif' else file(kind)
    assert size_of(data) is None
    with pytest.raises(ImageError, match='jpeg or png') as caught:
        read_compressed(data)
    assert caught.value.kind == 'corrupt'


def size_at(data: bytes) -> int:
    """Where the segment of a jpeg that holds its size begins."""
    return next(i for i in range(len(data)) if data[i] == 0xFF and data[i + 1] in (0xC0, 0xC2))


def with_size(data: bytes, width: int, height: int) -> bytes:
    """A jpeg whose header says so."""
    at = size_at(data)
    return data[:at + 5] + height.to_bytes(2, 'big') + width.to_bytes(2, 'big') + data[at + 9:]


@pytest.mark.parametrize('data', [flat_png(5000, 4000, GREY), with_size(JPEG, 5000, 4000),
                                  with_size(PROGRESSIVE, 5000, 4000)],
                         ids=['png', 'jpeg', 'progressive'])
def test_a_large_picture_is_refused_with_its_size_and_not_decoded(data, monkeypatch):
    monkeypatch.setattr(encodings.cv2, 'imdecode', None)       # whoever calls it fails
    with pytest.raises(ImageError, match=r'5000x4000.*16777216 pixels') as caught:
        read_compressed(data, 4096 * 4096)
    assert caught.value.kind == 'too large'
    with pytest.raises(ImageError, match=r'100x100.*9999 pixels'):
        encodings.decode_raw(bytes(10_000), 100, 100, 'mono8', 100, max_pixels=9_999)


def test_a_png_whose_chunk_claims_what_is_not_there_is_refused_before_it_costs_memory(monkeypatch):
    good, chunk = GOOD['png'], (0xfffffff0).to_bytes(4, 'big') + b'tEXt'
    assert read_compressed(good + bytes(range(256))).shape[:2] == SIZE[::-1]     # after its end
    monkeypatch.setattr(encodings.cv2, 'imdecode', None)       # it would allocate 4 GB
    for data in (good[:33] + chunk + good[33:], good[:33] + chunk, good[:33] + bytes(12 << 17),
                 good[:-12] + b'\xff' * 4 + good[-8:]):
        with pytest.raises(ImageError, match='header'):
            read_compressed(data)


def test_a_jpeg_of_endless_scans_is_refused():
    at = PROGRESSIVE.rindex(b'\xff\xda')
    scan = PROGRESSIVE[at:-2]
    assert read_compressed(PROGRESSIVE[:at] + scan * 3 + b'\xff\xd9').shape[:2] == SIZE[::-1]
    with pytest.raises(ImageError, match='header'):
        read_compressed(PROGRESSIVE[:at] + scan * MAX_SCANS + b'\xff\xd9')


@pytest.mark.parametrize(('arguments', 'kind'), [
    ((8, 6, '32FC1', 32), 'unknown encoding'), ((8, 6, 'rgb8', 20), 'bad size'),
    ((8, 7, 'rgb8', 24), 'bad size'), ((0, 6, 'rgb8', 24), 'bad size'),
    ((2**31, 2**31, 'mono8', 2**31), 'bad size')])
def test_images_that_do_not_fit_are_refused(arguments, kind):
    with pytest.raises(ImageError) as caught:
        encodings.decode_raw(RGB.tobytes(), *arguments)
    assert caught.value.kind == kind


@pytest.mark.parametrize(('encoding', 'luma'), [('uyvy', 1), ('yuyv', 0)])
def test_packed_yuv_gives_the_true_colours(encoding, luma):
    """Packed 4:2:2 by the formula of BT.601; `luma` is the place of Y in each pair of bytes."""
    colours = np.repeat(np.random.default_rng(0).integers(20, 235, (8, 8, 3)), 2, 1)
    y, u, v = np.moveaxis(colours @ np.transpose([
        [0.257, 0.504, 0.098], [-0.148, -0.291, 0.439], [0.439, -0.368, -0.071]]), -1, 0)
    packed = np.empty((8, 16, 2))
    packed[..., luma] = 16 + y
    packed[:, 0::2, 1 - luma], packed[:, 1::2, 1 - luma] = 128 + u[:, 0::2], 128 + v[:, 1::2]
    data, step = padded(np.clip(np.rint(packed), 0, 255).astype(np.uint8), 6)
    rgb = encodings.decode_raw(data, 16, 8, encoding, step)
    assert np.abs(rgb.astype(int) - colours).max() <= 4


def test_an_image_is_not_turned_by_its_exif_tag():
    # camera_info and looming speak of the pixels as the sensor gave them.
    turned = Image.Exif()
    turned[0x0112] = 6
    assert read_compressed(by_pillow('JPEG', exif=turned.tobytes())).shape[:2] == SIZE[::-1]


@pytest.mark.parametrize('kind', ['jpeg', 'png'])
@pytest.mark.parametrize('keep', [0, 2, 20, 0.3, 0.9])
def test_a_cut_off_file_is_refused(kind, keep):
    cut = keep if isinstance(keep, int) else round(keep * len(GOOD[kind]))
    with pytest.raises(ImageError):
        read_compressed(GOOD[kind][:cut])
