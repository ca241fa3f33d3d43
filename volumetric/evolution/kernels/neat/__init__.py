"""Kernels for genomes that are linked once and activated many times."""
