# SPDX-License-Identifier: Apache-2.0
"""Run CUDA kernels of single warps on the CPU: the same source, compiled by the C++ compiler.

Each thread of a warp is a fibre; at every exchange of values the fibres take turns. Blocks run
one after the other. What this can not show is what only a GPU has: its limits and its speed.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

COMPILER = shutil.which('g++')
_SHIM = r"""
#include <cmath>
#include <cstddef>
#include <ucontext.h>
#define __device__ static
#define __global__
#define __forceinline__ inline
#define __shared__ static
#include <cstring>
static float __uint_as_float(unsigned v) { float f; std::memcpy(&f, &v, 4); return f; }
static unsigned __float_as_uint(float v) { unsigned u; std::memcpy(&u, &v, 4); return u; }
struct Index { int x; };
static Index threadIdx, blockIdx, blockDim;
static ucontext_t home, lanes[32];
static char stacks[32][1 << 16];
static double slots[32];
static void** given;
static void pause() { const int thread = threadIdx.x; swapcontext(&lanes[thread % 32], &home);
                      threadIdx.x = thread; }
static inline void __syncwarp() { pause(); }
template <typename T> static T exchange(T v, int from) {
  slots[threadIdx.x % 32] = v; pause(); T r = slots[from]; pause(); return r; }
template <typename T> static T __shfl_xor_sync(unsigned, T v, int step) {
  return exchange(v, threadIdx.x % 32 ^ step); }
template <typename T> static T __shfl_sync(unsigned, T v, int from) { return exchange(v, from); }
static unsigned __ballot_sync(unsigned, int vote) {
  slots[threadIdx.x % 32] = vote; pause();
  unsigned all = 0; for (int lane = 0; lane < 32; ++lane) all |= (slots[lane] != 0) << lane;
  pause(); return all; }
#define __popc __builtin_popcount
using std::isfinite;
"""
_DRIVER = r"""
static bool done[32];
static void lane_main() { call(); done[threadIdx.x % 32] = true; }
extern "C" void launch(int blocks, int threads, void** arguments) {
  given = arguments;
  blockDim.x = threads;
  for (int block = 0; block < blocks; ++block) {
    blockIdx.x = block;
    for (int base = 0; base < threads; base += 32) {
      for (int lane = 0; lane < 32; ++lane) {
        done[lane] = false;
        getcontext(&lanes[lane]);
        lanes[lane].uc_stack.ss_sp = stacks[lane];
        lanes[lane].uc_stack.ss_size = sizeof stacks[lane];
        lanes[lane].uc_link = &home;
        makecontext(&lanes[lane], lane_main, 0);
      }
      for (bool left = true; left;) {
        left = false;
        for (int lane = 0; lane < 32; ++lane) {
          if (done[lane]) continue;
          threadIdx.x = base + lane;
          swapcontext(&home, &lanes[lane]);
          left |= !done[lane];
        }
      }
    }
  }
}
"""


def compiled(source: str, name: str, folder: Path) -> Callable[..., None]:
    """A kernel as `torch.cuda._compile_kernel` would give it, for tensors on the CPU."""
    listed = re.search(rf'void {name}\((.*?)\)', source, re.DOTALL)[1].split(',')
    kinds = [' '.join(each.split()[:-1]) + '*' * each.split()[-1].count('*') for each in listed]
    values = ', '.join(f'*({kind}*)given[{n}]' for n, kind in enumerate(kinds))
    path = folder / f'{name}{len(list(folder.iterdir()))}.cpp'
    path.write_text(f'{_SHIM}\n{source}\nstatic void call() {{ {name}({values}); }}\n{_DRIVER}',
                    encoding='utf-8')
    library = path.with_suffix('.so')
    subprocess.run([COMPILER, '-O1', '-std=c++17', '-shared', '-fPIC', '-w', '-o', library, path],
                   check=True)
    launch = ctypes.CDLL(str(library)).launch

    def run(grid: tuple[int, int, int], block: tuple[int, int, int], arguments: list[Any]) -> None:
        assert block[0] % 32 == 0
        # One warp at a time, so that blocks of several are blocks of one to what they share.
        boxed = []
        for kind, value in zip(kinds, arguments, strict=True):
            if isinstance(value, torch.Tensor):
                assert kind.endswith('*')
                wanted = torch.float64 if 'double' in kind else torch.float32
                assert value.is_contiguous() and value.dtype == wanted
                boxed.append(ctypes.c_void_p(value.data_ptr()))
            else:
                assert kind == 'int' and type(value) is int
                boxed.append(ctypes.c_int(value))
        launch(grid[0], block[0],
               (ctypes.c_void_p * len(boxed))(*(ctypes.addressof(box) for box in boxed)))

    return run
