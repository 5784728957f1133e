// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Values of an image between its pixels and beyond its border. Included before `flow.cu`,
// `evidence.cu` and `pace.cu`.

// Samples bilinearly; beyond the border the border's values continue.
__device__ __forceinline__ float look(const float* image, int w, int h, float x, float y) {
  x = fminf(fmaxf(x, 0.f), w - 1.f);
  y = fminf(fmaxf(y, 0.f), h - 1.f);
  const int x0 = (int)x, y0 = (int)y, x1 = x0 + 1 < w ? x0 + 1 : x0, y1 = y0 + 1 < h ? y0 + 1 : y0;
  const float a = x - x0, b = y - y0;
  const float top = image[y0 * w + x0] * (1.f - a) + image[y0 * w + x1] * a;
  const float low = image[y1 * w + x0] * (1.f - a) + image[y1 * w + x1] * a;
  return top * (1.f - b) + low * b;
}
// Reflects an index at the border pixels, which are not repeated.
__device__ __forceinline__ int mirror(int i, int n) {
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}
