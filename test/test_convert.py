# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test image messages to arrays and back: encodings, padding, byte order, malformed input."""

from __future__ import annotations

import struct
from array import array

import cv2
import numpy as np
import pytest

pytest.importorskip('rclpy')

from scenes import texture
from sensor_msgs.msg import CompressedImage, Image

from vjepa_ros.ros.common.message_conversion import ImageError, read
from vjepa_ros.sources.gain import GainControl

pytestmark = pytest.mark.ros

WIDTH, HEIGHT = 24, 16
RGB = texture((WIDTH, HEIGHT))
GREY = cv2.cvtColor(RGB, cv2.COLOR_RGB2GRAY)
GREY_RGB = np.repeat(GREY[..., None], 3, 2)


def message(pixels: np.ndarray, encoding: str, *, padding: int = 0,
            big_endian: bool = False) -> Image:
    """An Image of an array, optionally with padded rows."""
    rows = np.ascontiguousarray(pixels).reshape(pixels.shape[0], -1).view(np.uint8)
    rows = np.pad(rows, ((0, 0), (0, padding)), constant_values=0xAA)
    msg = Image(height=pixels.shape[0], width=pixels.shape[1], encoding=encoding,
                is_bigendian=int(big_endian), step=rows.shape[1])
    msg.data.frombytes(rows.tobytes())
    return msg


def alpha(pixels: np.ndarray) -> np.ndarray:
    return np.dstack((pixels, np.full(pixels.shape[:2], 77, np.uint8)))


CHANNELS = {
    'rgb': RGB, 'bgr': RGB[..., ::-1], 'rgba': alpha(RGB), 'bgra': alpha(RGB[..., ::-1]),
    'mono': GREY}
ENCODINGS = [
    *((f'{order}{bits}', order, bits) for order in CHANNELS for bits in (8, 16)),
    ('8UC3', 'bgr', 8), ('8UC4', 'bgra', 8), ('8UC1', 'mono', 8), ('16UC1', 'mono', 16)]


def decode(msg: Image | CompressedImage) -> np.ndarray:
    """Its pixels in 8 bits."""
    return GainControl().reduce(read(msg))[0]


def check(msg: Image, expected: np.ndarray) -> None:
    rgb = decode(msg)
    assert rgb.dtype == np.uint8
    assert rgb.flags.c_contiguous
    np.testing.assert_array_equal(rgb, expected)


@pytest.mark.parametrize('padding', [0, 13])
@pytest.mark.parametrize(('encoding', 'order', 'bits'), ENCODINGS)
def test_encodings_of_8_and_16_bits_give_the_same_rgb(encoding, order, bits, padding):
    pixels, expected = CHANNELS[order], GREY_RGB if order == 'mono' else RGB
    if bits == 8:
        check(message(pixels, encoding, padding=padding), expected)
        return
    wide = (pixels.astype(np.uint16) << 8) | 0x3C       # something in the lower byte
    for byte_order in ('<u2', '>u2'):
        check(message(wide.astype(byte_order), encoding, padding=padding,
                      big_endian=byte_order == '>u2'), expected)


@pytest.mark.parametrize(('encoding', 'luma'), [('yuv422', 1), ('uyvy', 1), ('yuv422_yuy2', 0),
                                                ('yuyv', 0)])
def test_packed_yuv_gives_the_true_colours(encoding, luma):
    """Packed 4:2:2 by the formula of BT.601; `luma` is the place of Y in each pair of bytes."""
    colours = np.repeat(np.random.default_rng(0).integers(20, 235, (8, 8, 3)), 2, 1)
    y, u, v = np.moveaxis(colours @ np.transpose([
        [0.257, 0.504, 0.098], [-0.148, -0.291, 0.439], [0.439, -0.368, -0.071]]), -1, 0)
    packed = np.empty((8, 16, 2))
    packed[..., luma] = 16 + y
    packed[:, 0::2, 1 - luma], packed[:, 1::2, 1 - luma] = 128 + u[:, 0::2], 128 + v[:, 1::2]
    pixels = np.clip(np.rint(packed), 0, 255).astype(np.uint8)
    rgb = decode(message(pixels, encoding, padding=6))
    assert np.abs(rgb.astype(int) - colours).max() <= 4


def refused(msg: Image | CompressedImage) -> str:
    with pytest.raises(ImageError) as caught:
        decode(msg)
    return caught.value.kind


def compressed(data: bytes, form: str) -> CompressedImage:
    msg = CompressedImage(format=form)
    msg.data.frombytes(bytes(data))
    return msg


def encoded(extension: str) -> bytes:
    ok, data = cv2.imencode(extension, texture((96, 64))[..., ::-1])
    assert ok
    return data.tobytes()


def test_an_image_is_not_turned_by_its_exif_tag():
    # camera_info and looming speak of the pixels as the sensor gave them.
    data = encoded('.jpg')
    exif = (b'Exif\0\0' + b'II*\0\x08\0\0\0' + b'\x01\0'
            + struct.pack('<HHIHH', 0x0112, 3, 1, 6, 0) + b'\0\0\0\0')
    turned = data[:2] + b'\xff\xe1' + struct.pack('>H', len(exif) + 2) + exif + data[2:]
    assert decode(compressed(turned, 'jpeg')).shape == (64, 96, 3)


def test_an_unknown_encoding_is_refused():
    assert refused(message(RGB, '32FC7')) == 'unknown encoding'


@pytest.mark.parametrize('encoding', ['rgb8', 'mono8', 'yuv422', 'mono16', 'bayer_gbrg16'])
@pytest.mark.parametrize('fault', [{'width': 0}, {'height': 200}, {'step': 3},
                                   {'width': 2**31, 'height': 2**31}, {'data': array('B')}],
                         ids=['zero', 'short', 'step', 'huge', 'empty'])
def test_a_wrong_size_is_refused(encoding, fault):
    msg = message(np.zeros((8, 8, 6), np.uint8), encoding)
    for name, value in fault.items():
        setattr(msg, name, value)
    assert refused(msg) == 'bad size'


@pytest.mark.parametrize('form', ['jpeg', 'png'])
@pytest.mark.parametrize('keep', [0, 1, 2, 20, 0.3, 0.9])
def test_a_cut_off_file_is_refused(form, keep):
    data = encoded(f'.{form}')
    cut = keep if isinstance(keep, int) else round(keep * len(data))
    assert refused(compressed(data[:cut], form)) in ('corrupt', 'empty')


@pytest.mark.parametrize('encoding', ['nv24', '32FC1', '16SC1', 'jpeg', ''])
def test_other_encodings_are_refused_with_those_that_are_read(encoding):
    with pytest.raises(ImageError, match=rf"'{encoding}' is not supported: rgb8.*nv12.*bayer"):
        decode(message(np.zeros((HEIGHT, WIDTH), np.uint8), encoding))
