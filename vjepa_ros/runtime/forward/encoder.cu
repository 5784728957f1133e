// SPDX-License-Identifier: Apache-2.0
// Copyright 2026 vjepa_ros maintainers
// What lies between the matrix products of a transformer. Defined by the caller: D width, N tokens
// of one clip, HEAD channels of a head, THREADS of a block, EACH values of a thread, EPS, and
// HALF_IS_BF16, ADD, FULL (0 or 1).

// Conversions by hand: the headers of CUDA are not part of PyTorch.
#if HALF_IS_BF16
__device__ __forceinline__ float2 load2(unsigned v) {
  return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)); }
__device__ __forceinline__ unsigned pack2(float low, float high) {
  unsigned v; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low)); return v; }
#else
__device__ __forceinline__ float2 load2(unsigned v) {
  float2 f;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
      : "=f"(f.x), "=f"(f.y) : "r"(v)); return f; }
__device__ __forceinline__ unsigned pack2(float low, float high) {
  unsigned v;
  asm("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}"
      : "=r"(v) : "f"(low), "f"(high)); return v; }
#endif

// x += branch; out = norm(x). One block computes a row, which stays in registers.
__device__ __forceinline__ float total(float value, float* shared) {
#pragma unroll
  for (int step = 16; step; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0.f;
#pragma unroll
  for (int warp = 0; warp < THREADS / 32; ++warp) value += shared[warp];
  return value;
}
extern "C" __global__ void add_norm(float4* x, const uint2* branch, const float4* weight,
                                    const float4* bias, void* out) {
  __shared__ float first[THREADS / 32], second[THREADS / 32];
  const size_t row = (size_t)blockIdx.x * (D / 4);
  float4 v[EACH];
  float sum = 0.f;
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    const int at = j * THREADS + threadIdx.x;
    if (at < D / 4) {
      v[j] = x[row + at];
#if ADD
      const uint2 u = branch[row + at];
      const float2 a = load2(u.x), b = load2(u.y);
      v[j].x += a.x; v[j].y += a.y; v[j].z += b.x; v[j].w += b.y;
      x[row + at] = v[j];
#endif
      sum += (v[j].x + v[j].y) + (v[j].z + v[j].w);
    }
  }
  const float mean = total(sum, first) / D;
  float square = 0.f;
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    if (j * THREADS + threadIdx.x < D / 4) {
      v[j].x -= mean; v[j].y -= mean; v[j].z -= mean; v[j].w -= mean;
      square += (v[j].x * v[j].x + v[j].y * v[j].y) + (v[j].z * v[j].z + v[j].w * v[j].w);
    }
  }
  const float scale = rsqrtf(total(square, second) / D + EPS);
#pragma unroll
  for (int j = 0; j < EACH; ++j) {
    const int at = j * THREADS + threadIdx.x;
    if (at < D / 4) {
      const float4 w = weight[at], b = bias[at];
      v[j].x = v[j].x * scale * w.x + b.x; v[j].y = v[j].y * scale * w.y + b.y;
      v[j].z = v[j].z * scale * w.z + b.z; v[j].w = v[j].w * scale * w.w + b.w;
#if FULL
      ((float4*)out)[row + at] = v[j];
#else
      ((uint2*)out)[row + at] = make_uint2(pack2(v[j].x, v[j].y), pack2(v[j].z, v[j].w));
#endif
    }
  }
}

// Rotary positions: eight channels with their part of the tables.
__device__ __forceinline__ uint4 turned(uint4 v, const float4* cosine, const float4* sine) {
  unsigned* u = (unsigned*)&v;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 c = cosine[half], s = sine[half];
    const float2 a = load2(u[half * 2]), b = load2(u[half * 2 + 1]);
    u[half * 2] = pack2(a.x * c.x + a.y * s.x, a.y * c.y + a.x * s.y);
    u[half * 2 + 1] = pack2(b.x * c.z + b.y * s.z, b.y * c.w + b.x * s.w);
  }
  return v;
}
// Of queries and keys where they lie, the first 2 D of each row of 3 D.
extern "C" __global__ void rotate(uint4* qkv, const float4* cosine, const float4* sine,
                                  int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int row = i / (2 * D / 8), part = i % (2 * D / 8);
  const int at = (row % N) * (HEAD / 4) + part % (HEAD / 8) * 2;
  uint4* own = qkv + (size_t)row * (3 * D / 8) + part;
  *own = turned(*own, cosine + at, sine + at);
}
// The same of the queries; keys, rotated too, and values go to the last of the `window` slots of
// their clip in kept (2, D / HEAD, kept_slots, N, HEAD), and with what the other slots hold to
// room (2, D / HEAD, clips * window, N, HEAD). A thread moves 16 bytes. Where the newest tubelet
// of a clip were an older one of another, either of its equal values could be read.
extern "C" __global__ void remember(uint4* qkv, const float4* cosine, const float4* sine,
                                    uint4* kept, const long long* slots, uint4* room,
                                    int tubelets, int window, int kept_slots, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int each = HEAD / 8, block = N * each, queries = tubelets / window * N * (D / 8);
  if (i < queries) {
    const int row = i / (D / 8), part = i % (D / 8);
    const int at = row * (HEAD / 4) + part % each * 2;
    uint4* own = qkv + (size_t)row * (3 * D / 8) + part;
    *own = turned(*own, cosine + at, sine + at);
    return;
  }
  i -= queries;
  const int at = i % block, tubelet = i / block % tubelets, head = i / block / tubelets;
  uint4* place = kept + ((size_t)head * kept_slots + slots[tubelet]) * block + at;
  if (tubelet % window < window - 1) {
    room[i] = *place;
    return;
  }
  // The heads of the values follow those of the keys.
  const int row = tubelet / window * N + at / each, part = at % each;
  uint4 v = qkv[(size_t)row * (3 * D / 8) + D / 8 + head * each + part];
  if (head < D / HEAD) {
    const int turn = row * (HEAD / 4) + part * 2;
    v = turned(v, cosine + turn, sine + turn);
  }
  *place = v;
  room[i] = v;
}

// GELU with the error function by Abramowitz and Stegun 7.1.28 (error below 3e-7), in place: of
// the known forms the one with a single slow instruction.
__device__ __forceinline__ float gelu1(float x) {
  const float z = fabsf(x) * 0.70710678f;
  float r, p = 1.f + z * (0.0705230784f + z * (0.0422820123f + z * (0.0092705272f
               + z * (0.0001520143f + z * (0.0002765672f + z * 0.0000430638f)))));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(p));
  r *= r; r *= r; r *= r;
  const float tail = 0.5f * r * r;     // of the normal distribution beyond |x|
  return x * (x < 0.f ? tail : 1.f - tail);
}
extern "C" __global__ void gelu(uint4* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  uint4 v = values[i];
  unsigned* u = (unsigned*)&v;
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float2 a = load2(u[k]);
    u[k] = pack2(gelu1(a.x), gelu1(a.y));
  }
  values[i] = v;
}
