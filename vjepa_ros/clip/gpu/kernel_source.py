# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA sources of `vjepa_ros.clip.gpu.kernels`: a thread makes a pixel.

Everything is done in integers, as exactly as the plain path does it in whole numbers of float64:
there is nothing that the order of sums, fused multiplications or a device's rounding could change.

`given` is the row of the store and the address of the image, `source` has that of what is read as
its second number, too. They lie in the memory of the device, so that a graph finds new ones there
each time. Strides are in bytes. A table has a column for each new pixel of an axis: the first
pixel that it is made of, their number, the sum of their weights, then the weights.
"""

from vjepa_ros.clip.gpu.weights import GREY_WEIGHTS
from vjepa_ros.clip.resize import LETTERBOX_RGB

_MEAN = """
// Of 2x2 pixels, halves rounded up.
__device__ __forceinline__ unsigned mean4(const unsigned char* p, int stride) {
  return (p[0] + p[3] + p[stride] + p[stride + 3] + 2u) >> 2;
}
"""

HALVE = _MEAN + """
extern "C" __global__ void halve(const long long* source, unsigned char* out, int stride, int left,
                                 int top, int width, int height) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width * height) return;
  const unsigned char* p = (const unsigned char*)source[1]
                           + (size_t)(top + i / width * 2) * stride + (left + i % width * 2) * 3;
  for (int c = 0; c < 3; ++c) out[(size_t)3 * i + c] = (unsigned char)mean4(p + c, stride);
}
"""

# Mean over areas, of the image or of its half, which is not made as a whole: what several new
# pixels share is read again, but out of the cache. `width` x `height` new pixels from (x0, y0) on
# in an image of `columns` x `rows`; beside them is the colour of the bars.
SHRINK = _MEAN + f"""
#define RED {GREY_WEIGHTS[0]}
#define GREEN {GREY_WEIGHTS[1]}
#define BLUE {GREY_WEIGHTS[2]}
#define BARS {{{', '.join(map(str, LETTERBOX_RGB))}}}
""" + """
// total / share, a half to the even side.
__device__ __forceinline__ unsigned rounded(long long total, long long share) {
  unsigned value = (unsigned)((float)total / (float)share);     // off by one at most
  long long rest = total - value * share;
  if (rest < 0) { --value; rest += share; }
  else if (rest >= share) { ++value; rest -= share; }
  return value + (2 * rest > share || (2 * rest == share && value % 2));
}
template <int HALVED>
__device__ __forceinline__ void mean(const unsigned char* image, int stride, const int* across,
                                     const int* down, int width, int height, unsigned* value) {
  const int many = across[width], rows = down[height];
  long long total[3] = {0, 0, 0};
  image += (size_t)(down[0] << HALVED) * stride + (across[0] << HALVED) * 3;
  for (int j = 0; j < rows; ++j) {
    const unsigned char* p = image + (size_t)(j << HALVED) * stride;
    unsigned sum[3] = {0, 0, 0};
    for (int k = 0; k < many; ++k, p += 3 << HALVED) {
      const unsigned weight = across[(3 + k) * width];
      for (int c = 0; c < 3; ++c) sum[c] += weight * (HALVED ? mean4(p + c, stride) : p[c]);
    }
    const long long weight = down[(3 + j) * height];
    for (int c = 0; c < 3; ++c) total[c] += sum[c] * weight;
  }
  const long long share = (long long)across[2 * width] * down[2 * height];
  for (int c = 0; c < 3; ++c) value[c] = rounded(total[c], share);
}
extern "C" __global__ void shrink(const long long* source, const long long* given,
                                  unsigned char* store, const int* across, const int* down,
                                  int stride, int left, int top, int halved, int width, int height,
                                  int x0, int y0, int columns, int rows, int grey) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= columns * rows) return;
  const int x = i % columns - x0, y = i / columns - y0;
  unsigned value[3] = BARS;
  if (x >= 0 && x < width && y >= 0 && y < height) {
    const unsigned char* image = (const unsigned char*)source[1] + (size_t)top * stride + left * 3;
    if (halved) mean<1>(image, stride, across + x, down + y, width, height, value);
    else mean<0>(image, stride, across + x, down + y, width, height, value);
  }
  const size_t at = (size_t)given[0] * columns * rows + i;
  if (grey) {
    store[at] = (unsigned char)((RED * value[0] + GREEN * value[1] + BLUE * value[2]
                                 + (1u << 14)) >> 15);
    return;
  }
  for (int c = 0; c < 3; ++c) store[3 * at + c] = (unsigned char)value[c];
}
"""

# Between the nearest pixels, as `VResizeLinear` of OpenCV: it drops some bits on the way. These
# tables have both pixels and both weights.
LINEAR = """
extern "C" __global__ void linear(const long long* source, const long long* given,
                                  unsigned char* store, const int* across, const int* down,
                                  int stride, int side) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= side * side) return;
  across += i % side;
  down += i / side;
  const unsigned char* image = (const unsigned char*)source[1];
  const unsigned char *above = image + (size_t)down[0] * stride;
  const unsigned char *below = image + (size_t)down[side] * stride;
  unsigned char* out = store + ((size_t)given[0] * side * side + i) * 3;
  const int l = across[0] * 3, r = across[side] * 3;
  const int near = across[2 * side], far = across[3 * side];
  for (int c = 0; c < 3; ++c) {
    const int upper = (above[l + c] * near + above[r + c] * far) >> 4;
    const int lower = (below[l + c] * near + below[r + c] * far) >> 4;
    out[c] = (unsigned char)((((upper * down[2 * side]) >> 16)
                              + ((lower * down[3 * side]) >> 16) + 2) >> 2);
  }
}
"""

# With antialiasing as PyTorch does it: to the side first, and to bytes in between.
TRIANGLE = """
__device__ __forceinline__ int byte(int total, int bits) {
  const int value = (total + (1 << (bits - 1))) >> bits;
  return value > 255 ? 255 : value;
}
extern "C" __global__ void triangle(const long long* source, const long long* given,
                                    unsigned char* store, const int* across, const int* down,
                                    int stride, int side, int bits, int more_bits) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= side * side) return;
  across += i % side;
  down += i / side;
  const unsigned char* image = (const unsigned char*)source[1]
                               + (size_t)down[0] * stride + across[0] * 3;
  const int many = across[side], lines = down[side];
  int total[3] = {0, 0, 0};
  for (int j = 0; j < lines; ++j) {
    const unsigned char* p = image + (size_t)j * stride;
    int sum[3] = {0, 0, 0};
    for (int k = 0; k < many; ++k, p += 3)
      for (int c = 0; c < 3; ++c) sum[c] += across[(3 + k) * side] * p[c];
    for (int c = 0; c < 3; ++c) total[c] += down[(3 + j) * side] * byte(sum[c], bits);
  }
  unsigned char* out = store + ((size_t)given[0] * side * side + i) * 3;
  for (int c = 0; c < 3; ++c) out[c] = (unsigned char)byte(total[c], more_bits);
}
"""

SOURCES = {'halve': HALVE, 'shrink': SHRINK, 'linear': LINEAR, 'triangle': TRIANGLE}
