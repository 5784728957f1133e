# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels for the two parts of looming that take PyTorch most launches.

The inverse search of patches (`vjepa_ros.perception.device_flow`) and the window fits
(`vjepa_ros.perception.device_fit`) are chains of hundreds of tiny steps; here a warp of 32
threads does all steps of one patch or one cell. The formulas are those of the two modules, which
remain the plain path. Compiled at run time by NVRTC like `vjepa_ros.runtime.kernels`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vjepa_ros.runtime.kernels import KernelsMissing

MOST_BLOCKS = 49   # of a window, that `FIT` has room for
_WARPS = 4         # patches of a block of threads

# Each warp a patch of 8x8 pixels, two a thread. ROUND 0 starts from the level above; 1 from the
# best of `before` of the patch and its neighbours, and tells how well each pixel fits.
SEARCH = """
__device__ __forceinline__ float total(float v) {
#pragma unroll
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
  return v;
}
__device__ __forceinline__ float look(const float* image, int w, int h, float x, float y) {
  x = fminf(fmaxf(x, 0.f), w - 1.f);
  y = fminf(fmaxf(y, 0.f), h - 1.f);
  const int x0 = (int)x, y0 = (int)y, x1 = x0 + 1 < w ? x0 + 1 : x0, y1 = y0 + 1 < h ? y0 + 1 : y0;
  const float a = x - x0, b = y - y0;
  const float top = image[y0 * w + x0] * (1.f - a) + image[y0 * w + x1] * a;
  const float low = image[y1 * w + x0] * (1.f - a) + image[y1 * w + x1] * a;
  return top * (1.f - b) + low * b;
}
__device__ __forceinline__ int mirror(int i, int n) {
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}
extern "C" __global__ void search(const float* newer, const float* older, const float* above,
                                  const float* before, float* found, float* weight,
                                  int pairs, int w, int h, int cols, int rows, int has_above) {
  const int patches = cols * rows, all = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (all >= pairs * patches) return;
  const int lane = threadIdx.x % 32, pair = all / patches, patch = all % patches;
  const int col = patch % cols, row = patch / cols;
  const int left = 4 * col < w - 8 ? 4 * col : w - 8, top = 4 * row < h - 8 ? 4 * row : h - 8;
  newer += (size_t)pair * w * h;
  older += (size_t)pair * w * h;
  float x[2], y[2], t[2], gx[2], gy[2];
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const int i = lane + 32 * k, px = left + i % 8, py = top + i / 8;
    const int l = mirror(px - 1, w), r = mirror(px + 1, w);
    const float *up = newer + mirror(py - 1, h) * w, *mid = newer + py * w,
                *down = newer + mirror(py + 1, h) * w;
    x[k] = px; y[k] = py; t[k] = mid[px];
    gx[k] = (up[r] - up[l] + 2.f * (mid[r] - mid[l]) + down[r] - down[l]) / 8.f;
    gy[k] = (down[l] - up[l] + 2.f * (down[px] - up[px]) + down[r] - up[r]) / 8.f;
  }
  const float mx = total(gx[0] + gx[1]) / 64.f, my = total(gy[0] + gy[1]) / 64.f;
#pragma unroll
  for (int k = 0; k < 2; ++k) { gx[k] -= mx; gy[k] -= my; }
  const float a = total(gx[0] * gx[0] + gx[1] * gx[1]) + STIFFNESS * 64.f;
  const float b = total(gx[0] * gy[0] + gx[1] * gy[1]);
  const float c = total(gy[0] * gy[0] + gy[1] * gy[1]) + STIFFNESS * 64.f;
  const float det = a * c - b * b;
  float u0 = 0.f, v0 = 0.f;
  if (has_above) {
    const int w2 = w / 2, h2 = h / 2;
    const int ax = (left + 4) / 2 < w2 - 1 ? (left + 4) / 2 : w2 - 1;
    const int ay = (top + 4) / 2 < h2 - 1 ? (top + 4) / 2 : h2 - 1;
    const float* flow = above + (size_t)pair * 2 * w2 * h2 + ay * w2 + ax;
    u0 = 2.f * flow[0];
    v0 = 2.f * flow[w2 * h2];
  }
  float u = u0, v = v0;
#if ROUND
  const int across[5] = {0, -1, 1, 0, 0}, along[5] = {0, 0, 0, -1, 1};
  float least = 3.4e38f;
#pragma unroll
  for (int k = 0; k < 5; ++k) {
    int i = col + across[k], j = row + along[k];
    i = i < 0 ? 0 : i >= cols ? cols - 1 : i;
    j = j < 0 ? 0 : j >= rows ? rows - 1 : j;
    const float* other = before + 2 * ((size_t)pair * patches + j * cols + i);
    const float d0 = look(older, w, h, x[0] + other[0], y[0] + other[1]) - t[0];
    const float d1 = look(older, w, h, x[1] + other[0], y[1] + other[1]) - t[1];
    const float mean = total(d0 + d1) / 64.f;
    const float spread = total((d0 - mean) * (d0 - mean) + (d1 - mean) * (d1 - mean));
    if (spread < least) { least = spread; u = other[0]; v = other[1]; }
  }
#endif
  for (int step = 0; step < STEPS; ++step) {
    const float d0 = look(older, w, h, x[0] + u, y[0] + v) - t[0];
    const float d1 = look(older, w, h, x[1] + u, y[1] + v) - t[1];
    const float bx = total(gx[0] * d0 + gx[1] * d1), by = total(gy[0] * d0 + gy[1] * d1);
    u -= (c * bx - b * by) / det;
    v -= (a * by - b * bx) / det;
  }
#if ROUND
  const float away = (u - u0) * (u - u0) + (v - v0) * (v - v0);
  if (!(away <= 64.f)) { u = u0; v = v0; }
  const float d0 = look(older, w, h, x[0] + u, y[0] + v) - t[0];
  const float d1 = look(older, w, h, x[1] + u, y[1] + v) - t[1];
  const float mean = total(d0 + d1) / 64.f;
  weight[(size_t)all * 64 + lane] = 1.f / fmaxf(fabsf(d0 - mean), 1.f);
  weight[(size_t)all * 64 + lane + 32] = 1.f / fmaxf(fabsf(d1 - mean), 1.f);
#endif
  if (lane == 0) { found[2 * (size_t)all] = u; found[2 * (size_t)all + 1] = v; }
}
"""

# Each thread a pixel: the mean of the patches that cover it.
SPREAD = """
extern "C" __global__ void spread(const float* found, const float* weight, float* dense,
                                  int pairs, int w, int h, int cols, int rows) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= pairs * w * h) return;
  const int pair = i / (w * h), x = i % w, y = i / w % h;
  float sum = 0.f, u = 0.f, v = 0.f;
  for (int row = y / 4 - 2; row <= y / 4 + 1; ++row) {
    if (row < 0 || row >= rows) continue;
    const int top = 4 * row < h - 8 ? 4 * row : h - 8;
    if (y < top || y > top + 7) continue;
    for (int col = x / 4 - 2; col <= x / 4 + 1; ++col) {
      if (col < 0 || col >= cols) continue;
      const int left = 4 * col < w - 8 ? 4 * col : w - 8;
      if (x < left || x > left + 7) continue;
      const size_t patch = ((size_t)pair * rows + row) * cols + col;
      const float part = weight[patch * 64 + (y - top) * 8 + x - left];
      sum += part; u += part * found[2 * patch]; v += part * found[2 * patch + 1];
    }
  }
  float* out = dense + (size_t)pair * 2 * w * h + y * w + x;
  out[0] = u / sum;
  out[w * h] = v / sum;
}
"""

# Each warp, alone in its block, a cell. Moments (cells, blocks, 26); constants: grain, looseness,
# spread2 (6), inverse squares of the largest shift and slope, scale of a slope.
FIT = """
__device__ __forceinline__ float total(float v) {
#pragma unroll
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
  return v;
}
__device__ __forceinline__ int square(int i, int j) {   // of (1, x, y) in (1 x y xx xy yy)
  return i == 0 ? j : j == 0 ? i : i + j + 1;
}
extern "C" __global__ void fit(const float* moments, const float* noises, const float* start,
                               const float* constants, float* out_theta, float* out_covariance,
                               float* out_inliers, float* out_misfit, int cells, int blocks,
                               int has_start, int thorough) {
  __shared__ float m[MOST_BLOCKS * 26], weight[MOST_BLOCKS], left[MOST_BLOCKS],
                   limit[MOST_BLOCKS], pull[MOST_BLOCKS * 6], terms[26], sums[26], theta[6];
  __shared__ double matrix[36], inverse[36], middle[36], half[36];
  const int cell = blockIdx.x, lane = threadIdx.x;
  const float noise = noises[cell / cells], grain = constants[0], loose = constants[1];
  const float slope = constants[10];
  for (int i = lane; i < blocks * 26; i += 32) m[i] = moments[(size_t)cell * blocks * 26 + i];
  __syncwarp();
  for (int b = lane; b < blocks; b += 32) {
    const float evidence = m[b * 26] + m[b * 26 + 12];
    limit[b] = 4.f * (fmaxf(m[b * 26 + 25], 1e-6f) * noise + loose * loose * evidence);
    weight[b] = 1.f;
  }
  if (has_start && lane < 6)
    theta[lane] = start[(size_t)cell * 6 + lane] / (lane % 3 ? slope : 1.f);
  __syncwarp();
  for (int round = has_start ? 0 : 1; round < 3; ++round) {
    if (round) {
      if (lane < 26) {
        float sum = 0.f;
        for (int b = 0; b < blocks; ++b) sum += weight[b] * m[b * 26 + lane];
        sums[lane] = sum;
      }
      __syncwarp();
      double trace = 0.;
      for (int k = 0; k < 6; ++k) trace += sums[12 * (k / 3) + square(k % 3, k % 3)];
      for (int k = lane; k < 36; k += 32) {
        const int i = k / 6, j = k % 6;
        double value = sums[6 * (i / 3 + j / 3) + square(i % 3, j % 3)];
        if (i == j) value += (double)constants[i % 3 ? 9 : 8] * noise + 1e-6 * trace;
        matrix[k] = value;
      }
      __syncwarp();
      double column[6];      // of the matrix, and behind it of the identity
#pragma unroll
      for (int i = 0; i < 6; ++i)
        column[i] = lane < 6 ? matrix[i * 6 + lane] : lane - 6 == i ? 1. : 0.;
#pragma unroll
      for (int k = 0; k < 6; ++k) {
        double factor[6];
#pragma unroll
        for (int i = 0; i < 6; ++i) factor[i] = __shfl_sync(~0u, column[i], k);
        column[k] /= factor[k];
#pragma unroll
        for (int i = 0; i < 6; ++i) if (i != k) column[i] -= factor[i] * column[k];
      }
      if (lane >= 6 && lane < 12)
#pragma unroll
        for (int i = 0; i < 6; ++i) inverse[i * 6 + lane - 6] = column[i];
      __syncwarp();
      if (lane < 6) {
        double sum = 0.;
        for (int j = 0; j < 6; ++j) sum += inverse[lane * 6 + j] * sums[18 + j];
        theta[lane] = sum;
      }
      __syncwarp();
    }
    if (lane < 26) {         // with which the moments give the difference left by theta
      float term = lane < 24 ? -2.f * theta[lane < 18 ? 0 : lane - 18] : lane == 24 ? 1.f : 0.f;
      if (lane < 18) {
        const int kind = lane / 6, i0 = kind == 2 ? 3 : 0, j0 = kind ? 3 : 0;
        term = 0.f;
        for (int i = 0; i < 3; ++i)
          for (int j = 0; j < 3; ++j)
            if (square(i, j) == lane % 6) term += theta[i0 + i] * theta[j0 + j];
        if (kind == 1) term *= 2.f;
      }
      terms[lane] = term;
    }
    __syncwarp();
    for (int b = lane; b < blocks; b += 32) {
      float sum = 0.f;
      for (int f = 0; f < 26; ++f) sum += m[b * 26 + f] * terms[f];
      left[b] = fmaxf(sum, 0.f);
      const float share = 1.f / (1.f + left[b] / limit[b]);
      weight[b] = share * share;
    }
    __syncwarp();
  }
  float counted = 0.f, rest = 0.f, agreed = 0.f, shown = 0.f, missed = 0.f;
  for (int b = lane; b < blocks; b += 32) {
    const float evidence = m[b * 26] + m[b * 26 + 12];
    counted += weight[b] * fmaxf(m[b * 26 + 25], 1e-6f);
    rest += weight[b] * left[b];
    agreed += weight[b] * evidence;
    shown += evidence;
    missed += fminf(left[b] / limit[b], 2.f);
  }
  counted = fmaxf(total(counted), 1e-6f);
  const float residual = total(rest) / counted, variance = fmaxf(residual, 0.3f * noise);
  agreed = total(agreed);
  shown = total(shown);
  missed = total(missed);
  if (lane < 6) out_theta[(size_t)cell * 6 + lane] = theta[lane] * (lane % 3 ? slope : 1.f);
  if (lane == 0) {
    out_inliers[cell] = agreed / fmaxf(shown, 1e-6f);
    out_misfit[cell] = missed / blocks;
  }
  if (!thorough) {
    const double xx = matrix[0], xy = matrix[3], yy = matrix[21], det = xx * yy - xy * xy;
    if (lane < 4) out_covariance[(size_t)cell * 4 + lane] =
      (lane == 0 ? yy : lane == 3 ? xx : -xy) * variance / det;
    return;
  }
  for (int k = lane; k < blocks * 6; k += 32) {
    const int b = k / 6, i = k % 6;
    const float* of = m + b * 26;
    float sum = -of[18 + i];
    for (int j = 0; j < 6; ++j)
      sum += of[6 * (i / 3 + j / 3) + square(i % 3, j % 3)] * theta[j];
    pull[k] = weight[b] * sum;
  }
  __syncwarp();
  for (int k = lane; k < 36; k += 32) {
    const int i = k / 6, j = k % 6;
    double sum = matrix[k];
    if (i == j) sum += (double)(FAKE * grain) * (residual * counted) * constants[2 + i];
    sum *= variance;
    for (int b = 0; b < blocks; ++b) sum += (double)pull[b * 6 + i] * pull[b * 6 + j];
    middle[k] = sum;
  }
  __syncwarp();
  for (int k = lane; k < 36; k += 32) {
    double sum = 0.;
    for (int n = 0; n < 6; ++n) sum += inverse[k / 6 * 6 + n] * middle[n * 6 + k % 6];
    half[k] = sum;
  }
  __syncwarp();
  for (int k = lane; k < 36; k += 32) {
    double sum = 0.;
    for (int n = 0; n < 6; ++n) sum += half[k / 6 * 6 + n] * inverse[n * 6 + k % 6];
    out_covariance[(size_t)cell * 36 + k] =
      sum * (k / 6 % 3 ? slope : 1.f) * (k % 6 % 3 ? slope : 1.f);
  }
}
"""


def sources(steps: int, stiffness: float, fake: float) -> dict[str, tuple[str, str]]:
    """The source and the name of each kernel."""
    known = (f'#define STEPS {steps}\n#define STIFFNESS {stiffness}f\n#define FAKE {fake}f\n'
             f'#define MOST_BLOCKS {MOST_BLOCKS}\n')
    return {'first': (f'{known}#define ROUND 0\n{SEARCH}', 'search'),
            'second': (f'{known}#define ROUND 1\n{SEARCH}', 'search'),
            'spread': (SPREAD, 'spread'), 'fit': (known + FIT, 'fit')}


@dataclass(frozen=True)
class LoomingKernels:
    """The kernels on the current device; each call is one launch on the current stream."""

    first: Any
    second: Any
    spread: Any
    fit: Any

    @classmethod
    def build(cls, steps: int, stiffness: float, fake: float) -> LoomingKernels:
        """Compile them.

        Raises
        ------
        KernelsMissing
            When PyTorch offers no compiler, or it fails.
        """
        compile_kernel = getattr(torch.cuda, '_compile_kernel', None)
        if compile_kernel is None or torch.version.cuda is None:
            raise KernelsMissing(f'PyTorch {torch.__version__} does not compile CUDA kernels at '
                                 'run time; builds for CUDA from 2.9 on do')
        made = {}
        for key, (source, name) in sources(steps, stiffness, fake).items():
            try:
                made[key] = compile_kernel(source, name)
            except (RuntimeError, OSError) as error:
                raise KernelsMissing(f'kernel {name}: {error}') from error
        return cls(**made)

    def search(self, newer: Tensor, older: Tensor, above: Tensor | None,
               grid: tuple[int, int]) -> Tensor:
        """`Level.search` of frames (N, h, w) with patches in a grid of columns and rows."""
        pairs, h, w = newer.shape
        newer, older = newer.contiguous(), older.contiguous()
        start = newer if above is None else above.contiguous()
        count = pairs * grid[0] * grid[1]
        rough, found = newer.new_empty((2, count, 2))
        weight = newer.new_empty((count, 64))
        shape = (-(-count // _WARPS), 1, 1), (32 * _WARPS, 1, 1)
        more, resumed = [pairs, w, h, *grid], int(above is not None)
        self.first(*shape, [newer, older, start, rough, rough, weight, *more, resumed])
        self.second(*shape, [newer, older, start, rough, found, weight, *more, resumed])
        dense = newer.new_empty((pairs, 2, h, w))
        self.spread((-(-dense.numel() // 512), 1, 1), (256, 1, 1), [found, weight, dense, *more])
        return dense

    def window_fit(self, moments: Tensor, noise: Tensor, start: Tensor | None, constants: Tensor,
                   thorough: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """theta, covariance, inliers and misfit of `DeviceFitter.fit`."""
        pairs, cells, blocks, _ = moments.shape
        moments = moments.contiguous()
        first = moments if start is None else start.contiguous()
        side = 6 if thorough else 2
        theta = moments.new_empty((pairs, cells, 6))
        covariance = moments.new_empty((pairs, cells, side, side))
        inliers, misfit = moments.new_empty((2, pairs, cells))
        self.fit((pairs * cells, 1, 1), (32, 1, 1),
                 [moments, noise.contiguous(), first, constants, theta, covariance, inliers,
                  misfit, cells, blocks, int(start is not None), int(thorough)])
        return theta, covariance, inliers, misfit
