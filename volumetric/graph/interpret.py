"""The interpreter: runs graphs node by node with NumPy, in float32 or float64; the reference for all devices."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from volumetric.base._typing import Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.binding import bind, is_open, rows_of
from volumetric.graph.liveness import dead_after
from volumetric.graph.operations import OPS
from volumetric.graph.operations.operation import Attrs, Run
from volumetric.graph.ops import HELD, Graph, Node, Tensor

Float = type[np.float32] | type[np.float64]


def interpret(
    graph: Graph, inputs: Sequence[Array], buffers: MutableMapping[str, Array], dtype: Float = np.float32
) -> list[Array]:
    """Run `graph` on arrays; `buffers` are the persistent ones, and those that the graph writes are replaced.

    NumPy does not warn of NaN or infinite results: they are valid. If rows are open, the shapes of the inputs set their
    number.
    """
    if is_open(graph):
        graph = bind(graph, rows_of(graph, dict(zip(graph.inputs, inputs, strict=True))))
    return Interpreter(graph, dtype).run(inputs, buffers)


@dataclass(frozen=True, slots=True)
class _Result:
    """An output of a node: its tensor number, and its expected shape and dtype."""

    tensor: int
    shape: Shape
    dtype: np.dtype
    key: str | None


@dataclass(frozen=True, slots=True)
class _NodeStep:
    """A node prepared to run; `dropped` are the tensors that no later node reads."""

    run: Run
    node: Node
    results: tuple[_Result, ...]
    dropped: tuple[int, ...]


class Interpreter:
    """A graph of fixed shapes, prepared to run many times.

    Attributes
    ----------
    graph : the graph that was passed
    """

    def __init__(self, graph: Graph, dtype: Float = np.float32) -> None:
        self.graph = graph
        self._dtype = dtype
        rounded = {"float16": _rounded_gemm, "scaled float16": _scaled_gemm}.get(graph.products)
        self._steps = [
            _NodeStep(
                rounded if rounded and node.op == "gemm" else OPS[node.op].run,
                node,
                tuple(self._result(i) for i in node.outputs),
                dropped,
            )
            for node, dropped in zip(graph.nodes, dead_after(graph), strict=True)
        ]
        computed = {i for node in graph.nodes for i in node.outputs}
        self._constants = {i: v.astype(self._type(i), copy=False) for i, v in graph.constants.items()}
        self._read = [(i, t) for i, t in enumerate(graph.tensors) if t.key is not None and i not in computed]

    def run(self, inputs: Sequence[Array], buffers: MutableMapping[str, Array]) -> list[Array]:
        """Return the outputs; `buffers` that the graph writes are replaced."""
        values = self.begin(inputs, buffers)
        self.evaluate(values, buffers)
        return [values[i].copy() for i in self.graph.outputs]

    def begin(self, inputs: Sequence[Array], buffers: Mapping[str, Array]) -> dict[int, Array]:
        """Return the values before the first node: constants, buffers and inputs."""
        values = dict(self._constants)
        for i, tensor in self._read:
            values[i] = check_buffer(tensor, buffers)
        if len(inputs) != len(self.graph.inputs):
            raise ShapeError(f"the graph takes {len(self.graph.inputs)} inputs, got {len(inputs)}")
        for i, value in zip(self.graph.inputs, inputs, strict=True):
            values[i] = check_value(self.graph.tensors[i], value).astype(self._type(i), copy=False)
        return values

    def evaluate(
        self, values: dict[int, Array], buffers: MutableMapping[str, Array], start: int = 0, stop: int | None = None
    ) -> None:
        """Run the nodes `start` … `stop`: add their outputs to `values`, and drop values that are not read again.

        Raises
        ------
        ShapeError : an operation returned another shape or dtype than it declared
        """
        with np.errstate(all="ignore"):
            for step in self._steps[start:stop]:
                node = step.node
                args = [values[i] for i in node.inputs]
                for of, result in zip(step.results, step.run(args, node.attrs), strict=True):
                    if node.op == "assign" and len(args) == 2 and args[1][0] == 0:
                        result = buffers[node.attrs["key"]]
                    if result.dtype != of.dtype or not (result.shape == of.shape or fits(of.shape, result.shape)):
                        what = f"returned {result.dtype} {list(result.shape)}, declared {self.graph.tensors[of.tensor]}"
                        raise ShapeError(f"{node.op}: {what}")
                    values[of.tensor] = result
                    if of.key is not None:
                        buffers[of.key] = values[of.tensor] = result.copy()  # it may be the caller's array
                for i in step.dropped:
                    del values[i]

    def _result(self, i: int) -> _Result:
        tensor = self.graph.tensors[i]
        return _Result(i, tensor.shape, np.dtype(self._type(i)), tensor.key)

    def _type(self, i: int) -> type[np.generic]:
        return np.int32 if self.graph.tensors[i].dtype == "int32" else self._dtype


def _rounded_gemm(inputs: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """Multiply sides rounded to float16; the bias is not rounded."""
    sides = [x.astype(np.float16).astype(x.dtype) for x in inputs[:2]]
    return OPS["gemm"].run([*sides, *inputs[2:]], attrs)


def _scaled_gemm(inputs: Sequence[Array], attrs: Attrs) -> Sequence[Array]:
    """Multiply sides rounded to float16 times a power of two of their own; one with infinity or NaN is not scaled."""
    sides: list[Array] = []
    for x in inputs[:2]:
        top = np.abs(x).max(initial=0)
        exponent = int(np.frexp(top)[1]) - 15 if 0 < top < np.inf else 0
        sides.append(np.ldexp(np.ldexp(x, -exponent).astype(np.float16).astype(x.dtype), exponent))
    return OPS["gemm"].run([*sides, *inputs[2:]], attrs)


def check_value(tensor: Tensor, value: Array) -> Array:
    """Return `value`; raise `ShapeError` unless it has the shape and dtype of `tensor`."""
    kind = "iu" if tensor.dtype == "int32" else "f"
    if value.dtype.kind not in kind or not (tensor.shape == value.shape or fits(tensor.shape, value.shape)):
        raise ShapeError(
            f"{tensor.name}: expected {tensor.dtype} of shape {list(tensor.shape)}, "
            f"got {value.dtype} of shape {list(value.shape)}"
        )
    return value


def fits(shape: Shape, actual: Shape) -> bool:
    """Return whether an array has this shape, in which the rows of a state (`HELD`) match any number."""
    return len(shape) == len(actual) and all(n in (m, HELD) for n, m in zip(shape, actual, strict=True))


def check_buffer(tensor: Tensor, buffers: Mapping[str, Any]) -> Any:
    """Return the buffer of a keyed tensor, which must exist and have its shape and dtype."""
    key = tensor.key or ""
    if key not in buffers:
        raise SpecError(f"the store has no buffer {key!r}", hint="put its initial value into the store")
    return check_value(tensor, buffers[key])
