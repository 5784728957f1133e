// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// The displacement that a rotation causes, as `fit.turned_back` and `fit.turn_affine`, and looming
// of the cells, as `vjepa_ros.looming.estimator.pair_looming`. Defined by the caller: the
// constants of that module.

// Each thread takes the rotation of a motion off the displacement of a sample, or behind all of
// them of a cell: start and what is left of it; of cells also the displacement itself.
extern "C" __global__ void derotate(const double* motion, const float* lens, const float* spots,
                                    const float* spread, const float* at, const float* start,
                                    float* beyond, float* base, float* left, int samples,
                                    int cells) {
  const int all = blockIdx.x * blockDim.x + threadIdx.x, i = all < samples ? all : all - samples;
  if (all >= samples + cells) return;
  const float *from = all < samples ? spots : at, focal = lens[0];
  const int step = all < samples ? samples : cells;
  const float x = (from[i] - lens[1]) / focal, y = (from[step + i] - lens[2]) / focal;
  float r[9];
#pragma unroll
  for (int p = 0; p < 9; ++p) r[p] = motion[45 + p];
  const float depth = fmaxf(r[6] * x + r[7] * y + r[8], 0.05f);
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const float end = (r[3 * p] * x + r[3 * p + 1] * y + r[3 * p + 2]) / depth;
    const float moved = (end - (p ? y : x)) * focal;
    if (all < samples) { beyond[p * samples + i] = spread[p * samples + i] - moved; continue; }
#pragma unroll
    for (int q = 0; q < 3; ++q) {
      const int k = 6 * i + 3 * p + q;
      base[k] = q ? (r[3 * p + q - 1] - end * r[5 + q]) / depth - (p == q - 1) : moved;
      left[k] = start[k] - base[k];
    }
  }
}
__device__ __forceinline__ double heavy(double x, double scale) {   // Cauchy's density
  return scale / (PI * (scale * scale + x * x));
}
// Looming per step and its variance from slopes, whatever the slant: `_across`.
__device__ void across(const double (&slope)[4], const float* c, const double (&shift)[2],
                       double slant, double& a, double& variance) {
  double s[4][6];     // covariance, identity, slope
  const int of[4] = {1, 2, 4, 5};
#pragma unroll
  for (int p = 0; p < 4; ++p) {
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      s[p][q] = c[6 * of[p] + of[q]];
      if (p % 2 == q % 2)
        s[p][q] += slant * slant * shift[p / 2] * shift[q / 2] + (p == q ? 1e-10 : 0.);
    }
    s[p][4] = p == 0 || p == 3;
    s[p][5] = slope[p];
  }
#pragma unroll
  for (int k = 0; k < 3; ++k)
#pragma unroll
    for (int i = k + 1; i < 4; ++i) {
      const double times = s[i][k] / s[k][k];
#pragma unroll
      for (int j = k + 1; j < 6; ++j) s[i][j] -= times * s[k][j];
    }
  double precision = 0., goal = 0.;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    precision += s[k][4] / s[k][k] * s[k][4];
    goal += s[k][4] / s[k][k] * s[k][5];
  }
  a = -goal / precision;
  variance = 1. / precision;
}
// Join it with what the length of the displacement says: `_with_parallax`.
__device__ void with_parallax(double& a, double& variance, double x, double y, double dx,
                              double dy, double sx, double sxy, double sy, double focal,
                              const double* motion) {
  const double *t = motion + 3, *known = motion + 9, unit = 1. / (focal * focal);
  const double mx = t[0] - x * t[2], my = t[1] - y * t[2];
  const double cx = (sx + 0.05 * 0.05) * unit, cy = (sy + 0.05 * 0.05) * unit, cxy = sxy * unit;
  const double det = cx * cy - cxy * cxy;
  const double px = (cy * mx - cxy * my) / det, py = (cx * my - cxy * mx) / det;
  const double precision = px * mx + py * my + 1e-6;
  const double q = (px * dx + py * dy) / precision, b = t[2] * q;
  const double bx = t[2] * px / precision, by = t[2] * py / precision;
  const double row[6] = {bx * x * y + by * (1. + y * y), -bx * (1. + x * x) - by * x * y,
                         bx * y - by * x, -q * bx, -q * by, q * (1. + bx * x + by * y)};
  double b_variance = t[2] * t[2] / precision + FINEST * FINEST;
#pragma unroll
  for (int p = 0; p < 6; ++p)
#pragma unroll
    for (int r = 0; r < 6; ++r) b_variance += known[6 * p + r] * row[p] * row[r];
  const double m2 = mx * mx + my * my + 1e-6;
  const double wide2 = fmax((my * my * cx - 2. * mx * my * cxy + mx * mx * cy) / m2, 1e-12);
  const double miss = (mx * dy - my * dx) / sqrt(m2), size = sqrt(dx * dx + dy * dy);
  const double wide = sqrt(wide2);
  const double odds = STATIC_ODDS * ANY_LOOMING * heavy(a - b, sqrt(variance + b_variance))
                      * 2. * (size + wide) * heavy(miss, wide);
  const double still = odds / (1. + odds);
  const double joint_variance = 1. / (1. / variance + 1. / b_variance);
  const double joint = joint_variance * (a / variance + b / b_variance);
  const double mean = still * joint + (1. - still) * a;
  variance = still * (joint_variance + (joint - mean) * (joint - mean))
             + (1. - still) * (variance + (a - mean) * (a - mean));
  a = mean;
}
// Each thread computes a cell: rate, sigma, confidence, flow.
extern "C" __global__ void rates(const float* thetas, const float* covariances,
                                 const float* inliers, const float* vouched, const float* at,
                                 const float* lens, const float* seconds, const double* motion,
                                 float* out, int cells) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= cells) return;
  const double focal = lens[0], slant = lens[3], dt = seconds[0];
  const double x = ((double)at[i] - lens[1]) / focal;
  const double y = ((double)at[cells + i] - lens[2]) / focal;
  const float *theta = thetas + 6 * i, *c = covariances + (size_t)i * 36;
  const double sx = c[0], sxy = c[3], sy = c[21], *r = motion + 45;
  const double ex = theta[0] / focal + x, ey = theta[3] / focal + y;
  const double depth = fmax(r[2] * ex + r[5] * ey + r[8], LEAST_DEPTH);
  const double end[2] = {(r[0] * ex + r[3] * ey + r[6]) / depth,
                         (r[1] * ex + r[4] * ey + r[7]) / depth};
  const double shift[2] = {end[0] - x, end[1] - y};      // without rotation
  double slope[4];
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const double u = (r[p] - end[p] * r[2]) / depth, v = (r[3 + p] - end[p] * r[5]) / depth;
#pragma unroll
    for (int j = 0; j < 2; ++j)
      slope[2 * p + j] = u * theta[1 + j] + v * theta[4 + j] + (j ? v : u) - (p == j);
  }
  const double moved[2] = {shift[0] * focal, shift[1] * focal};
  double a, variance;
  across(slope, c, moved, slant, a, variance);
  const double half = (sx - sy) / 2., widest = (sx + sy) / 2. + sqrt(half * half + sxy * sxy);
  variance += widest / (TAPER * focal * TAPER * focal) + FINEST * FINEST
              + 2.25 * (x * x * motion[9 + 7] + y * y * motion[9]);
  if (motion[6] > 0.)
    with_parallax(a, variance, x, y, shift[0], shift[1], sx, sxy, sy, focal, motion);
  a = fmin(fmax(a, -3.), 0.9);
  const double rest = 1. - a, rate = a / (rest * dt), sigma = sqrt(variance) / (rest * rest * dt);
  const double doubt = sigma / (DOUBT + DOUBT_SHARE * fabs(rate));
  const double agrees = fmin(fmax(((double)inliers[i] - 0.1) / 0.2, 0.), 1.);
  // What does not differ from standing still by more than its error is standing still.
  const double z2 = rate / fmax(sigma, 1e-9) * (rate / fmax(sigma, 1e-9)), z4 = z2 * z2;
  out[i] = rate * (z4 / (1. + z4));
  out[cells + i] = sigma;
  out[2 * cells + i] = agrees / (1. + doubt * doubt) * vouched[i];
  out[3 * cells + 2 * i] = shift[0] * (-focal / dt);
  out[3 * cells + 2 * i + 1] = shift[1] * (-focal / dt);
}
