"""Clocked networks: layer by layer in NumPy, and windows of ticks as graphs on any device."""
