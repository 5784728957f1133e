// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Means of the pixels under each new one, as `device_resize`. Images (h, w, 3).

// Each thread computes a byte of an image of half the size.
extern "C" __global__ void halve(const unsigned char* image, unsigned char* out, int all, int w) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int color = i % 3, x = i / 3 % w, y = i / 3 / w;
  const unsigned char *up = image + (12 * y * w + 6 * x + color), *down = up + 6 * w;
  out[i] = (up[0] + up[3] + down[0] + down[3] + 2) >> 2;
}
// Each thread computes a pixel: a sum with whole weights, `wide` of them from a first column and
// `tall` from a first row on, over the sum of the weights; what is half a byte goes to the even
// one.
extern "C" __global__ void area(const unsigned char* image, unsigned char* out, const int* left,
                                const int* columns, const int* top, const int* rows, int all,
                                int w, int cols, int wide, int tall) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= all) return;
  const int x = i % cols, y = i / cols;
  long long sums[3] = {}, across = 0, down = 0;
  for (int k = 0; k < wide; ++k) across += columns[x * wide + k];
  for (int j = 0; j < tall; ++j) {
    const int weight = rows[y * tall + j];
    if (!weight) continue;     // also where there are no more rows
    down += weight;
    const unsigned char* pixel = image + ((size_t)(top[y] + j) * w + left[x]) * 3;
    for (int k = 0; k < wide; ++k) {
      const long long share = (long long)weight * columns[x * wide + k];
      if (!share) continue;
#pragma unroll
      for (int c = 0; c < 3; ++c) sums[c] += share * pixel[3 * k + c];
    }
  }
  const long long total = across * down;
#pragma unroll
  for (int c = 0; c < 3; ++c) {
    long long value = sums[c] / total;
    const long long twice = 2 * (sums[c] - value * total);
    if (twice > total || (twice == total && value & 1)) ++value;
    out[3 * i + c] = value;
  }
}
