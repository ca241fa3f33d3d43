"""Compute kernels: numba functions for the CPU, WGSL dispatches for the GPU."""
