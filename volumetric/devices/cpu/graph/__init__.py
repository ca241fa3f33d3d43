"""Tensor graphs on the CPU: step tables over an arena, run by one native call on each thread."""
