// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Evidence in samples, its exposure, noise, weights and sums, as `evidence.Aligner.samples`,
// `evidence.noise_energy`, `evidence.weigh` and `DeviceFitter._moments`. Defined by the caller:
// SAMPLE_PX, EDGE, FAR_EDGE, UNIT, GRAIN, MOST_VALUES, and those of `block.cu` and `image.cu`.

// Each block measures the exposure of a pair of frames: gain and offset of the older one, by a
// robust fit to the means of every second sample inside.
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
// Each thread looks up a pixel of the older frame where `flow` of the samples takes it; the first
// of a sample also tells whether that lies inside.
extern "C" __global__ void align(const float* older, const float* flow, float* moved,
                                 float* inside, int all, int rows, int cols, int reduce) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int step = SAMPLE_PX / reduce, w = cols * step, h = rows * step, pair = i / (w * h);
  const int x = i % w, y = i % (w * h) / w;
  const float *u = flow + (size_t)pair * 2 * rows * cols, *v = u + rows * cols;
  const float across = (x + 0.5f) / step - 0.5f, below = (y + 0.5f) / step - 0.5f;
  moved[i] = look(older + (size_t)pair * w * h, w, h,
                  x + look(u, cols, rows, across, below) / reduce,
                  y + look(v, cols, rows, across, below) / reduce);
  if (x % step || y % step) return;
  const int at = y / step * cols + x / step;
  const float end = (x / step + 0.5f) * SAMPLE_PX - 0.5f + u[at];
  const float down = (y / step + 0.5f) * SAMPLE_PX - 0.5f + v[at];
  inside[pair * rows * cols + at] =
      end > EDGE && end < cols * SAMPLE_PX - FAR_EDGE && down > EDGE
      && down < rows * SAMPLE_PX - FAR_EDGE;
}
// Each thread computes the seven means of a sample, about the displacement `flow`. `moved` is the
// older frame looked up at the matches of the newer one's pixels, before exposure.
extern "C" __global__ void evidence(const float* newer, const float* moved, const float* flow,
                                    const float* exposure, float* means, int all, int rows,
                                    int cols, int reduce) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int plane = rows * cols, pair = i / plane, col = i % cols, row = i % plane / cols;
  const int step = SAMPLE_PX / reduce, w = cols * step, h = rows * step;
  const float gain = exposure[2 * pair], offset = exposure[2 * pair + 1];
  const float* u = flow + (size_t)pair * 2 * plane;
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
        const int side = mirror(y + k, h) * w, up = mirror(y - 1, h) * w;
        const int down = mirror(y + 1, h) * w, left = mirror(x - 1, w);
        const int right = mirror(x + 1, w), at = mirror(x + k, w);
        ix += times * (gain * (moved[side + right] - moved[side + left])
                       + newer[side + right] - newer[side + left]);
        iy += times * (gain * (moved[down + at] - moved[up + at])
                       + newer[down + at] - newer[up + at]);
      }
      ix *= 0.0625f / reduce;
      iy *= 0.0625f / reduce;
      const float change = gain * moved[y * w + x] + offset - newer[y * w + x];
      const float across = (x + 0.5f) / step - 0.5f, below = (y + 0.5f) / step - 0.5f;
      const float goal = ix * look(u, cols, rows, across, below)
                         + iy * look(v, cols, rows, across, below) - change;
      sums[0] += ix * ix; sums[1] += ix * iy; sums[2] += iy * iy; sums[3] += ix * goal;
      sums[4] += iy * goal; sums[5] += goal * goal; sums[6] += change * change;
    }
  for (int k = 0; k < 7; ++k)
    means[((size_t)pair * 7 + k) * plane + i % plane] = sums[k] / (step * step);
}
// Each block computes the noise of a pair of frames: the quarter rank of the difference in every
// second sample. What does not count is larger than all others.
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
// Each thread weighs a sample: its trust, as far as gradients around it rise above the noise.
extern "C" __global__ void weigh(const float* means, const float* trust, const float* noise,
                                 float* out, int all, int rows, int cols, int reduce) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int plane = rows * cols, pair = i / plane, x = i % cols, y = i % plane / cols;
  const float *xx = means + (size_t)pair * 7 * plane, *yy = xx + 2 * plane;
  float sum = 0.f;
  for (int k = 0; k < 4; ++k) {
    const int at = (y > k / 2 ? y - k / 2 : 0) * cols + (x > k % 2 ? x - k % 2 : 0);
    sum += xx[at] + yy[at];
  }
  const float ratio = sum * reduce * reduce / (8.f * GRAIN * noise[pair]);
  out[i] = trust[i] * fminf(fmaxf((ratio - 2.f) / 4.f, 0.f), 1.f);
}
// Each thread computes a block of samples: their sums with 1, x, y, ...
extern "C" __global__ void table(const float* means, const float* trust, const float* inside,
                                 float* out, int all, int rows, int cols, int side) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int wide = cols / side, count = rows / side * wide, pair = i / count;
  const int block = i % count, plane = rows * cols;
  float sums[26] = {};
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
  for (int k = 0; k < 26; ++k) out[(size_t)i * 26 + k] = sums[k];
}
