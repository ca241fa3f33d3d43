"""CPU kernels of tensor graphs: each operation works on contiguous row-major tensors whose addresses its step holds.

`shares` divides work among threads (vector primitives are in `lanes` of the parent package); `tiles` has the inner
loops of matrix products, on which `gemm` (panels), `dots` (both sides contiguous along the sum) and `strips` (one or
two rows) are built. `curves` and `elementwise` are functions of elements; `moving`, `reduce`, `rows`, `norms`,
`lookups`, `windows`, `sequences`, `losses`, `updates` and `rounding` hold one family of operations each; `operations`
has their names.

Every output element is one sum with one order, so results do not depend on the number of threads. One Zen 4 core (peak
of its multiply-adds: 117 GFLOP/s), float32: 64 × 512 × 512 at 107 GFLOP/s, 512³ at 114, with either side transposed at
105 or more; one row times a 1024 × 1024 matrix in the level 3 cache at 79 GB/s.
"""
