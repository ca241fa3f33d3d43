"""GraphBuilder: writes graphs node by node; every shape is checked where it arises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import accumulate
from types import MappingProxyType
from typing import Any

import numpy as np

from volumetric._typing import ROWS, Array, Shape
from volumetric.errors import ShapeError, SpecError
from volumetric.graph.guards import Guard, guarded_nodes
from volumetric.graph.liveness import check_order, copy_overwritten_outputs
from volumetric.graph.operations import OPS
from volumetric.graph.operations.base import widest
from volumetric.graph.operations.scan import ScanBody, Taken, emit_scan
from volumetric.graph.ops import Derived, Graph, Node, Role, Tensor, TensorType
from volumetric.graph.pruning import pruned


class GraphBuilder:
    """Collects tensors and nodes; tensors are known by their number.

    Methods named after an operation emit it, or return their argument where the operation would change nothing.

    Parameters
    ----------
    dialect : operations on the rows of a call that the device runs; all others are written out
    flush : numbers too small to be normal may count as 0, see `Graph`
    parted : the device leaves out parts of operations that nobody reads, see `Guard`; else whole operations alone
    """

    def __init__(self, dialect: frozenset[str] = frozenset(), *, flush: bool = False, parted: bool = False) -> None:
        self.dialect, self._flush, self.parted = dialect, flush, parted
        self.tensors, self.nodes = list[Tensor](), list[Node]()
        self._inputs: list[int] = []
        self._constants: dict[int, Array] = {}
        self._same: dict[tuple[str, Shape, bytes], int] = {}
        self._stored: dict[str, int] = {}
        self._derived: dict[tuple[Derived, Shape], int] = {}
        self._mixes = False
        self.where = ""
        """The layer that nodes are of which are emitted now."""
        self.detached: set[int] = set()
        """Tensors at which differentiation stops."""

    def shape(self, i: int) -> Shape:
        """Return the shape of tensor `i`."""
        return self.tensors[i].shape

    @contextmanager
    def at(self, where: str, *, mixes: bool | None = None) -> Iterator[None]:
        """Mark what is emitted inside as of the layer at `where`, and whether it mixes rows, if that is new."""
        before = self.where, self._mixes
        self.where, self._mixes = where, self._mixes if mixes is None else mixes
        try:
            yield
        finally:
            self.where, self._mixes = before

    def input(self, name: str, shape: Shape, dtype: TensorType = "float32") -> int:
        """Add a tensor that each run takes from the host."""
        i = self._tensor(Tensor(name=name, shape=tuple(shape), dtype=dtype, role="input"))
        self._inputs.append(i)
        return i

    def derived(self, what: Derived, shape: Shape, dtype: TensorType = "float32") -> int:
        """Return the input that follows from the places of the rows of a call."""
        name = (what, tuple(shape))
        if name not in self._derived:
            self._derived[name] = self.input(what, shape, dtype)
        return self._derived[name]

    def positions(self) -> int:
        """Return the input that has the place of each row in its sequence, int32 [ROWS]."""
        return self.derived("positions", (ROWS,), "int32")

    def constant(self, value: Array, name: str = "constant") -> int:
        """Add a constant, int32 or float64 (so that a float64 device has it in full); equal ones are one tensor."""
        whole = np.issubdtype(value.dtype, np.integer)
        value = np.ascontiguousarray(value, np.int32 if whole else np.float64)
        if value.ndim == 0:
            raise ShapeError("a constant needs an axis")
        known = (value.dtype.name, value.shape, value.tobytes())
        if known not in self._same:
            kind = "int32" if whole else "float32"
            i = self._tensor(Tensor(name=name, shape=value.shape, dtype=kind, role="constant"))
            value.flags.writeable = False
            self._constants[i] = value
            self._same[known] = i
        return self._same[known]

    def scalar(self, value: float) -> int:
        """Add a constant of one element."""
        return self.constant(np.array([value], np.float64), "scalar")

    def zeros(self, shape: Shape) -> int:
        """Return zeros, spread from one."""
        return self.broadcast(self.constant(np.zeros((1,) * len(shape)), "zeros"), shape)

    def stored(self, key: str, shape: Shape, dtype: TensorType = "float32", *, role: Role = "parameter") -> int:
        """Return the tensor that is the persistent buffer `key` as it is after the nodes so far."""
        if key not in self._stored:
            self._stored[key] = self._tensor(Tensor(name=key, shape=tuple(shape), dtype=dtype, key=key, role=role))
        i = self._stored[key]
        if self.tensors[i].shape != tuple(shape) or self.tensors[i].dtype != dtype:
            raise ShapeError(f"{key} is {list(self.tensors[i].shape)} and cannot also be {list(shape)}")
        return i

    def emit(self, op: str, inputs: Sequence[int], **attrs: Any) -> tuple[int, ...]:
        """Add a node and return its outputs. Raises `ShapeError` or `SpecError` if it cannot be."""
        if op not in OPS:
            raise SpecError(f"no operation is called {op!r}", hint="one of " + ", ".join(OPS))
        outputs = tuple(map(self._tensor, OPS[op].infer([self.tensors[i] for i in inputs], attrs)))
        for i in outputs:
            key = self.tensors[i].key
            if key is not None:
                before = self.stored(key, self.shape(i), self.tensors[i].dtype)  # the same shape and type
                self.tensors[i] = replace(self.tensors[i], role=self.tensors[before].role)
                self._stored[key] = i
        facts = {"attrs": MappingProxyType(attrs), "where": self.where, "mixes": self._mixes}
        self.nodes.append(Node(op=op, inputs=tuple(inputs), outputs=outputs, **facts))
        return outputs

    @contextmanager
    def guarded(self, weights: int, column: int, parts: int = 1, *, zeros: bool = False) -> Iterator[None]:
        """Let what is emitted inside run only as a `Guard` says, if it keeps no state, and has no guard of its own."""
        first = len(self.nodes)
        yield
        inside = self.nodes[first:]
        kept = any(n.mixes or any(self.tensors[i].role == "state" for i in n.outputs) for n in inside) and not zeros
        if not kept and not any(n.guard for n in inside):
            self.nodes[first:] = guarded_nodes(inside, Guard(weights, column, parts, zeros), self.shape)

    def fused(self, op: str, inputs: Sequence[int], **attrs: Any) -> tuple[int, ...]:
        """Add an operation on rows, or what it is written out as where the device does not run it on these values."""
        written_out = OPS[op].written_out
        if written_out is None or self.takes(op, inputs):
            return self.emit(op, inputs, **attrs)
        return written_out(self, attrs, inputs)

    def takes(self, op: str, inputs: Sequence[int]) -> bool:
        """Whether the device runs an operation on these values: rows of a call, and parameters as they are stored."""
        tensors = [self.tensors[i] for i in inputs]
        values = [t for t in tensors if t.role != "parameter"]
        rows = all(t.role in ("input", "scratch") and t.shape[0] == ROWS and len(t.shape) <= 2 for t in values)
        return op in self.dialect and rows

    def finish(self, outputs: Sequence[int]) -> Graph:
        """Return the graph that computes `outputs`, without the nodes that nobody needs.

        Raises
        ------
        SpecError
            A node reads a persistent buffer as it was before an earlier node wrote to it.
        """
        graph = Graph(
            tensors=tuple(self.tensors),
            nodes=tuple(self.nodes),
            inputs=tuple(self._inputs),
            outputs=tuple(outputs),
            constants=MappingProxyType(dict(self._constants)),
            derived=MappingProxyType({i: what for (what, _), i in self._derived.items()}),
            detached=frozenset(self.detached),
            flush=self._flush,
        )
        graph = copy_overwritten_outputs(pruned(graph))
        check_order(graph)
        return graph

    def gemm(
        self,
        a: int,
        b: int,
        bias: int | None = None,
        *,
        trans_a: bool = False,
        trans_b: bool = False,
        groups: int | None = None,
    ) -> int:
        """Products of groups; `groups` is by default that of the operand with more, or 0 where one has none."""
        if groups is None:
            both = self.shape(a)[0], self.shape(b)[0]
            groups = widest(*both) if all(both) else 0
        inputs = (a, b) if bias is None else (a, b, bias)
        attrs = {"trans_a": trans_a, "trans_b": trans_b, "groups": groups, "activation": "linear"}
        return self.emit("gemm", inputs, **attrs)[0]

    def unary(self, x: int, name: str) -> int:
        """Element-wise function."""
        return x if name == "linear" else self.emit("unary", (x,), name=name, alpha=1.0, beta=0.0)[0]

    def affine(self, x: int, alpha: float, beta: float = 0.0) -> int:
        """``alpha · x + beta``."""
        if alpha == 1 and beta == 0:
            return x
        return self.emit("unary", (x,), name="affine", alpha=float(alpha), beta=float(beta))[0]

    def copy(self, x: int) -> int:
        """Return the same values in a tensor of their own."""
        return self.emit("unary", (x,), name="affine", alpha=1.0, beta=0.0)[0]

    def unary_grad(self, g: int, x: int, name: str) -> int:
        """``g · f'(x)`` of an activation."""
        return g if name == "linear" else self.emit("unary_grad", (g, x), name=name)[0]

    def binary(self, name: str, a: int, b: int) -> int:
        """Element-wise function of two tensors that broadcast."""
        return self.emit("binary", (a, b), name=name)[0]

    def add(self, *terms: int) -> int:
        """Sum of tensors, from left to right."""
        total = terms[0]
        for term in terms[1:]:
            total = self.binary("add", total, term)
        return total

    def reduce(self, x: int, name: str, axes: Sequence[int]) -> int:
        """Sum, maximum or mean over axes, which stay with size 1."""
        return self.emit("reduce", (x,), name=name, axes=tuple(axes))[0]

    def reshape(self, x: int, shape: Sequence[int]) -> int:
        """View in another shape."""
        return x if self.shape(x) == tuple(shape) else self.emit("reshape", (x,), shape=tuple(shape))[0]

    def permute(self, x: int, perm: Sequence[int]) -> int:
        """Axes in another order."""
        return x if list(perm) == list(range(len(perm))) else self.emit("permute", (x,), perm=tuple(perm))[0]

    def slice(self, x: int, starts: Sequence[int], stops: Sequence[int]) -> int:
        """Part of a tensor."""
        if not any(starts) and tuple(stops) == self.shape(x):
            return x
        return self.emit("slice", (x,), starts=tuple(starts), stops=tuple(stops))[0]

    def last(self, x: int, axis: int) -> int:
        """Return the last element of an axis, which stays with size 1."""
        size = self.shape(x)[axis]
        return self.part(x, axis, size - 1, size) if size > 0 else self.emit("last", (x,), axis=axis)[0]

    def flip(self, x: int, axis: int) -> int:
        """Elements of one axis in reverse."""
        return self.emit("flip", (x,), axis=axis)[0]

    def part(self, x: int, axis: int, start: int, stop: int) -> int:
        """``start:stop`` of one axis."""
        shape = self.shape(x)
        starts = tuple(start if i == axis else 0 for i in range(len(shape)))
        return self.slice(x, starts, tuple(stop if i == axis else n for i, n in enumerate(shape)))

    def split(self, x: int, sizes: Sequence[int], axis: int) -> list[int]:
        """Consecutive parts of one axis."""
        return [self.part(x, axis, end - size, end) for end, size in zip(accumulate(sizes), sizes, strict=True)]

    def pad(self, x: int, before: Sequence[int], after: Sequence[int]) -> int:
        """Zeros around a tensor."""
        if not any(before) and not any(after):
            return x
        return self.emit("pad", (x,), before=tuple(before), after=tuple(after))[0]

    def concat(self, parts: Sequence[int], axis: int) -> int:
        """Tensors side by side along an axis."""
        return parts[0] if len(parts) == 1 else self.emit("concat", parts, axis=axis)[0]

    def broadcast(self, x: int, shape: Sequence[int]) -> int:
        """Repeat axes of size 1."""
        return x if self.shape(x) == tuple(shape) else self.emit("broadcast", (x,), shape=tuple(shape))[0]

    def assign(self, key: str, value: int, apply: int | None = None) -> int:
        """Write `value` into the persistent buffer `key`, unless the one element of `apply` is 0."""
        return self.emit("assign", (value,) if apply is None else (value, apply), key=key)[0]

    def gather_rows(self, table: int, ids: int) -> int:
        """Rows of a table."""
        return self.emit("gather_rows", (table, ids))[0]

    def scatter_rows(self, g: int, ids: int, rows: int) -> int:
        """Sums of rows by their ids."""
        return self.emit("scatter_rows", (g, ids), rows=rows)[0]

    def softmax(self, x: int) -> int:
        """Softmax of rows."""
        return self.emit("softmax", (x,))[0]

    def softmax_grad(self, y: int, g: int) -> int:
        """Gradient of what `softmax` took."""
        return self.emit("softmax_grad", (y, g))[0]

    def entmax(self, x: int, alpha: float) -> int:
        """α-entmax of rows."""
        return self.emit("entmax", (x,), alpha=float(alpha))[0]

    def entmax_grad(self, y: int, g: int, alpha: float) -> int:
        """Gradient of what `entmax` took."""
        return self.emit("entmax_grad", (y, g), alpha=float(alpha))[0]

    def keep_largest(self, x: int, k: int) -> int:
        """All but the k largest of each row at -inf."""
        return self.emit("keep_largest", (x,), k=k)[0]

    def norm(
        self,
        x: int,
        gain: int | None = None,
        bias: int | None = None,
        *,
        kind: str,
        eps: float,
        unit_offset: bool = False,
    ) -> int:
        """Normalised rows (the statistics, which only gradients need, are the node's second output)."""
        inputs = tuple(i for i in (x, gain, bias) if i is not None)
        return self.emit("norm", inputs, kind=kind, eps=float(eps), unit_offset=unit_offset)[0]

    def rope(self, x: int, cos: int, sin: int, *, back: bool = False) -> int:
        """Rotary embedding of ``[B, T, H, D]``."""
        return self.emit("rope", (x, cos, sin), back=back)[0]

    def recurrent(
        self, cell: str, from_x: int, weight: int, states: Sequence[int], bias: int | None, keep: int | None = None
    ) -> tuple[int, ...]:
        """Recurrent cell over all steps: y, the last of each state beside h, and what is kept for the gradient."""
        end = tuple(i for i in (bias, keep) if i is not None)
        attrs = {"cell": cell, "bias": bias is not None, "resets": keep is not None}
        return self.emit("recurrent", (from_x, weight, *states, *end), **attrs)

    def scan(
        self,
        body: ScanBody,
        xs: Sequence[int] = (),
        constants: Sequence[int] = (),
        states: Sequence[int] = (),
        *,
        length: int | None = None,
        reverse: bool = False,
    ) -> tuple[list[int], list[int]]:
        """Repeat a body over the first axis of sequences, with states that each step hands to the next.

        Products that need no state are better made before, for all steps at once.

        Parameters
        ----------
        body : emits one step; see `ScanBody`
        xs : ``[T, …]``; a step gets the rest without the first axis, of which one axis or more must remain
        states : first values
        length : T, where no sequence tells it
        reverse : begin with the last step

        Returns
        -------
        The ys of all steps, ``[T, …]`` in the order of the sequences, and the last states.
        """
        inner = GraphBuilder(parted=self.parted)
        inner.where = self.where
        return emit_scan(self, inner, body, Taken(tuple(xs), tuple(constants), tuple(states)), length, reverse=reverse)

    def unfold(self, x: int, **windows: Shape) -> int:
        """Windows of an image as columns: kernel, stride, dilation, before, counts."""
        return self.emit("unfold", (x,), **windows)[0]

    def fold(self, x: int, sizes: Shape, **windows: Shape) -> int:
        """Transpose of `unfold`."""
        return self.emit("fold", (x,), **windows, sizes=tuple(sizes))[0]

    def loss(
        self, name: str, prediction: int, target: int, weights: int | None = None, **fields: Any
    ) -> tuple[int, ...]:
        """Total, count and gradient of the total with respect to the prediction."""
        inputs = (prediction, target) if weights is None else (prediction, target, weights)
        return self.emit("loss", inputs, name=name, **fields)

    def update(
        self,
        name: str,
        param: int,
        grad: int,
        slots: Sequence[int],
        scalars: int,
        *,
        in_place: bool = True,
        **fields: Any,
    ) -> tuple[int, ...]:
        """Optimiser step: the new parameter and slots, in place unless told otherwise."""
        return self.emit("update", (param, grad, *slots, scalars), name=name, in_place=in_place, **fields)

    def sumsq(self, tensors: Sequence[int]) -> int:
        """Sum of the squares of all elements of all tensors."""
        return self.emit("sumsq", tensors)[0]

    def fake_quant(self, x: int, scheme: str) -> int:
        """Nearest values that a scheme can hold; float32 holds them all."""
        return x if scheme == "float32" else self.emit("fake_quant", (x,), scheme=scheme)[0]

    def _tensor(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1
