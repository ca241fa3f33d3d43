"""The base of all layers: a frozen spec with its parameters, states and output shape, which emits its graph."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar, dataclass_transform

from volumetric.base._typing import Shape
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import ShapeError, SpecError, UnsupportedError
from volumetric.base.hints import format_value
from volumetric.base.moved_modules import renamed_members
from volumetric.base.notebook_html import ShowsFields
from volumetric.base.registry import Registry, is_of_engine
from volumetric.graph.state_spec import StateSpec
from volumetric.layers.layer_fields import by_keyword, convert_fields, positional

if TYPE_CHECKING:
    from volumetric.layers.emit_scope import Scope

Init: TypeAlias = str
"""Name of initial values, see `ParamSpec`."""
BatchStatistics = Literal["never", "training", "always"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParamSpec:
    """One parameter of a layer.

    Attributes
    ----------
    name : path below the layer, such as ``"q.weight"``
    shape : logical shape; matrices are ``(out, in)``
    init : its initial values, or a name of `initial_values.initialiser`; ``"fan_in"`` is uniform in ±1/√in,
        ``"normal"`` has standard deviation 0.02, ``"small_normal"`` √(2 / (5 · in)), ``"normal_tenth"`` 0.1,
        ``"normal_hundredth"`` 0.01; ``"log_counts"`` is the logarithm of 1, 2, 3, … along the last axis,
        ``"small_steps"`` has a softplus between 0.001 and 0.1, its logarithm uniform; ``"orthogonal"`` has orthogonal
        rows or columns of length 1, ``"orthogonal_wide"`` of √2; ``"forget"`` is 3 … 6 along the last axis,
        ``"forget_block"`` that in the second block of its first axis, else 0; ``"uniform"`` is between `bounds`,
        ``"log_uniform"`` is the logarithm of such values; ``"ring"`` is ν for which ``exp(-exp(ν))`` are the lengths
        of vectors spread evenly over the ring between `bounds`
    bounds : for ``"uniform"``, ``"log_uniform"`` and ``"ring"``
    around : above 0, all entries of the first axis get the same initial value, plus normal noise of this standard
        deviation
    packable : may be stored in a low-bit scheme; gains and biases stay float32
    delicate : small but decisive, such as the router of a mixture: not stored in types below 16 bits unless it is named
    buffer : not a parameter: the layer itself changes it in training, and no gradient or optimiser does
    """

    name: str
    shape: Shape
    init: Init = "fan_in"
    bounds: tuple[float, float] = (0.0, 1.0)
    around: float = 0.0
    packable: bool = True
    delicate: bool = False
    buffer: bool = False


def buffer(name: str, shape: Shape, start: Literal["zeros", "ones"]) -> ParamSpec:
    """Return the spec of an array that a layer stores and changes itself, such as a running mean."""
    return ParamSpec(name=name, shape=shape, init=start, packable=False, buffer=True)


@renamed_members(within="for_context")
class LayerSpec(ShowsFields):
    """Base of all layer specs. Subclasses are declared with `layer` and override the methods below."""

    __slots__ = ()
    kind: ClassVar[str]
    children_field: ClassVar[str | None] = None
    """For containers: name of the field that holds a nested spec or several."""
    arity: ClassVar[int] = 1
    """Number of inputs."""
    contextual: ClassVar[bool] = False
    """Whether a row of the output depends on its position in the sequence, or on other rows."""
    takes_resets: ClassVar[bool] = False
    """Whether a contextual layer supports resets: new sequences that start within a call."""
    ends_with_context: ClassVar[bool] = False
    """Whether a sequence is limited to the context: devices allocate that many rows, or RoPE depends on it."""
    two_way: ClassVar[bool] = False
    """Whether a row of the output depends on later rows of its call."""
    batch_statistics: ClassVar[BatchStatistics] = "never"
    """When a row of the output depends on the other samples of the batch."""
    draws: ClassVar[bool] = False
    """Whether the layer draws random numbers while training."""
    inert: ClassVar[bool] = False
    """Whether the layer is the identity at inference."""
    traced: ClassVar[bool] = False
    """Whether `emit` gets `TracedTensor` for plain arithmetic, as all layers outside the engine do, or numbers."""

    def params(self) -> tuple[ParamSpec, ...]:
        """Return the parameters in their canonical flat order."""
        return ()

    def buffers(self) -> tuple[ParamSpec, ...]:
        """Return the arrays that are stored with the parameters and that training changes, but no optimiser."""
        return ()

    def tensors(self) -> tuple[ParamSpec, ...]:
        """Return all stored arrays of the layer: its parameters, then its buffers."""
        return *self.params(), *self.buffers()

    def states(self, *inputs: Shape) -> tuple[StateSpec, ...]:
        """Return the states that the layer stores of a sequence between calls, for inputs of the shapes `inputs`.

        Without shapes, the inputs are rows of features. Inputs with an axis between rows and features have no states.
        """
        return ()

    def ports(self, which: Literal["inputs", "outputs"]) -> Mapping[str, tuple[int, int]]:
        """Return the named parts of a row: name → (first column, column after the last)."""
        return {}

    def output_shape(self, *inputs: Shape) -> Shape:
        """Return the shape of the output; raise `ShapeError` if an input has a wrong shape."""
        return inputs[0]

    def children(self) -> dict[str, LayerSpec]:
        """Return the nested layers by path; their parameters and states are named below these paths."""
        if self.children_field is None:
            return {}
        inner: LayerSpec | tuple[LayerSpec, ...] = getattr(self, self.children_field)
        return (
            {self.children_field: inner} if isinstance(inner, LayerSpec) else {str(i): c for i, c in enumerate(inner)}
        )

    def reads(self, path: str, shape: Shape) -> Shape:
        """Return the input shape of the nested layer at `path` if this layer reads `shape`."""
        return shape

    def for_context(self, context: int) -> LayerSpec:
        """Return the layer for sequences of up to `context` rows; most layers do not depend on it."""
        before = list(self.children().values())
        changed = tuple(child.for_context(context) for child in before)
        if self.children_field is None or all(a is b for a, b in zip(before, changed, strict=True)):
            return self
        one = isinstance(getattr(self, self.children_field), LayerSpec)
        return dataclasses.replace(self, **{self.children_field: changed[0] if one else changed})  # pyright: ignore[reportArgumentType]  (every registered spec is a dataclass)

    def emit(self, scope: Scope, *inputs: Any, **_: Any) -> Any:
        """Emit the layer into the graph of `scope`: take input tensors, return the output tensor.

        Every device runs and trains this graph; `Scope` returns parameters, buffers and states. Layers outside the
        engine compute with `graph.traced_tensor.TracedTensor`, those of the engine with the numbers of tensors and the
        operations of `volumetric.graph.operations`.
        """
        raise UnsupportedError(
            f"{self.kind} at {scope.path} does not define emit, which writes the graph that all devices run",
            hint="define emit: take input tensors, return the output tensor",
        )


def _load(kind: str | None) -> None:
    package = import_module("volumetric.layers")
    class_name = None if kind is None else kind.replace("_", "")
    for name in package.__all__:
        if class_name is None or name.lower() == class_name:
            getattr(package, name)


LAYERS: Registry[type[LayerSpec]] = Registry(_load, group="volumetric.layers")
"""Kind → spec class, filled by `layer`. A kind is the class name in snake case."""

L = TypeVar("L", bound=type[LayerSpec])
T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(positional, by_keyword))
def layer_base(cls: L) -> L:
    """Turn a class into a frozen base of layer specs, which is no kind itself."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(positional, by_keyword))
def layer(kind: str) -> Callable[[L], L]:
    """Turn a class into a frozen layer spec and register it under `kind`.

    Arguments need their names, unless a field is declared as `positional`.
    """

    def declare(cls: L) -> L:
        if LAYERS.is_declared(kind) and LAYERS.module_of(kind) != cls.__module__:  # a notebook's cell may run again
            raise SpecError(
                f"layer kind {kind!r} is declared twice, by {LAYERS[kind].__module__} and {cls.__module__}",
                hint="choose another kind",
            )
        check: Callable[[Any], None] | None = getattr(cls, "__post_init__", None)

        def convert_and_check(self: Any) -> None:
            """Convert and check the fields."""
            convert_fields(self)
            if check is not None:
                check(self)

        cls.__post_init__ = convert_and_check  # pyright: ignore[reportAttributeAccessIssue]  (the hook of dataclasses)
        spec = explain_call_errors(layer_base(cls))
        spec.kind = kind
        spec.traced = not is_of_engine(spec.emit.__module__)
        LAYERS.declare(kind, spec, cls.__module__)
        return spec

    return declare


def expect_positive(spec: LayerSpec, *names: str) -> None:
    """Raise `SpecError` unless each named field is a whole number above zero."""
    for name in names:
        value = getattr(spec, name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SpecError(
                f"{spec.kind}: {name} must be a whole number above 0, got {format_value(value)}", hint=_size_hint(value)
            )


def _size_hint(value: object) -> str:
    """Return a hint for a value that is not a valid size."""
    if isinstance(value, float) and value.is_integer() and value >= 1:
        return f"write {int(value)}; use // for a whole quotient"
    if isinstance(value, str):
        return "write it without quotes"
    return "sizes count features, rows or heads, and are at least 1"


def expect_last(spec: LayerSpec, shape: Shape, size: int) -> None:
    """Raise `ShapeError` unless the last axis of `shape` is `size`."""
    if len(shape) < 2 or shape[-1] != size:
        raise ShapeError(
            f"{spec.kind} expects rows of {size} features, got shape {show_shape(shape)}",
            hint=f"for a network on rows, set input_shape=({size},); the default is ids"
            if len(shape) < 2
            else f"make the widths of neighbours equal: this layer for {shape[-1]} features, or {size} before it",
        )


def show_shape(shape: Shape) -> str:
    """Return the text of a shape: ``[T, 576]``."""
    return "[" + ", ".join("T" if axis < 0 else str(axis) for axis in shape) + "]"


def params_below(p: Mapping[str, T], prefix: str) -> dict[str, T]:
    """Return the parameters whose path starts with ``prefix/``, with that part removed."""
    start = prefix + "/"
    return {name[len(start) :]: value for name, value in p.items() if name.startswith(start)}


def fields_of(spec: LayerSpec) -> dict[str, Any]:
    """Field name → value of a spec, in declaration order."""
    return {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}  # pyright: ignore[reportArgumentType]  (every registered spec is a dataclass)
