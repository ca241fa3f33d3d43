"""Tensor graphs on the GPU."""
