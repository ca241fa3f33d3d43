"""Oracles of layers: `oracle` gives a layer's arithmetic in NumPy, independent of the graph that it writes."""

from tests.oracles.base import oracle

__all__ = ["oracle"]
