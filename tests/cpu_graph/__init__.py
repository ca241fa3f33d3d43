"""Tensor graphs on the CPU."""
