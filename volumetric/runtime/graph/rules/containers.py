"""Rules of containers, by recursion into their layers, and of the joins of branches."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from volumetric.graph.build import GraphBuilder
from volumetric.layers import Gate, Parallel, Residual, Sequential
from volumetric.runtime.graph.rules.base import Scope, columns, rule


@rule("residual")
def _residual(scope: Scope, spec: Residual, x: int, source: int) -> int:
    return joined(scope.work, (x, source), "add")


@rule("sequential")
def _sequential(scope: Scope, spec: Sequential, x: int) -> int:
    values = [x]
    for i, child in enumerate(spec.layers):
        values.append(scope.child(str(i)).emit(child, *(values[j] for j in spec.sources(i))))
    return values[-1]


@rule("parallel")
def _parallel(scope: Scope, spec: Parallel, x: int) -> int:
    work = scope.work
    if spec.gate is not None and work.takes("mix", (x,)):
        return _mixture(scope, spec, spec.gate, x)
    if spec.gate is not None:
        weights = scope.child("gate").emit(spec.gate, x)
        parts = work.split(weights, [1] * len(spec.branches), len(work.shape(weights)) - 1)
        read, factors = [x] * len(parts), parts
        if spec.weigh == "input":  # the sign of a weight, which is not negative, says whether the branch counts
            read = [work.binary("mul_nonzero", x, part) for part in parts]
            factors = [work.unary(part, "sign") for part in parts]
        made = [scope.child(str(i)).emit(branch, read[i]) for i, branch in enumerate(spec.branches)]
        pairs = zip(made, factors, strict=True)
        return work.add(*(work.binary("mul_nonzero", branch, factor) for branch, factor in pairs))
    branches = [scope.child(str(i)).emit(branch, x) for i, branch in enumerate(spec.branches)]
    if spec.grid is not None:
        return _scatter(work, branches, spec.cells(), prod(spec.grid))
    return joined(work, branches, spec.combine)


def _mixture(scope: Scope, spec: Parallel, gate: Gate, x: int) -> int:
    """A gated sum of which the device computes the branches that some row has chosen."""
    work = scope.work
    weights = scope.child("gate").emit(gate, x)
    branches: list[int] = []
    for i, branch in enumerate(spec.branches):
        with work.guarded(weights, i):
            given = x if spec.weigh == "output" else _weighed(work, x, weights, i)
            branches.append(scope.child(str(i)).emit(branch, given))
    return work.emit("mix", (weights, *branches), weighted=spec.weigh == "output")[0]


def _weighed(work: GraphBuilder, x: int, weights: int, i: int) -> int:
    """Rows times the weight of a branch, 0 where that is 0."""
    return work.emit("mix", (columns(work, weights, i, 1), x), weighted=True)[0]


def joined(work: GraphBuilder, values: Sequence[int], combine: str) -> int:
    """Concatenate on the last axis, add or average."""
    if combine == "concat":
        return work.concat(values, len(work.shape(values[0])) - 1)
    scale = 1 / len(values) if combine == "avg" else 1.0
    if work.takes("sum", values):
        return work.emit("sum", values, scale=scale)[0]
    return work.affine(work.add(*values), scale)


def _scatter(work: GraphBuilder, values: Sequence[int], cells: Sequence[int], count: int) -> int:
    """Put each value into its cell of a row of cells, zeros into the others."""
    *lead, width = work.shape(values[0])
    of = dict(zip(cells, values, strict=True))
    empty = work.zeros((*lead, width)) if len(of) < count else -1
    return work.concat([of.get(cell, empty) for cell in range(count)], len(lead))
