# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA source of what kernels of looming share: sums of a block of threads, small systems."""


def block(threads: int) -> str:
    """Sums and ranks in a block of so many threads: each takes part, and gets the result."""
    return f'#define THREADS {threads}\n#define WARPS {threads // 32}\n{_TOGETHER}'


_TOGETHER = """
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
"""

# What every thread works out for itself.
ALGEBRA = """
// Gauss and Jordan for positive definite systems; the last column becomes the solution.
template <int N> __device__ void solve(double (&m)[N][N + 1]) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const double part = 1. / m[k][k];
#pragma unroll
    for (int j = k; j <= N; ++j) m[k][j] *= part;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i == k) continue;
      const double times = m[i][k];
#pragma unroll
      for (int j = k; j <= N; ++j) m[i][j] -= times * m[k][j];
    }
  }
}
template <int N> __device__ void invert(double (&m)[N][N]) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    const double part = 1. / m[k][k];
    m[k][k] = 1.;
#pragma unroll
    for (int j = 0; j < N; ++j) m[k][j] *= part;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i == k) continue;
      const double times = m[i][k];
      m[i][k] = 0.;
#pragma unroll
      for (int j = 0; j < N; ++j) m[i][j] -= times * m[k][j];
    }
  }
}
// Eigenvector of the least eigenvalue of (xx xy yy xz yz zz), by Jacobi's rotations; the last
// axis where nothing tells.
__device__ void least(const double (&m)[6], double (&t)[3]) {
  const double scale = 1. / fmax(m[0] + m[2] + m[5], 1e-300);
  double a[3][3] = {{m[0] * scale, m[1] * scale, m[3] * scale},
                    {m[1] * scale, m[2] * scale, m[4] * scale},
                    {m[3] * scale, m[4] * scale, m[5] * scale}};
  double v[3][3] = {{1., 0., 0.}, {0., 1., 0.}, {0., 0., 1.}};
  for (int sweep = 0; sweep < 10; ++sweep) {
    if (fabs(a[0][1]) + fabs(a[0][2]) + fabs(a[1][2]) < 1e-18) break;
#pragma unroll
    for (int p = 0; p < 2; ++p)
#pragma unroll
      for (int q = p + 1; q < 3; ++q) {
        if (fabs(a[p][q]) < 1e-30) continue;
        const double half = (a[q][q] - a[p][p]) / (2. * a[p][q]);
        const double tangent = copysign(1., half) / (fabs(half) + sqrt(half * half + 1.));
        const double c = 1. / sqrt(tangent * tangent + 1.), s = tangent * c;
#pragma unroll
        for (int k = 0; k < 3; ++k) {
          const double one = a[k][p], other = a[k][q];
          a[k][p] = c * one - s * other;
          a[k][q] = s * one + c * other;
        }
#pragma unroll
        for (int k = 0; k < 3; ++k) {
          const double one = a[p][k], other = a[q][k], of_p = v[k][p], of_q = v[k][q];
          a[p][k] = c * one - s * other;
          a[q][k] = s * one + c * other;
          v[k][p] = c * of_p - s * of_q;
          v[k][q] = s * of_p + c * of_q;
        }
      }
  }
  const bool third = a[2][2] <= a[0][0] && a[2][2] <= a[1][1];
  const bool second = !third && a[1][1] < a[0][0];
#pragma unroll
  for (int k = 0; k < 3; ++k) t[k] = third ? v[k][2] : second ? v[k][1] : v[k][0];
}
"""
