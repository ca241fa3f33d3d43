"""The oracle of `OnnxGraph`: the operators of its examples in NumPy, node by node, and their gradients in reverse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.loaders.onnx_import.graph_layer import OnnxGraph

FORWARD: dict[str, Callable[..., Array]] = {
    "MatMul": lambda a, b: a @ b,
    "Tanh": np.tanh,
    "Add": np.add,
    "Mul": np.multiply,
    "Einsum": lambda a, b: np.einsum("nij,nkj->nik", a, b),
    "ReduceSum": lambda x, axes: x.sum(tuple(axes)),
}
BACKWARD: dict[str, Callable[..., tuple[Array | None, ...]]] = {
    "MatMul": lambda g, y, a, b: (g @ b.T, a.T @ g),
    "Tanh": lambda g, y, x: (g * (1 - y * y),),
    "Add": lambda g, y, a, b: (g, None),
    "Mul": lambda g, y, a, b: (g * b, (g * a).reshape(-1, len(b)).sum(0)),
    "Einsum": lambda g, y, a, b: (np.einsum("nik,nkj->nij", g, b), np.einsum("nik,nij->nkj", g, a)),
    "ReduceSum": lambda g, y, x, axes: (np.broadcast_to(np.expand_dims(g, tuple(axes)), x.shape), None),
}


@oracle_of(OnnxGraph)
class OnnxGraphOracle(Oracle):
    """Rows are parted into the inputs and the outputs joined to rows."""

    spec: OnnxGraph

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        [x] = xs
        graph = self.spec.graph
        values: dict[str, Any] = {c.name: c.value.array() for c in graph.constants} | dict(p)
        values |= dict(zip((i.name for i in graph.inputs), _parts(x, self.spec.shapes), strict=True))
        for node in graph.nodes:
            values[node.outputs[0]] = FORWARD[node.op](*(values[name] for name in node.inputs))
        ys = [values[name] for name, _ in graph.outputs]
        return ys[0] if len(ys) == 1 else np.concatenate([y.reshape(len(x), -1) for y in ys], 1), values

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        graph = self.spec.graph
        grads: dict[str, Any] = dict(zip((n for n, _ in graph.outputs), _parts(gy, self.spec.results), strict=True))
        for node in reversed(graph.nodes):
            values = [saved[name] for name in node.inputs]
            of = BACKWARD[node.op](grads[node.outputs[0]], saved[node.outputs[0]], *values)
            for name, g in zip(node.inputs, of, strict=True):
                if g is not None:
                    grads[name] = grads.get(name, 0) + g
        inputs = [grads[i.name] for i in graph.inputs]
        gx = inputs[0] if len(inputs) == 1 else np.concatenate([g.reshape(len(gy), -1) for g in inputs], 1)
        return Grads((gx,), {name: grads[name] for name in p})


def _parts(rows: Array, shapes: tuple[tuple[int, ...], ...]) -> list[Array]:
    """Cut rows into arrays of the shapes."""
    if len(shapes) == 1:
        return [rows]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
    return [part.reshape(len(rows), *shape) for part, shape in zip(np.split(rows, ends, 1), shapes, strict=True)]
