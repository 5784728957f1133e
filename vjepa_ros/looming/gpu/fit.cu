// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Window fits, as `fit.DeviceFitter.measure`, `settle` and `widened`. Defined by the caller: FAKE,
// MOST_BLOCKS, OWN_PX, WANTED, WANTED_SHARE, WIDER_SEEN, WIDER_GAIN, WIDER_INLIERS.
//
// Constants: grain, looseness, spread2 (6), inverse squares of the largest shift and slope, scale
// of a slope, side of a block in units of the moments.
__device__ __forceinline__ float total(float v) {
#pragma unroll
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(~0u, v, step);
  return v;
}
__device__ __forceinline__ int square(int i, int j) {   // of (1, x, y) in (1 x y xx xy yy)
  return i == 0 ? j : j == 0 ? i : i + j + 1;
}
// The difference that a displacement leaves, from its moments.
__device__ float energy(const float* m, const float (&t)[6]) {
  float sum = m[24];
#pragma unroll
  for (int i = 0; i < 6; ++i) {
    float part = -2.f * m[18 + i];
#pragma unroll
    for (int j = 0; j < 6; ++j) part += t[j] * m[6 * (i / 3 + j / 3) + square(i % 3, j % 3)];
    sum += t[i] * part;
  }
  return sum;
}
// Each warp, alone in its block, fits a cell: window of across x across blocks, inner x inner of
// them its own. Table (cells' own blocks, 26) of `evidence.cu`.
extern "C" __global__ void fit(const float* table, const float* noises, const float* start,
                               const float* constants, float* out_theta, float* out_covariance,
                               float* out_inliers, float* out_misfit, float* out_own, int rows,
                               int cols, int across, int inner, int has_start, int thorough) {
  __shared__ float m[MOST_BLOCKS * 26], weight[MOST_BLOCKS], left[MOST_BLOCKS],
                   limit[MOST_BLOCKS], pull[MOST_BLOCKS * 6], terms[26], sums[26], theta[6];
  __shared__ double matrix[36], inverse[36], middle[36], half[36];
  const int cell = blockIdx.x, lane = threadIdx.x, blocks = across * across;
  const int pair = cell / (rows * cols), beside = (across - inner) / 2;
  const float noise = noises[pair], grain = constants[0], loose = constants[1];
  const float slope = constants[10];
  for (int i = lane; i < blocks * 26; i += 32) {
    const int y = cell / cols % rows * inner + i / 26 / across - beside;
    const int x = cell % cols * inner + i / 26 % across - beside;
    const bool there = y >= 0 && y < rows * inner && x >= 0 && x < cols * inner;
    m[i] = there ? table[(((size_t)pair * rows * inner + y) * cols * inner + x) * 26 + i % 26]
                 : 0.f;
  }
  __syncwarp();
  for (int i = lane; i < blocks * 5; i += 32) {      // about the middle of the window
    const int kind = i % 5;
    const float x = (i / 5 % across + 0.5f - 0.5f * across) * constants[11];
    const float y = (i / 5 / across + 0.5f - 0.5f * across) * constants[11];
    float* of = m + i / 5 * 26 + (kind < 3 ? 6 * kind : 3 * kind + 9);
    if (kind < 3) {
      of[3] += 2.f * x * of[1] + x * x * of[0];
      of[4] += y * of[1] + x * of[2] + x * y * of[0];
      of[5] += 2.f * y * of[2] + y * y * of[0];
    }
    of[1] += x * of[0];
    of[2] += y * of[0];
  }
  __syncwarp();
  if (lane < 26) {
    float sum = 0.f;
    for (int y = beside; y < beside + inner; ++y)
      for (int x = beside; x < beside + inner; ++x) sum += m[(y * across + x) * 26 + lane];
    out_own[(size_t)cell * 26 + lane] = sum;
  }
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
// Each thread chooses the displacement of a cell among those of its own and neighbouring windows.
extern "C" __global__ void settle(const float* theta, const float* misfit, const float* own,
                                  const float* noises, const float* constants, float* out,
                                  int all, int rows, int cols, int cell_px) {
  const int cell = blockIdx.x * blockDim.x + threadIdx.x;
  if (cell >= all) return;
  const float loose = constants[1], slope = constants[10];
  const float* m = own + (size_t)cell * 26;
  const float limit = 4.f * (fmaxf(m[25], 1e-6f) * noises[cell / (rows * cols)]
                             + loose * loose * (m[0] + m[12]));
  const int order[3] = {0, 1, -1};
  float least = 3.4e38f;
  for (int k = 0; k < 9; ++k) {
    const int down = order[k / 3], right = order[k % 3];
    const int y = cell / cols % rows + down, x = cell % cols + right;
    const bool there = y >= 0 && y < rows && x >= 0 && x < cols;
    // Beyond the grid the cells at its border continue.
    const int from = cell + (y >= 0 && y < rows ? down * cols : 0)
                     + (x >= 0 && x < cols ? right : 0);
    float moved[6], scaled[6];
#pragma unroll
    for (int p = 0; p < 6; ++p) moved[p] = theta[(size_t)from * 6 + p];
#pragma unroll
    for (int p = 0; p < 6; p += 3)     // to the middle of this cell
      moved[p] -= cell_px * (right * moved[p + 1] + down * moved[p + 2]);
#pragma unroll
    for (int p = 0; p < 6; ++p) scaled[p] = moved[p] / (p % 3 ? slope : 1.f);
    const float score = (there ? misfit[from] : 9.f) + 0.05f * (abs(down) + abs(right))
                        + fminf(fmaxf(energy(m, scaled) / limit, 0.f), 2.f);
    if (k && !(score < least)) continue;
    least = score;
#pragma unroll
    for (int p = 0; p < 6; ++p) out[(size_t)cell * 6 + p] = moved[p];
  }
}
// Each thread replaces the fit of a cell by those of ever wider windows where these are wanted
// and more exact, tells how far the cell itself shows this, and adds `base` to it. The fits of
// all windows (windows, all, ...) follow each other.
extern "C" __global__ void widen(const float* theta, const float* covariance,
                                 const float* inliers, const float* misfit, const float* own,
                                 const float* noises, const float* seconds,
                                 const float* constants, const float* base, float* out_theta,
                                 float* out_covariance, float* out_inliers, float* out_misfit,
                                 float* vouched, int all, int cells, int windows) {
  const int cell = blockIdx.x * blockDim.x + threadIdx.x;
  if (cell >= all) return;
  const float noise = noises[cell / cells], loose = constants[1], slope = constants[10];
  const float* m = own + (size_t)cell * 26;
  const float evidence = m[0] + m[12], seen = evidence / (evidence + noise / (OWN_PX * OWN_PX));
  size_t taken = cell;
  float expands = 0.f, error = 0.f;
  for (int window = 0; window < windows; ++window) {
    const size_t at = (size_t)window * all + cell;
    const float *t = theta + at * 6, *c = covariance + at * 36;
    const float its = fabsf(t[1] + t[5]) / 2.f;
    const float sd = sqrtf(fmaxf(c[7] + c[35] + 2.f * c[11], 1e-12f)) / 2.f;
    if (window && !(seen > WIDER_SEEN && sd < WIDER_GAIN * error && inliers[at] > WIDER_INLIERS
                    && error > WANTED * seconds[cell / cells] + WANTED_SHARE * expands)) continue;
    taken = at;
    expands = its;
    error = sd;
  }
  float scaled[6];
#pragma unroll
  for (int p = 0; p < 6; ++p) {
    const float t = theta[taken * 6 + p];
    scaled[p] = t / (p % 3 ? slope : 1.f);
    out_theta[(size_t)cell * 6 + p] = t + base[(size_t)cell * 6 + p];
  }
  for (int p = 0; p < 36; ++p) out_covariance[(size_t)cell * 36 + p] = covariance[taken * 36 + p];
  out_inliers[cell] = inliers[taken];
  out_misfit[cell] = misfit[taken];
  const float part = fmaxf(energy(m, scaled), 0.f)
                     / (4.f * (m[25] * noise + loose * loose * evidence) + 1e-6f);
  vouched[cell] = seen / (1.f + part * part);
}
