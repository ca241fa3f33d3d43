"""Parallel: several branches on one input, joined in one of five ways."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from math import prod
from typing import ClassVar, Literal, get_args

from volumetric.base._typing import ROWS, Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.layers.containers import Container, Residual, prefixed_params
from volumetric.layers.emit_scope import Scope, columns, emit_join
from volumetric.layers.gate import Gate
from volumetric.layers.layer_fields import positional, tuple_of_layers
from volumetric.layers.layer_spec import (
    LayerSpec,
    ParamSpec,
    layer,
    show_shape,
)

Combine = Literal["concat", "add", "avg", "filter", "grid_scatter"]
COMBINES: tuple[Combine, ...] = get_args(Combine)


@layer("parallel")
class Parallel(Container):
    """Runs branches on one input and joins their outputs by `combine`.

    ::

        concat         y = [f_0(x), f_1(x), …]              side by side on the last axis
        add, avg       y = Σ f_i(x),   (1/n) Σ f_i(x)
        filter         y = Σ gate(x)_i · f_i(x)             a mixture of experts
        grid_scatter   cell p_i of a grid of zeros = f_i(x)

    A branch's parameters are named by its number, ``0/weight``; those of the gate by ``gate/``.
    ``volumetric.builders.graft`` makes a Parallel from several trained networks.

    Attributes
    ----------
    branches : layers on the same input
    combine : on the last axis, ``"concat"`` concatenates the outputs; ``"add"`` and ``"avg"`` sum them; ``"filter"``
        sums them with the weights that `gate` computes for every row; ``"grid_scatter"`` puts each into its cell of a
        grid of zeros, and concatenates the cells in reading order
    gate : for ``"filter"``, with one output for each branch
    weigh : the gate's weights multiply the ``"output"`` of a branch, or its ``"input"`` (Llama 4); then the outputs of
        branches with a weight above 0 are summed
    grid : for ``"grid_scatter"``: depth, rows, cols
    positions : for ``"grid_scatter"``: cell (z, y, x) of each branch; empty: the first cells in reading order
    """

    children_field: ClassVar[str | None] = "branches"

    branches: tuple[LayerSpec, ...] = positional(converter=tuple_of_layers)
    combine: Combine = "concat"
    gate: Gate | None = None
    weigh: Literal["output", "input"] = "output"
    grid: tuple[int, int, int] | None = None
    positions: tuple[tuple[int, int, int], ...] = ()

    def __post_init__(self) -> None:
        """Check the fields."""
        if not self.branches:
            raise SpecError("parallel: needs at least one branch")
        if self.combine not in COMBINES:
            raise SpecError(f"parallel: unknown combine {self.combine!r}", hint="one of " + ", ".join(COMBINES))
        if any(isinstance(branch, Residual) for branch in self.branches):
            raise SpecError("parallel: a residual cannot be a branch", hint="wrap it in a sequential")
        if (self.gate is not None) != (self.combine == "filter"):
            raise SpecError(f"parallel: combine 'filter' and a gate need each other, combine is {self.combine!r}")
        if self.weigh not in ("output", "input"):
            raise SpecError(f"parallel: weigh must be 'output' or 'input', got {self.weigh!r}")
        if self.weigh == "input" and self.gate is None:
            raise SpecError("parallel: weigh='input' needs a gate", hint="set combine='filter' and a gate")
        if self.gate is not None and self.gate.out_features != len(self.branches):
            raise SpecError(
                f"parallel: the gate has {self.gate.out_features} outputs for {len(self.branches)} branches"
            )
        if (self.grid is not None) != (self.combine == "grid_scatter"):
            raise SpecError(f"parallel: combine 'grid_scatter' and a grid need each other, combine is {self.combine!r}")
        self.cells()

    def cells(self) -> tuple[int, ...]:
        """Index of each branch's cell in the grid, in reading order; raises `SpecError` for invalid positions."""
        if self.grid is None:
            if self.positions:
                raise SpecError("parallel: positions need a grid")
            return ()
        if len(self.grid) != 3 or min(self.grid) < 1:
            raise SpecError(f"parallel: grid must be three whole numbers above 0, got {self.grid}")
        for position in self.positions:
            inside = (0 <= at < side for at, side in zip(position, self.grid, strict=False))
            if len(position) != 3 or not all(inside):
                raise SpecError(f"parallel: position {position} is outside of the grid {self.grid}")
        depth, height, width = self.grid
        cells = tuple((z * height + y) * width + x for z, y, x in self.positions) or tuple(range(len(self.branches)))
        if len(cells) != len(self.branches) or len(set(cells)) < len(cells) or max(cells) >= depth * height * width:
            raise SpecError(f"parallel: {len(self.branches)} branches need one cell each in the grid {self.grid}")
        return cells

    def params(self) -> tuple[ParamSpec, ...]:
        gate = () if self.gate is None else prefixed_params({"gate": self.gate})
        return *prefixed_params(self.children()), *gate

    def output_shape(self, *inputs: Shape) -> Shape:
        shapes: list[Shape] = []
        for i, branch in enumerate(self.branches):
            try:
                shapes.append(branch.output_shape(inputs[0]))
            except ShapeError as error:
                raise ShapeError(f"branch {i} of parallel: {error}") from None
        same = {shape[:-1] if self.combine == "concat" else shape for shape in shapes}
        if len(same) > 1:
            raise ShapeError(f"parallel cannot {self.combine} " + " and ".join(show_shape(s) for s in shapes))
        *lead, width = shapes[0]
        if self.gate is not None and self.gate.output_shape(inputs[0])[:-1] != tuple(lead):
            raise ShapeError(f"parallel: a gate on {show_shape(inputs[0])} cannot weigh {show_shape(shapes[0])}")
        if self.grid is not None:
            width *= math.prod(self.grid)
        return (*lead, sum(s[-1] for s in shapes)) if self.combine == "concat" else (*lead, width)

    def emit(self, scope: Scope, x: int) -> int:
        work = scope.work
        if self.gate is not None:
            return _mixture(scope, self, self.gate, x)
        branches = [scope.child(str(i)).emit(branch, x) for i, branch in enumerate(self.branches)]
        if self.grid is not None:
            return _scatter(work, branches, self.cells(), prod(self.grid))
        return emit_join(work, branches, self.combine)


def _mixture(scope: Scope, spec: Parallel, gate: Gate, x: int) -> int:
    """Emit a gated sum; a device skips branches that no row of a call selects."""
    work = scope.work
    predicates = work.shape(x)[0] == ROWS and len(work.shape(x)) == 2
    weights = scope.child("gate").emit(gate, x)
    branches: list[int] = []
    for i, branch in enumerate(spec.branches):
        with work.predicated(weights, i) if predicates else nullcontext():
            branch_input = x if spec.weigh == "output" else _weigh_rows(work, x, weights, i)
            branches.append(scope.child(str(i)).emit(branch, branch_input))
    return work.emit_fused("mix", (weights, *branches), weighted=spec.weigh == "output")[0]


def _weigh_rows(work: GraphBuilder, x: int, weights: int, i: int) -> int:
    """Emit rows times the weight of a branch, 0 where the weight is 0."""
    return work.emit_fused("mix", (columns(work, weights, i, 1), x), weighted=True)[0]


def _scatter(work: GraphBuilder, values: Sequence[int], cells: Sequence[int], count: int) -> int:
    """Emit a row of cells with each value in its cell, and zeros in the others."""
    *lead, width = work.shape(values[0])
    of = dict(zip(cells, values, strict=True))
    empty = work.zeros((*lead, width)) if len(of) < count else -1
    return work.concat([of.get(cell, empty) for cell in range(count)], len(lead))
