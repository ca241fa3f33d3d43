"""Benchmarks: suites with PyTorch and packages beside, and programs that measure one thing each.

``python -m benchmarks`` lists them, ``python -m benchmarks layers --device cpu`` runs one.
"""
