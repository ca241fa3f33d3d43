"""Where one number comes from: the steps that compute it, back to weights, inputs and outputs of other layers."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

import numpy as np

from volumetric.base.errors import SpecError
from volumetric.graph.operations import OPS
from volumetric.scope.inspection.number_rules import RULES
from volumetric.scope.inspection.number_step import NumberStep, Operand, Term
from volumetric.scope.inspection.row_graph import RowGraph

STEPS: Final = 24
"""Steps of one answer; a page asks for further ones by the place of their number."""
TERMS: Final = 24
"""Largest terms of a sum in an answer; the others are added up."""


def trace_number(graph: RowGraph, tensor: int, flat: int, *, steps: int = STEPS, terms: int = TERMS) -> dict[str, Any]:
    """Return how a number is computed, as JSON data.

    Parameters
    ----------
    tensor, flat : the number, an element of a tensor of the graph
    steps, terms : maximum number of steps, and of terms of each sum

    Returns
    -------
    dict
        ``value``, and ``steps``: the first one computes the number. Each has ``formula``, ``value``, ``op``, ``note``,
        ``operands`` and for a sum ``terms`` (the largest, with their factors), ``count``, ``rest`` (the sum of the
        terms that are left out). An operand has ``name``, ``value``, and where it comes from: ``step`` (an index of
        ``steps``), ``of`` (parameter, state, layer, input or constant, with ``index``), ``at`` (to ask on).

    Raises
    ------
    SpecError : there is no such tensor or element
    """
    if tensor not in graph.values or not 0 <= flat < graph.values[tensor].size:
        raise SpecError(f"there is no number {flat} of tensor {tensor} in this row")
    trace = _Trace(graph, steps, terms)
    trace.begin(tensor, flat)
    return {"value": trace.steps[0]["value"], "steps": trace.steps}


class _Trace:
    """Collects steps, breadth first."""

    def __init__(self, graph: RowGraph, most_steps: int, most_terms: int) -> None:
        self.graph = graph
        self.steps: list[dict[str, Any]] = []
        self._most, self._most_terms = most_steps, most_terms
        self._waiting: deque[tuple[int, NumberStep, str]] = deque()
        self._numbers: dict[tuple[int, int], int] = {}

    def begin(self, tensor: int, flat: int) -> None:
        """Trace a number until there is nothing further, or enough."""
        place = self.graph.resolve(tensor, flat, root=True)
        if place is None:
            self._add(NumberStep(formula="0", value=0.0, note="a zero that fills up the array"), "pad")
        else:
            self._add(*self._step_at(*place, root=True))
        while self._waiting:
            number, step, op = self._waiting.popleft()
            self.steps[number] = self._describe(step, op)

    def _add(self, step: NumberStep, op: str) -> int:
        number = len(self.steps)
        self.steps.append({})
        self._waiting.append((number, step, op))
        return number

    def _step_at(self, tensor: int, flat: int, *, root: bool = False) -> tuple[NumberStep, str]:
        graph = self.graph
        value = float(graph.values[tensor].flat[flat])
        if tensor in graph.sums:
            terms = tuple(
                Term((Operand(name=f"{of.kind} {of.name}", value=float(array.flat[flat]), tensor=tensor, flat=-n - 1),))
                for n, (of, array) in enumerate(graph.sums[tensor])
            )
            total = sum(term.value for term in terms)
            return NumberStep(formula="Σ x", value=total, terms=terms, note="what arrives at the layer"), "reads"
        if tensor not in graph.producers:
            operand = Operand(name="x", value=value, tensor=tensor, flat=flat)
            return NumberStep(formula="x", value=value, operands=(operand,), note="passed on unchanged"), "passed on"
        node, k = graph.producers[tensor]
        rule = RULES.get(node.op)
        if rule is None or (k and node.op in ("norm", "softmax", "gemm", "linear")):
            return NumberStep(formula=node.op, value=value, note=_about(node.op)), node.op
        return rule(graph, node, k, flat), node.op

    def _describe(self, step: NumberStep, op: str) -> dict[str, Any]:
        described: dict[str, Any] = {"formula": step.formula, "value": step.value, "op": op}
        if step.note:
            described["note"] = step.note
        described["operands"] = [self._operand(of) for of in step.operands]
        if step.terms is not None:
            values = np.array([term.value for term in step.terms], np.float64)
            order = np.argsort(-np.abs(np.where(np.isnan(values), np.inf, values)), kind="stable")
            shown = order[: self._most_terms].tolist()
            described["count"] = len(values)
            described["terms"] = [
                {
                    "value": float(values[n]),
                    "factors": [self._operand(of, follow=rank < 2) for of in step.terms[n].factors],
                }
                for rank, n in enumerate(shown)
            ]
            with np.errstate(all="ignore"):
                described["rest"] = float(values[order[self._most_terms :]].sum())
        return described

    def _operand(self, of: Operand, *, follow: bool = True) -> dict[str, Any]:
        """Describe an operand; with `follow`, its own steps are added while there is room."""
        described: dict[str, Any] = {"name": of.name, "value": of.value}
        room = follow and len(self.steps) < self._most
        if of.step is not None:
            if room:
                described["step"] = self._add(of.step, "")
            return described
        if of.tensor is None:
            return described
        if of.flat < 0 and of.tensor in self.graph.sums:
            origin, _ = self.graph.sums[of.tensor][-of.flat - 1]
            return {**described, "of": {"kind": origin.kind, "name": origin.name, "delay": origin.delay}}
        place = self.graph.resolve(of.tensor, of.flat)
        if place is None:
            return {**described, "of": {"kind": "constant", "name": "0"}}
        tensor, flat = place
        origin = self.graph.origin(tensor)
        if origin is not None and tensor not in self.graph.sums:
            shape = self.graph.values[tensor].shape
            index = [int(i) for i in np.unravel_index(flat, shape)] if shape else []
            if origin.kind != "parameter" and len(index) > 1 and shape[0] == 1:
                index = index[1:]
            described["of"] = {"kind": origin.kind, "name": origin.name, "index": index}
            if origin.delay:
                described["of"]["delay"] = origin.delay
            return described
        described["at"] = [tensor, flat]
        if place in self._numbers:
            described["step"] = self._numbers[place]
        elif room:
            step, op = self._step_at(tensor, flat)
            self._numbers[place] = described["step"] = self._add(step, op)
        return described


def _about(op: str) -> str:
    """Return what an operation is, from the documentation of its module."""
    from importlib import import_module

    text = import_module(OPS[op].run.__module__).__doc__ or ""
    at = text.find(f"``{op}``")
    if at < 0:
        return f"a number of the operation {op}"
    line = text[at + len(op) + 4 :].split("\n``")[0].split("\n\n")[0]
    return " ".join(line.split()).replace("``", "")
