# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Images are decoded to the same RGB whatever their encoding, and measured before."""

from __future__ import annotations

import io

import cv2
import numpy as np
import pytest
from PIL import Image
from scenes import texture

from vjepa_ros.sources import encodings
from vjepa_ros.sources.encodings import ImageError, read_compressed

RGB = np.random.default_rng(1).integers(0, 255, (6, 8, 3), np.uint8)
GREY_16 = RGB[..., 0].astype(np.uint16) * 257
COLOUR = np.array([200, 120, 40], np.uint8)


def padded(pixels: np.ndarray, padding: int = 6) -> tuple[bytes, int]:
    rows = np.ascontiguousarray(pixels).reshape(pixels.shape[0], -1).view(np.uint8)
    full = np.pad(rows, ((0, 0), (0, padding)), constant_values=77)
    return full.tobytes(), full.shape[1]


@pytest.mark.parametrize(('encoding', 'pixels'), [
    ('rgb8', RGB), ('bgr8', RGB[..., ::-1]), ('8UC3', RGB[..., ::-1]),
    ('rgba8', np.dstack((RGB, RGB[..., :1]))),
    ('bgra8', np.dstack((RGB[..., ::-1], RGB[..., :1]))), ('mono8', RGB[..., 0]),
    *((name, GREY_16.astype(order)) for name in ('mono16', '16UC1') for order in ('<u2', '>u2'))])
def test_encodings_give_the_same_rgb_with_padded_rows(encoding, pixels):
    data, step = padded(pixels)
    expected = RGB if pixels.ndim == 3 else np.dstack([RGB[..., 0]] * 3)
    for given in (data, data[:-6]):           # the padding of the last row may be missing
        assert np.array_equal(encodings.decode_raw(
            given, 8, 6, encoding, step, pixels.dtype == '>u2'), expected)


LUMA, BLUE, RED = 132, 81, 169          # of COLOUR by BT.601
PLANES = np.array([[LUMA] * 8] * 6 + [[BLUE, RED] * 4] * 3, np.uint8)
PAIRS = np.array([[LUMA, BLUE, LUMA, RED] * 4] * 6, np.uint8)
MOSAIC = np.tile(COLOUR[[[0, 1], [1, 2]]], (3, 4))


@pytest.mark.parametrize(('encoding', 'pixels'), [
    ('nv12', PLANES), ('yuyv', PAIRS), ('bayer_rggb8', MOSAIC),
    ('bayer_bggr8', MOSAIC[::-1, ::-1])])
def test_planes_packed_pairs_and_mosaics_give_back_their_colour(encoding, pixels):
    data, step = padded(pixels)
    rgb = encodings.decode_raw(data, 8, 6, encoding, step)
    assert np.abs(rgb.astype(float) - COLOUR).max() <= 4


SIZE = (96, 64)
PICTURE = texture(SIZE)


def file(suffix: str, *options: int) -> bytes:
    return cv2.imencode(suffix, PICTURE[..., ::-1], list(options))[1].tobytes()


def by_pillow(kind: str, mode: str = 'RGB', **options) -> bytes:
    out = io.BytesIO()
    Image.fromarray(PICTURE).convert(mode).save(out, kind, **options)
    return out.getvalue()


JPEG, PNG = file('.jpg'), file('.png')
PROGRESSIVE = file('.jpg', cv2.IMWRITE_JPEG_PROGRESSIVE, 1)
SCAN = PROGRESSIVE[PROGRESSIVE.rindex(b'\xff\xda'):-2]
TURNED = Image.Exif()
TURNED[0x0112] = 6
GOOD = {
    'jpeg': JPEG, 'progressive': PROGRESSIVE, 'png': PNG,
    'fill bytes': JPEG[:2] + b'\xff' * 9 + JPEG[2:], 'png with a rest': PNG + bytes(range(256)),
    # camera_info and looming speak of the pixels as the sensor gave them.
    'turned by its exif tag': by_pillow('JPEG', exif=TURNED.tobytes()),
    'cmyk': by_pillow('JPEG', 'CMYK'), 'grey': by_pillow('JPEG', 'L')}


@pytest.mark.parametrize('kind', GOOD)
def test_a_picture_has_the_size_that_is_measured_before(kind):
    assert read_compressed(GOOD[kind]).shape == (*SIZE[::-1], 3)
    with pytest.raises(ImageError, match='96x64') as caught:
        read_compressed(GOOD[kind], 96 * 64 - 1)
    assert caught.value.kind == 'too large'


def with_size(data: bytes, width: int, height: int) -> bytes:
    """A jpeg whose header says so."""
    at = next(i for i in range(len(data)) if data[i] == 0xFF and data[i + 1] in (0xC0, 0xC2))
    return data[:at + 5] + height.to_bytes(2, 'big') + width.to_bytes(2, 'big') + data[at + 9:]


CHUNK = (0xfffffff0).to_bytes(4, 'big') + b'tEXt'       # claims 4 GB, which OpenCV would allocate
REFUSED = {
    '.webp': file('.webp'), '.tiff': file('.tiff'),
    'a large png': PNG[:16] + (16000).to_bytes(4, 'big') + (8000).to_bytes(4, 'big') + PNG[24:],
    'a large jpeg': with_size(JPEG, 16000, 8000),
    'a chunk before the end': PNG[:33] + CHUNK + PNG[33:], 'a chunk at the end': PNG[:33] + CHUNK,
    'endless chunks': PNG[:33] + bytes(12 << 17), 'a long end': PNG[:-12] + b'\xff' * 4 + PNG[-8:],
    'endless scans': PROGRESSIVE[:-2] + SCAN * 100 + b'\xff\xd9'}


@pytest.mark.parametrize('kind', REFUSED)
def test_a_picture_that_is_costly_or_of_another_kind_is_not_decoded(kind, monkeypatch):
    monkeypatch.setattr(encodings.cv2, 'imdecode', None)       # whoever calls it fails
    with pytest.raises(ImageError, match=r'header|16000x8000.*67108864 pixels'):
        read_compressed(REFUSED[kind])


@pytest.mark.parametrize('data', [JPEG, PNG], ids=['jpeg', 'png'])
@pytest.mark.parametrize('keep', [0, 2, 20, 0.3, 0.9])
def test_a_cut_off_file_is_refused(data, keep):
    with pytest.raises(ImageError):
        read_compressed(data[:keep if isinstance(keep, int) else round(keep * len(data))])


@pytest.mark.parametrize(('arguments', 'kind'), [
    ((8, 6, '32FC1', 32), 'unknown encoding'), ((8, 6, 'rgb8', 20), 'bad size'),
    ((8, 7, 'rgb8', 24), 'bad size'), ((0, 6, 'rgb8', 24), 'bad size'),
    ((8, 5, 'nv12', 8), 'bad size'), ((2**31, 2**31, 'mono8', 2**31), 'bad size'),
    ((16000, 8000, 'mono8', 16000), 'too large')])
def test_images_that_do_not_fit_are_refused(arguments, kind):
    with pytest.raises(ImageError) as caught:
        encodings.decode_raw(RGB.tobytes(), *arguments)
    assert caught.value.kind == kind
