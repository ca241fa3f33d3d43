"""Fuse element-wise operations, and the views that they read, into one launch.

A launch of a few elements takes as long as one of some ten thousand, and clocks, meters and weights of programs are
chains of such launches. Large tensors are read and written once instead of once for each operation; their reductions
compute what they sum. Moves along axes of size 1 only are not executed at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np

from volumetric.base._typing import Shape
from volumetric.devices.gpu.kernels.graph.formulas import AXES, MOST, READS, STEPS, TENSORS
from volumetric.formula.binary_functions import FUSED
from volumetric.graph.liveness import view_roots
from volumetric.graph.ops import Graph, Node
from volumetric.graph.pruning import prune
from volumetric.graph.strides import StridedAxis, broadcast_strides, merge_strided_axes, strides_of

AGAIN: Final = 4
"""Steps up to which a value with several readers is recomputed by each of them."""
MOST_READ_AGAIN: Final = 2
"""Large tensors up to which a large value is computed again: with more, two readers would move more than they save."""
_VIEWS = frozenset({"slice", "permute", "broadcast"})
_LARGE = frozenset({"slice", "broadcast", "unary", "binary", "unary_grad"})
"""Operations of which formulas of more than `MOST` elements may consist: large permutations have tiles."""


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

    Such a node is a ``formula``, see `devices.gpu.kernels.graph.formulas`, or a ``reduce_formula``, see
    `devices.gpu.kernels.graph.formula_reduction`.
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
        self._there = {self._root[i] for node, i in uses if not self._can_fuse(node) and not self._can_reduce(node)}
        self._there.update(self._root[node.predicate.tensor] for node in graph.nodes if node.predicate)
        self._there.update(self._root[i] for i in graph.outputs)

    def _can_fuse(self, node: Node) -> bool:
        """Whether a node may be part of a formula."""
        output = self.graph.tensors[node.outputs[0]]
        if output.key is not None or 0 in output.shape:
            return False
        if any(self.graph.tensors[i].dtype != "float32" for i in (*node.inputs, *node.outputs)):
            return False
        if self._is_large(node.outputs[0]):
            return node.op in _LARGE
        return node.op in _VIEWS or (node.op in ("unary", "binary") and node.attrs["name"] in FUSED)

    def _is_large(self, i: int) -> bool:
        return self.graph.tensors[i].size > MOST

    def _can_reduce(self, node: Node) -> bool:
        """Whether a node may reduce a formula."""
        return node.op == "reduce" and self._is_large(node.inputs[0])

    def rewrite(self, node: Node) -> Node:
        """Return a node as a formula, if that removes other nodes; record its results."""
        if self._can_reduce(node):
            return self._as_reduction(node)
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
        large = self._is_large(node.outputs[0])
        inside = [self._inlined(i, large=large) or leaf for i, leaf in zip(node.inputs, leaves, strict=True)]
        views = [own if isinstance(own, StridedRead) else leaf for own, leaf in zip(inside, leaves, strict=True)]
        chosen = [inside, *([[inside[0], views[1]], [views[0], inside[1]]] if len(inside) == 2 else []), views]
        return [self._formula(node, sides) for sides in chosen]

    def _leaf(self, i: int) -> Formula:
        return StridedRead(self._root[i], 0, strides_of(self.graph.tensors[i].shape))

    def _inlined(self, i: int, *, large: bool) -> Formula | None:
        """Return tensor `i` as a formula over its own axes, if a reader, `large` or not, may compute it itself."""
        root, shapes = self._root[i], self.graph.tensors
        formula = self._known.get(root)
        if formula is None or any(shapes[read.tensor].key in self._written for read in _reads(formula)):
            return None
        if isinstance(formula, FormulaStep) and self._reads[root] > 1 and self._costs_more_again(formula, root):
            return None
        if isinstance(formula, FormulaStep) and (root in self._there or (self._is_large(root) and not large)):
            return None
        return _reshape_formula(formula, shapes[root].shape, shapes[i].shape)

    def _costs_more_again(self, formula: FormulaStep, root: int) -> bool:
        """Whether several readers of tensor `root` had better read it than compute it again from what it is made of."""
        large = {read.tensor for read in _reads(formula) if self._is_large(read.tensor)}
        return len(_steps(formula)) > AGAIN or (self._is_large(root) and len(large) > MOST_READ_AGAIN)

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
        if node.op == "unary_grad":
            return FormulaStep(f"slope.{attrs['name']}", tuple(spread))
        factors = (attrs["alpha"], attrs["beta"]) if attrs["name"] == "affine" else (0.0, 0.0)
        return FormulaStep(attrs["name"], tuple(spread), *map(float, factors))

    def _as_node(self, node: Node, formula: FormulaStep) -> Node:
        tensors, attrs = _fields(formula, _axes(self.graph.tensors[node.outputs[0]].shape, _reads(formula)))
        return replace(node, op="formula", inputs=tensors, attrs=MappingProxyType(attrs))

    def _as_reduction(self, node: Node) -> Node:
        """Return a reduction of a formula, if its input is one that this reader may compute itself."""
        formula = self._inlined(node.inputs[0], large=True)
        if not isinstance(formula, FormulaStep):
            return node
        shape, reads = self.graph.tensors[node.inputs[0]].shape, _reads(formula)
        over = [axis in node.attrs["axes"] for axis in range(len(shape))]
        axes = _reduction_axes(shape, over, reads)
        if not _fits_axes(formula, axes):
            return node
        self.changed = True
        tensors, attrs = _fields(formula, axes)
        attrs |= {"name": node.attrs["name"], "reduced": tuple(axis.steps[-1] > 0 for axis in axes)}
        return replace(node, op="reduce_formula", inputs=tensors, attrs=MappingProxyType(attrs))


def _fields(formula: FormulaStep, axes: Sequence[StridedAxis]) -> tuple[tuple[int, ...], dict[str, Any]]:
    """Return the tensors that a formula reads, and its attributes as a node."""
    reads, steps = _reads(formula), _steps(formula)
    tensors = tuple(dict.fromkeys(read.tensor for read in reads))
    number: dict[Formula, int] = {of: n for n, of in enumerate((*reads, *steps))}
    return tensors, {
        "sizes": tuple(axis.size for axis in axes),
        "reads": tuple(
            (tensors.index(read.tensor), read.start, tuple(axis.steps[n] for axis in axes))
            for n, read in enumerate(reads)
        ),
        "steps": tuple(
            (step.name, number[step.sides[0]], number[step.sides[-1]], step.alpha, step.beta) for step in steps
        ),
    }


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


def _reduction_axes(shape: Shape, over: Sequence[bool], reads: Sequence[StridedRead]) -> tuple[StridedAxis, ...]:
    """Merge axes that are all kept or all reduced; the last two strides are in the kept and in the reduced elements."""
    result_strides = strides_of(tuple(1 if reduced else n for n, reduced in zip(shape, over, strict=True)))
    along = strides_of(tuple(n if reduced else 1 for n, reduced in zip(shape, over, strict=True)))
    places = [(0, step) if reduced else (of, 0) for of, step, reduced in zip(result_strides, along, over, strict=True)]
    columns = zip(shape, *(read.strides for read in reads), *zip(*places, strict=True), strict=True)
    return merge_strided_axes([StridedAxis(size=n, steps=tuple(steps)) for n, *steps in columns])


def _fits_launch(shape: Shape, formula: Formula) -> bool:
    """Whether a launch can hold a formula over the axes of `shape`."""
    return _fits_axes(formula, _axes(shape, _reads(formula)))


def _fits_axes(formula: Formula, axes: Sequence[StridedAxis]) -> bool:
    reads = _reads(formula)
    small = len(reads) <= READS and len({read.tensor for read in reads}) <= TENSORS and len(_steps(formula)) <= STEPS
    return small and len(axes) <= AXES
