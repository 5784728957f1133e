# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA source of the evidence that two frames give: `gpu.align`, and what comes before it.

Each thread a pixel or a sample, but for `match`. N pairs of frames w x h; samples of SAMPLE_PX px.
"""

_COMMON = """
__device__ __forceinline__ int mirrored(int i, int n) {
  i = i < 0 ? -i : i;
  return i < n ? i : 2 * (n - 1) - i;
}
// Between the pixels of an image, which goes on as it is at its border.
__device__ __forceinline__ float between(const float* image, float x, float y, int w, int h) {
  x = fminf(fmaxf(x, 0.f), w - 1.f);
  y = fminf(fmaxf(y, 0.f), h - 1.f);
  const int left = (int)x, top = (int)y;
  const int right = left + 1 < w ? left + 1 : left, low = top + 1 < h ? top + 1 : top;
  const float u = x - left, v = y - top;
  return (1.f - v) * ((1.f - u) * image[top * w + left] + u * image[top * w + right])
         + v * ((1.f - u) * image[low * w + left] + u * image[low * w + right]);
}
"""

# Frames, shrunk and blurred: `Aligner.prepared`.
SMOOTH = _COMMON + """
extern "C" __global__ void smooth(const float* frames, float* out, int all, int w, int h,
                                  int reduce) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int x = i % w, y = i / w % h, stride = w * reduce;
  const float* frame = frames + (size_t)(i / (w * h)) * w * h * reduce * reduce;
  const float weights[3] = {SMOOTH_0, SMOOTH_1, SMOOTH_2};
  float sum = 0.f;
  for (int j = -2; j <= 2; ++j) {
    const float* line = frame + mirrored(y + j, h) * reduce * stride;
    float across = 0.f;
    for (int k = -2; k <= 2; ++k) {
      const float* first = line + mirrored(x + k, w) * reduce;
      float mean = 0.f;
      for (int v = 0; v < reduce; ++v)
        for (int u = 0; u < reduce; ++u) mean += first[v * stride + u];
      across += weights[k < 0 ? -k : k] * mean;
    }
    sum += weights[j < 0 ? -j : j] * across;
  }
  out[i] = sum / (reduce * reduce);
}
"""

# The older frame moved to the newer one, means of both over a sample, and whether it lies inside.
SHIFT = _COMMON + """
extern "C" __global__ void shift(const float* newer, const float* older, const float* flow,
                                 float* moved, float* means, float* inside, int all, int rows,
                                 int cols, int channels, int reduce) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int plane = rows * cols, pair = i / plane, col = i % cols, row = i % plane / cols;
  const int step = SAMPLE_PX / reduce, w = cols * step, h = rows * step;
  const float* u = flow + (size_t)pair * channels * plane;
  const float* v = u + plane;
  const float x0 = (col + 0.5f) * SAMPLE_PX - 0.5f + u[i % plane];
  const float y0 = (row + 0.5f) * SAMPLE_PX - 0.5f + v[i % plane];
  inside[i] = x0 > EDGE_PX && x0 < cols * SAMPLE_PX - LAST_PX && y0 > EDGE_PX
              && y0 < rows * SAMPLE_PX - LAST_PX ? 1.f : 0.f;
  newer += (size_t)pair * w * h;
  older += (size_t)pair * w * h;
  moved += (size_t)pair * w * h;
  float one = 0.f, other = 0.f;
  for (int y = row * step; y < (row + 1) * step; ++y)
    for (int x = col * step; x < (col + 1) * step; ++x) {
      const float across = (x + 0.5f) / step - 0.5f, down = (y + 0.5f) / step - 0.5f;
      const float value = between(older, x + between(u, across, down, cols, rows) / reduce,
                                  y + between(v, across, down, cols, rows) / reduce, w, h);
      moved[y * w + x] = value;
      one += newer[y * w + x];
      other += value;
    }
  means[(size_t)2 * pair * plane + i % plane] = one / (step * step);
  means[(size_t)(2 * pair + 1) * plane + i % plane] = other / (step * step);
}
"""

# The seven means of `Samples`.
EVIDENCE = _COMMON + """
extern "C" __global__ void evidence(const float* newer, const float* moved, const float* flow,
                                    const float* exposure, float* means, int all, int rows,
                                    int cols, int channels, int reduce) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int plane = rows * cols, pair = i / plane, col = i % cols, row = i % plane / cols;
  const int step = SAMPLE_PX / reduce, w = cols * step, h = rows * step;
  const float gain = exposure[2 * pair], offset = exposure[2 * pair + 1];
  const float* u = flow + ((size_t)pair * channels + channels - 2) * plane;
  const float* v = u + plane;
  newer += (size_t)pair * w * h;
  moved += (size_t)pair * w * h;
  float sums[7] = {};
  for (int y = row * step; y < (row + 1) * step; ++y)
    for (int x = col * step; x < (col + 1) * step; ++x) {
      // Sobel's slopes of the sum of both frames.
      float ix = 0.f, iy = 0.f;
#pragma unroll
      for (int k = -1; k <= 1; ++k) {
        const float times = k ? 1.f : 2.f;
        const int side = mirrored(y + k, h) * w, up = mirrored(y - 1, h) * w;
        const int down = mirrored(y + 1, h) * w, left = mirrored(x - 1, w);
        const int right = mirrored(x + 1, w), at = mirrored(x + k, w);
        ix += times * (gain * (moved[side + right] - moved[side + left])
                       + newer[side + right] - newer[side + left]);
        iy += times * (gain * (moved[down + at] - moved[up + at])
                       + newer[down + at] - newer[up + at]);
      }
      ix *= 0.0625f / reduce;
      iy *= 0.0625f / reduce;
      const float change = gain * moved[y * w + x] + offset - newer[y * w + x];
      const float across = (x + 0.5f) / step - 0.5f, below = (y + 0.5f) / step - 0.5f;
      const float goal = ix * between(u, across, below, cols, rows)
                         + iy * between(v, across, below, cols, rows) - change;
      sums[0] += ix * ix; sums[1] += ix * iy; sums[2] += iy * iy; sums[3] += ix * goal;
      sums[4] += iy * goal; sums[5] += goal * goal; sums[6] += change * change;
    }
  for (int k = 0; k < 7; ++k)
    means[((size_t)pair * 7 + k) * plane + i % plane] = sums[k] / (step * step);
}
"""

# Trust in samples by gradient energy, times that given: `signal_share`.
SHARE = """
extern "C" __global__ void share(const float* means, const float* trust, const float* noise,
                                 float* out, int all, int rows, int cols, int reduce) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int plane = rows * cols, pair = i / plane, col = i % cols, row = i % plane / cols;
  const float* xx = means + (size_t)pair * 7 * plane;
  const float* yy = xx + 2 * plane;
  float energy = 0.f;
  for (int y = row - 1; y <= row; ++y)
    for (int x = col - 1; x <= col; ++x) {
      const int at = (y < 0 ? 0 : y) * cols + (x < 0 ? 0 : x);
      energy += xx[at] + yy[at];
    }
  const float grain = reduce == 1 ? GRAIN_1 : GRAIN_2;
  const float part = (energy / 4.f / (2.f * grain * noise[pair]) - 2.f) / 4.f;
  out[i] = trust[i] * fminf(fmaxf(part, 0.f), 1.f);
}
"""

# Each thread a block of samples: their sums with 1, x, y, ..., as `DeviceFitter.moments` begins.
# The last row of a pair's table is empty.
TABLE = """
extern "C" __global__ void table(const float* means, const float* trust, const float* inside,
                                 float* out, int all, int rows, int cols, int side) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int wide = cols / side, count = rows / side * wide, pair = i / (count + 1);
  const int block = i % (count + 1), plane = rows * cols;
  float sums[26] = {};
  if (block < count) {
    means += (size_t)pair * 7 * plane;
    trust += (size_t)pair * plane;
    inside += (size_t)pair * plane;
    for (int b = 0; b < side; ++b)
      for (int a = 0; a < side; ++a) {
        const int at = (block / wide * side + b) * cols + block % wide * side + a;
        const float x = ((a + 0.5f) * SAMPLE_PX - 0.5f * side * SAMPLE_PX) / UNIT;
        const float y = ((b + 0.5f) * SAMPLE_PX - 0.5f * side * SAMPLE_PX) / UNIT;
        const float powers[6] = {1.f, x, y, x * x, x * y, y * y};
        const float weight = trust[at] * inside[at];
#pragma unroll
        for (int k = 0; k < 5; ++k) {
          const float value = weight * means[k * plane + at];
#pragma unroll
          for (int p = 0; p < (k < 3 ? 6 : 3); ++p)
            sums[(k < 3 ? 6 * k : 3 * k + 9) + p] += value * powers[p];
        }
        sums[24] += weight * means[5 * plane + at];
        sums[25] += weight;
      }
  }
  for (int k = 0; k < 26; ++k) out[(size_t)i * 26 + k] = sums[k];
}
"""

# Flow through the whole motion of the image, and trust in it by the way back.
TRUST = _COMMON + """
extern "C" __global__ void believe(const float* found, const float* back, const float* guess,
                                   float* flow, float* trust, int all, int rows, int cols) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int plane = rows * cols, pair = i / plane, at = i % plane;
  const float x = (at % cols + 0.5f) * SAMPLE_PX - 0.5f, y = (at / cols + 0.5f) * SAMPLE_PX - 0.5f;
  found += (size_t)pair * 2 * plane;
  back += (size_t)pair * 2 * plane;
  guess += 3 * pair;
  const float u = found[at], v = found[plane + at];
  const float across = (x + u + 0.5f) / SAMPLE_PX - 0.5f, down = (y + v + 0.5f) / SAMPLE_PX - 0.5f;
  const float du = u + between(back, across, down, cols, rows);
  const float dv = v + between(back + plane, across, down, cols, rows);
  const float whole_u = (x + u) * guess[0] + guess[1] - x;
  const float whole_v = (y + v) * guess[0] + guess[2] - y;
  const float allowed = 1.5f + 0.05f * sqrtf(whole_u * whole_u + whole_v * whole_v);
  const float part2 = (du * du + dv * dv) / (allowed * allowed);
  flow[(size_t)pair * 2 * plane + at] = whole_u;
  flow[((size_t)pair * 2 + 1) * plane + at] = whole_v;
  trust[i] = 1.f / (1.f + part2 * part2);
}
"""

# Each warp a place: how like the middle of the newer image is to the older one there.
MATCH = """
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
"""

# One warp a pair: the best of these places, as `GlobalMotion` tells it.
GUESS = """
extern "C" __global__ void guess(const float* scores, const float* shrinks, const float* wanted,
                                 float* out, int scales, int mx, int my) {
  const int lane = threadIdx.x, wide = 2 * mx + 1, places = wide * (2 * my + 1);
  scores += (size_t)blockIdx.x * scales * places;
  out += 3 * blockIdx.x;
  float best = -2.f;
  int place = 0;
  for (int i = lane; i < scales * places; i += 32)
    if (scores[i] > best) { best = scores[i]; place = i; }
#pragma unroll
  for (int step = 16; step; step /= 2) {
    const float other = __shfl_xor_sync(~0u, best, step);
    const int there = __shfl_xor_sync(~0u, place, step);
    if (other > best || (other == best && there < place)) { best = other; place = there; }
  }
  if (lane) return;
  const bool sure = wanted[blockIdx.x] > 0.5f && best >= 0.3f
                    && best >= scores[my * wide + mx] + 0.1f;
  const float* shrink = shrinks + 3 * (place / places);
  const float half = (COARSE - 1) / 2.f, scale = shrink[0];
  const float x = place % places % wide - mx, y = place % places / wide - my;
  out[0] = sure ? scale : 1.f;
  out[1] = sure ? COARSE * (shrink[1] + x * scale) + half - half * scale : 0.f;
  out[2] = sure ? COARSE * (shrink[2] + y * scale) + half - half * scale : 0.f;
}
"""
