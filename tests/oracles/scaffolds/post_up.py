"""In NumPy: postUp: a core, then a widened feed-forward block (Beck et al. 2024, arXiv 2405.04517)."""

from __future__ import annotations

from tests.oracles.base import Arrays, Grads, Saved, oracle, oracle_of
from tests.oracles.scaffolds.base import RunCore, WidenedOracle
from volumetric.base._typing import Array
from volumetric.layers.scaffolds.post_up import PostUp


@oracle_of(PostUp)
class PostUpOracle(WidenedOracle):
    def around(self, p: Arrays, x: Array, core: RunCore) -> tuple[Array, Saved]:
        first, norm1 = oracle(self.norm).forward({"weight": p["norm1.weight"]}, x)
        made, inner = core(first)
        h, joint1 = self.join(p, "gate1.", x, made)
        second, norm2 = oracle(self.norm).forward({"weight": p["norm2.weight"]}, h)
        made, block = oracle(self.block).forward(p, second)
        y, joint2 = self.join(p, "gate2.", h, made)
        return y, {"core": inner, "block": block, "norms": (norm1, norm2), "joints": (joint1, joint2)}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        gh, g = self.join_vjp(p, "gate2.", saved["joints"][1], gy, params)
        block = oracle(self.block).vjp(p, saved["block"], g)
        params |= block.params
        gh = gh + self._norm_vjp(p, 2, saved, block.inputs[0], params)
        gx, g = self.join_vjp(p, "gate1.", saved["joints"][0], gh, params)
        g = self.core_vjp(p, saved["core"], g, params)
        return Grads((gx + self._norm_vjp(p, 1, saved, g, params),), params)

    def _norm_vjp(self, p: Arrays, number: int, saved: Saved, g: Array | None, out: dict[str, Array]) -> Array:
        assert g is not None, "blocks read features"
        name = f"norm{number}.weight"
        result = oracle(self.norm).vjp({"weight": p[name]}, saved["norms"][number - 1], g)
        out[name] = result.params["weight"]
        assert result.inputs[0] is not None
        return result.inputs[0]
