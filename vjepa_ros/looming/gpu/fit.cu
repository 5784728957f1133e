// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Window fits, as `fit.DeviceFitter.fit`. Defined by the caller: FAKE, MOST_BLOCKS.
//
// Each warp, alone in its block, fits a cell. Moments (cells, blocks, 26); constants: grain,
// looseness, spread2 (6), inverse squares of the largest shift and slope, scale of a slope.
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
