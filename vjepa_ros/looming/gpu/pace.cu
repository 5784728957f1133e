// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// The choice of the older frame, as `flow.Choice`. Defined by the caller: HEAD, MOST_FRAMES,
// MOST_VALUES, MOST_EXPANSION, and those of `block.cu` and `image.cu`.

// The value that a share of the numbers stays below.
__device__ float below(const unsigned* bits, int n, float share) {
  const float at = share * (n - 1);
  const int low = (int)at;
  const float first = ranked(bits, n, low);
  return first + (at - low) * (ranked(bits, n, low + 1 < n ? low + 1 : low) - first);
}
// The mean of 5x5 pixels, mirrored at the border.
__device__ float even(const float* image, int w, int h, int x, int y) {
  float sum = 0.f;
  for (int j = -2; j <= 2; ++j)
    for (int i = -2; i <= 2; ++i) sum += image[mirror(y + j, h) * w + mirror(x + i, w)];
  return sum / 25.f;
}
// One block. From the displacement (2, h, w) of pixels of `px` px, to the frame that shows the
// pace: number, row and age of the frame to compare with, 1 where to expect a large displacement.
extern "C" __global__ void choose(const float* given, const float* flow, float* out, int w,
                                  int h, int px) {
  __shared__ unsigned bits[MOST_VALUES];
  const float *u = flow, *v = flow + w * h;
  for (int i = threadIdx.x; i < w * h; i += THREADS)
    bits[i] = __float_as_uint(sqrtf(u[i] * u[i] + v[i] * v[i]));
  const float typical = fmaxf(below(bits, w * h, 0.9f), 1e-3f);
  const float fastest = fmaxf(below(bits, w * h, 0.98f), 1e-3f);
  const int wide = w - 4, n = wide * (h - 4);
  for (int i = threadIdx.x; i < n; i += THREADS) {
    const int x = i % wide + 2, y = i / wide + 2;
    const float growth = even(u, w, h, x + 2, y) - even(u, w, h, x - 2, y)
                         + even(v, w, h, x, y + 2) - even(v, w, h, x, y - 2);
    bits[i] = __float_as_uint(fabsf(growth) / (8.f * px));
  }
  const float expansion = fmaxf(below(bits, n, 0.98f), 1e-3f);
  if (threadIdx.x) return;
  const float near = given[2], goal = given[4], *rows = given + HEAD, *ages = rows + MOST_FRAMES;
  float wanted = fminf(goal / typical, 2.f * goal / fastest);
  wanted = fminf(near * fminf(wanted, MOST_EXPANSION / expansion), given[5]);
  int best = 0;
  float least = 3.4e38f;
  for (int k = 0; k < MOST_FRAMES; ++k) {
    const float off = fabsf(logf(ages[k] / wanted));
    if (off < least) { least = off; best = k; }
  }
  out[0] = best;
  out[1] = rows[best];
  out[2] = ages[best];
  out[3] = given[3] > 0.5f || fastest * ages[best] / near > goal;
}
