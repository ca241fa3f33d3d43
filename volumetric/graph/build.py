"""GraphBuilder: writes graphs node by node and checks each shape as the node is added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from operator import index
from types import MappingProxyType
from typing import Any

import numpy as np

from volumetric.base._typing import ROWS, Array, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.base.moved_modules import renamed_members
from volumetric.graph.liveness import check_order, copy_overwritten_outputs
from volumetric.graph.methods import OperationMethods
from volumetric.graph.operations import OPS
from volumetric.graph.operations.scan import ScanBody, ScanInputs, emit_scan
from volumetric.graph.ops import Derived, Graph, Node, Role, Tensor, TensorType
from volumetric.graph.predicates import Predicate, predicated_nodes
from volumetric.graph.pruning import prune
from volumetric.graph.traced_tensor import TracedTensor


@renamed_members(
    derived="derived_input", stored="stored_tensor", guarded="predicated", fused="emit_fused", takes="is_native"
)
class GraphBuilder(OperationMethods):
    """Collects tensors and nodes; a tensor is identified by its number.

    The inherited methods are named after operations; this class adds the tensors, guards and layers of a graph.

    Parameters
    ----------
    dialect : fused row operations that the device runs; all others are decomposed into general operations
    flush : subnormal numbers may count as 0, see `Graph`
    parted : the device skips unread parts of operations, see `Predicate`; otherwise it skips whole operations only
    """

    def __init__(self, dialect: frozenset[str] = frozenset(), *, flush: bool = False, parted: bool = False) -> None:
        self.dialect: frozenset[str] = dialect
        self._flush = flush
        self.parted: bool = parted
        self.tensors: list[Tensor] = list[Tensor]()
        self.nodes: list[Node] = list[Node]()
        self._inputs: list[int] = []
        self._constants: dict[int, Array] = {}
        self._same: dict[tuple[str, Shape, bytes], int] = {}
        self._stored: dict[str, int] = {}
        self._derived: dict[tuple[Derived, Shape], int] = {}
        self._mixes = False
        self.where: str = ""
        """The layer of the nodes that are emitted now."""
        self.detached: set[int] = set()
        """Tensors at which differentiation stops."""
        self.traces: str = ""
        """What is emitted in plain arithmetic now, such as "a loss"; all methods then return traced tensors."""

    def shape(self, i: int) -> Shape:
        """Return the shape of tensor `i`."""
        return self.tensors[i].shape

    @contextmanager
    def at(self, where: str, *, mixes: bool | None = None) -> Iterator[None]:
        """Assign the nodes emitted inside to the layer at `where`; `mixes` overrides whether they mix rows."""
        before = self.where, self._mixes
        self.where, self._mixes = where, self._mixes if mixes is None else mixes
        try:
            yield
        finally:
            self.where, self._mixes = before

    @contextmanager
    def tracing(self, what: str) -> Iterator[None]:
        """Let all methods return `TracedTensor` inside, or numbers again if `what` is empty."""
        before, self.traces = self.traces, what
        try:
            yield
        finally:
            self.traces = before

    def input(self, name: str, shape: Shape, dtype: TensorType = "float32") -> int:
        """Add a tensor that each run takes from the host."""
        i = self._tensor(Tensor(name=name, shape=tuple(shape), dtype=dtype, role="input"))
        self._inputs.append(i)
        return self._handle(i)

    def derived_input(self, what: Derived, shape: Shape, dtype: TensorType = "float32") -> int:
        """Return the input that is derived from the positions of the rows of a call."""
        name = (what, tuple(shape))
        if name not in self._derived:
            self._derived[name] = self.input(what, shape, dtype)
        return self._derived[name]

    def positions(self) -> int:
        """Return the input with the position of each row in its sequence, int32 [ROWS]."""
        return self.derived_input("positions", (ROWS,), "int32")

    def constant(self, value: Array, name: str = "constant") -> int:
        """Add a constant, int32 or float64 (full precision for a float64 device); equal constants share one tensor."""
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
        return self._handle(self._same[known], sampled=False)

    def scalar(self, value: float) -> int:
        """Add a constant of one element."""
        return self.constant(np.array([value], np.float64), "scalar")

    def zeros(self, shape: Shape) -> int:
        """Return zeros, broadcast from a single element."""
        return self.broadcast(self.constant(np.zeros((1,) * len(shape)), "zeros"), shape)

    def stored_tensor(self, key: str, shape: Shape, dtype: TensorType = "float32", *, role: Role = "parameter") -> int:
        """Return the tensor of the persistent buffer `key` as it is after the nodes so far."""
        if key not in self._stored:
            self._stored[key] = self._tensor(Tensor(name=key, shape=tuple(shape), dtype=dtype, key=key, role=role))
        i = self._stored[key]
        if self.tensors[i].shape != tuple(shape) or self.tensors[i].dtype != dtype:
            raise ShapeError(f"buffer {key!r} has shape {list(self.tensors[i].shape)}, expected {list(shape)}")
        return self._handle(i, sampled=role == "state")

    def emit(self, op: str, inputs: Sequence[int], **attrs: Any) -> tuple[int, ...]:
        """Add a node and return its outputs. Raises `ShapeError` or `SpecError` if the node is invalid."""
        if op not in OPS:
            raise SpecError(f"no operation is called {op!r}", hint="one of " + ", ".join(OPS))
        sources = inputs
        inputs = tuple(map(index, inputs))
        outputs = tuple(map(self._tensor, OPS[op].infer([self.tensors[i] for i in inputs], attrs)))
        for i in outputs:
            key = self.tensors[i].key
            if key is not None:
                before = index(self.stored_tensor(key, self.shape(i), self.tensors[i].dtype))  # the same shape and type
                self.tensors[i] = replace(self.tensors[i], role=self.tensors[before].role)
                self._stored[key] = i
        facts = {"attrs": MappingProxyType(attrs), "where": self.where, "mixes": self._mixes}
        self.nodes.append(Node(op=op, inputs=inputs, outputs=outputs, **facts))
        return self._traced_outputs(outputs, sources) if self.traces else outputs

    @contextmanager
    def predicated(self, weights: int, column: int, parts: int = 1, *, zeros: bool = False) -> Iterator[None]:
        """Let a `Predicate` skip the nodes emitted inside, unless one has a guard or, without `zeros`, mixes rows."""
        first, weights = len(self.nodes), index(weights)
        yield
        inside = self.nodes[first:]
        keeps_state = (
            any(n.mixes or any(self.tensors[i].role == "state" for i in n.outputs) for n in inside) and not zeros
        )
        if not keeps_state and not any(n.predicate for n in inside):
            self.nodes[first:] = predicated_nodes(inside, Predicate(weights, column, parts, zeros), self.shape)

    def emit_fused(self, op: str, inputs: Sequence[int], **attrs: Any) -> tuple[int, ...]:
        """Add a fused row operation, or its decomposition if the device does not run it on these values."""
        written_out = OPS[op].written_out
        if written_out is None or self.is_native(op, inputs):
            return self.emit(op, inputs, **attrs)
        if not self.traces:
            return written_out(self, attrs, inputs)
        with self.tracing(""):
            outputs = written_out(self, attrs, tuple(map(index, inputs)))
        return self._traced_outputs(outputs, inputs)

    def is_native(self, op: str, inputs: Sequence[int]) -> bool:
        """Return whether the device runs an operation on these values: rows of a call, and parameters as stored."""
        tensors = [self.tensors[i] for i in inputs]
        values = [t for t in tensors if t.role != "parameter"]
        rows = all(t.role in ("input", "scratch") and t.shape[0] == ROWS and len(t.shape) <= 2 for t in values)
        return op in self.dialect and rows

    def finish(self, outputs: Sequence[int]) -> Graph:
        """Return the graph that computes `outputs`, without unused nodes.

        Raises
        ------
        SpecError
            A node reads a persistent buffer as it was before an earlier node wrote to it.
        """
        graph = Graph(
            tensors=tuple(self.tensors),
            nodes=tuple(self.nodes),
            inputs=tuple(self._inputs),
            outputs=tuple(map(index, outputs)),
            constants=MappingProxyType(dict(self._constants)),
            derived=MappingProxyType({i: what for (what, _), i in self._derived.items()}),
            detached=frozenset(self.detached),
            flush=self._flush,
        )
        graph = copy_overwritten_outputs(prune(graph))
        check_order(graph)
        return graph

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
        """Repeat a body over the first axis of sequences; each step passes states to the next.

        Products that need no state run faster before the scan, for all steps at once.

        Parameters
        ----------
        body : emits one step; see `ScanBody`
        xs : ``[T, …]``; a step gets one element of the first axis, which must have at least one axis itself
        states : initial values
        length : T, required if there are no sequences
        reverse : start with the last step

        Returns
        -------
        The ys of all steps, ``[T, …]`` in the order of the sequences, and the last states.
        """
        inner = GraphBuilder(parted=self.parted)
        inner.where = self.where
        of = ScanInputs(*(tuple(map(index, each)) for each in (xs, constants, states)))
        if not self.traces:
            return emit_scan(self, inner, body, of, length, reverse=reverse)
        kinds, what = [list(map(self.is_sampled, each)) for each in (xs, constants, states)], self.traces

        def traced_body(work: GraphBuilder, *inputs: list[int]) -> tuple[Sequence[int], Sequence[int]]:
            with work.tracing(what):
                each = [list(map(work.traced, *pair)) for pair in zip(inputs, kinds, strict=True)]
                ys, after = body(work, *each)
            return tuple(map(index, ys)), tuple(map(index, after))

        with self.tracing(""):
            outputs = emit_scan(self, inner, traced_body, of, length, reverse=reverse)
        ys, after = (list(map(self.traced, each)) for each in outputs)
        return ys, after

    def is_sampled(self, i: int) -> bool:
        """Return whether the first axis of a tensor counts samples: it is no parameter, constant, or result of them."""
        if isinstance(i, TracedTensor):
            return i.sampled
        return self.tensors[i].role not in ("parameter", "constant")

    def traced(self, i: int, sampled: bool = True) -> Any:
        """Return a tensor for plain arithmetic; `sampled` as in `TracedTensor`."""
        return i if isinstance(i, TracedTensor) else TracedTensor(self, i, sampled=sampled)

    def _traced_outputs(self, outputs: Sequence[int], sources: Sequence[int]) -> tuple[int, ...]:
        """Return the outputs of a node for plain arithmetic."""
        sampled = any(map(self.is_sampled, sources))
        return tuple(self.traced(i, sampled) for i in outputs)

    def _handle(self, i: int, *, sampled: bool = True) -> Any:
        """Return a tensor as what the caller computes with: its number, or a traced tensor."""
        return self.traced(i, sampled) if self.traces else i

    def _tensor(self, tensor: Tensor) -> int:
        self.tensors.append(tensor)
        return len(self.tensors) - 1
