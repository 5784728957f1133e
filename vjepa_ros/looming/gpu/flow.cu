// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Inverse search of patches, as `flow.Level`, motion of images, as `flow.GlobalMotion`, and trust,
// as `flow.Trust`.
// Defined by the caller: STEPS, STIFFNESS, ROUND, COARSE, SAMPLE_PX, and what is in `image.cu`.

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
// Each thread computes a pixel: the mean of the patches that cover it, each weighted by how well
// the pixel fits there.
extern "C" __global__ void blend(const float* found, const float* weight, float* out, int all,
                                 int w, int h, int cols, int rows) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int plane = w * h, pair = i / plane, x = i % w, y = i % plane / w;
  const int last_row = y < h - 8 ? y / 4 : rows - 1, last_col = x < w - 8 ? x / 4 : cols - 1;
  float u = 0.f, v = 0.f, sum = 0.f;
  for (int row = y < 8 ? 0 : y / 4 - 1; row <= last_row; ++row)
    for (int col = x < 8 ? 0 : x / 4 - 1; col <= last_col; ++col) {
      const int left = 4 * col < w - 8 ? 4 * col : w - 8, top = 4 * row < h - 8 ? 4 * row : h - 8;
      if (x < left || x >= left + 8 || y < top || y >= top + 8) continue;
      const size_t patch = ((size_t)pair * rows + row) * cols + col;
      const float share = weight[patch * 64 + (y - top) * 8 + x - left];
      u += share * found[2 * patch];
      v += share * found[2 * patch + 1];
      sum += share;
    }
  out += (size_t)pair * 2 * plane + i % plane;
  out[0] = u / sum;
  out[plane] = v / sum;
}
// Each warp computes a pixel of a smaller image: the mean of side x side pixels.
extern "C" __global__ void shrink(const float* images, float* out, int all, int w, int h,
                                  int side) {
  const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (i >= all) return;
  const int plane = w * h, x = i % w, y = i % plane / w;
  images += ((size_t)(i / plane) * h + y) * side * w * side + x * side;
  float sum = 0.f;
  for (int k = lane; k < side * side; k += 32) sum += images[k / side * w * side + k % side];
  sum = total(sum);
  if (lane == 0) out[i] = sum / (side * side);
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
// Each warp, alone in its block, finds scale and shift of a pair of whole images from the scores
// of `match`; shrink (scales, 3) are those of the coarse images that were tried.
extern "C" __global__ void guess(const float* scores, const float* wanted, const float* shrink,
                                 float* out, int scales, int mx, int my) {
  const int pair = blockIdx.x, lane = threadIdx.x, wide = 2 * mx + 1, places = wide * (2 * my + 1);
  scores += (size_t)pair * scales * places;
  float best = -2.f;
  int at = 0;
  for (int i = lane; i < scales * places; i += 32)
    if (scores[i] > best) { best = scores[i]; at = i; }
#pragma unroll
  for (int step = 16; step; step /= 2) {
    const float other = __shfl_xor_sync(~0u, best, step);
    const int there = __shfl_xor_sync(~0u, at, step);
    if (other > best || (other == best && there < at)) { best = other; at = there; }
  }
  if (lane) return;
  const float* kind = shrink + 3 * (at / places);
  const float x = at % places % wide - mx, y = at % places / wide - my;
  const float half = (COARSE - 1) / 2.f * (1.f - kind[0]);    // back to the full resolution
  const bool sure = wanted[pair] > 0.5f && best >= 0.3f && best >= scores[my * wide + mx] + 0.1f;
  out[3 * pair] = sure ? kind[0] : 1.f;
  out[3 * pair + 1] = sure ? COARSE * (kind[1] + x * kind[0]) + half : 0.f;
  out[3 * pair + 2] = sure ? COARSE * (kind[2] + y * kind[0]) + half : 0.f;
}
// Each thread looks up a pixel where scale and shift of its image take it.
extern "C" __global__ void warp(const float* images, const float* guess, float* out, int all,
                                int w, int h) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int plane = w * h, pair = i / plane;
  const float* by = guess + 3 * pair;
  out[i] = look(images + (size_t)pair * plane, w, h, i % w * by[0] + by[1],
                i % plane / w * by[0] + by[2]);
}
// Each thread joins the displacement of a sample with the guess, and checks it by the way back.
extern "C" __global__ void trusted(const float* found, const float* back, const float* guess,
                                   float* flow, float* trust, int all, int cols, int rows) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int plane = cols * rows, pair = i / plane, x = i % cols, y = i % plane / cols;
  const size_t at = (size_t)pair * 2 * plane + i % plane;
  const float u = found[at], v = found[at + plane], *by = guess + 3 * pair;
  const float* home = back + (size_t)pair * 2 * plane;
  const float over = u + look(home, cols, rows, x + u / SAMPLE_PX, y + v / SAMPLE_PX);
  const float up = v + look(home + plane, cols, rows, x + u / SAMPLE_PX, y + v / SAMPLE_PX);
  const float px = (x + 0.5f) * SAMPLE_PX - 0.5f, py = (y + 0.5f) * SAMPLE_PX - 0.5f;
  const float dx = (px + u) * by[0] + by[1] - px, dy = (py + v) * by[0] + by[2] - py;
  const float allowed = 1.5f + 0.05f * sqrtf(dx * dx + dy * dy);
  const float miss2 = (over * over + up * up) / (allowed * allowed);
  flow[at] = dx;
  flow[at + plane] = dy;
  trust[i] = 1.f / (1.f + miss2 * miss2);
}
