# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Test pictures from the packets of a video, with losses."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from recordings import video_packets
from scenes import texture

from vjepa_ros.sources import SourceError
from vjepa_ros.sources.video import PacketDecoder, pixels_of

PICTURE = texture((200, 160))
FRAMES = [PICTURE[2 * n:2 * n + 96, n:n + 128] for n in range(24)]


@pytest.mark.parametrize(('codec', 'options'), [
    ('h264', {'preset': 'ultrafast'}),
    ('h264', {'x264-params': 'ref=4:cqm=jvt:slices=3', 'profile': 'high'}),
    ('hevc', {'preset': 'ultrafast'})])
@pytest.mark.parametrize('lost', [(), (5,), (9, 10, 11), (0, 13)])
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


def test_packets_of_both_messages_become_pictures_with_their_stamps():
    pytest.importorskip('rclpy')
    from builtin_interfaces.msg import Time
    from std_msgs.msg import Header

    from vjepa_ros.ros.common.message_conversion import VideoInput, read, video_type
    from vjepa_ros.sources.encodings import ImageError

    video, stamp = VideoInput(), Time(sec=3, nanosec=4)
    packets = video_packets(FRAMES[:2], 'h264')
    for msg, frame in zip((
            SimpleNamespace(header=Header(stamp=stamp, frame_id='eye'), encoding='h264',
                            data=packets[0]),
            SimpleNamespace(timestamp=stamp, frame_id='eye', format='h264', data=packets[1])),
            FRAMES, strict=False):
        picture = video.picture(msg)
        assert (picture.header.stamp, picture.header.frame_id) == (stamp, 'eye')
        assert np.abs(read(picture).astype(int) - frame).mean() < 8
        with pytest.raises(ImageError, match='max_image_pixels'):
            read(picture, 100)
    with pytest.raises(ImageError, match="'vp9' is not supported"):
        video.picture(SimpleNamespace(format='vp9', data=b''))
    with pytest.raises(ImageError, match='can be read: ffmpeg'):
        video_type('std_msgs/msg/String')
