"""Exclusive or: the smallest problem that needs a hidden node."""

from __future__ import annotations

from volumetric.evolution.problems.parity import parity
from volumetric.evolution.problems.table import Table


def xor() -> Table:
    """Return the problem with two inputs: fitness 4 − Σ error², solved at 3.9."""
    return parity(2)
