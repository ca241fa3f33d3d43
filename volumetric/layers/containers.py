"""The containers Sequential and Residual, and the base of all containers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from volumetric.base._typing import Shape
from volumetric.base.errors import ShapeError, SpecError
from volumetric.graph.state_spec import StateSpec
from volumetric.layers.emit_scope import Scope, emit_join
from volumetric.layers.layer_fields import positional, tuple_of_layers
from volumetric.layers.layer_spec import (
    BatchStatistics,
    LayerSpec,
    ParamSpec,
    layer,
    layer_base,
    show_shape,
)

INPUT = "input"
"""Source of a Residual: the input of the enclosing network or container."""


@layer("residual")
class Residual(LayerSpec):
    """Adds the output of an earlier layer to the layer's input.

    ::

        y = x + source

    The gradient goes to both.

    He et al. 2015 (arXiv 1512.03385).

    Attributes
    ----------
    source : the other summand. None: the input of the preceding layer. ``"input"``: the input of the enclosing network
        or container. In a grid, a coordinate such as ``"1.0.0.2"``: that layer's output. In a Sequential, ``"#2"``: the
        output of its third layer.
    """

    arity: ClassVar[int] = 2

    source: str | None = None

    def output_shape(self, *inputs: Shape) -> Shape:
        if len(inputs) == 2 and inputs[0] != inputs[1]:
            raise ShapeError(f"residual cannot add shape {show_shape(inputs[1])} to shape {show_shape(inputs[0])}")
        return inputs[0]

    def emit(self, scope: Scope, x: int, source: int) -> int:
        return emit_join(scope.work, (x, source), "add")


def inner_source(source: str | None, index: int) -> int:
    """Return which value of a Sequential the Residual at `index` adds: 0 is its input, i + 1 the output of layer i."""
    if source == INPUT:
        return 0
    if source is None:
        if index == 0:
            raise SpecError("residual: the first layer of a sequential has no preceding layer")
        return index - 1
    if source.startswith("#") and source[1:].isdigit() and int(source[1:]) < index:
        return int(source[1:]) + 1
    raise SpecError(
        f"residual: source {source!r} at index {index} of a sequential is not an earlier layer",
        hint=f'use "input", None or "#0" to "#{index - 1}"',
    )


def prefixed_params(children: Mapping[Any, LayerSpec]) -> tuple[ParamSpec, ...]:
    """Return the parameters of `children`, named below their keys."""
    return tuple(
        dataclasses.replace(param, name=f"{path}/{param.name}")
        for path, child in children.items()
        for param in child.params()
    )


def prefixed_buffers(children: Mapping[Any, LayerSpec]) -> tuple[ParamSpec, ...]:
    """Return the buffers of `children`, named below their keys."""
    return tuple(
        dataclasses.replace(spec, name=f"{path}/{spec.name}")
        for path, child in children.items()
        for spec in child.buffers()
    )


def joint_statistics(children: Iterable[LayerSpec]) -> BatchStatistics:
    """Return when a row depends on other samples in any of `children`."""
    kinds = {child.batch_statistics for child in children}
    return "always" if "always" in kinds else "training" if "training" in kinds else "never"


@layer_base
class Container(LayerSpec):
    """Base of layers that hold others: what they are follows from those."""

    @property
    def contextual(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on the children)
        """Whether a row depends on its position, or on other rows, in any child."""
        return any(child.contextual for child in self.children().values())

    @property
    def takes_resets(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on the children)
        """Whether all contextual children support resets."""
        return all(child.takes_resets or not child.contextual for child in self.children().values())

    @property
    def ends_with_context(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on the children)
        """Whether a sequence is limited to the context in any child."""
        return any(child.ends_with_context for child in self.children().values())

    @property
    def two_way(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on the children)
        """Whether a row depends on later ones in any child."""
        return any(child.two_way for child in self.children().values())

    @property
    def batch_statistics(self) -> BatchStatistics:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on the children)
        """When a row depends on the other samples of the batch."""
        return joint_statistics(self.children().values())

    @property
    def draws(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (depends on the children)
        """Whether any child draws random numbers while training."""
        return any(child.draws for child in self.children().values())

    def params(self) -> tuple[ParamSpec, ...]:
        return prefixed_params(self.children())

    def buffers(self) -> tuple[ParamSpec, ...]:
        return prefixed_buffers(self.children())

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        specs: list[StateSpec] = []
        for path, child in self.children().items():
            shapes = [self.reads(path, shape) for shape in inputs]
            specs += (state.with_prefix(path) for state in child.states(*shapes))
        return tuple(specs)


@layer("sequential")
class Sequential(Container):
    """Layers one after the other, as one layer.

    ::

        y = f_{n−1}(… f_1(f_0(x)))

    Parameters are named by a layer's number, ``0/weight``. A `Residual` inside may name an earlier layer: ``#2`` is the
    output of the third one, ``input`` the input of the container.

    Attributes
    ----------
    layers : in the order in which they are computed
    """

    children_field: ClassVar[str | None] = "layers"

    layers: tuple[LayerSpec, ...] = positional(converter=tuple_of_layers)

    def __post_init__(self) -> None:
        """Check the fields."""
        if not self.layers:
            raise SpecError("sequential: needs at least one layer")
        for i, child in enumerate(self.layers):
            if isinstance(child, Residual):
                inner_source(child.source, i)

    def sources(self, index: int) -> tuple[int, ...]:
        """Return the values that layer `index` reads: 0 is the container's input, i + 1 the output of layer i."""
        child = self.layers[index]
        return (index, inner_source(child.source, index)) if isinstance(child, Residual) else (index,)

    def output_shape(self, *inputs: Shape) -> Shape:
        return self._shapes(inputs[0])[-1]

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        shapes = [(shape,) for shape in self._shapes(*inputs)] if inputs else [()] * len(self.layers)
        pairs = zip(self.layers, shapes, strict=False)
        return tuple(
            state.with_prefix(str(i)) for i, (child, shape) in enumerate(pairs) for state in child.states(*shape)
        )

    def _shapes(self, x: Shape) -> list[Shape]:
        """Return the shapes of the input and of every layer's output."""
        shapes = [x]
        for i, child in enumerate(self.layers):
            try:
                shapes.append(child.output_shape(*(shapes[j] for j in self.sources(i))))
            except ShapeError as error:
                raise ShapeError(f"layer {i} of sequential: {error}") from None
        return shapes

    def emit(self, scope: Scope, x: int) -> int:
        values = [x]
        for i, child in enumerate(self.layers):
            values.append(scope.child(str(i)).emit(child, *(values[j] for j in self.sources(i))))
        return values[-1]
