"""CPU kernels: Numba functions and LLVM intrinsics over memory addresses.

From the bottom up: `target` and `jit` (what is compiled for, and how), `emit`, `memory` and `simd` (words for vector
code), `bytedot`, `matvec`, `tiles` and `forms` (the products), `panels`, `retile` and `unpack` (weights),
`block_rounding`, `prepare`, `maths`, `products`, `attention`, `rounded_attention`, `rows`, `cells`, `mixing` and
`pieces` (operations), `steps` and `walk` (how a plan runs).

One row is bound by reading the weights from memory once, many rows by the dot products of the instruction set. What
models reach of either, with machine, command and spread, is in docs/performance.md; `volumetric bench` and
`benchmarks/compare_llamacpp.py` measure it anew.
"""
