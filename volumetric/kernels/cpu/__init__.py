"""CPU kernels: Numba functions and LLVM intrinsics over memory addresses.

From the bottom up: `target` and `jit` (what is compiled for, and how), `emit`, `memory` and `simd` (words for vector
code), `bytedot`, `matvec`, `tiles` and `forms` (the products), `panels`, `retile` and `unpack` (weights), `prepare`,
`maths`, `products`, `attention`, `rounded_attention`, `rows` and `pieces` (operations), `steps` and `walk` (how a plan
runs).

Limits and outcomes on two Zen 4 cores (AVX-512 VNNI; memory 22-42 GB/s for one core, 30-50 for both), SmolLM2-135M's
shape, one row, 40 tokens held; the limit is bytes of weights over the bandwidth read from the same weights:

=================== ========= ============= ====================== ==================== =================
weights, head       MB        one core      two cores              of the read limit    prefill 512
=================== ========= ============= ====================== ==================== =================
int4:g32, int8:g32  90        298 tok/s     368 tok/s (33 GB/s)    1.0 (2)              1163 / 1986 tok/s
uint4:g32, int8:g32 97        230           335 (32 GB/s)          0.95 (2)             955 / 1917
int8:g32            143       175                                                       1140
bfloat16            269       113           114 (31 GB/s)          0.95 (2)             452
 rounded to it                                                                          858
=================== ========= ============= ====================== ==================== =================

Two-core figures were taken in quiet minutes of a shared machine; the level 3 cache keeps some weights from token to
token. Kernels alone, one core, matrix in cache: 142 G weights/s (int4), 126 (uint4), 91 (int8), 47 (bfloat16), 23
(float32). Tiles alone, one core: float32 112-116 of 117 GFLOP/s, bfloat16 233 of 234, int8 370 GOP/s of 470, whether k
is 64 or 5632; inside the model 106, 217 and 325. The read limit of decoding is the machine's: one core alone reads from
memory as fast as both, and more streams, prefetching or non-temporal hints measured no better than one stream without.
"""
