# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Publish the results of one camera: each output only when somebody listens."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from rclpy.lifecycle import LifecycleNode
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, PointCloud2, RegionOfInterest
from std_msgs.msg import Float32, Header

from vjepa_ros.clip.optics import Optics
from vjepa_ros.perception.looming_cells import LoomingCells
from vjepa_ros.perception.settings import Wants
from vjepa_ros.perception.types import Quality, Result
from vjepa_ros.ros.common.endpoints import advertise
from vjepa_ros.ros.common.message_conversion import (
    cloud,
    feature_cloud,
    image,
    jpeg,
    make_header,
    pack_assessment,
    pack_cells,
    pack_regions,
)
from vjepa_ros.ros.perception_node.camera_input import CameraInput
from vjepa_ros.ros.perception_node.obstacle_output import (
    DETECTIONS,
    METRES,
    ObstacleOutput,
    Sources,
)
from vjepa_ros.ros.perception_node.parameters import NodeConfig

SCALARS = ('motion_score', 'obstacle_score', 'collision_probability', 'collision_if_ahead',
           'time_to_contact')
OVERLAYS = ('overlay', 'overlay/compressed')
LATE = (*METRES, *OVERLAYS)     # what takes time
# Outputs that need the motion score or the features, these themselves, and the looming field.
FEATURES = frozenset(('features', 'embedding'))
NEED_CHANGE = ('motion_map', *FEATURES)
NEED_FEATURES = ('motion_score', 'assessment', *OVERLAYS, *NEED_CHANGE)
NEED_LOOMING = ('obstacle_score', 'collision_probability', 'collision_if_ahead',
                'time_to_contact', 'assessment', 'obstacles', 'looming_map', 'looming_field',
                *OVERLAYS, DETECTIONS, *METRES)


@dataclass(frozen=True)
class Publishing:
    """What a publication needs besides the result."""

    latency_ms: float  # age of the newest frame [ms]
    optics: Optics  # intrinsics of the source image
    # Hash of the tensors of the encoder; '' where it has none (random weights, or files that are
    # not of this package)
    encoder: str = ''


Make = Callable[[Header, Result, Publishing], Any]


def _scalar(name: str) -> Make:
    return lambda header, result, how: Float32(data=float(getattr(result.assessment, name)))


# Type, depth and maker of each topic, in the order of publishing: the assessment first.
TOPICS: Mapping[str, tuple[type, int, Make]] = {
    'assessment': (PointCloud2, 10, lambda header, result, how: cloud(
        header, pack_assessment(result.assessment, how.latency_ms))),
    **{name: (Float32, 10, _scalar(name)) for name in SCALARS},
    'obstacles': (PointCloud2, 10, lambda header, result, how: cloud(
        header, pack_regions(result.assessment.regions))),
    'motion_map': (Image, 1, lambda header, result, how: image(
        header, _known(result.motion_map, 'motion map'), '32FC1')),
    'moving_map': (Image, 1, lambda header, result, how: image(
        header, _moving(result), '32FC1')),
    'looming_field': (PointCloud2, 10, lambda header, result, how: cloud(
        header, pack_cells(LoomingCells.of(result, how.optics)))),
    'looming_map': (Image, 1, lambda header, result, how: image(
        header, _known(result.looming_map, 'looming map'), '32FC1')),
    'map_info': (CameraInfo, 1, lambda header, result, how: _map_info(
        header, result, how.optics)),
    'features': (PointCloud2, 1, lambda header, result, how: feature_cloud(
        header, _known(result.features, 'features')[-1], how.encoder)),   # of the newest tubelet
    'embedding': (PointCloud2, 1, lambda header, result, how: feature_cloud(
        header, _known(result.features, 'features').mean(axis=(0, 1, 2))[None, None])),
}
DRAWN = {'overlay': Image, 'overlay/compressed': CompressedImage}


class Outputs:
    """The publishers of one camera, ``~/NAME/...``."""

    def __init__(self, node: LifecycleNode, camera: CameraInput, config: NodeConfig,
                 sources: Sources) -> None:
        self._node = node
        self._pubs: dict[str, Any] = {}
        with ExitStack() as made:
            made.callback(self._destroy)
            for name, (kind, depth, _) in TOPICS.items():
                self._pubs[name] = advertise(node, kind, f'~/{camera.name}/{name}', depth)
            for name, kind in DRAWN.items():
                self._pubs[name] = advertise(node, kind, f'~/{camera.name}/{name}')
            self.obstacles = ObstacleOutput(node, camera, config.obstacles, config.settings,
                                            sources)
            made.pop_all()

    def _destroy(self) -> None:
        for pub in self._pubs.values():
            self._node.destroy_lifecycle_publisher(pub)
        self._pubs.clear()

    def close(self) -> None:
        """Destroy the publishers (also from the node's list of managed entities)."""
        self._destroy()
        self.obstacles.close()

    def wanted(self) -> frozenset[str]:
        """Return the names of the outputs that have subscribers now."""
        names = []
        for pubs in (self._pubs, self.obstacles.pubs):
            for name, pub in pubs.items():
                if pub.get_subscription_count():
                    names.append(name)
        return frozenset(names)

    def publish(self, result: Result, wanted: frozenset[str], how: Publishing) -> None:
        """Publish what is at hand of one result, with the header of its newest frame."""
        header = make_header(result.assessment.stamp_ns, result.assessment.frame_id)
        if Quality.NOT_FINITE in result.assessment.flags:
            wanted -= FEATURES      # there are none
        for name, (_, _, make) in TOPICS.items():
            if name in wanted:
                self._pubs[name].publish(make(header, result, how))
        if DETECTIONS in wanted:
            self.obstacles.publish_detections(result, header)

    def publish_late(self, result: Result, wanted: frozenset[str], optics: Optics,
                     overlay: Callable[[], np.ndarray], until_s: float) -> None:
        """Publish what takes time: obstacles in metres and the overlay; wait for tf until then."""
        header = make_header(result.assessment.stamp_ns, result.assessment.frame_id)
        if not wanted.isdisjoint(METRES):
            self.obstacles.publish(result, header, optics, wanted, until_s)
        if not wanted.isdisjoint(OVERLAYS):
            self.publish_overlay(header, overlay(), wanted)

    def publish_overlay(self, header: Header, bgr: np.ndarray, wanted: frozenset[str]) -> None:
        """Publish a drawn overlay, raw and compressed as wanted."""
        if 'overlay' in wanted:
            self._pubs['overlay'].publish(image(header, bgr, 'bgr8'))
        if 'overlay/compressed' in wanted:
            self._pubs['overlay/compressed'].publish(jpeg(header, bgr))


@lru_cache(64)
def wants_of(wanted: frozenset[str]) -> Wants:
    """Return what must be computed for these outputs."""
    return Wants(features=not wanted.isdisjoint(NEED_FEATURES),
                 looming=not wanted.isdisjoint(NEED_LOOMING),
                 image=not wanted.isdisjoint(OVERLAYS),
                 change=not wanted.isdisjoint(NEED_CHANGE),
                 moving=not wanted.isdisjoint(('moving_map', 'looming_field')))


def _known(values: np.ndarray | None, what: str) -> np.ndarray:
    """Return what `wants_of` has asked for."""
    if values is None:
        raise ValueError(f'the result has no {what}')
    return values


def _moving(result: Result) -> np.ndarray:
    """Return the moving map, unknown everywhere without valid heads."""
    if result.moving_map is None:
        return np.full(result.view.patch_valid.shape, np.nan, np.float32)
    return result.moving_map


def _map_info(header: Header, result: Result, optics: Optics) -> CameraInfo:
    """Make a CameraInfo of the patch grid; `roi` is the part of the source image seen."""
    fx, fy, cx, cy = result.view.camera_info(optics.fx, optics.fy, optics.cx, optics.cy)
    height, width = result.view.patch_valid.shape
    x0, y0, x1, y1 = (round(v) for v in result.view.region)
    bent = optics.distortion
    return CameraInfo(
        header=header, height=height, width=width,
        distortion_model='' if bent is None else bent.model,
        d=[] if bent is None else bent.coefficients,
        k=[fx, 0.0, cx, 0.0, fy, cy, 0.0, 0.0, 1.0],
        r=[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0],
        p=[fx, 0.0, cx, 0.0, 0.0, fy, cy, 0.0, 0.0, 0.0, 1.0, 0.0],
        roi=RegionOfInterest(x_offset=max(0, x0), y_offset=max(0, y0), width=x1 - max(0, x0),
                             height=y1 - max(0, y0), do_rectify=False))
