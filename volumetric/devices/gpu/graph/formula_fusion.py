"""Fuse element-wise operations, and the views that they read, into one launch.

A launch of a few elements takes as long as one of some ten thousand, and clocks, meters and weights of programs are
chains of such launches. Moves along axes of size 1 only are not executed at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.graph.formulas import AXES, READS, STEPS, TENSORS
from volumetric.formula.binary_functions import FUSED
from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import prune
from volumetric.graph.strides import StridedAxis, broadcast_strides, merge_strided_axes, strides_of

MOST: Final = 1 << 18
"""Elements up to which a launch costs more than the steps of a formula, each of which is interpreted."""
AGAIN: Final = 4
"""Steps up to which a value with several readers is recomputed by each of them."""
_VIEWS = frozenset({"slice", "permute", "broadcast"})


@dataclass(frozen=True, slots=True)
class StridedRead:
    """Elements of a tensor by strides."""

    tensor: int
    start: int
    strides: Shape


@dataclass(frozen=True)
class FormulaStep:
    """An operation on other steps or reads; equal steps are computed once."""

    name: str
    sides: tuple[Formula, ...]
    alpha: float = 0.0
    beta: float = 0.0

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.name, self.sides, self.alpha, self.beta))


Formula: TypeAlias = "StridedRead | FormulaStep"
Moved: TypeAlias = Callable[[StridedRead], StridedRead]


def moves_as_views(graph: Graph) -> Graph:
    """Convert moves along axes of size 1, and gathers of rows in their order, to views."""
    root, written = view_roots(graph), _written_keys(graph)

    def rewritten(node: Node) -> Node:
        if not _keeps_order(graph, node) or graph.tensors[root[node.inputs[0]]].key in written:
            return node
        attrs = MappingProxyType({"shape": graph.tensors[node.outputs[0]].shape})
        return replace(node, op="reshape", inputs=node.inputs[:1], attrs=attrs)

    nodes = tuple(map(rewritten, graph.nodes))
    return prune(replace(graph, nodes=nodes)) if nodes != graph.nodes else graph


def _keeps_order(graph: Graph, node: Node) -> bool:
    """Whether a node returns the elements of its first input in their order."""
    output = graph.tensors[node.outputs[0]]
    if node.outputs[0] in graph.outputs or output.key is not None:
        return False
    if node.op not in ("permute", "reduce", "gather_rows"):
        return False
    shape = graph.tensors[node.inputs[0]].shape
    if node.op == "permute":
        axes = [axis for axis in node.attrs["perm"] if shape[axis] != 1]
        return axes == sorted(axes)
    if node.op == "reduce":
        return output.size == graph.tensors[node.inputs[0]].size and node.attrs["name"] in ("sum", "mean", "max")
    ids = graph.constants.get(node.inputs[1])
    return ids is not None and np.array_equal(ids, np.arange(shape[0]))


def fuse_formulas(graph: Graph) -> Graph:
    """Fuse element-wise operations into their only reader, and read views in place.

    Such a node is a ``formula``, see `devices.gpu.kernels.graph.formulas`.
    """
    formulas = _FormulaFuser(graph)
    nodes = tuple(map(formulas.rewrite, graph.nodes))
    return prune(replace(graph, nodes=nodes)) if formulas.changed else graph


def _written_keys(graph: Graph) -> set[str | None]:
    """Keys of persistent buffers written by a run."""
    return {graph.tensors[i].key for node in graph.nodes for i in node.outputs} - {None}


class _FormulaFuser:
    """Facts about the tensors of a graph, node by node."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.changed = graph, False
        self._root = view_roots(graph)
        self._written = _written_keys(graph)
        self._known: dict[int, Formula] = {}
        uses = [(node, i) for node in graph.nodes if node.op != "reshape" for i in node.inputs]
        self._reads = Counter(self._root[i] for _, i in uses)
        # These exist in any case, and need not be recomputed.
        self._there = {self._root[i] for node, i in uses if not self._can_fuse(node)}
        self._there.update(self._root[node.predicate.tensor] for node in graph.nodes if node.predicate)
        self._there.update(self._root[i] for i in graph.outputs)

    def _can_fuse(self, node: Node) -> bool:
        """Whether a node may be part of a formula."""
        output = self.graph.tensors[node.outputs[0]]
        if output.size > MOST or output.key is not None or 0 in output.shape:
            return False
        if any(self.graph.tensors[i].dtype != "float32" for i in (*node.inputs, *node.outputs)):
            return False
        return node.op in _VIEWS or (node.op in ("unary", "binary") and node.attrs["name"] in FUSED)

    def rewrite(self, node: Node) -> Node:
        """Return a node as a formula, if that removes other nodes; record its results."""
        if node.op == "reshape" or not self._can_fuse(node):
            return node
        i = node.outputs[0]
        shape = self.graph.tensors[i].shape
        own = self._formula(node, [self._leaf(i) for i in node.inputs])
        best = next(
            (candidate for candidate in self._candidates(node) if candidate != own and _fits_launch(shape, candidate)),
            None,
        )
        formula = own if best is None else best
        if isinstance(formula, StridedRead):
            self._known[i] = formula
            return node  # for readers that need it as a tensor
        if _fits_launch(shape, formula):
            self._known[i] = formula
        if best is None:
            return node
        self.changed = True
        return self._as_node(node, formula)

    def _candidates(self, node: Node) -> list[Formula]:
        """Candidate formulas of a node, starting with those that compute the most themselves."""
        leaves = [self._leaf(i) for i in node.inputs]
        inside = [self._inlined(i) or leaf for i, leaf in zip(node.inputs, leaves, strict=True)]
        views = [own if isinstance(own, StridedRead) else leaf for own, leaf in zip(inside, leaves, strict=True)]
        chosen = [inside, *([[inside[0], views[1]], [views[0], inside[1]]] if len(inside) == 2 else []), views]
        return [self._formula(node, sides) for sides in chosen]

    def _leaf(self, i: int) -> Formula:
        return StridedRead(self._root[i], 0, strides_of(self.graph.tensors[i].shape))

    def _inlined(self, i: int) -> Formula | None:
        """Return tensor `i` as a formula over its own axes, if a reader may compute it itself."""
        root, shapes = self._root[i], self.graph.tensors
        formula = self._known.get(root)
        if formula is None or any(shapes[read.tensor].key in self._written for read in _reads(formula)):
            return None
        costs = isinstance(formula, FormulaStep) and self._reads[root] > 1 and len(_steps(formula)) > AGAIN
        if costs or (isinstance(formula, FormulaStep) and root in self._there):
            return None
        return _reshape_formula(formula, shapes[root].shape, shapes[i].shape)

    def _formula(self, node: Node, sides: Sequence[Formula]) -> Formula:
        """Return a node's result over its own axes, from its inputs over theirs."""
        shapes, attrs = [self.graph.tensors[i].shape for i in node.inputs], node.attrs
        out_shape = self.graph.tensors[node.outputs[0]].shape
        if node.op == "permute":
            return _map_reads(
                sides[0], lambda of: replace(of, strides=tuple(of.strides[axis] for axis in attrs["perm"]))
            )
        if node.op == "slice":
            return _map_reads(sides[0], lambda of: replace(of, start=of.start + _dot(attrs["starts"], of.strides)))
        spread = [
            _map_reads(side, _broadcast_reads(shape, out_shape)) for side, shape in zip(sides, shapes, strict=True)
        ]
        if node.op == "broadcast":
            return spread[0]
        factors = (attrs["alpha"], attrs["beta"]) if attrs["name"] == "affine" else (0.0, 0.0)
        return FormulaStep(attrs["name"], tuple(spread), *map(float, factors))

    def _as_node(self, node: Node, formula: FormulaStep) -> Node:
        reads, steps = _reads(formula), _steps(formula)
        tensors = list(dict.fromkeys(read.tensor for read in reads))
        axes = _axes(self.graph.tensors[node.outputs[0]].shape, reads)
        number: dict[Formula, int] = {of: n for n, of in enumerate((*reads, *steps))}
        attrs = {
            "sizes": tuple(axis.size for axis in axes),
            "reads": tuple(
                (tensors.index(read.tensor), read.start, tuple(axis.steps[n] for axis in axes))
                for n, read in enumerate(reads)
            ),
            "steps": tuple(
                (step.name, number[step.sides[0]], number[step.sides[-1]], step.alpha, step.beta) for step in steps
            ),
        }
        return replace(node, op="formula", inputs=tuple(tensors), attrs=MappingProxyType(attrs))


def _dot(a: Sequence[int], b: Sequence[int]) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))


def _map_reads(of: Formula, move: Moved) -> Formula:
    """Return a formula with its reads moved."""
    if isinstance(of, StridedRead):
        return move(of)
    return replace(of, sides=tuple(_map_reads(side, move) for side in of.sides))


def _broadcast_reads(shape: Shape, target: Shape) -> Moved:
    """Broadcast a formula of one shape to the axes of another."""
    own = broadcast_strides(shape, target)
    ahead = len(target) - len(shape)

    def move(of: StridedRead) -> StridedRead:
        wide = (*(0,) * ahead, *of.strides)
        return replace(of, strides=tuple(step if keep else 0 for step, keep in zip(wide, own, strict=True)))

    return move


def _reshape_formula(of: Formula, shape: Shape, target: Shape) -> Formula | None:
    """Return a formula over other axes; None if they have no strides in its reads."""
    if shape == target:
        return of
    if [n for n in shape if n != 1] == [n for n in target if n != 1]:
        axes = [axis for axis, n in enumerate(shape) if n != 1]
        places = [axis for axis, n in enumerate(target) if n != 1]

        def move(read: StridedRead) -> StridedRead:
            steps = dict(zip(places, (read.strides[axis] for axis in axes), strict=True))
            return replace(read, strides=tuple(steps.get(axis, 0) for axis in range(len(target))))

        return _map_reads(of, move)
    own, flat = strides_of(shape), strides_of(target)
    if any(not _reads_in_order(read, shape, own) and any(read.strides) for read in _reads(of)):
        return None
    return _map_reads(of, lambda read: replace(read, strides=flat if any(read.strides) else (0,) * len(target)))


def _reads_in_order(read: StridedRead, shape: Shape, own: Shape) -> bool:
    """Whether elements are read contiguously."""
    return all(n == 1 or step == want for n, step, want in zip(shape, read.strides, own, strict=True))


def _reads(of: Formula) -> list[StridedRead]:
    """Return the distinct reads of a formula."""
    if isinstance(of, StridedRead):
        return [of]
    return list(dict.fromkeys(read for side in of.sides for read in _reads(side)))


def _steps(of: Formula) -> list[FormulaStep]:
    """Return the distinct steps of a formula in order."""
    if isinstance(of, StridedRead):
        return []
    return list(dict.fromkeys([*(step for side in of.sides for step in _steps(side)), of]))


def _axes(shape: Shape, reads: Sequence[StridedRead]) -> tuple[StridedAxis, ...]:
    """Merge the axes of the result and of all reads as far as possible; strides of reads come before the result's."""
    columns = zip(shape, *(read.strides for read in reads), strides_of(shape), strict=True)
    return merge_strided_axes([StridedAxis(size=n, steps=tuple(steps)) for n, *steps in columns])


def _fits_launch(shape: Shape, formula: Formula) -> bool:
    """Whether a launch can hold a formula over the axes of `shape`."""
    reads = _reads(formula)
    small = len(reads) <= READS and len({read.tensor for read in reads}) <= TENSORS and len(_steps(formula)) <= STEPS
    return small and len(_axes(shape, reads)) <= AXES
