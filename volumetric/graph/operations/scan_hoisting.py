"""Hoists gradients of a scan's constants out of its loop.

A step that accumulates the gradient of a weight reads and writes all of its elements. If the step's term is a product,
a sum over rows or the gradient of a lookup, the scan returns the operands instead, and the same operation runs once,
after the scan, over the operands of all steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volumetric.graph.ops import Node

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

_MOVES = ("reshape", "permute", "pad", "slice", "flip")
"""Operations that commute with a sum over steps."""


@dataclass(frozen=True, slots=True)
class GradientTerm:
    """One term of a gradient.

    Attributes
    ----------
    last : the tensor of the term before `moves`
    moves : the nodes that move it (reshape, permute, …), the last one first
    root : the node that computes `last`; None: it is an input or a constant
    """

    last: int
    moves: tuple[Node, ...]
    root: Node | None


class Hoisting:
    """Selects the additional tensors that a body of gradients returns.

    Parameters
    ----------
    inner : the body
    sequences : input of the body that is one element of a sequence → that sequence, in the outer graph
    carried : inputs of the body that a step gets from the previous step
    """

    def __init__(self, inner: GraphBuilder, sequences: Mapping[int, int], carried: Sequence[int]) -> None:
        self.extra_outputs: list[int] = []
        """Tensors of the body that the scan must return for all steps."""
        self._inner, self._sequences = inner, sequences
        self._maker = {i: node for node in inner.nodes for i in node.outputs}
        self._varying = {*sequences, *carried}
        for node in inner.nodes:
            if self._varying.intersection(node.inputs):
                self._varying.update(node.outputs)

    def split(self, gradients: Mapping[int, int]) -> tuple[dict[int, list[GradientTerm]], dict[int, int]]:
        """Split terms that can be computed after the scan from terms that steps must accumulate.

        Parameters
        ----------
        gradients : number of a constant → a step's part of its gradient

        Returns
        -------
        Number of a constant → hoisted terms, and number of a constant → a step's sum of the other terms. A constant is
        in one or both.
        """
        hoisted: dict[int, list[GradientTerm]] = {}
        rest: dict[int, int] = {}
        every = [(c, term) for c, i in gradients.items() for term in self._terms(i)]
        for heavy in (True, False):  # products first: sums can only use tensors that are already returned
            for c, term in every:
                if (term.root is None or term.root.op == "reduce") == heavy:
                    continue
                if term.root is not None and self._hoist(term.root):
                    hoisted.setdefault(c, []).append(term)
                else:
                    left = self._apply_moves(self._inner, term.last, term.moves)
                    rest[c] = self._inner.add(rest[c], left) if c in rest else left
        return hoisted, rest

    def emit(self, work: GraphBuilder, terms: Sequence[GradientTerm], handed: Mapping[int, int], length: int) -> int:
        """Emit the sum of terms over all steps.

        Parameters
        ----------
        handed : tensor of the body → its values in all steps
        """

        def all_steps(i: int) -> int:
            base = self._base(i)
            return work.reshape(self._sequences.get(base, handed.get(base, -1)), (length, *self._inner.shape(i)))

        sums: list[int] = []
        for term in terms:
            assert term.root is not None
            whole = _sum_over_steps(work, term.root, [all_steps(i) for i in term.root.inputs])
            sums.append(self._apply_moves(work, work.reshape(whole, self._inner.shape(term.last)), term.moves))
        return work.add(*sums)

    def _terms(self, i: int, moves: tuple[Node, ...] = ()) -> Iterator[GradientTerm]:
        node = self._maker.get(i)
        if node is not None and node.op in _MOVES:
            yield from self._terms(node.inputs[0], (*moves, node))
        elif node is not None and self._adds(node):
            for each in node.inputs:
                yield from self._terms(each, moves)
        else:
            yield GradientTerm(i, moves, node)

    def _adds(self, node: Node) -> bool:
        shapes = {self._inner.shape(i) for i in (*node.inputs, *node.outputs)}
        return node.op == "binary" and node.attrs["name"] == "add" and len(shapes) == 1

    @staticmethod
    def _apply_moves(work: GraphBuilder, i: int, moves: Sequence[Node]) -> int:
        for node in reversed(moves):
            i = work.emit(node.op, (i,), **node.attrs)[0]
        return i

    def _base(self, i: int) -> int:
        while (node := self._maker.get(i)) is not None and node.op == "reshape":
            i = node.inputs[0]
        return i

    def _hoist(self, root: Node) -> bool:
        """Return the operands of a node from the scan if it can be computed over all steps at once; report whether."""
        bases = [self._base(i) for i in root.inputs]
        if not self._varying.issuperset(bases):
            return False
        there = [base in self._sequences or base in self.extra_outputs for base in bases]
        if root.op == "gemm":
            left, right = (self._inner.shape(i)[0] for i in root.inputs[:2])
            possible = len(root.inputs) == 2 and left == right and root.attrs["activation"] == "linear"
        elif root.op == "scatter_rows":
            possible = bases[1] in self._sequences
        else:
            possible = root.op == "reduce" and root.attrs["name"] == "sum" and all(there)
        if possible:
            self.extra_outputs += [base for base, known in zip(bases, there, strict=True) if not known]
            self.extra_outputs = list(dict.fromkeys(self.extra_outputs))
        return possible


def _sum_over_steps(work: GraphBuilder, root: Node, operands: Sequence[int]) -> int:
    """Emit the sum over all steps of a node's results from `operands`, ``[T, …]``."""
    if root.op == "reduce":
        return work.reduce(operands[0], "sum", (0, *(axis + 1 for axis in root.attrs["axes"])))
    if root.op == "scatter_rows":
        length, rows, width = work.shape(operands[0])
        flat = work.reshape(operands[0], (length * rows, width)), work.reshape(operands[1], (length * rows,))
        return work.scatter_rows(*flat, root.attrs["rows"])
    a, b = operands
    ways = {"trans_a": root.attrs["trans_a"], "trans_b": root.attrs["trans_b"]}
    length, count, rows, _ = work.shape(a)
    groups = root.attrs["groups"]
    if not ways["trans_a"] or ways["trans_b"] or groups not in (1, count):
        flat = (work.reshape(i, (length * count, *work.shape(i)[2:])) for i in (a, b))
        return work.gemm(*flat, **ways, groups=groups)
    if groups > 1:
        a, b = (work.permute(i, (1, 0, 2, 3)) for i in (a, b))
    summed = length * count * rows // max(groups, 1)
    flat = (work.reshape(i, (groups, summed, work.shape(i)[3])) for i in (a, b))
    return work.gemm(*flat, **ways, groups=groups)
