# SPDX-License-Identifier: Apache-2.0
# Copyright 2026 vjepa_ros maintainers
"""Run CUDA kernels on the CPU: the same source, compiled by the C++ compiler.

Each thread is a fibre; at every exchange of values the fibres take turns. Blocks run one after
the other, and so do the warps of a block whose threads never wait for each other. What this can
not show is what only a GPU has: its limits and its speed.
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
_TYPES = {'float': torch.float32, 'double': torch.float64, 'unsigned char': torch.uint8,
          'int': torch.int32, 'long long': torch.int64}     # of what pointers point to
_SHIM = r"""
#include <cmath>
#include <csetjmp>
#include <cstddef>
#include <ucontext.h>
#define __device__ static
#define __global__
#define __forceinline__ inline
#define __noinline__
#define __shared__ static
#include <cstring>
static float __uint_as_float(unsigned v) { float f; std::memcpy(&f, &v, 4); return f; }
static unsigned __float_as_uint(float v) { unsigned u; std::memcpy(&u, &v, 4); return u; }
struct Index { int x; };
static Index threadIdx, blockIdx, blockDim;
enum { MOST = 1024 };
// To jump takes no system call, as `swapcontext` does; only the first step into a fibre is one.
static jmp_buf home, fibres[MOST];
static ucontext_t fresh;
static char stacks[MOST][1 << 16];
static double slots[MOST];
static int base, waiting;     // first thread of those that run together; how many are at a barrier
static long barriers;
static void** given;
static void pause() { const int thread = threadIdx.x;
                      if (!_setjmp(fibres[thread - base])) _longjmp(home, 1);
                      threadIdx.x = thread; }
static inline void __syncwarp() { pause(); }
static void __syncthreads() { const long passed = barriers; ++waiting;
                              while (barriers == passed) pause(); }
// The slot of a lane of the same warp.
static double& slot(int lane) { return slots[(threadIdx.x - base) / 32 * 32 + lane]; }
template <typename T> static T exchange(T v, int from) {
  slot(threadIdx.x % 32) = v; pause(); T r = slot(from); pause(); return r; }
template <typename T> static T __shfl_xor_sync(unsigned, T v, int step) {
  return exchange(v, threadIdx.x % 32 ^ step); }
template <typename T> static T __shfl_up_sync(unsigned, T v, int step) {
  const int lane = threadIdx.x % 32; return exchange(v, lane < step ? lane : lane - step); }
template <typename T> static T __shfl_sync(unsigned, T v, int from) { return exchange(v, from); }
static unsigned __ballot_sync(unsigned, int vote) {
  slot(threadIdx.x % 32) = vote; pause();
  unsigned all = 0; for (int lane = 0; lane < 32; ++lane) all |= (slot(lane) != 0) << lane;
  pause(); return all; }
static int atomicAdd(int* sum, int v) { const int before = *sum; *sum += v; return before; }
#define __popc __builtin_popcount
using std::isfinite;
static double rsqrt(double v) { return 1. / std::sqrt(v); }
"""
_DRIVER = r"""
static bool begun[MOST], done[MOST];
static void thread_main() { call(); done[threadIdx.x - base] = true; _longjmp(home, 1); }
static void go_on(int n) {
  threadIdx.x = base + n;
  if (_setjmp(home)) return;
  if (begun[n]) _longjmp(fibres[n], 1);
  begun[n] = true;
  getcontext(&fresh);
  fresh.uc_stack.ss_sp = stacks[n];
  fresh.uc_stack.ss_size = sizeof stacks[n];
  makecontext(&fresh, thread_main, 0);
  setcontext(&fresh);
}
extern "C" void launch(int blocks, int threads, int together, void** arguments) {
  given = arguments;
  blockDim.x = threads;
  for (int block = 0; block < blocks; ++block) {
    blockIdx.x = block;
    for (base = 0; base < threads; base += together) {
      for (int n = 0; n < together; ++n) begun[n] = done[n] = false;
      for (int left = together; left;) {
        // All that are left wait: the barrier falls, for all of them in the same round.
        if (waiting == left) { waiting = 0; ++barriers; }
        left = 0;
        // The last goes first: who forgets to wait for those before finds nothing of theirs.
        for (int n = together - 1; n >= 0; --n) {
          if (done[n]) continue;
          go_on(n);
          left += !done[n];
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
    subprocess.run([COMPILER, '-O1', '-U_FORTIFY_SOURCE', '-std=c++17', '-shared', '-fPIC', '-w',
                    '-o', library, path],
                   check=True)
    launch = ctypes.CDLL(str(library)).launch

    def run(grid: tuple[int, int, int], block: tuple[int, int, int], arguments: list[Any]) -> None:
        assert block[0] % 32 == 0
        # Else one warp at a time: blocks of several are blocks of one to what they share.
        together = block[0] if '__syncthreads' in source else 32
        boxed = []
        for kind, value in zip(kinds, arguments, strict=True):
            if isinstance(value, torch.Tensor):
                assert kind.endswith('*')
                assert value.is_contiguous()
                assert value.dtype == _TYPES[kind.removeprefix('const ').rstrip('*')]
                boxed.append(ctypes.c_void_p(value.data_ptr()))
            else:
                assert kind == 'int' and type(value) is int
                boxed.append(ctypes.c_int(value))
        launch(grid[0], block[0], together,
               (ctypes.c_void_p * len(boxed))(*(ctypes.addressof(box) for box in boxed)))

    return run
