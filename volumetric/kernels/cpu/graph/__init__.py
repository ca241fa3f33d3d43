"""CPU kernels of tensor graphs: each operation works on contiguous row-major tensors whose addresses its step holds.

`lanes` and `shares` (words for vector code, and who computes what), `tiles`, `panels` and `products` (matrix products),
`curves` and `elementwise` (functions of elements), the other files one family of operations each, `operations` their
names. Every output element is one sum with one order, so results do not depend on the number of threads.
"""
