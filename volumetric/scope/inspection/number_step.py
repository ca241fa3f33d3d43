"""One number as the result of a computation on others: what a rule of an operation returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import fsum
from typing import TypeAlias

from volumetric.graph.ops import Node
from volumetric.scope.inspection.row_graph import RowGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A number that a step reads.

    Attributes
    ----------
    name : letter in the formula
    tensor, flat : the tensor and element that it is; None: a number that stands in no tensor
    step : how it is computed, if that is a part of the same operation
    """

    name: str
    value: float
    tensor: int | None = None
    flat: int = 0
    step: NumberStep | None = None


@dataclass(frozen=True, slots=True)
class Term:
    """A product of factors, one of the terms of a sum."""

    factors: tuple[Operand, ...]

    @property
    def value(self) -> float:
        """The product; 0 if a factor is 0, whatever the others are."""
        product = 1.0
        for factor in self.factors:
            product *= factor.value
        return 0.0 if any(factor.value == 0 for factor in self.factors) else product


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberStep:
    """A number, computed from the operands by the formula.

    Attributes
    ----------
    formula : in the letters of the operands
    operands : in the order of the formula
    terms : what a sum adds up; None: it is no sum
    note : a sentence, or ""
    """

    formula: str
    value: float
    operands: tuple[Operand, ...] = ()
    terms: tuple[Term, ...] | None = None
    note: str = ""


Rule: TypeAlias = Callable[[RowGraph, Node, int, int], NumberStep]
"""Graph, node, which of its outputs, and which element of it → how that number is computed."""


def read(graph: RowGraph, tensor: int, flat: int, name: str) -> Operand:
    """Return an element of a tensor as an operand."""
    return Operand(name=name, value=float(graph.values[tensor].flat[flat]), tensor=tensor, flat=flat)


def sum_step(terms: list[Term], formula: str, note: str = "") -> NumberStep:
    """Return the step of a sum."""
    values = [term.value for term in terms]
    try:
        total = fsum(values)
    except (OverflowError, ValueError):  # infinities of both signs
        total = float("nan")
    return NumberStep(formula=formula, value=total, terms=tuple(terms), note=note)
