# SPDX-License-Identifier: Apache-2.0
"""CUDA kernels for what lies between the matrix products of a transformer.

PyTorch spends a kernel, and a trip through memory, on every elementary step there. These do
each chain of steps in one. They are compiled at run time by NVRTC, which comes with PyTorch: no
compiler and no headers are needed on the robot. PyTorch 2.9 and later offer it; see
`available`.

M tokens of all clips, N tokens of one clip, D width, F width of the MLP, d channels of a head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

NORM_THREADS = 128   # of the norm, at most: four values of a row each, and again
BLOCK = 256
WIDE = 8             # half precision values that a thread moves at once (16 bytes)
TOKEN_PIXELS = 2 * 16 * 16 * 3
GREY, UNIT = 128, 1 / 64   # (pixel - GREY) UNIT is exact in half precision, and centred

# Conversions by hand: the headers of CUDA are not part of PyTorch.
_HALF = {
    torch.bfloat16: """
__device__ __forceinline__ float2 load2(unsigned v) {
  return make_float2(__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)); }
__device__ __forceinline__ unsigned pack2(float low, float high) {
  unsigned v; asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(v) : "f"(high), "f"(low)); return v; }
""",
    torch.float16: """
__device__ __forceinline__ float2 load2(unsigned v) {
  float2 f;
  asm("{.reg .b16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
      : "=f"(f.x), "=f"(f.y) : "r"(v)); return f; }
__device__ __forceinline__ unsigned pack2(float low, float high) {
  unsigned v;
  asm("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}"
      : "=r"(v) : "f"(low), "f"(high)); return v; }
""",
}

# Pixels (B, T, H, W, 3) to tokens (M, 1536), each in the order frame, row, column, colour.
_PATCHES = """
extern "C" __global__ void patches(const unsigned char* pixels, unsigned* tokens) {
  const int token = blockIdx.x, col = token % COLS, row = token / COLS % ROWS;
  const int tubelet = token / (COLS * ROWS);          // of all clips: their frames follow
  for (int i = threadIdx.x; i < 2 * 16 * 24; i += blockDim.x) {
    const int line = i / 24, pair = i % 24;           // 16 pixels of 3 colours are 24 pairs
    const size_t y = ((size_t)tubelet * 2 + line / 16) * (ROWS * 16) + row * 16 + line % 16;
    const unsigned char* p = pixels + (y * (COLS * 16) + col * 16) * 3 + pair * 2;
    const float low = ((float)p[0] - GREY) * UNIT, high = ((float)p[1] - GREY) * UNIT;
    tokens[(size_t)token * 768 + i] = pack2(low, high);
  }
}
"""

# x += branch; out = norm(x). One block a row, which stays in registers.
_NORM = """
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
"""

# Rotary positions for queries and keys where they lie, the first 2 D of each row of 3 D.
_ROTATE = """
extern "C" __global__ void rotate(uint4* qkv, const float4* cosine, const float4* sine,
                                  int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const int row = i / (2 * D / 8), part = i % (2 * D / 8);
  const int at = (row % N) * (HEAD / 4) + part % (HEAD / 8) * 2;
  uint4* own = qkv + (size_t)row * (3 * D / 8) + part;
  uint4 v = *own;
  unsigned* u = (unsigned*)&v;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float4 c = cosine[at + half], s = sine[at + half];
    const float2 a = load2(u[half * 2]), b = load2(u[half * 2 + 1]);
    u[half * 2] = pack2(a.x * c.x + a.y * s.x, a.y * c.y + a.x * s.y);
    u[half * 2 + 1] = pack2(b.x * c.z + b.y * s.z, b.y * c.w + b.x * s.w);
  }
  *own = v;
}
"""

# GELU with the error function by Abramowitz and Stegun 7.1.28 (error below 3e-7), in place: of
# the known forms the one with a single slow instruction.
_GELU = """
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
"""


class KernelsMissing(RuntimeError):
    """The kernels cannot be made here; the message says why."""


@dataclass(frozen=True)
class Kernels:
    """The kernels for one network on one device; each call is one launch on the current stream.

    Make them with `build`.
    """

    patches_: Any
    add_norm_: Any
    norm_: Any
    last_norm_: Any
    rotate_: Any
    gelu_: Any
    dim: int

    def patches(self, pixels: Tensor, tokens: Tensor) -> None:
        """uint8 (B, T, H, W, 3) to tokens (M, 1536) of (pixel - GREY) UNIT.

        Each token is in the order frame, row, column, colour.
        """
        self.patches_((tokens.shape[0], 1, 1), (192, 1, 1), [pixels, tokens])

    def norm(self, x: Tensor, branch: Tensor | None, weight: Tensor, bias: Tensor,
             out: Tensor) -> None:
        """`x` (M, D) float32 += `branch` (M, D); `out` (M, D) = layer norm of `x`."""
        kernel = self.norm_ if branch is None else self.add_norm_
        if out.dtype == torch.float32:
            kernel = self.last_norm_
        kernel((x.shape[0], 1, 1), (_norm_threads(self.dim), 1, 1),
               [x, x if branch is None else branch, weight, bias, out])

    def rotate(self, qkv: Tensor, cosine: Tensor, sine: Tensor) -> None:
        """Encode positions into queries and keys of `qkv` (M, 3 D), tables (N, d) float32."""
        count = qkv.shape[0] * 2 * self.dim // WIDE
        self.rotate_((-(-count // BLOCK), 1, 1), (BLOCK, 1, 1), [qkv, cosine, sine, count])

    def gelu(self, values: Tensor) -> None:
        """GELU of all values, in place."""
        count = values.numel() // WIDE
        self.gelu_((-(-count // BLOCK), 1, 1), (BLOCK, 1, 1), [values, count])


def build(dim: int, head_dim: int, grid: tuple[int, int, int], dtype: torch.dtype,
          eps: float) -> Kernels:
    """Compile the kernels for the current device.

    Parameters
    ----------
    dim, head_dim : int
        D, a multiple of 64, and d, a multiple of 8.
    grid : (int, int, int)
        Tubelets, patch rows and columns of one clip.
    dtype : torch.dtype
        float16 or bfloat16.
    eps : float
        Of the layer norms.

    Raises
    ------
    KernelsMissing
        When PyTorch offers no compiler, or it fails.
    """
    compile_kernel = _compiler()
    if dtype not in _HALF:
        raise KernelsMissing(f'they are for half precision, not for {dtype}')
    if dim % 64 or head_dim % 8:
        raise KernelsMissing(f'they need a width that is a multiple of 64 and heads of a '
                             f'multiple of 8 channels, not {dim} and {head_dim}')
    _, rows, cols = grid
    known = {'D': dim, 'HEAD': head_dim, 'N': grid[0] * rows * cols, 'ROWS': rows, 'COLS': cols,
             'THREADS': (threads := _norm_threads(dim)), 'EACH': -(-dim // 4 // threads),
             'EPS': f'{eps}f',
             'GREY': f'{GREY}.f', 'UNIT': f'{UNIT}f'}

    def made(name: str, source: str, **more: int) -> Any:
        given = ''.join(f'#define {k} {v}\n' for k, v in {**known, **more}.items())
        try:
            return compile_kernel(given + _HALF[dtype] + source, name)
        except (RuntimeError, OSError) as error:
            raise KernelsMissing(f'kernel {name}: {error}') from error

    return Kernels(
        made('patches', _PATCHES), made('add_norm', _NORM, ADD=1, FULL=0),
        made('add_norm', _NORM, ADD=0, FULL=0), made('add_norm', _NORM, ADD=1, FULL=1),
        made('rotate', _ROTATE), made('gelu', _GELU), dim)


def _norm_threads(dim: int) -> int:
    return min(NORM_THREADS, -(-dim // 128) * 32)


def _compiler() -> Callable[..., Any]:
    found = getattr(torch.cuda, '_compile_kernel', None)
    if found is None:
        raise KernelsMissing(f'PyTorch {torch.__version__} does not compile kernels at run time; '
                             '2.9 and later do')
    if torch.version.cuda is None:
        raise KernelsMissing('they are written for NVIDIA GPUs')
    return found
