# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA source of `vjepa_ros.looming.camera_cells`, for `motion_source`.

A block of threads works on the cells of a pair together. Every thread holds some of them, and all
sums; so each solves the small systems for itself. The formulas and their reasons are those of that
module.
"""

MOST_CELLS = 300   # that tell the motion of the camera

# `Cells` and what it can be asked. Thread i owns the cells i, i + THREADS, ... from `look` on.
CELLS = """
struct Cells {
  double at[2][MOST_CELLS], to[2][MOST_CELLS], spread[3][MOST_CELLS], sure[2][MOST_CELLS],
         both[MOST_CELLS], worth[MOST_CELLS], left[2][MOST_CELLS], z[MOST_CELLS];
  unsigned bits[2 * MOST_CELLS];
  bool still[MOST_CELLS], counts[MOST_CELLS];
};
struct Known { double near2, filled, best; int n; };
struct Line { double miss, variance, ahead, ax, ay, speed; };
struct Move { double rotation[3], direction[3], covariance[6][6], cost, share, explained; };

__device__ __forceinline__ double largest(double v) {
  __shared__ double parts[WARPS];
#pragma unroll
  for (int step = 16; step; step /= 2) v = fmax(v, __shfl_xor_sync(~0u, v, step));
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  v = parts[0];
#pragma unroll
  for (int warp = 1; warp < WARPS; ++warp) v = fmax(v, parts[warp]);
  __syncthreads();
  return v;
}
__device__ void matrix(const double (&v)[3], double (&r)[9]) {
  const double x = v[0], y = v[1], z = v[2], angle2 = x * x + y * y + z * z;
  const double angle = sqrt(angle2);
  const double s = angle < 1e-6 ? 1. : sin(angle) / angle;
  const double c = angle < 1e-6 ? 0.5 : (1. - cos(angle)) / angle2, d = 1. - c * angle2;
  r[0] = d + c * x * x; r[1] = c * x * y - s * z; r[2] = c * x * z + s * y;
  r[3] = c * x * y + s * z; r[4] = d + c * y * y; r[5] = c * y * z - s * x;
  r[6] = c * x * z - s * y; r[7] = c * y * z + s * x; r[8] = d + c * z * z;
}
__device__ void rest(Cells& s, const Known& k, const double (&rotation)[3]) {
  double r[9];
  matrix(rotation, r);
  for (int i = threadIdx.x; i < k.n; i += THREADS) {
    const double x = s.to[0][i], y = s.to[1][i];
    const double depth = fmax(r[2] * x + r[5] * y + r[8], LEAST_DEPTH);
    s.left[0][i] = (r[0] * x + r[3] * y + r[6]) / depth - s.at[0][i];
    s.left[1][i] = (r[1] * x + r[4] * y + r[7]) / depth - s.at[1][i];
  }
}
__device__ void look(Cells& s, const Known& k, const double (&rotation)[3]) {
  rest(s, k, rotation);
  for (int i = threadIdx.x; i < k.n; i += THREADS) {
    const double x = s.left[0][i], y = s.left[1][i];
    s.z[i] = s.sure[0][i] * x * x + 2. * s.both[i] * x * y + s.sure[1][i] * y * y;
  }
}
__device__ Line line(const Cells& s, int i, const double (&t)[3]) {
  Line l;
  l.ax = t[0] - t[2] * s.at[0][i];
  l.ay = t[1] - t[2] * s.at[1][i];
  l.speed = sqrt(l.ax * l.ax + l.ay * l.ay) + 1e-6;
  l.ax /= l.speed;
  l.ay /= l.speed;
  const double dx = s.left[0][i], dy = s.left[1][i];
  l.variance = fmax(l.ax * l.ax * s.spread[0][i] + l.ay * l.ay * s.spread[1][i]
                    + l.ax * l.ay * s.spread[2][i], LEAST_VARIANCE);
  l.miss = l.ax * dy - l.ay * dx;
  l.ahead = l.ax * dx + l.ay * dy;
  return l;
}
__device__ __forceinline__ bool behind(const Line& l) {
  return l.ahead <= -3. * sqrt(l.variance);
}
// The worth of cells that turning alone leaves where they are, as it was looked at last.
__device__ double agreeing(const Cells& s, const Known& k, bool but_still) {
  double sum = 0.;
  for (int i = threadIdx.x; i < k.n; i += THREADS)
    if (s.z[i] < AGREE && !(but_still && s.still[i])) sum += s.worth[i];
  return total(sum);
}
// `Cells.turn` of those that count, from a rotation that was looked at.
__device__ double turn(Cells& s, const Known& known, int rounds, bool started,
                       double (&rotation)[3], double (&covariance)[3][3]) {
  for (int k = 0; k < rounds; ++k) {
    const bool weighed = k || started;
    double wide = 1., most = 0., sums[9] = {};
    if (weighed && k < rounds - 2) {
      for (int i = threadIdx.x; i < known.n; i += THREADS) s.bits[i] = __float_as_uint(s.z[i]);
      wide = fmax((double)ranked(s.bits, known.n, known.n / 2) / 2., 1.);
    }
    for (int i = threadIdx.x; i < known.n; i += THREADS) {
      const double share = weighed ? 1. + s.z[i] / (SOFT * wide) : 1.;
      const double weight = s.counts[i] ? s.worth[i] / (share * share) : 0.;
      most = fmax(most, weight);
      const double x = s.at[0][i], y = s.at[1][i], dx = s.left[0][i], dy = s.left[1][i];
      const double a[3] = {-x * y, 1. + x * x, -y}, b[3] = {-1. - y * y, x * y, x};
      const double sa = weight * s.sure[0][i], sb = weight * s.sure[1][i];
      const double both = weight * s.both[i];
      int at = 0;
#pragma unroll
      for (int p = 0; p < 3; ++p) {
        const double pa = sa * a[p] + both * b[p], pb = sb * b[p] + both * a[p];
#pragma unroll
        for (int q = 0; q <= p; ++q) sums[at++] += pa * a[q] + pb * b[q];
        sums[6 + p] += pa * dx + pb * dy;
      }
    }
    totals(sums);
    most = fmax(largest(most), 1e-9);
    const double prior = most / (TURN_PRIOR * TURN_PRIOR);
    double m[3][4];
    int at = 0;
#pragma unroll
    for (int p = 0; p < 3; ++p) {
#pragma unroll
      for (int q = 0; q <= p; ++q) m[p][q] = m[q][p] = sums[at++];
      m[p][p] += prior;
      m[p][3] = sums[6 + p] - prior * rotation[p];
    }
    for (int p = 0; p < 3; ++p) for (int q = 0; q < 3; ++q) covariance[p][q] = m[p][q] / most;
    solve(m);
    for (int p = 0; p < 3; ++p) rotation[p] += m[p][3];
    look(s, known, rotation);
  }
  invert(covariance);
  double cost = 0.;
  for (int i = threadIdx.x; i < known.n; i += THREADS)
    cost += s.worth[i] * s.z[i] / (SOFT + s.z[i]);
  return total(cost);
}
__device__ double cost(const Cells& s, const Known& k, const double (&t)[3]) {
  double sum = 0.;
  for (int i = threadIdx.x; i < k.n; i += THREADS) {
    const Line l = line(s, i, t);
    const double z = l.miss * l.miss / l.variance + (behind(l) ? AGREE : 0.);
    const double far = l.ahead * l.ahead / k.near2;
    sum += s.worth[i] * (z / (SOFT + z) + 0.01 * far / (1. + far));
  }
  return total(sum);
}
// `Cells.direction` of what is left by one rotation, and its cost.
__device__ double heading(Cells& s, const Known& k, double (&t)[3]) {
  for (int round = 0; round < 2; ++round) {
    double wide = 1., sums[6] = {};
    if (round) {
      for (int i = threadIdx.x; i < k.n; i += THREADS) {
        const Line l = line(s, i, t);
        s.bits[i] = __float_as_uint(l.miss * l.miss / l.variance);
      }
      wide = fmax((double)ranked(s.bits, k.n, k.n / 2), 1.);
    }
    for (int i = threadIdx.x; i < k.n; i += THREADS) {
      const double dx = s.left[0][i], dy = s.left[1][i];
      double weight = s.worth[i];
      if (round) {
        const Line l = line(s, i, t);
        const double part = l.speed * (1. + l.miss * l.miss / l.variance / (SOFT * wide));
        weight /= part * part * l.variance;
      } else {
        weight /= dx * dx + dy * dy + k.near2;
      }
      const double c[3] = {-dy, dx, s.at[0][i] * dy - s.at[1][i] * dx};
      sums[0] += weight * c[0] * c[0]; sums[1] += weight * c[0] * c[1];
      sums[2] += weight * c[1] * c[1]; sums[3] += weight * c[0] * c[2];
      sums[4] += weight * c[1] * c[2]; sums[5] += weight * c[2] * c[2];
    }
    totals(sums);
    least(sums, t);
  }
  double way = 0.;
  for (int i = threadIdx.x; i < k.n; i += THREADS) {
    const Line l = line(s, i, t);
    const double deviation = sqrt(l.variance);
    way += s.worth[i] * tanh(l.ahead / deviation) / deviation;
  }
  if (!(total(way) >= 0.)) for (int p = 0; p < 3; ++p) t[p] = -t[p];
  return cost(s, k, t);
}
// `Cells.move` from a start whose rest is known; fixed keeps the rotation.
__device__ void move(Cells& s, const Known& known, Move& found, bool fixed, int rounds) {
  double (&rotation)[3] = found.rotation, (&t)[3] = found.direction;
  for (int k = 0; k < rounds; ++k) {
    double wide = 1., sums[27] = {};
    if (k < rounds / 2) {
      for (int i = threadIdx.x; i < known.n; i += THREADS) {
        const Line l = line(s, i, t);
        s.bits[i] = __float_as_uint(l.miss * l.miss / l.variance);
      }
      wide = fmax((double)ranked(s.bits, known.n, known.n / 2), 1.);
    }
    for (int i = threadIdx.x; i < known.n; i += THREADS) {
      const Line l = line(s, i, t);
      const double part = 1. + l.miss * l.miss / l.variance / (SOFT * wide);
      const double weight = s.worth[i] / (part * part * l.variance) * (behind(l) ? BEHIND : 1.);
      const double x = s.at[0][i], y = s.at[1][i], dx = s.left[0][i], dy = s.left[1][i];
      double row[6] = {0., 0., 0., dy / l.speed, -dx / l.speed, (dx * y - dy * x) / l.speed};
      double other[3] = {}, beside = 0.;
      if (!fixed) {
        const double a[3] = {-x * y, 1. + x * x, -y}, b[3] = {-1. - y * y, x * y, x};
#pragma unroll
        for (int p = 0; p < 3; ++p) {
          row[p] = a[p] * l.ay - b[p] * l.ax;
          other[p] = -a[p] * l.ax - b[p] * l.ay;
        }
        beside = s.worth[i] / (known.near2 + l.ahead * l.ahead);
      }
      int at = 0;
#pragma unroll
      for (int p = 0; p < 6; ++p) {
#pragma unroll
        for (int q = 0; q <= p; ++q) {
          sums[at] += weight * row[p] * row[q];
          if (p < 3) sums[at] += beside * other[p] * other[q];
          ++at;
        }
        sums[21 + p] += weight * row[p] * l.miss;
        if (p < 3) sums[21 + p] += beside * other[p] * l.ahead;
      }
    }
    totals(sums);
    double m[6][7], total = 0.;
    int at = 0;
#pragma unroll
    for (int p = 0; p < 6; ++p) {
#pragma unroll
      for (int q = 0; q <= p; ++q) m[p][q] = m[q][p] = sums[at++];
      m[p][6] = sums[21 + p];
      total += m[p][p];
    }
#pragma unroll
    for (int p = 0; p < 3; ++p) {
      if (fixed) m[p][p] = 1.;
#pragma unroll
      for (int q = 0; q < 3; ++q) m[3 + p][3 + q] += total * t[p] * t[q];
    }
#pragma unroll
    for (int p = 0; p < 6; ++p) {
#pragma unroll
      for (int q = 0; q < 6; ++q)
        found.covariance[p][q] = m[p][q] / known.best + (p == q ? 1e-3 : 0.);
      m[p][p] += 1e-10 * total + 1e-12;
    }
    solve(m);
    double length = 0.;
    for (int p = 0; p < 3; ++p) {
      t[p] -= m[3 + p][6];
      length += t[p] * t[p];
      if (!fixed) rotation[p] -= m[p][6];
    }
    for (int p = 0; p < 3; ++p) t[p] /= sqrt(length);
    if (!fixed) rest(s, known, rotation);
  }
  invert(found.covariance);
  double sums[2] = {};
  for (int i = threadIdx.x; i < known.n; i += THREADS) {
    const Line l = line(s, i, t);
    if (!(l.miss * l.miss < AGREE * l.variance) || behind(l)) continue;
    sums[0] += s.worth[i];
    if (!s.still[i]) sums[1] += s.worth[i];
  }
  totals(sums);
  found.share = sums[0];
  found.explained = sums[1];
  found.cost = cost(s, known, t);
}
"""
