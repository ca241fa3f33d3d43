"""In NumPy: maps of a cell that may remember: an `AxonLinear` in the place of each affine one."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.oracles.base import Arrays, Saved, below, oracle
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.layers.projections import Maps


def run_map(maps: Maps, name: str, p: Arrays, x: Array, memory: Memory | None, saved: Saved) -> Array:
    """Compute a map, and keep for its VJP what it needs below its name."""
    y, saved[name] = oracle(maps[name]).forward(
        below(p, name), x, memory=None if memory is None else memory.child(name)
    )
    return y


def run_map_back(maps: Maps, name: str, p: Arrays, saved: Saved, gy: Array, params: dict[str, Any]) -> Array:
    """Return the gradient of a map's input; those of its parameters go to `params`."""
    found = oracle(maps[name]).vjp(below(p, name), saved[name], gy)
    params |= {f"{name}/{key}": g for key, g in found.params.items()}
    return np.zeros((*gy.shape[:-1], maps[name].in_features), gy.dtype) if found.inputs[0] is None else found.inputs[0]
