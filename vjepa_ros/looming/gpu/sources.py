# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA sources of `vjepa_ros.looming.gpu.kernels`."""

from vjepa_ros.looming.gpu.block_source import block

MOST_VALUES = 4096   # of a pair, that `RANKS` has room for

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

# Each block a pair: what needs a rank among every second sample; what does not count is larger
# than all others.
RANK_THREADS = 512
RANKS = block(RANK_THREADS) + """
extern "C" __global__ void expose(const float* means, const float* inside, float* out, int rows,
                                  int cols) {
  __shared__ unsigned bits[MOST_VALUES];
  __shared__ float weight[MOST_VALUES];
  const int wide = (cols + 1) / 2, n = (rows + 1) / 2 * wide;
  const float* y = means + (size_t)blockIdx.x * 2 * rows * cols;
  const float* x = y + rows * cols;
  inside += (size_t)blockIdx.x * rows * cols;
  float seen = 0.f;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    weight[i] = inside[i / wide * 2 * cols + i % wide * 2] > 0.9f ? 1.f : 0.f;
    seen += weight[i];
  }
  seen = total(seen);
  float gain = 1.f, offset = 0.f;
  if (seen >= 30.f)
    for (int round = 0; round < 4; ++round) {
      float sum = 0.f, mx = 0.f, my = 0.f;
      for (int i = threadIdx.x; i < n; i += THREADS) {
        const int at = i / wide * 2 * cols + i % wide * 2;
        sum += weight[i]; mx += weight[i] * x[at]; my += weight[i] * y[at];
      }
      float sums[3] = {sum, mx, my};
      totals(sums);
      sum = fmaxf(sums[0], 1e-6f);
      mx = sums[1] / sum;
      my = sums[2] / sum;
      float xy = 0.f, xx = 0.f;
      for (int i = threadIdx.x; i < n; i += THREADS) {
        const int at = i / wide * 2 * cols + i % wide * 2;
        const float dx = weight[i] * (x[at] - mx);
        xy += dx * (y[at] - my); xx += dx * (x[at] - mx);
      }
      gain = (total(xy) + 25.f * sum) / (total(xx) + 25.f * sum);
      offset = my - gain * mx;
      for (int i = threadIdx.x; i < n; i += THREADS) {
        const int at = i / wide * 2 * cols + i % wide * 2;
        bits[i] = inside[at] > 0.9f ? __float_as_uint(fabsf(y[at] - gain * x[at] - offset))
                                    : 0x7f800000u;
      }
      const float scale = 3.f * ranked(bits, n, ((int)seen - 1) / 2) + 0.5f;
      for (int i = threadIdx.x; i < n; i += THREADS) {
        const float z = __uint_as_float(bits[i]) / scale, w = 1.f / (1.f + z * z);
        weight[i] = bits[i] < 0x7f800000u ? w * w : 0.f;
      }
    }
  if (threadIdx.x == 0) { out[blockIdx.x * 2] = gain; out[blockIdx.x * 2 + 1] = offset; }
}
extern "C" __global__ void quarter(const float* means, const float* inside, float* out, int rows,
                                   int cols) {
  __shared__ unsigned bits[MOST_VALUES];
  const int wide = (cols + 1) / 2, n = (rows + 1) / 2 * wide;
  const float* gxx = means + (size_t)blockIdx.x * 7 * rows * cols;
  const float *gyy = gxx + 2 * rows * cols, *change = gxx + 6 * rows * cols;
  inside += (size_t)blockIdx.x * rows * cols;
  float live = 0.f;
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const int at = i / wide * 2 * cols + i % wide * 2;
    const bool counts = inside[at] > 0.9f && gxx[at] + gyy[at] > 0.02f;
    bits[i] = counts ? __float_as_uint(change[at]) : 0x7f800000u;
    live += counts ? 1.f : 0.f;
  }
  live = total(live);
  const float found = ranked(bits, n, (int)live / 4);
  if (threadIdx.x == 0) out[blockIdx.x] = live < 50.f ? 1.f : fmaxf(found / 0.6f, 0.05f);
}
"""

# Each thread a cell: the wide fit where it is wanted and more exact.
WIDEN = """
__device__ __forceinline__ float deviation(const float* c) {
  return sqrtf(fmaxf(c[7] + c[35] + 2.f * c[11], 1e-12f)) / 2.f;
}
extern "C" __global__ void widen(const float* theta, const float* covariance,
                                 const float* inliers, const float* misfit,
                                 const float* theta2, const float* covariance2,
                                 const float* inliers2, const float* misfit2, const float* seen,
                                 const float* dt, float* out_theta, float* out_covariance,
                                 float* out_inliers, float* out_misfit, int cells, int all) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const float a = -(theta[i * 6 + 1] + theta[i * 6 + 5]) / 2.f;
  const float sd = deviation(covariance + (size_t)i * 36);
  const bool vague = seen[i] > SEEN && sd > dt[i / cells] * WANTED + SHARE * fabsf(a);
  const bool take = vague && deviation(covariance2 + (size_t)i * 36) < GAIN * sd
                    && inliers2[i] > INLIERS;
  for (int k = 0; k < 6; ++k) out_theta[i * 6 + k] = (take ? theta2 : theta)[i * 6 + k];
  for (int k = 0; k < 36; ++k)
    out_covariance[(size_t)i * 36 + k] = (take ? covariance2 : covariance)[(size_t)i * 36 + k];
  out_inliers[i] = (take ? inliers2 : inliers)[i];
  out_misfit[i] = (take ? misfit2 : misfit)[i];
}
"""
