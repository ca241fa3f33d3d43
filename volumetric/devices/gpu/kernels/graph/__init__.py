"""Tensor graphs on the GPU: the lowering of every operation to launches, as plain data."""
