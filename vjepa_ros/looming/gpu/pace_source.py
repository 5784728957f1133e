# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA source of how fast an image moves, and of which older frame that makes the best one."""

from vjepa_ros.looming.gpu.block_source import block

PACE_THREADS = 512
MOST_PACES = 4096     # pixels of the level at which it is measured

# One block a pair: displacement that 90 and 98 % of a flow stay below, and expansion: `Pace`.
PACE = block(PACE_THREADS) + """
// The value that a share of all stays below.
__device__ float below(const unsigned* bits, int n, double share) {
  const double at = share * (n - 1);
  const int low = (int)at, high = low + 1 < n ? low + 1 : n - 1;
  const float one = ranked(bits, n, low), other = ranked(bits, n, high);
  return one + (float)(at - low) * (other - one);
}
__device__ __forceinline__ int reflected(int i, int n) {
  i = i < 0 ? -i : i;
  return i < n ? i : 2 * (n - 1) - i;
}
extern "C" __global__ void pace(const float* flow, float* out, int w, int h, int px) {
  __shared__ unsigned bits[MOST_PACES];
  const float *u = flow + (size_t)blockIdx.x * 2 * w * h, *v = u + w * h;
  for (int i = threadIdx.x; i < w * h; i += THREADS)
    bits[i] = __float_as_uint(sqrtf(u[i] * u[i] + v[i] * v[i]));
  const float typical = below(bits, w * h, 0.9), fastest = below(bits, w * h, 0.98);
  // Slopes of the flow over 4 pixels, each end the mean of 5 x 5.
  const int wide = w - 4, n = wide * (h - 4);
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const int x = i % wide, y = i / wide;
    float growth = 0.f;
    for (int a = -2; a <= 2; ++a)
      for (int b = -2; b <= 2; ++b) {
        const int row = reflected(y + 2 + a, h) * w, column = reflected(x + 2 + a, w);
        growth += u[row + reflected(x + 4 + b, w)] - u[row + reflected(x + b, w)]
                  + v[reflected(y + 4 + b, h) * w + column] - v[reflected(y + b, h) * w + column];
      }
    bits[i] = __float_as_uint(fabsf(growth) / (25.f * 8.f * px));
  }
  const float expansion = below(bits, n, 0.98);
  if (threadIdx.x == 0) {
    out[3 * blockIdx.x] = typical;
    out[3 * blockIdx.x + 1] = fastest;
    out[3 * blockIdx.x + 2] = expansion;
  }
}
"""

# One thread works. Given: newest and near row, age of near, whether that is alone, displacement
# and age that are best and longest, then rows and ages of frames. Of these the best one to compare
# with: its number, row and age, and whether to expect a large displacement.
CHOOSE = """
extern "C" __global__ void choose(const float* given, const float* pace, float* out, int frames) {
  if (threadIdx.x) return;
  const float *rows = given + 6, *ages = rows + frames, goal = given[4];
  const float typical = fmaxf(pace[0], 1e-3f), fastest = fmaxf(pace[1], 1e-3f);
  const float most = MOST_EXPANSION / fmaxf(pace[2], 1e-3f);
  const float wanted = fminf(given[5], given[2] * fminf(fminf(goal / typical,
                                                              2.f * goal / fastest), most));
  int best = 0;
  for (int i = 1; i < frames; ++i)
    if (fabsf(logf(ages[i] / wanted)) < fabsf(logf(ages[best] / wanted))) best = i;
  out[0] = best;
  out[1] = rows[best];
  out[2] = ages[best];
  out[3] = given[3] > 0.5f || fastest * ages[best] / given[2] > goal;
}
"""
