"""In NumPy: causalConv1d: a short causal convolution over the rows of a sequence, on its own."""

from __future__ import annotations

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of, rows
from tests.oracles.memory import Memory, covering
from tests.oracles.numeric.causal_conv import causal_conv, causal_conv_vjp
from volumetric.base._typing import Array
from volumetric.layers.causal_conv1d import CausalConv1d


@oracle_of(CausalConv1d)
class CausalConv1dOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        x = xs[0]
        covered, keep = covering(memory, x.shape)
        kept = covered if self.kernel_size > 1 else None
        y, before, seen = causal_conv(p["weight"], p.get("bias"), x, kept, keep)
        return y, {"rows": before, "seen": seen}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        gx, weight = causal_conv_vjp(p["weight"], saved["rows"], gy, saved["seen"])
        params = {"weight": weight}
        if self.bias:
            params["bias"] = rows(gy).sum(0)
        return Grads((gx,), params)
