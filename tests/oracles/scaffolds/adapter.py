"""In NumPy: adapter: a narrow block behind a layer, which begins by changing nothing (Houlsby et al. 2019,."""

from __future__ import annotations

from tests.oracles.base import Arrays, Grads, Saved, oracle, oracle_of, rows
from tests.oracles.scaffolds.base import RunCore, ScaffoldOracle
from volumetric.base._typing import Array
from volumetric.layers.scaffolds.adapter import Adapter


@oracle_of(Adapter)
class AdapterOracle(ScaffoldOracle):
    def around(self, p: Arrays, x: Array, core: RunCore) -> tuple[Array, Saved]:
        h, inner = core(x)
        read, norm = oracle(self.norm).forward({"weight": p["norm.weight"], "bias": p["norm.bias"]}, h)
        made, block = oracle(self.block).forward(self._swapped(p), read)
        return h + p["gate"] * made, {"core": inner, "norm": norm, "block": block, "made": made}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        by_gate = rows(gy * saved["made"])
        params["gate"] = by_gate.sum(0) if self.per_channel else by_gate.sum().reshape(1)
        block = oracle(self.block).vjp(self._swapped(p), saved["block"], gy * p["gate"])
        params |= self._swapped(block.params)
        assert block.inputs[0] is not None
        norm = oracle(self.norm).vjp({"weight": p["norm.weight"]}, saved["norm"], block.inputs[0])
        params |= {f"norm.{name}": value for name, value in norm.params.items()}
        assert norm.inputs[0] is not None
        return Grads((self.core_vjp(p, saved["core"], gy + norm.inputs[0], params),), params)

    @staticmethod
    def _swapped(p: Arrays) -> dict[str, Array]:
        """Parameters as the block calls them, which goes up first."""
        names = {"down": "up", "up": "down"}
        return {
            f"{names[first]}.{rest}": value
            for first, _, rest, value in ((*name.partition("."), value) for name, value in p.items())
            if first in names
        }
