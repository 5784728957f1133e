// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Inverse search of patches, as `flow.Level`, and correlation of images, as `flow.GlobalMotion`.
// Defined by the caller: STEPS, STIFFNESS, ROUND, and what is in `image.cu`.

// Each warp computes a patch of 8x8 pixels, two a thread. ROUND 0 starts from the level above; 1
// from the best of `before` of the patch and its neighbours, and tells how well each pixel fits.
__device__ __forceinline__ float total(float v) {
#pragma unroll
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
  return v;
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
// Each warp computes the correlation of the middle of the newer image with one place in an older
// image of one scale.
extern "C" __global__ void match(const float* newer, const float* grown, float* scores, int all,
                                 int scales, int w, int h, int mx, int my) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  const int places = (2 * mx + 1) * (2 * my + 1), wide = w - 2 * mx, tall = h - 2 * my;
  if (i >= all) return;
  const int place = i % places, dx = place % (2 * mx + 1), dy = place / (2 * mx + 1);
  newer += (size_t)(i / places / scales) * w * h;
  grown += (size_t)(i / places) * w * h;
  float sums[5] = {};
  for (int k = lane; k < wide * tall; k += 32) {
    const int x = k % wide, y = k / wide;
    const float a = newer[(y + my) * w + x + mx], b = grown[(y + dy) * w + x + dx];
    sums[0] += a; sums[1] += b; sums[2] += a * a; sums[3] += b * b; sums[4] += a * b;
  }
#pragma unroll
  for (int step = 16; step; step /= 2)
#pragma unroll
    for (int k = 0; k < 5; ++k) sums[k] += __shfl_xor_sync(~0u, sums[k], step);
  if (lane) return;
  const float count = wide * tall;
  const float size = (sums[2] - sums[0] * sums[0] / count) * (sums[3] - sums[1] * sums[1] / count);
  scores[i] = (sums[4] - sums[0] * sums[1] / count) / fmaxf(sqrtf(fmaxf(size, 0.f)), 1e-3f);
}
