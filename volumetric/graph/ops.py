"""The graph: tensors with roles, and nodes over them.

Every network and every step of training runs as a graph: a flat list of nodes in execution order over row-major
tensors. Each tensor is written once. The exceptions are tensors with a `key`: they are views of a named buffer that
outlives the run (a parameter, an optimiser's slot, a state of a sequence), and nodes write into it in place.

A first axis may be open: a size of ``-n`` stands for n times the rows of a call (`ROWS` is -1), so that sizes multiply
and divide like numbers. `binding.bind` binds a graph to a number of rows. The rows that a state holds are `HELD`.

Operations
==========

Each is documented in the module of `graph/operations` that declares it, together with its shape rule, its NumPy
implementation and its gradient; `operations.names.DECLARED` maps modules to operations. The format is ``in → out``,
then the attributes; a node has all of them. Tensors are float32 unless stated. Axes are counted from 0. "NumPy" means
that the NumPy function of that name defines the result, NaN included. Sizes may be 0. Only the first output of a node
has a gradient: the others (statistics, stored values of a cell, counts) serve gradients. The exceptions are ``cell``,
``recurrent`` and ``scan``.

**Fused row operations** (`rowwise`, `state_space`, ``recurrence``, ``experts``) run on packed weights and on the states
of sequences, for any number of rows; x and y are [ROWS, width]. Their attribute ``roles`` names each input. A device
that does not run an operation gets its decomposition into general operations (`dialect`); so does training. General
operations on rows of features run in the same graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from volumetric.base._typing import ROWS, Array, Shape
from volumetric.base.moved_modules import renamed_members

if TYPE_CHECKING:
    from volumetric.graph.predicates import Predicate

TensorType = Literal["float32", "int32"]
Role = Literal["input", "constant", "parameter", "state", "scratch"]
ProductType = Literal["float32", "float16", "scaled float16"]
"""What both sides of a product are rounded to: see `Graph`."""
Derived = Literal["positions"]
"""The kind of a derived input: ``"positions"`` holds the position of each row in its sequence, int32."""

HELD = -(1 << 40)
"""Placeholder in the shape of a state for the number of rows of a sequence that it holds."""

_NAMED: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"norm": ("x", "weight", "bias"), "grouped_norm": ("x", "weight")}
)
"""Names of the inputs of operations without ``roles``, for devices that read inputs by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One array of a graph.

    Attributes
    ----------
    name : for display; need not be unique
    shape : sizes of 1 or more axes; -n is n times the rows of a call
    key : buffer that outlives the run, or None
    role : input: each run takes it from the host, or derives it from the positions of its rows; constant: known when
        the graph is built; parameter: a buffer of the network or of its training; state: a buffer of a sequence;
        scratch: the output of a node
    """

    name: str
    shape: Shape
    dtype: TensorType = "float32"
    key: str | None = None
    role: Role = "scratch"

    @property
    def size(self) -> int:
        """Number of elements; negative where rows are open."""
        return prod(self.shape)

    @property
    def width(self) -> int:
        """Elements of a row."""
        return prod(self.shape[1:])


@renamed_members(named="input_by_role", guard="predicate")
@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One operation: the tensors that it reads and writes, its static attributes, and its layer.

    Attributes
    ----------
    mixes : a row of the result depends on other rows of the call, on their number, or on its index among them
    tail : no later node mixes rows, so the node may run on the last row only if only that row is requested
    predicate : a predicate: tells when nobody reads the result and the node can be skipped
    """

    op: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    attrs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    where: str = ""
    mixes: bool = False
    tail: bool = False
    predicate: Predicate | None = None

    def input_by_role(self, role: str) -> int | None:
        """Return the input with a role, or None."""
        names = self.attrs.get("roles") or _NAMED.get(self.op, ())
        return self.inputs[names.index(role)] if role in names[: len(self.inputs)] else None


@renamed_members(
    given="caller_inputs", keyed="tensors_by_key", keys="keys_by_role", piece="max_rows", whole="whole_sequences"
)
@dataclass(frozen=True, slots=True, kw_only=True)
class Graph:
    """Nodes in execution order.

    Attributes
    ----------
    inputs, outputs : tensors that a run takes from the host and returns to it
    constants : tensor → its value, int32 or float64; a device converts floats to its own dtype once
    derived : those of `inputs` that the caller does not pass: they follow from the positions of the rows of a call
    max_rows : most rows per run, because a node reads the output of a later node from that many rows earlier; None: any
    whole_sequences : a row may depend on later rows of its call, so a sequence must be passed in one call
    detached : tensors at which differentiation stops
    flush : subnormal numbers (below 1.2e-38) may count as 0: processors are slow with them, and gradients that vanish
        over many layers or time steps are full of them
    products : ``"float16"``: both sides of a ``gemm`` are rounded to float16, and sums are float32, wherever the device
        is faster so. The interpreter rounds those of every product. Numbers beyond 65504 become infinite; with
        ``"scaled float16"`` no side overflows: it is rounded times the power of two with which its largest magnitude
        is in 2^14 … 2^15
    """

    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    constants: Mapping[int, Array]
    derived: Mapping[int, Derived] = field(default_factory=lambda: MappingProxyType({}))
    max_rows: int | None = None
    whole_sequences: bool = False
    detached: frozenset[int] = frozenset()
    flush: bool = False
    products: ProductType = "float32"

    @property
    def caller_inputs(self) -> tuple[int, ...]:
        """Inputs that a caller passes: all that are not derived from the positions of rows."""
        return self.values(self.inputs)

    @property
    def tensors_by_key(self) -> dict[str, Tensor]:
        """Key → one tensor of that key, for every persistent buffer that the graph reads or writes."""
        used = {i for node in self.nodes for i in (*node.inputs, *node.outputs)} | {*self.inputs, *self.outputs}
        by_key: dict[str, Tensor] = {}
        for i in sorted(used):
            key = self.tensors[i].key
            if key is not None:
                by_key.setdefault(key, self.tensors[i])
        return by_key

    def keys_by_role(self, node: Node) -> dict[str, str]:
        """Return role → key of the parameters that a node reads by role."""
        names = node.attrs.get("roles") or _NAMED.get(node.op, ())
        pairs = zip(names, (self.tensors[i] for i in node.inputs), strict=False)
        return {role: t.key for role, t in pairs if t.role == "parameter" and t.key is not None}

    def states(self, node: Node) -> dict[str, str]:
        """Return role → key of the states that a node reads by role."""
        pairs = zip(node.attrs.get("roles", ()), (self.tensors[i] for i in node.inputs), strict=False)
        return {role: t.key for role, t in pairs if t.role == "state" and t.key is not None}

    def values(self, tensors: Iterable[int]) -> tuple[int, ...]:
        """Return those of `tensors` that are values of a call: passed inputs, or outputs of nodes."""
        return tuple(i for i in tensors if self.tensors[i].role in ("input", "scratch") and i not in self.derived)

    def readers(self, tensor: int) -> Iterator[int]:
        """Yield the indices of the nodes that read a tensor."""
        return (at for at, node in enumerate(self.nodes) if tensor in node.inputs)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        for i in self.inputs:
            yield f"{self._show(i)} = input"
        for node in self.nodes:
            shown = ((k, v) for k, v in node.attrs.items() if k not in ("roles", "body") and v not in (None, False, ()))
            attrs = " ".join(f"{k}={v}" for k, v in shown)
            args = ", ".join(map(self._name, node.inputs))
            where = f" @{node.where}" if node.where else ""
            tail = " tail" if node.tail else ""
            tail += f" if %{node.predicate.tensor}[:, {node.predicate.column}]" if node.predicate else ""
            yield f"{', '.join(map(self._show, node.outputs))} = {node.op}({args}) {attrs}".rstrip() + where + tail
            bodies = (v for v in node.attrs.values() if isinstance(v, Graph))
            yield from (f"    {line}" for body in bodies for line in body._lines())
        yield "return " + ", ".join(f"%{i}" for i in self.outputs)

    def _name(self, i: int) -> str:
        tensor = self.tensors[i]
        return f"{tensor.key}" if tensor.role in ("parameter", "state") else f"%{i}"

    def _show(self, i: int) -> str:
        tensor = self.tensors[i]
        key = f" {tensor.key!r}" if tensor.key is not None else ""
        return f"%{i}[{'×'.join(map(_size, tensor.shape))}]{key}"


def _size(n: int) -> str:
    if n == HELD:
        return "held"
    return str(n) if n >= 0 else "T" if n == ROWS else f"{-n}T"
