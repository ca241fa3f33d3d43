"""Layers made of layers: Sequential, Parallel, and the Residual join."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from volumetric._typing import Array, Shape
from volumetric.errors import ShapeError, SpecError
from volumetric.layers.base import (
    Arrays,
    Grads,
    LayerSpec,
    Memory,
    ParamSpec,
    Saved,
    below,
    layer,
    show_shape,
)

INPUT = "input"
"""Source of a Residual: what the enclosing network or container received."""


@layer("residual")
class Residual(LayerSpec):
    """Sum ``y = x + source``.

    Attributes
    ----------
    source : what is added. None: the input of the preceding layer. ``"input"``: the input of the enclosing network or
        container. In a grid, a coordinate such as ``"1.0.0.2"``: that layer's output. In a Sequential, ``"#2"``: the
        output of its third layer.
    """

    arity: ClassVar[int] = 2

    source: str | None = None

    def output_shape(self, *inputs: Shape) -> Shape:
        if len(inputs) == 2 and inputs[0] != inputs[1]:
            raise ShapeError(f"residual adds {show_shape(inputs[1])} to {show_shape(inputs[0])}")
        return inputs[0]

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        return xs[0] + xs[1], {}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((gy, gy))


def inner_source(source: str | None, index: int) -> int:
    """Which value of a Sequential a Residual at place `index` adds: 0 is its input, i + 1 the output of layer i."""
    if source == INPUT:
        return 0
    if source is None:
        if index == 0:
            raise SpecError("residual: the first layer of a sequential has no preceding layer")
        return index - 1
    if source.startswith("#") and source[1:].isdigit() and int(source[1:]) < index:
        return int(source[1:]) + 1
    raise SpecError(
        f"residual: source {source!r} at place {index} of a sequential names no earlier layer",
        hint=f'use "input", None or "#0" to "#{index - 1}"',
    )


def _prefixed(children: tuple[LayerSpec, ...]) -> tuple[ParamSpec, ...]:
    return tuple(
        ParamSpec(name=f"{i}/{s.name}", shape=s.shape, init=s.init, packable=s.packable)
        for i, child in enumerate(children)
        for s in child.params()
    )


def _inner_memory(memory: Memory | None, index: int) -> Memory | None:
    """Memory of child `index`, kept inside that of its container."""
    if memory is None:
        return None
    child = memory.arrays.setdefault(f"/{index}", Memory())  # pyright: ignore[reportArgumentType]  (nested, as the layers are)
    child.position = memory.position  # pyright: ignore[reportAttributeAccessIssue]
    return child  # pyright: ignore[reportReturnType]


@layer("sequential")
class Sequential(LayerSpec):
    """Layers one after the other; a Residual inside may name an earlier one."""

    children_field: ClassVar[str | None] = "layers"

    layers: tuple[LayerSpec, ...]

    def __post_init__(self) -> None:
        """Check the fields."""
        if not self.layers:
            raise SpecError("sequential: needs at least one layer")
        for i, child in enumerate(self.layers):
            if isinstance(child, Residual):
                inner_source(child.source, i)

    @property
    def remembers(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on the children)
        """Whether any child uses memory."""
        return any(child.remembers for child in self.layers)

    def params(self) -> tuple[ParamSpec, ...]:
        return _prefixed(self.layers)

    def sources(self, index: int) -> tuple[int, ...]:
        """Values that layer `index` reads: 0 is the container's input, i + 1 the output of layer i."""
        child = self.layers[index]
        return (index, inner_source(child.source, index)) if isinstance(child, Residual) else (index,)

    def output_shape(self, *inputs: Shape) -> Shape:
        shapes = [inputs[0]]
        for i, child in enumerate(self.layers):
            try:
                shapes.append(child.output_shape(*(shapes[j] for j in self.sources(i))))
            except ShapeError as error:
                raise ShapeError(f"layer {i} of sequential: {error}") from None
        return shapes[-1]

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        values, tape = [xs[0]], []
        for i, child in enumerate(self.layers):
            args = (values[j] for j in self.sources(i))
            y, saved = child.forward(below(p, str(i)), *args, memory=_inner_memory(memory, i))
            values.append(y)
            tape.append(saved)
        return values[-1], {"tape": tape}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        grads: list[Array | None] = [None] * len(self.layers) + [gy]
        params: dict[str, Array] = {}
        for i in reversed(range(len(self.layers))):
            g = grads[i + 1]
            if g is None:
                continue
            result = self.layers[i].vjp(below(p, str(i)), saved["tape"][i], g)
            params |= {f"{i}/{name}": value for name, value in result.params.items()}
            for j, gx in zip(self.sources(i), result.inputs, strict=True):
                before = grads[j]
                grads[j] = gx if before is None else before if gx is None else before + gx
        return Grads((grads[0],), params)


@layer("parallel")
class Parallel(LayerSpec):
    """Branches side by side on one input, joined by `combine`: ``concat`` on the last axis, ``add``, or ``avg``."""

    children_field: ClassVar[str | None] = "branches"

    branches: tuple[LayerSpec, ...]
    combine: Literal["concat", "add", "avg"] = "concat"

    def __post_init__(self) -> None:
        """Check the fields."""
        if not self.branches:
            raise SpecError("parallel: needs at least one branch")
        if self.combine not in ("concat", "add", "avg"):
            raise SpecError(f"parallel: unknown combine {self.combine!r}", hint="one of concat, add, avg")
        if any(isinstance(branch, Residual) for branch in self.branches):
            raise SpecError("parallel: a residual cannot be a branch", hint="put it into a sequential")

    @property
    def remembers(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on the children)
        """Whether any branch uses memory."""
        return any(branch.remembers for branch in self.branches)

    def params(self) -> tuple[ParamSpec, ...]:
        return _prefixed(self.branches)

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
        return (*shapes[0][:-1], sum(s[-1] for s in shapes)) if self.combine == "concat" else shapes[0]

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        results = [
            branch.forward(below(p, str(i)), xs[0], memory=_inner_memory(memory, i))
            for i, branch in enumerate(self.branches)
        ]
        outputs = [y for y, _ in results]
        saved: Saved = {"tape": [s for _, s in results], "widths": [y.shape[-1] for y in outputs]}
        return join(outputs, self.combine), saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        grads = join_vjp(gy, self.combine, saved["widths"])
        gx: Array | None = None
        params: dict[str, Array] = {}
        for i, (branch, g) in enumerate(zip(self.branches, grads, strict=True)):
            result = branch.vjp(below(p, str(i)), saved["tape"][i], g)
            params |= {f"{i}/{name}": value for name, value in result.params.items()}
            part = result.inputs[0]
            gx = part if gx is None else gx if part is None else gx + part
        return Grads((gx,), params)


def join(values: list[Array], combine: str) -> Array:
    """Concatenate, add or average arrays."""
    if combine == "concat":
        return np.concatenate(values, axis=-1)
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total / total.dtype.type(len(values)) if combine == "avg" else total


def join_vjp(gy: Array, combine: str, widths: list[int]) -> list[Array]:
    """Gradients of the arrays that `join` took."""
    if combine == "concat":
        return np.split(gy, np.cumsum(widths)[:-1], axis=-1)
    return [gy / gy.dtype.type(len(widths)) if combine == "avg" else gy] * len(widths)
