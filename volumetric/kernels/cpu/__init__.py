"""CPU kernels: Numba functions and LLVM intrinsics over memory addresses. The only home of Numba beside `runtime/cpu`."""
