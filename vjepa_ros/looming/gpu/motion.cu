// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// Motion of the camera, as `vjepa_ros.looming.ego_motion`, which gives the formulas their reasons.
// Defined by the caller: the constants of that module, MOST_USED, and those of `block.cu`.
//
// One block of threads works on the cells of a pair together. Every thread holds some of the cells
// and all sums, and solves the small systems for itself.
//
// Functions are not inlined, and loops over cells not unrolled: the code would be so long that
// fetching it took most of the time.
#define APART __device__ __noinline__
#define EACH(i, n) _Pragma("unroll 1") for (int i = threadIdx.x; i < (n); i += THREADS)
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
APART void least(const double (&m)[6], double (&t)[3]) {
  const double scale = 1. / fmax(m[0] + m[2] + m[5], 1e-300);
  double a[3][3] = {{m[0] * scale, m[1] * scale, m[3] * scale},
                    {m[1] * scale, m[2] * scale, m[4] * scale},
                    {m[3] * scale, m[4] * scale, m[5] * scale}};
  double v[3][3] = {{1., 0., 0.}, {0., 1., 0.}, {0., 0., 1.}};
  for (int sweep = 0; sweep < 10; ++sweep) {
    if (fabs(a[0][1]) + fabs(a[0][2]) + fabs(a[1][2]) < 1e-15) break;
#pragma unroll
    for (int p = 0; p < 2; ++p)
#pragma unroll
      for (int q = p + 1; q < 3; ++q) {
        if (fabs(a[p][q]) < 1e-30) continue;
        // By half the angle, for inverse roots are faster than divisions.
        const double apart = a[q][q] - a[p][p], twice = 2. * a[p][q];
        const double size = rsqrt(apart * apart + twice * twice);
        const double even = 0.5 + 0.5 * fabs(apart) * size, part = rsqrt(even);
        const double c = even * part, s = copysign(0.5, apart) * twice * size * part;
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
// Thread i owns the cells i, i + THREADS, ... from `look` on.
struct Cells {
  double at[2][MOST_CELLS], to[2][MOST_CELLS], spread[3][MOST_CELLS], sure[2][MOST_CELLS],
         both[MOST_CELLS], worth[MOST_CELLS], left[2][MOST_CELLS], z[MOST_CELLS];
  unsigned bits[2 * MOST_CELLS];
  int many[WARPS];      // usable cells of each warp
  bool still[MOST_CELLS], counts[MOST_CELLS];
};
struct Known { double near2, filled, best; int n; };
struct Line { double miss, z, variance, ahead, ax, ay, slow; };   // z: miss^2 / variance
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
APART void matrix(const double (&v)[3], double (&r)[9]) {
  const double x = v[0], y = v[1], z = v[2], angle2 = x * x + y * y + z * z;
  const double angle = sqrt(angle2);
  const double s = angle < 1e-6 ? 1. : sin(angle) / angle;
  const double c = angle < 1e-6 ? 0.5 : (1. - cos(angle)) / angle2, d = 1. - c * angle2;
  r[0] = d + c * x * x; r[1] = c * x * y - s * z; r[2] = c * x * z + s * y;
  r[3] = c * x * y + s * z; r[4] = d + c * y * y; r[5] = c * y * z - s * x;
  r[6] = c * x * z - s * y; r[7] = c * y * z + s * x; r[8] = d + c * z * z;
}
APART void rest(Cells& s, const Known& k, const double (&rotation)[3]) {
  double r[9];
  matrix(rotation, r);
  EACH(i, k.n) {
    const double x = s.to[0][i], y = s.to[1][i];
    const double depth = fmax(r[2] * x + r[5] * y + r[8], LEAST_DEPTH);
    s.left[0][i] = (r[0] * x + r[3] * y + r[6]) / depth - s.at[0][i];
    s.left[1][i] = (r[1] * x + r[4] * y + r[7]) / depth - s.at[1][i];
  }
}
APART void look(Cells& s, const Known& k, const double (&rotation)[3]) {
  rest(s, k, rotation);
  EACH(i, k.n) {
    const double x = s.left[0][i], y = s.left[1][i];
    s.z[i] = s.sure[0][i] * x * x + 2. * s.both[i] * x * y + s.sure[1][i] * y * y;
  }
}
__device__ Line line(const Cells& s, int i, const double (&t)[3]) {
  Line l;
  l.ax = t[0] - t[2] * s.at[0][i];
  l.ay = t[1] - t[2] * s.at[1][i];
  l.slow = 1. / (sqrt(l.ax * l.ax + l.ay * l.ay) + 1e-6);
  l.ax *= l.slow;
  l.ay *= l.slow;
  const double dx = s.left[0][i], dy = s.left[1][i];
  l.variance = fmax(l.ax * l.ax * s.spread[0][i] + l.ay * l.ay * s.spread[1][i]
                    + l.ax * l.ay * s.spread[2][i], LEAST_VARIANCE);
  l.miss = l.ax * dy - l.ay * dx;
  l.ahead = l.ax * dx + l.ay * dy;
  l.z = l.miss * l.miss / l.variance;
  return l;
}
__device__ __forceinline__ bool behind(const Line& l) {
  return l.ahead <= 0. && l.ahead * l.ahead >= 9. * l.variance;
}
// The worth of cells that turning alone leaves where they are, as it was looked at last.
APART double agreeing(const Cells& s, const Known& k, bool but_still) {
  double sum = 0.;
  EACH(i, k.n)
    if (s.z[i] < AGREE && !(but_still && s.still[i])) sum += s.worth[i];
  return total(sum);
}
// `_Cells.turn` of those that count, from a rotation that was looked at.
APART double turn(Cells& s, const Known& known, int rounds, bool started,
                  double (&rotation)[3], double (&covariance)[3][3]) {
  for (int k = 0; k < rounds; ++k) {
    const bool weighed = k || started;
    double wide = 1., most = 0., sums[9] = {};
    if (weighed && k < rounds - 2) {
      EACH(i, known.n) s.bits[i] = __float_as_uint(s.z[i]);
      wide = fmax((double)ranked(s.bits, known.n, known.n / 2) / 2., 1.);
    }
    EACH(i, known.n) {
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
    if (k == rounds - 1) {
      const double unit = 1. / most;
      for (int p = 0; p < 3; ++p) for (int q = 0; q < 3; ++q) covariance[p][q] = m[p][q] * unit;
    }
    solve(m);
    for (int p = 0; p < 3; ++p) rotation[p] += m[p][3];
    look(s, known, rotation);
  }
  invert(covariance);
  double cost = 0.;
  EACH(i, known.n)
    cost += s.worth[i] * s.z[i] / (SOFT + s.z[i]);
  return total(cost);
}
APART double cost(const Cells& s, const Known& k, const double (&t)[3]) {
  double sum = 0.;
  EACH(i, k.n) {
    const Line l = line(s, i, t);
    const double z = l.z + (behind(l) ? AGREE : 0.);
    const double far = l.ahead * l.ahead / k.near2;
    sum += s.worth[i] * (z / (SOFT + z) + 0.01 * far / (1. + far));
  }
  return total(sum);
}
// `_Cells.direction` of what is left by one rotation, and its cost.
APART double heading(Cells& s, const Known& k, double (&t)[3]) {
  for (int round = 0; round < 2; ++round) {
    double wide = 1., sums[6] = {};
    if (round) {
      EACH(i, k.n) {
        s.bits[i] = __float_as_uint(line(s, i, t).z);
      }
      wide = fmax((double)ranked(s.bits, k.n, k.n / 2), 1.);
    }
    const double soft = 1. / (SOFT * wide);
    EACH(i, k.n) {
      const double dx = s.left[0][i], dy = s.left[1][i];
      double weight = s.worth[i];
      if (round) {
        const Line l = line(s, i, t);
        const double part = 1. + l.z * soft;
        weight *= l.slow * l.slow / (part * part * l.variance);
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
  EACH(i, k.n) {
    const Line l = line(s, i, t);
    const double sure = rsqrt(l.variance);
    way += s.worth[i] * tanh(l.ahead * sure) * sure;
  }
  if (!(total(way) >= 0.)) for (int p = 0; p < 3; ++p) t[p] = -t[p];
  return cost(s, k, t);
}
// `_Cells.move` from a start whose rest is known; fixed keeps the rotation.
APART void move(Cells& s, const Known& known, Move& found, bool fixed, int rounds) {
  double (&rotation)[3] = found.rotation, (&t)[3] = found.direction;
  for (int k = 0; k < rounds; ++k) {
    double wide = 1., sums[27] = {};
    if (k < rounds / 2) {
      EACH(i, known.n) {
        s.bits[i] = __float_as_uint(line(s, i, t).z);
      }
      wide = fmax((double)ranked(s.bits, known.n, known.n / 2), 1.);
    }
    const double soft = 1. / (SOFT * wide);
    EACH(i, known.n) {
      const Line l = line(s, i, t);
      const double part = 1. + l.z * soft;
      const double weight = s.worth[i] / (part * part * l.variance) * (behind(l) ? BEHIND : 1.);
      const double x = s.at[0][i], y = s.at[1][i], dx = s.left[0][i], dy = s.left[1][i];
      double row[6] = {0., 0., 0., dy * l.slow, -dx * l.slow,
                       (dx * y - dy * x) * l.slow};
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
    if (k == rounds - 1) {
      const double unit = 1. / known.best;
#pragma unroll
      for (int p = 0; p < 6; ++p)
#pragma unroll
        for (int q = 0; q < 6; ++q)
          found.covariance[p][q] = m[p][q] * unit + (p == q ? 1e-3 : 0.);
    }
#pragma unroll
    for (int p = 0; p < 6; ++p) m[p][p] += 1e-10 * total + 1e-12;
    solve(m);
    double length = 0.;
    for (int p = 0; p < 3; ++p) {
      t[p] -= m[3 + p][6];
      length += t[p] * t[p];
      if (!fixed) rotation[p] -= m[p][6];
    }
    for (int p = 0; p < 3; ++p) t[p] *= rsqrt(length);
    if (!fixed) rest(s, known, rotation);
  }
  invert(found.covariance);
  double sums[2] = {};
  EACH(i, known.n) {
    const Line l = line(s, i, t);
    if (!(l.z < AGREE) || behind(l)) continue;
    sums[0] += s.worth[i];
    if (!s.still[i]) sums[1] += s.worth[i];
  }
  totals(sums);
  found.share = sums[0];
  found.explained = sums[1];
  found.cost = cost(s, known, t);
}
// `_Cells.turn_of_wall`.
APART void turn_of_wall(Cells& s, const Known& known, double (&rotation)[3]) {
  double found[8] = {};
  for (int k = 0; k < WALL_ROUNDS; ++k) {
    double wide = 0., sums[44] = {};
    for (int pass = k ? 0 : 1; pass < 2; ++pass) {
      EACH(i, known.n) {
        const double x = s.at[0][i], y = s.at[1][i];
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const double goal = s.to[c][i] - s.at[c][i], bent = s.at[c][i];
          // Of the eight rows those that this component has.
          const double row[5] = {1., x, y, -y * bent, x * bent};
          double left = goal - found[6] * row[3] - found[7] * row[4];
#pragma unroll
          for (int j = 0; j < 3; ++j) left -= found[3 * c + j] * row[j];
          left = fabs(left);
          if (!pass) {
            s.bits[c * known.n + i] = __float_as_uint(left);
            continue;
          }
          const double part = left / wide, share = 1. + part * part;
          const double weight = k ? s.worth[i] / (share * share) : s.worth[i];
          int at = 22 * c;     // per component: 15 products, 5 with the goal
#pragma unroll
          for (int p = 0; p < 5; ++p)
#pragma unroll
            for (int q = 0; q <= p; ++q) sums[at++] += weight * row[p] * row[q];
#pragma unroll
          for (int p = 0; p < 5; ++p) sums[at++] += weight * row[p] * goal;
        }
      }
      if (!pass) {
        __syncthreads();
        wide = 2. * ranked(s.bits, 2 * known.n, known.n) + 1e-5;
      }
    }
    totals(sums);
    double m[8][9] = {};
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      int at = 22 * c;
#pragma unroll
      for (int p = 0; p < 5; ++p)
#pragma unroll
        for (int q = 0; q <= p; ++q) {
          const int row = p < 3 ? 3 * c + p : 3 + p, column = q < 3 ? 3 * c + q : 3 + q;
          m[row][column] += sums[at];
          if (row != column) m[column][row] += sums[at];
          ++at;
        }
#pragma unroll
      for (int p = 0; p < 5; ++p) m[p < 3 ? 3 * c + p : 3 + p][8] += sums[at++];
    }
#pragma unroll
    for (int p = 0; p < 8; ++p) m[p][p] += 1e-9;
    solve(m);
#pragma unroll
    for (int p = 0; p < 8; ++p) found[p] = m[p][8];
  }
  rotation[0] = found[6];
  rotation[1] = found[7];
  rotation[2] = (found[4] - found[2]) / 2.;
}
// One block. The motion from displacements, or from a start: rotation (3), direction (3), whether
// that is known, agreement, kind, covariance (36), matrix of the rotation (9).
enum Kind { UNKNOWN, STILL, TURN, MOVE };
__device__ __forceinline__ bool usable(const float* theta, const float* covariance,
                                       const float* inliers, const float* misfit, int i,
                                       int side) {
  const float* c = covariance + (size_t)i * side * side;
  return inliers[i] > 0.25f && c[0] + c[side * side / 2 + side / 2] < 9.f && misfit[i] < 1.f
         && isfinite(theta[6 * i]) && isfinite(theta[6 * i + 3]);
}
APART void told(const Move& found, double* out, Kind kind, bool directed) {
  double r[9];
  matrix(found.rotation, r);
  for (int p = 0; p < 3; ++p) {
    out[p] = found.rotation[p];
    out[3 + p] = directed ? found.direction[p] : 0.;
  }
  out[6] = directed;
  out[7] = found.share;
  out[8] = kind;
  for (int p = 0; p < 36; ++p) out[9 + p] = found.covariance[p / 6][p % 6];
  for (int p = 0; p < 9; ++p) out[45 + p] = r[p];
}
// A settled rotation, that was looked at, with the direction that explains the rest.
APART void with_direction(Cells& s, const Known& k, Move& found,
                          const double (&covariance)[3][3]) {
  heading(s, k, found.direction);
  move(s, k, found, true, 4);
  for (int p = 0; p < 3; ++p)
    for (int q = 0; q < 3; ++q) {
      found.covariance[p][q] = covariance[p][q];
      found.covariance[3 + p][q] = found.covariance[p][3 + q] = 0.;
    }
}
extern "C" __global__ void motion(const float* theta, const float* covariance,
                                  const float* inliers, const float* misfit, const float* at,
                                  const float* lens, const double* start, double* out,
                                  int cells, int side, int has_start) {
  __shared__ Cells s;
  const int lane = threadIdx.x % 32;
  const double focal = lens[0];
  // Of the cells that say something every second or third, so that there is room.
  int count = 0;
  EACH(i, cells) count += usable(theta, covariance, inliers, misfit, i, side);
  count = total(count);
  const int step = count / MOST_USED > 1 ? count / MOST_USED : 1;
  Known k;
  k.n = (count + step - 1) / step;
  k.near2 = (NEAR_PX / focal) * (NEAR_PX / focal);
  Move found = {};
  if (k.n < LEAST_CELLS) {
    for (int p = 0; p < 6; ++p) found.covariance[p][p] = p < 3 ? TURN_PRIOR * TURN_PRIOR : 1.;
    if (threadIdx.x == 0) told(found, out, UNKNOWN, false);
    return;
  }
  double low[2] = {1e30, 1e30}, high[2] = {-1e30, -1e30};
  for (int base = 0, before = 0; base < cells; base += THREADS) {
    const int i = base + threadIdx.x;
    const bool use = i < cells && usable(theta, covariance, inliers, misfit, i, side);
    const unsigned all = __ballot_sync(~0u, use);
    if (lane == 0) s.many[threadIdx.x / 32] = __popc(all);
    __syncthreads();
    int rank = before + __popc(all & ((1u << lane) - 1u));
    for (int warp = 0; warp < WARPS; ++warp) {
      if (warp < threadIdx.x / 32) rank += s.many[warp];
      before += s.many[warp];
    }
    if (use && rank % step == 0) s.bits[rank / step] = i;
    __syncthreads();
  }
  EACH(to, k.n) {
    const int i = s.bits[to];
    double apart2 = 0.;
    for (int c = 0; c < 2; ++c) {
      s.at[c][to] = ((double)at[c * cells + i] - lens[1 + c]) / focal;
      s.to[c][to] = s.at[c][to] + theta[6 * i + 3 * c] / focal;
      const double apart = s.to[c][to] - s.at[c][to];
      apart2 += apart * apart;
      low[c] = fmin(low[c], s.at[c][to]);
      high[c] = fmax(high[c], s.at[c][to]);
    }
    const float* own = covariance + (size_t)i * side * side;
    const double sx = own[0], sxy = own[side / 2], sy = own[side * side / 2 + side / 2];
    const double loose = LOOSE_PX * LOOSE_PX + LOOSE_SHARE * LOOSE_SHARE * focal * focal * apart2;
    const double unit = 1. / (focal * focal);
    const double up = (sy + loose) * unit, across = (sx + loose) * unit, twice = -2. * sxy * unit;
    const double det = across * up - twice * twice / 4.;
    s.spread[0][to] = up; s.spread[1][to] = across; s.spread[2][to] = twice;
    s.sure[0][to] = up / det; s.sure[1][to] = across / det; s.both[to] = twice / (2. * det);
    s.worth[to] = 1. / (1. + (sx + sy) / 0.5);
  }
  for (int c = 0; c < 2; ++c) {
    low[c] = -largest(-low[c]);
    high[c] = largest(high[c]);
  }
  // Every part of the image has about the same say.
  double parts[12] = {}, sum = 0.;
  EACH(i, k.n) {
    int part[2];
    for (int c = 0; c < 2; ++c) {
      const int steps = c ? 3 : 4;
      const double scaled = (s.at[c][i] - low[c]) * (steps / fmax(high[c] - low[c], 1e-9));
      part[c] = (int)fmin(scaled, steps - 1.);
    }
    s.bits[i] = 4 * part[1] + part[0];
#pragma unroll
    for (int p = 0; p < 12; ++p) parts[p] += p == s.bits[i] ? s.worth[i] : 0.;
  }
  totals(parts);
  double most = 0.;
  for (int p = 0; p < 12; ++p) most = fmax(most, parts[p]);
  EACH(i, k.n) {
    double all = 0.;
#pragma unroll
    for (int p = 0; p < 12; ++p) if (p == s.bits[i]) all = parts[p];
    s.worth[i] /= all + 0.15 * most;
    sum += s.worth[i];
  }
  sum = total(sum);
  k.filled = sum / 12.;
  k.best = 0.;
  EACH(i, k.n) {
    s.worth[i] /= sum;
    k.best = fmax(k.best, s.worth[i]);
    s.counts[i] = true;
    s.still[i] = false;
  }
  k.best = largest(k.best);
  double covariance3[3][3];
  const Kind before = has_start ? (Kind)(int)start[8] : UNKNOWN;
  if (before != UNKNOWN) {       // fitted again
    for (int p = 0; p < 3; ++p) found.rotation[p] = start[p];
    look(s, k, found.rotation);
    if (before == MOVE) {
      for (int p = 0; p < 3; ++p) found.direction[p] = start[3 + p];
      move(s, k, found, false, 3);
      if (threadIdx.x == 0) told(found, out, found.share > 0.4 ? MOVE : UNKNOWN, true);
      return;
    }
    if (before == STILL)
      EACH(i, k.n) s.counts[i] = s.z[i] < AGREE;
    turn(s, k, 2, true, found.rotation, covariance3);
    with_direction(s, k, found, covariance3);
    if (threadIdx.x == 0) told(found, out, before, true);
    return;
  }
  double turned[3] = {}, turned_covariance[3][3];
  look(s, k, turned);
  EACH(i, k.n) s.still[i] = s.z[i] < AGREE;
  const double still = agreeing(s, k, false);
  const double turn_cost = turn(s, k, 5, false, turned, turned_covariance);
  const double share = agreeing(s, k, false);
  const bool some_still = still >= FIXED_SHARE;
  bool stands = still >= fmax(STILL_SHARE, share / 2.);
  bool turns = !stands && share >= TURN_SHARE
               && !(some_still && agreeing(s, k, true) * k.filled < 0.5);
  if (!stands && !turns) {
    double least_cost = 0.;
    for (int guess = 0; guess < 3; ++guess) {
      double rotation[3] = {}, t[3];
      if (guess == 1) for (int p = 0; p < 3; ++p) rotation[p] = turned[p];
      if (guess == 2) turn_of_wall(s, k, rotation);
      rest(s, k, rotation);
      const double its = heading(s, k, t);
      if (guess && !(its < least_cost)) continue;
      least_cost = its;
      for (int p = 0; p < 3; ++p) {
        found.rotation[p] = rotation[p];
        found.direction[p] = t[p];
      }
    }
    rest(s, k, found.rotation);
    move(s, k, found, false, 4);
    stands = some_still && found.explained * k.filled < 0.5;
    turns = !stands && found.cost > turn_cost - MOVE_GAIN;
    if (!stands && !turns) {
      if (threadIdx.x == 0) told(found, out, found.share > 0.4 ? MOVE : UNKNOWN, true);
      return;
    }
  }
  for (int p = 0; p < 3; ++p) found.rotation[p] = stands ? 0. : turned[p];
  look(s, k, found.rotation);
  if (stands) {
    EACH(i, k.n) s.counts[i] = s.still[i];
    turn(s, k, 1, false, found.rotation, turned_covariance);
  }
  with_direction(s, k, found, turned_covariance);
  if (threadIdx.x == 0) told(found, out, stands ? STILL : TURN, true);
}
