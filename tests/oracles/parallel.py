"""In NumPy: parallel: branches side by side on one input, joined in one of five ways."""

from __future__ import annotations

import math

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, below, oracle, oracle_of
from tests.oracles.containers import inner_memory
from tests.oracles.joins import join, join_vjp, mix, mix_vjp, scatter, scatter_vjp, weighed, weighed_vjp
from tests.oracles.memory import Memory
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.layers.parallel import Parallel


@oracle_of(Parallel)
class ParallelOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        inputs, gated = self._inputs(p, xs[0])
        results = [
            oracle(branch).forward(below(p, str(i)), x, memory=inner_memory(memory, str(i), x))
            for i, (branch, x) in enumerate(zip(self.branches, inputs, strict=True))
        ]
        return self._joined(results, gated)

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Saved]:
        inputs, gated = self._inputs(p, xs[0])
        results = [
            oracle(branch).train_forward(below(p, str(i)), x, training=training.child(str(i)))
            for i, (branch, x) in enumerate(zip(self.branches, inputs, strict=True))
        ]
        return self._joined(results, gated)

    def _inputs(self, p: Arrays, x: Array) -> tuple[list[Array], Saved]:
        """What each branch reads; and of a gate the weights and what its VJP needs."""
        if self.gate is None:
            return [x] * len(self.branches), {}
        weights, kept = oracle(self.gate).forward(below(p, "gate"), x)
        inputs = weighed(x, weights) if self.weigh == "input" else [x] * len(self.branches)
        return inputs, {"x": x, "weights": weights, "gate": kept}

    def _factors(self, weights: Array) -> Array:
        """What outputs are multiplied by before they are summed."""
        return weights if self.weigh == "output" else (weights != 0).astype(weights.dtype)

    def _joined(self, results: list[tuple[Array, Saved]], gated: Saved) -> tuple[Array, Saved]:
        """Join the outputs of the branches, which come with what their VJPs need."""
        outputs = [y for y, _ in results]
        saved: Saved = {"tape": [s for _, s in results], "widths": [y.shape[-1] for y in outputs]}
        if self.gate is not None:
            return mix(outputs, self._factors(gated["weights"])), {**saved, **gated, "outputs": outputs}
        if self.grid is not None:
            return scatter(outputs, self.cells(), math.prod(self.grid)), saved
        return join(outputs, self.combine), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        params: dict[str, Array] = {}
        g_weights: Array = gy
        if self.gate is not None:
            grads, g_weights = mix_vjp(saved["outputs"], self._factors(saved["weights"]), gy)
        elif self.grid is not None:
            grads = scatter_vjp(gy, self.cells(), math.prod(self.grid))
        else:
            grads = join_vjp(gy, self.combine, saved["widths"])
        parts: list[Array | None] = []
        for i, (branch, g) in enumerate(zip(self.branches, grads, strict=True)):
            result = oracle(branch).vjp(below(p, str(i)), saved["tape"][i], g)
            params |= {f"{i}/{name}": value for name, value in result.params.items()}
            parts.append(result.inputs[0])
        if self.gate is not None:
            if self.weigh == "input":
                given = [np.zeros_like(saved["x"]) if part is None else part for part in parts]
                own, g_weights = weighed_vjp(saved["x"], saved["weights"], given)
                parts = [own]
            result = oracle(self.gate).vjp(below(p, "gate"), saved["gate"], g_weights)
            params |= {f"gate/{name}": value for name, value in result.params.items()}
            parts.append(result.inputs[0])
        there = [part for part in parts if part is not None]
        return Grads((sum(there[1:], there[0]) if there else None,), params)
