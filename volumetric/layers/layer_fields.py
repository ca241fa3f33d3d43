"""Declarations of the fields of layers: which stand by position, and which values are converted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from volumetric.base.errors import SpecError
from volumetric.graph.numeric.activations import Activation, check_activation

if TYPE_CHECKING:
    from volumetric.layers.layer_spec import LayerSpec

_CONVERTER: Final = "converter"


def positional(
    *,
    default: Any = dataclasses.MISSING,
    converter: Callable[[Any], Any] | None = None,
    kw_only: Literal[False] = False,
) -> Any:
    """Declare a field that also stands by position: ``stride: int = positional(default=1)``.

    For fields whose order is customary, as in ``Dense(2, 8, "tanh")``; all others need their names. Positions follow
    the order of the declarations.

    Parameters
    ----------
    default : value of a field that is left out; without one, the field is required
    converter : function of the value that a caller passes; returns that of the field, or raises `SpecError`
    kw_only : for type checkers, which read it from this signature
    """
    return dataclasses.field(default=default, kw_only=kw_only, metadata={_CONVERTER: converter})


def by_keyword(*, default: Any = dataclasses.MISSING, converter: Callable[[Any], Any]) -> Any:
    """Declare a field that needs its name, and whose value is converted; see `positional`."""
    return dataclasses.field(default=default, metadata={_CONVERTER: converter})


def convert_fields(spec: Any) -> None:
    """Convert the fields of a new spec that have a converter, and check those that are true or false.

    Raises
    ------
    SpecError : a field that is true or false has text, which would count as true
    """
    for field in dataclasses.fields(spec):
        if field.type == "bool" and isinstance(getattr(spec, field.name), str):
            raise SpecError(
                f"{spec.kind}: {field.name} must be True or False, got {getattr(spec, field.name)!r:.60}",
                hint=f"write {field.name}=False or {field.name}=True, without quotes",
            )
        converter = field.metadata.get(_CONVERTER)
        if converter is not None:
            value = getattr(spec, field.name)
            converted = converter(value)
            if converted is not value:
                object.__setattr__(spec, field.name, converted)


def activation_name(value: Activation | None) -> Activation:
    """Return the name of an activation; None is ``"linear"``, as in Keras.

    Raises
    ------
    SpecError : there is no such activation
    """
    if value is None:
        return "linear"
    if isinstance(value, bool):
        raise SpecError(f"activation: expected a name, got {value}", hint=f"bias={value} needs its name")
    if not isinstance(value, str):
        name = getattr(value, "__name__", type(value).__name__).lower()
        raise SpecError(f"activation: expected a name, got {value!r:.60}", hint=f'write its name, such as "{name}"')
    check_activation(value)
    return value


def tuple_of_layers(value: Sequence[LayerSpec] | LayerSpec) -> tuple[LayerSpec, ...]:
    """Return a list of layers, or a single layer, as a tuple."""
    return tuple(value) if isinstance(value, Sequence) else (value,)


def keep_width(spec: Any, name: str, like: str) -> None:
    """Set the field `name` of a new spec, if it was left out, to that of the field `like`: ``Dense(16)`` is 16 → 16."""
    if getattr(spec, name) is None:
        object.__setattr__(spec, name, getattr(spec, like))
