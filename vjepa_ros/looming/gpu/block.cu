// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Sums and ranks over a block of THREADS threads (WARPS warps). All threads take part, and all get
// the result. Included before `evidence.cu`, `motion.cu` and `pace.cu`.
template <typename T, int K> __device__ void totals(T (&v)[K]) {
  __shared__ T parts[WARPS][K];
#pragma unroll 1     // shorter code is fetched sooner
  for (int step = 16; step; step /= 2)
#pragma unroll
    for (int k = 0; k < K; ++k) v[k] += __shfl_xor_sync(~0u, v[k], step);
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int k = 0; k < K; ++k) parts[threadIdx.x / 32][k] = v[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) v[k] = parts[0][k];
#pragma unroll 1
  for (int warp = 1; warp < WARPS; ++warp)
#pragma unroll
    for (int k = 0; k < K; ++k) v[k] += parts[warp][k];
  __syncthreads();
}
template <typename T> __device__ __forceinline__ T total(T v) {
  T one[1] = {v};
  totals(one);
  return one[0];
}
// The value of a rank among numbers that are not negative, whose bits are in the order of the
// numbers: byte after byte, by counting. Each thread has written the bits i with
// i % THREADS == threadIdx.x, or all have waited since.
__device__ __noinline__ float ranked(const unsigned* bits, int n, int rank) {
  __shared__ int counts[256], chosen[2];     // how many have each byte; which one, the rank there
  unsigned found = 0u;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int i = threadIdx.x; i < 256; i += THREADS) counts[i] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += THREADS)
      if (shift == 24 || bits[i] >> (shift + 8) == found)
        atomicAdd(&counts[bits[i] >> shift & 255u], 1);
    __syncthreads();
    if (threadIdx.x < 32) {
      int here = 0;                          // in eight bytes, and up to them
#pragma unroll
      for (int k = 0; k < 8; ++k) here += counts[8 * threadIdx.x + k];
      int all = here;
#pragma unroll
      for (int step = 1; step < 32; step *= 2) {
        const int before = __shfl_up_sync(~0u, all, step);
        if (threadIdx.x >= step) all += before;
      }
      if (all - here <= rank && rank < all) {
        int byte = 8 * threadIdx.x, left = rank - (all - here);
        while (left >= counts[byte]) left -= counts[byte++];
        chosen[0] = byte;
        chosen[1] = left;
      }
    }
    __syncthreads();
    found = found << 8 | chosen[0];
    rank = chosen[1];
  }
  return __uint_as_float(found);
}
