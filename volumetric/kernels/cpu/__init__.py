"""CPU kernels: Numba functions and LLVM intrinsics over memory addresses."""
