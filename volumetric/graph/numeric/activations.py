"""Element-wise activations with their derivatives, in NumPy. `volumetric.formula.unary_functions` defines them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion
from volumetric.formula.unary_functions import ACTIVATIONS as _ACTIVATIONS
from volumetric.formula.unary_functions import Activation
from volumetric.graph.numeric.numpy_formulas import erf, function_of, sigmoid

__all__ = ["ACTIVATIONS", "Activation", "activate", "check_activation", "erf", "sigmoid", "slope"]

ACTIVATIONS: tuple[Activation, ...] = tuple(_ACTIVATIONS.own)
"""The built-in activations, which can be fused into products."""


def check_activation(name: str) -> None:
    """Raise `SpecError` unless `name` is an activation."""
    if name not in _ACTIVATIONS:
        names = _ACTIVATIONS.names()
        near = suggestion(name, names, "")
        listed = "one of " + ", ".join(names)
        raise SpecError(f"unknown activation {name!r}", hint=f"{near} {listed}" if near else listed)


def activate(name: str, x: Array) -> Array:
    """Apply the activation `name`; the result has the dtype of `x`."""
    return function_of("x", _ACTIVATIONS[name].value)(x)[0]


def slope(name: str, x: Array) -> Array:
    """Derivative of the activation at its input `x`, shaped as it; at a kink it is the derivative from the left."""
    return _slope(name)(x)[0]


@cache
def _slope(name: str) -> Callable[..., tuple[Array, ...]]:
    return function_of("x", _ACTIVATIONS[name].slope)
