"""Gradients of a scan's constants, computed behind it where they are sums of what steps made.

A step that adds its part to a gradient reads and writes as many numbers as a weight has. Where that part is a product,
a sum over rows, or a lookup's gradient, its operands are handed out instead, and the same operation runs once, over the
operands of all steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from volumetric.graph.ops import Node

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

_MOVES = ("reshape", "permute", "pad", "slice", "flip")
"""Operations that a sum over steps may go through."""


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a gradient.

    Attributes
    ----------
    last : what it is before it is moved
    moves : what is done to that, the last one first
    root : the node that makes `last`; None: it is an input, or a constant
    """

    last: int
    moves: tuple[Node, ...]
    root: Node | None


class Hoisting:
    """What a body of gradients hands out, beside what it has to.

    Parameters
    ----------
    inner : the body
    sequences : inputs of the body that steps read one element of → all of it, in the graph around
    carried : inputs of the body that a step gets from the one before
    """

    def __init__(self, inner: GraphBuilder, sequences: Mapping[int, int], carried: Sequence[int]) -> None:
        self.handed: list[int] = []
        """Tensors of the body whose values in all steps are needed."""
        self._inner, self._sequences = inner, sequences
        self._maker = {i: node for node in inner.nodes for i in node.outputs}
        self._varying = {*sequences, *carried}
        for node in inner.nodes:
            if self._varying.intersection(node.inputs):
                self._varying.update(node.outputs)

    def split(self, gradients: Mapping[int, int]) -> tuple[dict[int, list[Term]], dict[int, int]]:
        """Tell what can be computed behind the scan from what steps have to add up.

        Parameters
        ----------
        gradients : number of a constant → a step's part of its gradient

        Returns
        -------
        Number of a constant → terms of all steps, and → a step's part of what is left; one or both have it.
        """
        hoisted: dict[int, list[Term]] = {}
        rest: dict[int, int] = {}
        every = [(c, term) for c, i in gradients.items() for term in self._terms(i)]
        for heavy in (True, False):  # sums are taken of what products need anyway, so these come first
            for c, term in every:
                if (term.root is None or term.root.op == "reduce") == heavy:
                    continue
                if term.root is not None and self._take(term.root):
                    hoisted.setdefault(c, []).append(term)
                else:
                    left = self._moved(self._inner, term.last, term.moves)
                    rest[c] = self._inner.add(rest[c], left) if c in rest else left
        return hoisted, rest

    def emit(self, work: GraphBuilder, terms: Sequence[Term], handed: Mapping[int, int], length: int) -> int:
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
            whole = _whole(work, term.root, [all_steps(i) for i in term.root.inputs])
            sums.append(self._moved(work, work.reshape(whole, self._inner.shape(term.last)), term.moves))
        return work.add(*sums)

    def _terms(self, i: int, moves: tuple[Node, ...] = ()) -> Iterator[Term]:
        node = self._maker.get(i)
        if node is not None and node.op in _MOVES:
            yield from self._terms(node.inputs[0], (*moves, node))
        elif node is not None and self._adds(node):
            for each in node.inputs:
                yield from self._terms(each, moves)
        else:
            yield Term(i, moves, node)

    def _adds(self, node: Node) -> bool:
        shapes = {self._inner.shape(i) for i in (*node.inputs, *node.outputs)}
        return node.op == "binary" and node.attrs["name"] == "add" and len(shapes) == 1

    @staticmethod
    def _moved(work: GraphBuilder, i: int, moves: Sequence[Node]) -> int:
        for node in reversed(moves):
            i = work.emit(node.op, (i,), **node.attrs)[0]
        return i

    def _base(self, i: int) -> int:
        while (node := self._maker.get(i)) is not None and node.op == "reshape":
            i = node.inputs[0]
        return i

    def _take(self, root: Node) -> bool:
        """Hand out what a node needs, if it can be computed over all steps at once."""
        bases = [self._base(i) for i in root.inputs]
        if not self._varying.issuperset(bases):
            return False
        there = [base in self._sequences or base in self.handed for base in bases]
        if root.op == "gemm":
            left, right = (self._inner.shape(i)[0] for i in root.inputs[:2])
            possible = len(root.inputs) == 2 and left == right and root.attrs["activation"] == "linear"
        elif root.op == "scatter_rows":
            possible = bases[1] in self._sequences
        else:
            possible = root.op == "reduce" and root.attrs["name"] == "sum" and all(there)
        if possible:
            self.handed += [base for base, known in zip(bases, there, strict=True) if not known]
            self.handed = list(dict.fromkeys(self.handed))
        return possible


def _whole(work: GraphBuilder, root: Node, operands: Sequence[int]) -> int:
    """Emit the sum over all steps of what a node makes of `operands`, ``[T, …]``."""
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
