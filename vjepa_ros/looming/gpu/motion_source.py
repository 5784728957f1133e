# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""CUDA source of `vjepa_ros.looming.camera_motion`: the motion of the camera by one block."""

from vjepa_ros.looming.gpu.block_source import ALGEBRA, block
from vjepa_ros.looming.gpu.motion_cells_source import CELLS

_WALL = """
// `Cells.turn_of_wall`.
__device__ void turn_of_wall(Cells& s, const Known& known, double (&rotation)[3]) {
  double found[8] = {};
  for (int k = 0; k < WALL_ROUNDS; ++k) {
    double wide = 0., sums[44] = {};
    for (int pass = k ? 0 : 1; pass < 2; ++pass) {
      for (int i = threadIdx.x; i < known.n; i += THREADS) {
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
"""

# One block. The motion from displacements, or from a start: rotation (3), direction (3), whether
# that is known, agreement, kind, covariance (36), matrix of the rotation (9).
_MOTION = """
enum Kind { UNKNOWN, STILL, TURN, MOVE };
__device__ __forceinline__ bool usable(const float* theta, const float* covariance,
                                       const float* inliers, const float* misfit, int i,
                                       int side) {
  const float* c = covariance + (size_t)i * side * side;
  return inliers[i] > 0.25f && c[0] + c[side * side / 2 + side / 2] < 9.f && misfit[i] < 1.f
         && isfinite(theta[6 * i]) && isfinite(theta[6 * i + 3]);
}
__device__ void told(const Move& found, double* out, Kind kind, bool directed) {
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
__device__ void with_direction(Cells& s, const Known& k, Move& found,
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
  // Of the cells that say something every second or third, so that there is room. Every warp
  // finds the same.
  int count = 0;
  for (int base = 0; base < cells; base += 32) {
    const int i = base + lane;
    count += __popc(__ballot_sync(~0u, i < cells && usable(theta, covariance, inliers, misfit, i,
                                                           side)));
  }
  const int step = count / 150 > 1 ? count / 150 : 1;
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
  count = 0;
  for (int base = 0; base < cells; base += 32) {
    const int i = base + lane;
    const bool use = i < cells && usable(theta, covariance, inliers, misfit, i, side);
    const unsigned all = __ballot_sync(~0u, use);
    const int rank = count + __popc(all & ((1u << lane) - 1u)), to = rank / step;
    count += __popc(all);
    if (!use || rank % step) continue;
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
  __syncthreads();
  for (int c = 0; c < 2; ++c) {
    low[c] = -largest(-low[c]);
    high[c] = largest(high[c]);
  }
  // Every part of the image has about the same say.
  double parts[12] = {}, sum = 0.;
  for (int i = threadIdx.x; i < k.n; i += THREADS) {
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
  for (int i = threadIdx.x; i < k.n; i += THREADS) {
    double all = 0.;
#pragma unroll
    for (int p = 0; p < 12; ++p) if (p == s.bits[i]) all = parts[p];
    s.worth[i] /= all + 0.15 * most;
    sum += s.worth[i];
  }
  sum = total(sum);
  k.filled = sum / 12.;
  k.best = 0.;
  for (int i = threadIdx.x; i < k.n; i += THREADS) {
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
      for (int i = threadIdx.x; i < k.n; i += THREADS) s.counts[i] = s.z[i] < AGREE;
    turn(s, k, 2, true, found.rotation, covariance3);
    with_direction(s, k, found, covariance3);
    if (threadIdx.x == 0) told(found, out, before, true);
    return;
  }
  double turned[3] = {}, turned_covariance[3][3];
  look(s, k, turned);
  for (int i = threadIdx.x; i < k.n; i += THREADS) s.still[i] = s.z[i] < AGREE;
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
    for (int i = threadIdx.x; i < k.n; i += THREADS) s.counts[i] = s.still[i];
    turn(s, k, 1, false, found.rotation, turned_covariance);
  }
  with_direction(s, k, found, turned_covariance);
  if (threadIdx.x == 0) told(found, out, stands ? STILL : TURN, true);
}
"""

MOTION_THREADS = 128
MOTION = block(MOTION_THREADS) + ALGEBRA + CELLS + _WALL + _MOTION
