"""In NumPy: what all scaffolds share: the layer inside, and how results meet what a scaffold read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tests.oracles.base import Arrays, Oracle, Saved, below, oracle, oracle_of
from tests.oracles.containers import inner_memory
from tests.oracles.memory import Memory
from tests.oracles.scaffolds.gru_gate import gru_gate, gru_gate_vjp
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.layers.scaffolds.scaffold import CORE, Scaffold, WideningScaffold

RunCore: TypeAlias = Callable[[Array], tuple[Array, Saved]]
"""What the layer inside makes of rows."""


@oracle_of(Scaffold)
class ScaffoldOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        inner = below(p, CORE)
        return self.around(
            p, xs[0], lambda x: oracle(self.core).forward(inner, x, memory=inner_memory(memory, CORE, x))
        )

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Saved]:
        inner, within = below(p, CORE), training.child(CORE)
        return self.around(p, xs[0], lambda x: oracle(self.core).train_forward(inner, x, training=within))

    def around(self, p: Arrays, x: Array, core: RunCore) -> tuple[Array, Saved]:
        """Compute the output, and what the VJP needs, with `core` for the layer inside."""
        raise NotImplementedError(self.kind)

    def core_vjp(self, p: Arrays, saved: Saved, gy: Array, out: dict[str, Array]) -> Array:
        """Put the gradients of the core's parameters into `out`; return that of what it read."""
        result = oracle(self.core).vjp(below(p, CORE), saved, gy)
        out |= {f"{CORE}/{name}": value for name, value in result.params.items()}
        gx = result.inputs[0]
        assert gx is not None, "a core reads features"
        return gx


@oracle_of(WideningScaffold)
class WidenedOracle(ScaffoldOracle):
    def join(self, p: Arrays, name: str, x: Array, f: Array) -> tuple[Array, Saved]:
        """Return ``x + f``, or what the gate makes of both."""
        return gru_gate(p, name, x, f) if self.gated else (x + f, {})

    def join_vjp(self, p: Arrays, name: str, saved: Saved, gy: Array, out: dict[str, Array]) -> tuple[Array, Array]:
        """Put the gradients of a gate's parameters into `out`; return those of x and f."""
        return gru_gate_vjp(p, name, saved, gy, out) if self.gated else (gy, gy)
