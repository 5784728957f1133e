# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA kernels that resize camera images: the bytes of `gpu.resize`, in a launch for each result.

PyTorch spends a kernel on every pixel of the runs of weights and a trip through memory on every
step; here a thread does all of one new pixel and writes it where it is to lie. Compiled at run
time by NVRTC like `vjepa_ros.runtime.forward.kernels`, once for each device, and compared with
the plain path for every view.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vjepa_ros.clip.gpu.kernel_source import SOURCES
from vjepa_ros.clip.gpu.resize import DeviceGrey, DeviceView
from vjepa_ros.clip.gpu.weights import (
    area_weights,
    halvings,
    is_half,
    linear_weights,
    runs,
    triangle_weights,
)
from vjepa_ros.clip.resize import View
from vjepa_ros.runtime.forward.kernels import KernelsMissing, begin_build, compiler, loading_on
from vjepa_ros.runtime.memory import is_out_of_memory

log = logging.getLogger(__name__)

_EACH = 128         # threads of a block
Made = Mapping[str, Callable[..., Any]]     # compiled kernels by their names
Size = tuple[int, int]                      # width and height


class Resizer:
    """What makes the model's input and the grey image of each frame of a camera.

    All that its launches use on the device lives as long as it does.

    Parameters
    ----------
    made : the compiled kernels of `SOURCES`
    view : how an image becomes the input of the model; `DeviceView.problem` has nothing against it
    grey_size : width and height of the grey image
    device : where the images are
    """

    def __init__(self, made: Made, view: View, grey_size: Size, device: torch.device) -> None:
        self._made, self._device = made, device
        self._stride = 3 * view.source_size[0]
        s, side, (x, y) = view.image_size, min(view.source_size), view.crop_offset
        self._halves: list[tuple[Tensor, Tensor, list[int]]] = []   # whence, where, the numbers
        if view.mode == 'crop':
            self._input = self._shrink((side, side), (s, s), (s, s), start=(x, y))
        elif view.mode == 'squash':
            self._input = self._shrink(view.source_size, (s, s), (s, s))
        elif view.mode == 'letterbox':
            self._input = self._shrink(view.source_size, view.resized, (s, s), place=(-x, -y))
        elif view.source_size == view.resized:
            self._input = self._shrink((s, s), (s, s), (s, s), start=(x, y))
        elif view.mode == 'hf':
            (cols, bits), (rows, more_bits) = (
                triangle_weights(n, m)
                for n, m in zip(view.source_size, view.resized, strict=True))
            tables = self._table(cols[x:x + s]), self._table(rows[y:y + s])
            self._input = 'triangle', s * s, None, [*tables, self._stride, s, bits, more_bits]
        else:
            tables = [self._put(np.stack(linear_weights(n, m))[:, at:at + s]) for n, m, at in
                      zip(view.source_size, view.resized, (x, y), strict=True)]
            self._input = 'linear', s * s, None, [*tables, self._stride, s]
        self._grey = self._shrink(view.source_size, grey_size, grey_size, grey=True)

    def __call__(self, given: Tensor, inputs: Tensor, greys: Tensor) -> None:
        """Queue the work for one image.

        Parameters
        ----------
        given : (2,) int64 on the device: row to write, address of the image (H, W, 3) uint8 there
        inputs, greys : the stores (N, S, S, 3) and (N, h, w) uint8
        """
        for source, out, numbers in self._halves:
            self._launch('halve', out.numel() // 3,
                         [given if source is None else source, out, *numbers])
        for (name, count, source, more), store in ((self._input, inputs), (self._grey, greys)):
            self._launch(name, count, [given if source is None else source, given, store, *more])

    def _launch(self, name: str, count: int, arguments: list[Any]) -> None:
        self._made[name]((-(-count // _EACH), 1, 1), (_EACH, 1, 1), arguments)

    def _shrink(self, size: Size, wanted: Size, out: Size, start: Size = (0, 0),
                place: Size = (0, 0), grey: bool = False) -> tuple[str, int, Tensor | None, list]:
        """Shrink what begins at `start`, to lie at `place` in `out`."""
        count, left = halvings(size, wanted)
        if grey and not is_half(size, wanted):      # OpenCV makes it in one step
            count, left = 0, size
        source, stride, (width, height) = None, self._stride, size
        for _ in range(count - 1):      # the last one is done on the way
            width, height = width // 2, height // 2
            half = torch.empty((height, width, 3), dtype=torch.uint8, device=self._device)
            self._halves.append((source, half, [stride, *start, width, height]))
            source = torch.tensor([0, half.data_ptr()], device=self._device)
            stride, start = 3 * width, (0, 0)
        tables = [self._table(area_weights(n, m)) for n, m in zip(left, wanted, strict=True)]
        return 'shrink', out[0] * out[1], source, [
            *tables, stride, *start, int(count > 0), *wanted, *place, *out, int(grey)]

    def _table(self, matrix: np.ndarray) -> Tensor:
        first, number, weight = runs(matrix)
        return self._put(np.stack([first, number, matrix.sum(1), *weight.T]))

    def _put(self, table: np.ndarray) -> Tensor:
        return torch.as_tensor(np.ascontiguousarray(table, np.int32), device=self._device)


def disagreement(resizer: Resizer, view: View, grey_size: Size, device: torch.device) -> str:
    """What the kernels make otherwise than the plain path; ''."""
    random = torch.Generator(device).manual_seed(0)
    image = torch.randint(0, 256, (*view.source_size[::-1], 3), dtype=torch.uint8, device=device,
                          generator=random)
    s = view.image_size
    stores = [torch.zeros((2, *shape), dtype=torch.uint8, device=device)
              for shape in ((s, s, 3), grey_size[::-1])]
    resizer(torch.tensor([1, image.data_ptr()], device=device), *stores)
    plain = DeviceView(view, device), DeviceGrey(view.source_size, grey_size, device)
    for name, store, one in zip(('input', 'grey image'), stores, plain, strict=True):
        wanted = torch.zeros_like(store)
        one.apply(image, wanted[1])
        wrong = int((store != wanted).sum())
        if wrong:
            return f'{wrong} bytes of the {name} are wrong'
    return ''


def build(device: torch.device) -> Made:
    """Compile the kernels for a device.

    Raises
    ------
    KernelsMissing
        When PyTorch offers no compiler, or it fails.
    """
    compile_kernel, made = compiler(), {}
    with loading_on(device):
        for name, source in SOURCES.items():
            try:
                made[name] = compile_kernel(source, name)
            except (RuntimeError, OSError) as error:
                raise KernelsMissing(f'kernel {name}: {error}') from error
    return made


@lru_cache(maxsize=16)
def prepare_resizing(device: torch.device) -> Future[Made] | None:
    """Begin to compile the kernels for a device, once, beside what else happens."""
    return begin_build(build, device, 'resize_kernels')


def choose_resizer(view: View, grey_size: Size,
                   device: torch.device) -> tuple[Resizer | None, str]:
    """Kernels for a view that agree with the plain path, or None and why; '' off CUDA."""
    pending = prepare_resizing(device)
    if pending is None:
        return None, ''
    try:
        resizer = Resizer(pending.result(), view, grey_size, device)
        problem = disagreement(resizer, view, grey_size, device)
    except KernelsMissing as error:
        log.info('images are resized on %s without kernels of its own: %s', device, error)
        return None, str(error)
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        problem = f'{type(error).__name__}: {error}'
    if problem:
        log.warning('the kernels that resize images are wrong on %s: %s; the plain path is used '
                    'instead, which is slower', device, problem)
        return None, problem
    return resizer, ''
