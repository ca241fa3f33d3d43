"""CPU kernels: Numba functions and LLVM intrinsics over memory addresses.

From the bottom up: `target` and `jit` (compilation target and cache), `emit`, `memory` and `simd` (primitives for
vector
code), `bytedot`, `matvec`, `tiles` and `forms` (the products), `panels`, `retile` and `unpack` (weights),
`block_rounding`, `prepare`, `maths`, `products`, `attention`, `rounded_attention`, `rows`, `cells`, `mixing` and
`pieces` (operations), `steps` and `walk` (execution of a plan).

A single row is bound by reading the weights from memory, many rows by the dot products of the instruction set.
docs/performance.md has the fraction of these limits that models reach, with machine, command and spread; `volumetric
bench` and `benchmarks/compare_llamacpp.py` measure it again.
"""
