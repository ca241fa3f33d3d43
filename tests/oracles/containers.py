"""In NumPy: layers one after the other, the Residual join, and what all containers share."""

from __future__ import annotations

from collections.abc import Callable

from tests.oracles.base import Arrays, Grads, Oracle, Saved, below, oracle, oracle_of
from tests.oracles.memory import Memory
from tests.oracles.training import Training
from volumetric.base._typing import Array
from volumetric.layers.containers import Residual, Sequential


@oracle_of(Residual)
class ResidualOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        return xs[0] + xs[1], {}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((gy, gy))


def inner_memory(memory: Memory | None, path: str, x: Array) -> Memory | None:
    """Memory of the child at `path`, which reads `x`; None where its rows are not those of the sequences."""
    return None if memory is None or not memory.covers(x.shape) else memory.child(path)


@oracle_of(Sequential)
class SequentialOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        return self._run(
            xs[0],
            lambda i, args: oracle(self.layers[i]).forward(
                below(p, str(i)), *args, memory=inner_memory(memory, str(i), args[0])
            ),
        )

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Saved]:
        return self._run(
            xs[0],
            lambda i, args: oracle(self.layers[i]).train_forward(
                below(p, str(i)), *args, training=training.child(str(i))
            ),
        )

    def _run(self, x: Array, compute: Callable[[int, list[Array]], tuple[Array, Saved]]) -> tuple[Array, Saved]:
        values, tape = [x], []
        for i in range(len(self.layers)):
            y, saved = compute(i, [values[j] for j in self.sources(i)])
            values.append(y)
            tape.append(saved)
        return values[-1], {"tape": tape}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        grads: list[Array | None] = [None] * len(self.layers) + [gy]
        params: dict[str, Array] = {}
        for i in reversed(range(len(self.layers))):
            g = grads[i + 1]
            if g is None:
                continue
            result = oracle(self.layers[i]).vjp(below(p, str(i)), saved["tape"][i], g)
            params |= {f"{i}/{name}": value for name, value in result.params.items()}
            for j, gx in zip(self.sources(i), result.inputs, strict=True):
                before = grads[j]
                grads[j] = gx if before is None else before if gx is None else before + gx
        return Grads((grads[0],), params)
