"""Expressions as nodes of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from volumetric.formula.expression import Expression

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def emit_expressions(
    work: GraphBuilder, of: Sequence[Expression | None], tensors: Mapping[str, int], numbers: Mapping[str, Any]
) -> list[int | None]:
    """Emit the nodes of expressions; each subexpression becomes one operation.

    Parameters
    ----------
    tensors : variable → tensor
    numbers : variable → number, for variables known when the graph is built
    """
    emission = _Emission(work, tensors, numbers)
    return [None if each is None else emission.of(each) for each in of]


class _Emission:
    def __init__(self, work: GraphBuilder, tensors: Mapping[str, int], numbers: Mapping[str, Any]) -> None:
        self._work = work
        self._tensors = tensors
        self._numbers = numbers
        self._emitted: dict[Expression, int] = {}

    def of(self, each: Expression) -> int:
        """Return the tensor of an expression."""
        if each.op == "variable":
            return self._tensors[each.text]
        if each not in self._emitted:
            self._emitted[each] = self._emit(each)
        return self._emitted[each]

    def _number(self, each: Expression) -> float | None:
        """Return the value of an expression that is known when the graph is built."""
        if each.op == "variable" and each.text in self._numbers:
            return float(self._numbers[each.text])
        return each.value if each.op == "constant" else None

    def _emit(self, each: Expression) -> int:
        work = self._work
        if each.op == "constant":
            return work.scalar(each.value)
        if len(each.args) == 1:
            return work.unary(self.of(each.args[0]), each.op)
        a, b = each.args
        if each.op == "mul":
            for factor, of in ((a, b), (b, a)):
                if (number := self._number(factor)) is not None:
                    return work.affine(self.of(of), number)
            if a is b:
                return work.unary(self.of(a), "square")
        return work.binary(each.op, self.of(a), self.of(b))
