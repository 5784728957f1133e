// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Noise and sums of the evidence in samples, as `evidence.noise_energy` and `fit.moments`.
// Defined by the caller: SAMPLE_PX, UNIT, MOST_VALUES, and those of `block.cu`.

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
// Each thread computes a block of samples: their sums with 1, x, y, ... The last row of a pair's
// table is empty.
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
