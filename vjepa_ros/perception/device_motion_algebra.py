# SPDX-License-Identifier: Apache-2.0
"""CUDA source of small systems and of numbers of a whole warp, for `device_motion_source`."""

# Sums of all lanes, and what every lane works out for itself with them.
ALGEBRA = """
template <int K> __device__ __forceinline__ void totals(double (&v)[K]) {
#pragma unroll
  for (int step = 16; step; step /= 2)
#pragma unroll
    for (int k = 0; k < K; ++k) v[k] += __shfl_xor_sync(~0u, v[k], step);
}
__device__ __forceinline__ double largest(double v) {
#pragma unroll
  for (int step = 16; step; step /= 2) v = fmax(v, __shfl_xor_sync(~0u, v, step));
  return v;
}
// The middle of positive numbers, whose bits are in the order of the numbers.
__device__ double middle(const unsigned* bits, int n) {
  unsigned found = 0u;
  for (int bit = 30; bit >= 0; --bit) {
    const unsigned limit = found | 1u << bit;
    double below[1] = {0.};
    for (int i = threadIdx.x; i < n; i += 32) below[0] += bits[i] < limit;
    totals(below);
    if ((int)below[0] <= n / 2) found = limit;
  }
  return __uint_as_float(found);
}
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
// Eigenvector of the least eigenvalue of (xx xy yy xz yz zz), by Jacobi's rotations.
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
  const bool second = a[1][1] < a[0][0] && a[1][1] < a[2][2];
  const bool third = !second && a[2][2] < a[0][0];
#pragma unroll
  for (int k = 0; k < 3; ++k) t[k] = third ? v[k][2] : second ? v[k][1] : v[k][0];
}
"""
