// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Sums and ranks over a block of THREADS threads (WARPS warps). All threads take part, and all get
// the result. Included before `evidence.cu` and `motion.cu`.
template <typename T, int K> __device__ void totals(T (&v)[K]) {
  __shared__ T parts[WARPS][K];
#pragma unroll
  for (int step = 16; step; step /= 2)
#pragma unroll
    for (int k = 0; k < K; ++k) v[k] += __shfl_xor_sync(~0u, v[k], step);
  if (threadIdx.x % 32 == 0)
#pragma unroll
    for (int k = 0; k < K; ++k) parts[threadIdx.x / 32][k] = v[k];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    v[k] = parts[0][k];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) v[k] += parts[warp][k];
  }
  __syncthreads();
}
template <typename T> __device__ __forceinline__ T total(T v) {
  T one[1] = {v};
  totals(one);
  return one[0];
}
// The value of a rank among positive numbers, whose bits are in the order of the numbers. Each
// thread has written the bits i with i % THREADS == threadIdx.x, or all have waited since.
__device__ float ranked(const unsigned* bits, int n, int rank) {
  __shared__ int parts[2][WARPS];
  unsigned found = 0u;
  for (int bit = 30; bit >= 0; --bit) {
    const unsigned limit = found | 1u << bit;
    int below = 0;
    for (int i = threadIdx.x; i < n; i += THREADS) below += bits[i] < limit;
#pragma unroll
    for (int step = 16; step; step /= 2) below += __shfl_xor_sync(~0u, below, step);
    if (threadIdx.x % 32 == 0) parts[bit & 1][threadIdx.x / 32] = below;
    __syncthreads();
    below = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) below += parts[bit & 1][warp];
    if (below <= rank) found = limit;
  }
  __syncthreads();
  return __uint_as_float(found);
}
