"""Oracles, in NumPy."""
