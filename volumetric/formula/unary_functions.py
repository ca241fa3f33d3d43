"""Functions of one number, each in one line: activations and other element-wise functions of graphs.

A new activation is a line of `ACTIVATIONS`, or is registered there by a package; its value and derivative on every
device, in graphs and in layers, follow from it.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

from volumetric.base.errors import SpecError
from volumetric.base.moved_modules import moved_names_getattr
from volumetric.base.registry import Registry
from volumetric.formula.derivative import derivative, scale_expression
from volumetric.formula.elementary import (
    cos,
    exp,
    floor,
    log,
    magnitude,
    positive,
    sigmoid,
    sign,
    sin,
    softplus,
    sqrt,
    tanh,
    twice_normal,
)
from volumetric.formula.expression import Expression, subexpressions, substitute, variable, where

X: Final = variable("x")
"""The argument of a function."""
Y: Final = variable("y")
"""Its result."""
G: Final = variable("g")
"""The gradient of its result."""
ALPHA, BETA = variable("alpha"), variable("beta")
"""The attributes of affine."""


@dataclass(frozen=True, slots=True)
class UnaryFormula:
    """A function of one number.

    Attributes
    ----------
    value : of `X`
    derivative : of `X`; None: that of `value`. Set if the rounding, or the sign of a zero, must differ
    gradient : of an input, from `X`, `Y` and `G`; None: ``G · derivative``. Set if the result makes it shorter
    same_side : the result is above 0 exactly if x is, and the derivative depends on x only by this condition
    """

    value: Expression
    derivative: Expression | None = None
    gradient: Expression | None = None
    same_side: bool = False

    @property
    def slope(self) -> Expression:
        """The derivative at `X`; the left derivative at a kink."""
        return derivative(self.value, X) if self.derivative is None else self.derivative

    @property
    def input_gradient(self) -> Expression | None:
        """The gradient of the input, from `X`, `Y` and `G`; None if it is 0."""
        if self.gradient is not None:
            return self.gradient
        whole = scale_expression(G, substitute(self.slope, {self.value: Y}))
        return None if G not in subexpressions(whole) else whole

    @property
    def slope_from_result(self) -> Expression | None:
        """The derivative as a function of the result `Y` alone; None if `Y` does not determine it."""
        slope = substitute(self.slope, {self.value: Y})
        return None if X in subexpressions(slope) else slope


_positive = positive(X)
LEAKY_SLOPE: Final = 0.01
"""Of leaky_relu below 0: torch's default."""

_ACTIVATIONS: Final[dict[str, UnaryFormula]] = {
    "linear": UnaryFormula(X),
    "relu": UnaryFormula(_positive, same_side=True),
    "silu": UnaryFormula(X * sigmoid(X)),
    "gelu": UnaryFormula(0.5 * X * twice_normal(X)),  # the definition, Hendrycks and Gimpel 2016 (arXiv 1606.08415)
    "gelu_tanh": UnaryFormula(0.5 * X * (1 + tanh(0.7978845608028654 * (X + 0.044715 * X * X * X)))),  # ditto; GPT-2's
    "tanh": UnaryFormula(tanh(X)),
    "sigmoid": UnaryFormula(sigmoid(X)),
    "leaky_relu": UnaryFormula(where(X > 0, X, LEAKY_SLOPE * X), same_side=True),
    "relu2": UnaryFormula(_positive * _positive, derivative=where(X <= 0, 0.0, X + X)),  # Primer (arXiv 2109.08668)
    "quick_gelu": UnaryFormula(X * sigmoid(1.702 * X)),  # the other approximation of Hendrycks and Gimpel; CLIP's
}

ACTIVATIONS: Final[Registry[UnaryFormula]] = Registry(group="volumetric.activations", own=_ACTIVATIONS)
"""Name → activation."""

_OTHERS: Final[dict[str, UnaryFormula]] = {
    "exp": UnaryFormula(exp(X)),
    "log": UnaryFormula(log(X)),
    "neg": UnaryFormula(-X),
    "square": UnaryFormula(X * X),
    "sqrt": UnaryFormula(sqrt(X)),
    "rsqrt": UnaryFormula(1 / sqrt(X), gradient=(-0.5 * G) * (Y * (Y * Y))),
    "reciprocal": UnaryFormula(1 / X, gradient=-(G * (Y * Y))),
    "abs": UnaryFormula(magnitude(X)),
    "sign": UnaryFormula(sign(X)),
    "softplus": UnaryFormula(softplus(X)),
    "floor": UnaryFormula(floor(X)),
    "sin": UnaryFormula(sin(X)),
    "cos": UnaryFormula(cos(X)),
    "erf": UnaryFormula(twice_normal(1.4142135623730951 * X) - 1, derivative=1.1283791670955126 * exp(-(X * X))),
    "affine": UnaryFormula(X * ALPHA + BETA),
}

FUNCTIONS: Final[Mapping[str, UnaryFormula]] = ChainMap(_OTHERS, ACTIVATIONS)
"""Name → function; activations come first."""
OWN: Final[Mapping[str, UnaryFormula]] = {**ACTIVATIONS.own, **_OTHERS}
"""Functions of the engine, which kernels know by number. Those that packages register have separate kernels."""


@dataclass(frozen=True, slots=True)
class Slopes:
    """The derivatives of an activation by their names.

    Attributes
    ----------
    of : name → derivative, of `X`; if the name begins with ``from_``, `X` is the result
    from_result : name of the derivative computed from the result, for which the input need not be kept
    """

    of: Mapping[str, Expression]
    from_result: str | None


def slopes_of(activation: str) -> Slopes | None:
    """Return the derivatives of an activation; None for other functions, and for linear, whose derivative is 1."""
    if activation == "linear" or activation in _OTHERS or activation not in ACTIVATIONS:
        return None
    return _slopes(activation, ACTIVATIONS[activation])


@cache
def _slopes(name: str, of: UnaryFormula) -> Slopes:
    if of.same_side:
        return Slopes({name: of.slope}, name)
    by_result = of.slope_from_result
    if by_result is None:
        return Slopes({name: of.slope}, None)
    return Slopes({name: of.slope, f"from_{name}": substitute(by_result, {Y: X})}, f"from_{name}")


def slope_by_name(name: str) -> Expression:
    """Return a derivative by its name, see `Slopes`.

    Raises
    ------
    KeyError : no activation has a derivative of that name
    """
    if name in SLOPES:
        return SLOPES[name]
    slopes = slopes_of(name) or slopes_of(name.removeprefix("from_"))
    return ({} if slopes is None else slopes.of)[name]


_SLOPES: Final = [slopes for slopes in map(slopes_of, ACTIVATIONS.own) if slopes is not None]
SLOPES: Final[Mapping[str, Expression]] = {
    name: each
    for by_result in (False, True)
    for slopes in _SLOPES
    for name, each in slopes.of.items()
    if name.startswith("from_") == by_result
}
"""Name → derivative, of the activations of the engine."""

F = TypeVar("F", bound="Callable[..., Any]")


def activation(name: str) -> Callable[[F], F]:
    """Register a function of one number as an activation; layers take it by name.

    The function computes with operators and NumPy's functions. Its value, derivative and kernels on all devices follow
    from the formula that it returns.

    Raises
    ------
    SpecError : the engine has the name, or the function is no formula of its argument

    Examples
    --------
    >>> import numpy as np
    >>> @activation("snake")
    ... def snake(x):
    ...     return x + np.sin(x) ** 2
    """

    def declare(function: F) -> F:
        if name in OWN:
            raise SpecError(f"the engine has an activation {name!r}", hint="choose another name")
        value = function(X)
        if not isinstance(value, Expression) or {e.text for e in subexpressions(value) if e.op == "variable"} != {"x"}:
            raise SpecError(
                f"activation {name!r}: the function returned {value!r:.60}, no formula of its argument",
                hint="compute with operators and NumPy's functions, as x / (1 + np.exp(-x))",
            )
        ACTIVATIONS.declare(name, UnaryFormula(value), function.__module__)
        return function

    return declare


Activation: TypeAlias = str
"""Name of an activation."""


__getattr__ = moved_names_getattr(__name__)
