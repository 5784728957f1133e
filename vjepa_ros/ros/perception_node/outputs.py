# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Publish the results: each output only when somebody listens, none while inactive."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from builtin_interfaces.msg import Time
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, PointCloud2, RegionOfInterest
from std_msgs.msg import Float32, Header

from vjepa_ros.perception.collision import Optics
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.pipeline import Perception, known_age
from vjepa_ros.perception.settings import Wants
from vjepa_ros.perception.types import Result
from vjepa_ros.ros.common import message_conversion
from vjepa_ros.ros.common.cloud_layout import pack_assessment, pack_cells, pack_regions
from vjepa_ros.ros.common.endpoints import advertise
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.obstacle_output import DETECTIONS, METRES, ObstacleOutput
from vjepa_ros.ros.perception_node.parameters import NodeConfig
from vjepa_ros.ros.perception_node.statistics import CameraStats
from vjepa_ros.visualization.overlay import OverlayStatus, draw_overlay

SCALARS = ('motion_score', 'obstacle_score', 'collision_probability', 'time_to_contact')
TOPICS = {
    **dict.fromkeys(SCALARS, Float32),
    'assessment': PointCloud2, 'obstacles': PointCloud2,
    'motion_map': Image, 'moving_map': Image, 'looming_map': Image, 'map_info': CameraInfo,
    'looming_field': PointCloud2, 'features': PointCloud2, 'embedding': PointCloud2,
    'overlay': Image, 'overlay/compressed': CompressedImage,
}
# Outputs that need the motion score or the features, these themselves, and the looming field.
NEED_CHANGE = ('motion_map', 'features', 'embedding')
NEED_FEATURES = ('motion_score', 'assessment', 'overlay', 'overlay/compressed', *NEED_CHANGE)
NEED_LOOMING = ('obstacle_score', 'collision_probability', 'time_to_contact', 'assessment',
                'obstacles', 'looming_map', 'looming_field', 'overlay', 'overlay/compressed',
                DETECTIONS, *METRES)
OVERLAYS = ('overlay', 'overlay/compressed')
LATE = (*METRES, *OVERLAYS)     # what takes time


def make_header(stamp_ns: int, frame_id: str) -> Header:
    """A header with exactly this stamp [ns]."""
    sec, nanosec = divmod(stamp_ns, 1_000_000_000)
    return Header(stamp=Time(sec=sec, nanosec=nanosec), frame_id=frame_id)


@dataclass(frozen=True)
class Publishing:
    """What a publication needs besides the result."""

    features_reduce: str
    latency_ms: float
    optics: Optics


class Outputs:
    """The publishers of one camera, ``~/NAME/...``.

    Parameters
    ----------
    node
        Lifecycle node that owns the publishers.
    camera
        Name of the camera.
    """

    def __init__(self, node: LifecycleNode, camera: str) -> None:
        self._node = node
        self._pubs = {}
        self.obstacles: ObstacleOutput | None = None    # in metres, where there is geometry
        try:
            for name, kind in TOPICS.items():
                small = name in (*SCALARS, 'assessment', 'obstacles', 'looming_field')
                self._pubs[name] = advertise(node, kind, f'~/{camera}/{name}',
                                             depth=10 if small else 1)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Destroy the publishers (also from the node's list of managed entities)."""
        for pub in self._pubs.values():
            self._node.destroy_lifecycle_publisher(pub)
        self._pubs.clear()
        if self.obstacles is not None:
            self.obstacles.close()

    def wanted(self) -> frozenset[str]:
        """Names of the outputs that have subscribers now."""
        mine = frozenset(n for n, p in self._pubs.items() if p.get_subscription_count() > 0)
        return mine if self.obstacles is None else mine | self.obstacles.wanted()

    @staticmethod
    def wants(wanted: frozenset[str]) -> Wants:
        """What must be computed for these outputs."""
        return Wants(features=not wanted.isdisjoint(NEED_FEATURES),
                     looming=not wanted.isdisjoint(NEED_LOOMING),
                     image=not wanted.isdisjoint(OVERLAYS),
                     change=not wanted.isdisjoint(NEED_CHANGE),
                     moving=not wanted.isdisjoint(('moving_map', 'looming_field')))

    def publish(self, result: Result, wanted: frozenset[str], how: Publishing) -> None:
        """Publish what is at hand of one result to those who want it, the assessment first.

        Every header is that of the newest frame.
        """
        a = result.assessment
        header = make_header(a.stamp_ns, a.frame_id)
        send = {
            'assessment': lambda: message_conversion.cloud(
                header, pack_assessment(a, how.latency_ms)),
            **{name: lambda name=name: Float32(data=float(getattr(a, name))) for name in SCALARS},
            'obstacles': lambda: message_conversion.cloud(header, pack_regions(a.regions)),
            'motion_map': lambda: message_conversion.image(header, result.motion_map, '32FC1'),
            'moving_map': lambda: message_conversion.image(header, _moving(result), '32FC1'),
            'looming_field': lambda: message_conversion.cloud(
                header, pack_cells(LoomingCells.of(result, how.optics))),
            'looming_map': lambda: message_conversion.image(header, result.looming_map, '32FC1'),
            'map_info': lambda: _map_info(header, result, how.optics),
            'features': lambda: message_conversion.feature_cloud(
                header, reduce_features(result.features, how.features_reduce)),
            'embedding': lambda: message_conversion.feature_cloud(
                header, result.features.mean(axis=(0, 1, 2))[None, None]),
        }
        for name, make in send.items():
            if name in wanted:
                self._pubs[name].publish(make())
        if DETECTIONS in wanted and self.obstacles is not None:
            self.obstacles.publish_detections(result, header)

    def publish_late(self, result: Result, wanted: frozenset[str], optics: Optics,
                     overlay: Callable[[], np.ndarray], until_s: float) -> None:
        """Publish what takes time: obstacles in metres, which may wait for tf, and the overlay.

        Parameters
        ----------
        result, wanted
            As for `publish`.
        optics
            Of the source image.
        overlay
            Draws it (BGR), called only when wanted.
        until_s
            Steady time until which tf is waited for [s].
        """
        a = result.assessment
        header = make_header(a.stamp_ns, a.frame_id)
        if self.obstacles is not None and not wanted.isdisjoint(METRES):
            self.obstacles.publish(result, header, optics, wanted, until_s)
        if not wanted.isdisjoint(OVERLAYS):
            self.publish_overlay(header, overlay(), wanted)

    def publish_overlay(self, header: Header, bgr: np.ndarray, wanted: frozenset[str]) -> None:
        """Publish a drawn overlay, raw and compressed as wanted."""
        if 'overlay' in wanted:
            self._pubs['overlay'].publish(message_conversion.image(header, bgr, 'bgr8'))
        if 'overlay/compressed' in wanted:
            self._pubs['overlay/compressed'].publish(message_conversion.jpeg(header, bgr))


class Pass(NamedTuple):
    """What made a result: the activation it was begun in, the model, the parameters.

    `switching` says whether another model waits to take over.
    """

    generation: int
    perception: Perception
    config: NodeConfig
    switching: bool


class PublicationGate:
    """The output side of the worker: lets results of the present activation out, no others.

    Parameters
    ----------
    cameras, outputs
        Input and output side of each camera.
    now_ns
        The node's clock [ns] (simulated or not).
    log
        The node's logger.

    Attributes
    ----------
    stats
        What has been published, by camera.
    """

    def __init__(self, cameras: Mapping[str, CameraInput], outputs: Mapping[str, Outputs],
                 now_ns: Callable[[], int], log: object) -> None:
        self.stats = {name: CameraStats() for name in cameras}
        self._cameras = cameras
        self._outputs = outputs
        self._now_ns = now_ns
        self._log = log
        self._lock = threading.Lock()    # held while publishing
        self._open = False
        self._generation = 0             # of activations: an old one must not publish in a new

    def open(self) -> None:
        """Begin an activation."""
        with self._lock:
            self._open = True
            self._generation += 1

    def shut(self) -> None:
        """End it: nothing is published once this has returned."""
        with self._lock:
            self._open = False

    def admission(self) -> tuple[bool, int]:
        """Whether anything may be published now, and the number of the activation."""
        with self._lock:
            return self._open, self._generation

    def wanted(self) -> dict[str, frozenset[str]]:
        """Outputs with subscribers, by camera."""
        return {name: out.wanted() for name, out in self._outputs.items()}

    def age_s(self, stamp_ns: int) -> float:
        """Age of a stamp [ns] now [s]; NaN before simulated time starts."""
        return known_age(self._now_ns(), stamp_ns)

    def publish(self, result: Result, wanted: frozenset[str], by: Pass) -> Result | None:
        """Publish what is at hand of one result, and count it.

        Parameters
        ----------
        result, wanted
            What is known, and the outputs that have subscribers.
        by
            What made it.

        Returns
        -------
        Result, optional
            With the time of publishing; None when the activation has ended meanwhile.
        """
        a = result.assessment
        stats = self.stats[a.camera]
        latency_ms = self.age_s(a.stamp_ns) * 1e3
        start = time.perf_counter()
        how = Publishing(by.config.features_reduce, latency_ms,
                         by.perception.tracks[a.camera].optics())
        with self._lock:
            if not self._lets(by):
                return None
            self._outputs[a.camera].publish(result, wanted, how)
        a.timings['publish'] = (time.perf_counter() - start) * 1e3
        stats.add(result, self.age_s(a.stamp_ns) * 1e3)
        stats.tell(self._log, a, latency_ms)
        return result

    def publish_late(self, result: Result, wanted: frozenset[str], by: Pass,
                     until_s: float) -> None:
        """Publish what takes time, after what `publish` publishes.

        Parameters
        ----------
        result, wanted, by
            As for `publish`.
        until_s
            Steady time until which tf is waited for [s].
        """
        name = result.assessment.camera
        if wanted.isdisjoint(LATE):
            return
        with self._lock:
            if self._lets(by):
                self._outputs[name].publish_late(
                    result, wanted, by.perception.tracks[name].optics(),
                    lambda: self._draw(name, by, result, None), until_s)

    def publish_state(self, name: str, wanted: frozenset[str], silent_s: float | None,
                      by: Pass) -> None:
        """The overlay while there is no assessment: buffering, or a camera fallen silent."""
        track = by.perception.tracks[name]
        if wanted.isdisjoint(OVERLAYS):
            return
        stale_s = math.inf if track.image is None else silent_s
        bgr = self._draw(name, by, None, stale_s)
        newest = track.ring.newest_ns
        header = make_header(self._now_ns() if newest is None else newest, track.ring.frame_id)
        with self._lock:
            if self._lets(by):
                self._outputs[name].publish_overlay(header, bgr, wanted)

    def _lets(self, by: Pass) -> bool:
        return self._open and by.generation == self._generation

    def _draw(self, name: str, by: Pass, result: Result | None, silent_s: float | None
              ) -> np.ndarray:
        track, stats, now = by.perception.tracks[name], self.stats[name], time.monotonic()
        engine = by.perception.engine
        status = OverlayStatus(
            camera=name, model=engine.config.model_size, device=str(engine.choice.device),
            fill=track.ring.fill, num_frames=track.config.num_frames,
            rate_in_hz=self._cameras[name].rate.hz(now), rate_out_hz=stats.rate.hz(now),
            latency_ms=stats.latency.summary()[0], stale_s=silent_s,
            warnings=('switching model',) if by.switching else (),
            untrained=not engine.report.trained,
            focal_px=track.optics().fx if track.ring.size[0] else None)
        image = track.image if result is None else result.image
        return draw_overlay(
            image, None if result is None else result.assessment,
            None if result is None else result.moves,
            None if result is None else result.looming, track.view, status=status,
            width=by.config.overlay_width, min_confidence=by.config.settings.min_confidence)


def reduce_features(features: np.ndarray, how: str) -> np.ndarray:
    """(T', Hp, Wp, D) to the published grid: last or mean (Hp, Wp, D), all (T' Hp, Wp, D)."""
    if how == 'last':
        return features[-1]
    if how == 'mean':
        return features.mean(axis=0)
    return features.reshape(-1, *features.shape[2:])


def _moving(result: Result) -> np.ndarray:
    """The moving map, unknown everywhere without heads that hold."""
    if result.moving_map is None:
        return np.full(result.view.patch_valid().shape, np.nan, np.float32)
    return result.moving_map


def _map_info(header: Header, result: Result, optics: Optics) -> CameraInfo:
    """CameraInfo scaled to the patch grid; `roi` is the part of the source image seen."""
    fx, fy, cx, cy = result.view.camera_info(optics.fx, optics.fy, optics.cx, optics.cy)
    height, width = result.view.patch_valid().shape
    x0, y0, x1, y1 = (round(v) for v in result.view.region)
    return CameraInfo(
        header=header, height=height, width=width, distortion_model='',
        k=[fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
        r=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p=[fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
        roi=RegionOfInterest(x_offset=max(0, x0), y_offset=max(0, y0), width=x1 - max(0, x0),
                             height=y1 - max(0, y0), do_rectify=False))
