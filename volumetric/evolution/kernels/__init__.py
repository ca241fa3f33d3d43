"""Numba kernels that breed, mutate, compare and run populations of genomes."""
