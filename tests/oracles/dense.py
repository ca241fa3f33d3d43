"""In NumPy: dense: the affine map."""

from __future__ import annotations

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of, rows
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.graph.numeric.activations import activate, slope
from volumetric.layers.dense import Dense


def affine(p: Arrays, name: str, x: Array) -> Array:
    """Return ``x Wᵀ + b`` for the parameters ``{name}weight`` and, where present, ``{name}bias``."""
    y = x @ p[name + "weight"].T
    bias = p.get(name + "bias")
    return y if bias is None else y + bias


def affine_vjp(p: Arrays, name: str, x: Array, gy: Array, out: dict[str, Array]) -> Array:
    """Put the gradients of `affine`'s parameters into `out`; return the gradient of `x`."""
    out[name + "weight"] = rows(gy).T @ rows(x)
    if name + "bias" in p:
        out[name + "bias"] = rows(gy).sum(0)
    return gy @ p[name + "weight"]


@oracle_of(Dense)
class DenseOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        pre = affine(p, "", xs[0])
        return activate(self.activation, pre), {"x": xs[0], "pre": pre}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        gx = affine_vjp(p, "", saved["x"], gy * slope(self.activation, saved["pre"]), params)
        return Grads((gx,), params)
