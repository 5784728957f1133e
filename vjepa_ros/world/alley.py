# SPDX-License-Identifier: Apache-2.0
"""Draw the alley and what stands in it as a robot's camera sees it."""

from __future__ import annotations

import cv2
import numpy as np

from vjepa_ros.world import props, textures
from vjepa_ros.world.planes import Camera, Face, Strip
from vjepa_ros.world.timeline import ADVANCE_M, PERSON_Z_M, Moment

WIDTH_M, ROOF_M, CAMERA_HEIGHT_M = 5.2, 4.4, 0.7
REACH_M = 44.0
TROLLEY_SIZE = (1.0, 1.55)  # width and height of what the robot meets, in m
VAN_SIZE = (1.8, 2.1)
PERSON_SIZE = (0.5, 1.8)
_TROLLEY_DEPTH_M, _VAN_DEPTH_M = 1.1, 4.2
_STRIDE_M = 1.5             # walked in one cycle of the walking pictures
_HAZE = np.array([222.0, 226.0, 226.0])


def clearness(depth: np.ndarray | float) -> np.ndarray | float:
    """Share of its own light that reaches the camera from a surface at a depth in m."""
    fade = np.clip((REACH_M - depth) / 9.0, 0.0, 1.0)
    return np.exp(-((np.minimum(depth, 1e3) / 26.0) ** 1.5)) * fade


class Alley:
    """All textures of the scene, prepared for one camera.

    Parameters
    ----------
    size : (int, int)
        Image width and height in pixels.
    focal : float
        Focal length in pixels.
    seed : int
        Paints other bricks, slabs, crates and clouds.
    noise : float
        Standard deviation of the sensor noise in grey levels.
    """

    def __init__(self, size: tuple[int, int], focal: float, seed: int, noise: float):
        rng = np.random.default_rng(seed)
        self._size, self._focal, self._seed = size, focal, seed
        half = WIDTH_M / 2
        # Pixels per m of all textures fit a focal length of 500 px; small images need less.
        fine = min(1.0, max(0.35, focal / 500))
        ground = textures.paving(rng, ADVANCE_M / 2, WIDTH_M + 0.2, 250 * fine)
        self._strips = [Strip(ground, (-half - 0.1, 0, 0), (WIDTH_M + 0.2, 0, 0), ADVANCE_M / 2,
                              focal, CAMERA_HEIGHT_M, (0.35, REACH_M))]
        for side, brick, mortar, sunlit in (
                (-1, (146, 88, 68), (158, 150, 138), True),
                (1, (170, 148, 116), (150, 142, 130), False)):
            wall = textures.brick_wall(rng, ADVANCE_M, ROOF_M, 150 * fine, brick, mortar,
                                       sunlit)
            wall = np.roll(wall, round((PERSON_Z_M - textures.DOOR_AT_M) * 150 * fine),
                           axis=1)
            upright = np.ascontiguousarray(wall[::-1].transpose(1, 0, 2))
            self._strips.append(Strip(upright, (side * half, 0, 0), (0, -ROOF_M, 0), ADVANCE_M,
                                      focal, half, (0.7, REACH_M)))

        self._big = Face(props.crate(rng, 0.96, 0.72, 620 * fine))
        self._small = Face(props.crate(rng, 0.5, 0.5, 620 * fine, (168, 132, 88)))
        self._flat = Face(props.crate(rng, 0.42, 0.36, 620 * fine, (204, 158, 96)))
        self._flank = Face(props.crate(rng, 1.1, 0.72, 300 * fine, (126, 98, 64)))
        self._base = Face(props.trolley(rng, 1.0, 0.3, 480 * fine))
        self._van = Face(props.van_rear(rng, *VAN_SIZE, 320 * fine))
        self._walker = [Face(p) for p in props.person(rng, 170 * fine)]
        self._shadow = Face(props.shadow())

        self._make_air(rng)
        shape = (size[1] + 96, size[0] + 128, 3)
        grain = rng.normal(128.0, noise, shape) if noise > 0 else np.full(shape, 128.0)
        self._noise = np.clip(np.rint(grain), 0, 255).astype(np.uint8)
        self._straight = self._air(0.0)

    def _make_air(self, rng: np.random.Generator) -> None:
        """Sky, haze and clearness on a wide plane in front of the camera (seen when it turns)."""
        # 2.6 times the image on either side covers turns up to about 28 degrees.
        self._wide = (round(2.6 * self._size[0]), round(2.2 * self._size[1]))
        tiny = np.float32(1e-6)
        x, y = self._wide_grid(0.5)
        sky = textures.sky(rng, np.arctan2(-y, np.hypot(1.0, x)), np.arctan(x))
        x, y = self._wide_grid(2.0)  # painted larger and averaged down: clean edges of the roofs
        sky = cv2.resize(sky, x.shape[::-1], interpolation=cv2.INTER_LINEAR)
        wall = (WIDTH_M / 2) / np.maximum(np.abs(x), tiny)
        wall = np.where(-y * wall > ROOF_M - CAMERA_HEIGHT_M, np.float32(1e6), wall)
        depth = np.minimum(wall, CAMERA_HEIGHT_M / np.maximum(y, tiny))
        clear = clearness(depth).astype(np.float32)[..., None]
        light = np.where(depth[..., None] > 1e5, sky, np.float32(_HAZE)) * (1 - clear)
        self._clear, self._light = (
            cv2.resize(np.rint(a).astype(np.uint8), self._wide, interpolation=cv2.INTER_AREA)
            for a in (255 * clear[..., 0], light))

    def _wide_grid(self, scale: float) -> tuple[np.ndarray, np.ndarray]:
        """Directions x / z and y / z of the pixels of the wide plane, drawn at a scale."""
        cols, rows = (round(scale * n) for n in self._wide)
        return np.meshgrid(
            (np.arange(cols, dtype=np.float32) + 0.5 - cols / 2) / (scale * self._focal),
            (np.arange(rows, dtype=np.float32) + 0.5 - rows / 2) / (scale * self._focal))

    def _air(self, yaw: float) -> tuple[np.ndarray, np.ndarray]:
        """Clearness (3 equal channels) and light of the air for a turned camera."""
        camera = Camera(*self._size, self._focal, yaw=yaw)
        wide = Camera(*self._wide, self._focal)
        turn = camera.matrix() @ camera.rotation() @ np.linalg.inv(wide.matrix())
        clear, light = (cv2.warpPerspective(a, turn, self._size, flags=cv2.INTER_LINEAR,
                                            borderMode=cv2.BORDER_REPLICATE)
                        for a in (self._clear, self._light))
        return cv2.merge([clear] * 3), light

    def camera(self, moment: Moment) -> Camera:
        return Camera(*self._size, self._focal, (0.0, -CAMERA_HEIGHT_M, moment.robot_z),
                      moment.yaw)

    def draw(self, moment: Moment, exposure: float, grain: int) -> np.ndarray:
        """Image (H, W, 3) uint8 RGB.

        Parameters
        ----------
        moment : Moment
            Where everything is.
        exposure : float
            Factor on all light.
        grain : int
            Chooses the pattern of the sensor noise.
        """
        camera = self.camera(moment)
        frame = np.zeros((self._size[1], self._size[0], 3), np.uint8)
        for strip in self._strips:
            strip.draw(frame, camera)
        clear, light = self._straight if abs(moment.yaw) < 1e-9 else self._air(moment.yaw)
        cv2.multiply(frame, clear, dst=frame, scale=1 / 255)
        cv2.add(frame, light, dst=frame)

        things = [(z, self._draw_trolley, x) for x, z, _ in moment.trolley]
        things += [(moment.van_z, self._draw_van, 0.0),
                   (moment.person[1], self._draw_person, moment.person[0])]
        for z, draw, x in sorted(things, key=lambda thing: -thing[0]):
            if -_VAN_DEPTH_M < z - moment.robot_z < REACH_M:
                share = 1 - float(clearness(max(z - moment.robot_z, 0.0)))
                draw(frame, camera, x, z, (_HAZE, share))

        rng = np.random.default_rng((self._seed, grain))
        dx, dy = rng.integers(0, 128), rng.integers(0, 96)
        pattern = self._noise[dy:dy + self._size[1], dx:dx + self._size[0]]
        return cv2.addWeighted(frame, exposure, pattern, 1.0, -128.0)

    def _draw_shadow(self, frame: np.ndarray, camera: Camera, x: float, z: float, width: float,
                     depth: float, air: tuple[np.ndarray, float]) -> None:
        edge = 0.3 * width
        self._shadow.draw(frame, camera, (x - width / 2 - edge, 0.0, z + depth + edge),
                          (width + 2 * edge, 0, 0), (0, 0, -depth - 2 * edge), air)

    def _draw_trolley(self, frame: np.ndarray, camera: Camera, x: float, z: float,
                      air: tuple[np.ndarray, float]) -> None:
        self._draw_shadow(frame, camera, x, z, TROLLEY_SIZE[0], _TROLLEY_DEPTH_M, air)
        boxes = ((self._base, self._base, 0.0, 0.0, 1.0, 0.3),
                 (self._big, self._flank, 0.0, 0.3, 0.96, 0.72),
                 (self._small, self._flank, -0.2, 1.02, 0.5, 0.5),
                 (self._flat, self._flank, 0.26, 1.02, 0.38, 0.34))
        for _, flank, offset, low, width, height in boxes:
            left, right = x + offset - width / 2, x + offset + width / 2
            seen = left if left > 0 else right if right < 0 else None
            if seen is not None:
                flank.draw(frame, camera, (seen, -low - height, z), (0, 0, _TROLLEY_DEPTH_M),
                           (0, height, 0), air)
        for front, _, offset, low, width, height in boxes:
            front.draw(frame, camera, (x + offset - width / 2, -low - height, z), (width, 0, 0),
                       (0, height, 0), air)

    def _draw_van(self, frame: np.ndarray, camera: Camera, x: float, z: float,
                  air: tuple[np.ndarray, float]) -> None:
        width, height = VAN_SIZE
        self._draw_shadow(frame, camera, x, z, width, _VAN_DEPTH_M, air)
        self._van.draw(frame, camera, (x - width / 2, -height, z), (width, 0, 0),
                       (0, height, 0), air)

    def _draw_person(self, frame: np.ndarray, camera: Camera, x: float, z: float,
                     air: tuple[np.ndarray, float]) -> None:
        half = WIDTH_M / 2
        if abs(x) > half + 0.5:
            return
        width, height = props.PERSON_SIZE
        step = round(x / _STRIDE_M * props.WALK_STEPS) % props.WALK_STEPS
        left, right = max(x - width / 2, -half), min(x + width / 2, half)
        if left >= right:
            return
        if abs(x) < half - 0.4:
            self._draw_shadow(frame, camera, x, z - 0.15, 0.6, 0.3, air)
        opening = np.array([(left, -height, z), (right, -height, z), (right, 0, z), (left, 0, z)])
        self._walker[step].draw(frame, camera, (x - width / 2, -height, z), (width, 0, 0),
                                (0, height, 0), air, clip=opening)
