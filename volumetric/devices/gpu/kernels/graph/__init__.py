"""Tensor graphs on the GPU: what every operation becomes, as plain data."""
