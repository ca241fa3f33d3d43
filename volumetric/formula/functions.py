"""Functions of one number, each in one line: activations, and what else graphs compute of single elements.

A new activation is a line of `ACTIVATIONS`: value and derivative on every device, in graphs and in layers, follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from volumetric.formula.derivative import derivative, scaled
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
from volumetric.formula.expression import Expression, replaced, variable, walk, where

X: Final = variable("x")
"""What a function is applied to."""
Y: Final = variable("y")
"""Its result."""
G: Final = variable("g")
"""The gradient of its result."""
ALPHA, BETA = variable("alpha"), variable("beta")
"""The attributes of affine."""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of one number.

    Attributes
    ----------
    value : of `X`
    derivative : of `X`; None: that of `value`. Given where rounding, or the sign of a zero, is to be another
    gradient : of an input, from `X`, `Y` and `G`; None: ``G · derivative``. Given where it is shorter by the result
    same_side : the result is above 0 just where x is, and of x the derivative depends on nothing else
    """

    value: Expression
    derivative: Expression | None = None
    gradient: Expression | None = None
    same_side: bool = False

    @property
    def slope(self) -> Expression:
        """The derivative at `X`; at a kink the one from the left."""
        return derivative(self.value, X) if self.derivative is None else self.derivative

    @property
    def input_gradient(self) -> Expression | None:
        """The gradient of the input, of `X`, `Y` and `G`; None where it is 0."""
        if self.gradient is not None:
            return self.gradient
        whole = scaled(G, replaced(self.slope, {self.value: Y}))
        return None if G not in walk(whole) else whole

    @property
    def slope_from_result(self) -> Expression | None:
        """The derivative as a function of the result `Y` alone; None where that does not suffice."""
        found = replaced(self.slope, {self.value: Y})
        return None if X in walk(found) else found


_positive = positive(X)
LEAKY_SLOPE: Final = 0.01
"""Of leaky_relu below 0: torch's default."""

ACTIVATIONS: Final[dict[str, Function]] = {
    "linear": Function(X),
    "relu": Function(_positive, same_side=True),
    "silu": Function(X * sigmoid(X)),
    "gelu": Function(0.5 * X * twice_normal(X)),  # the definition, Hendrycks and Gimpel 2016 (arXiv 1606.08415)
    "gelu_tanh": Function(0.5 * X * (1 + tanh(0.7978845608028654 * (X + 0.044715 * X * X * X)))),  # ditto; GPT-2's
    "tanh": Function(tanh(X)),
    "sigmoid": Function(sigmoid(X)),
    "leaky_relu": Function(where(X > 0, X, LEAKY_SLOPE * X), same_side=True),
    "relu2": Function(_positive * _positive, derivative=where(X <= 0, 0.0, X + X)),  # Primer (arXiv 2109.08668)
    "quick_gelu": Function(X * sigmoid(1.702 * X)),  # the other approximation of Hendrycks and Gimpel; CLIP's
}
"""Name → activation."""

FUNCTIONS: Final[dict[str, Function]] = {
    **ACTIVATIONS,
    "exp": Function(exp(X)),
    "log": Function(log(X)),
    "neg": Function(-X),
    "square": Function(X * X),
    "sqrt": Function(sqrt(X)),
    "rsqrt": Function(1 / sqrt(X), gradient=(-0.5 * G) * (Y * (Y * Y))),
    "reciprocal": Function(1 / X, gradient=-(G * (Y * Y))),
    "abs": Function(magnitude(X)),
    "sign": Function(sign(X)),
    "softplus": Function(softplus(X)),
    "floor": Function(floor(X)),
    "sin": Function(sin(X)),
    "cos": Function(cos(X)),
    "affine": Function(X * ALPHA + BETA),
}
"""Name → function."""

_CURVED: Final = {name: each for name, each in ACTIVATIONS.items() if name != "linear"}
_BY_RESULT: Final = {
    name: replaced(found, {Y: X})
    for name, each in _CURVED.items()
    if not each.same_side and (found := each.slope_from_result) is not None
}

SLOPES: Final[dict[str, Expression]] = {
    **{name: each.slope for name, each in _CURVED.items()},
    **{f"from_{name}": each for name, each in _BY_RESULT.items()},
}
"""Name → derivative of an activation, of `X`; where the name begins with ``from_``, `X` is the result."""

FROM_RESULT: Final[dict[str, str]] = {
    **{name: name for name, each in _CURVED.items() if each.same_side},
    **{name: f"from_{name}" for name in _BY_RESULT},
}
"""Activation → slope that follows from its result: nobody needs to keep what it was applied to."""

if TYPE_CHECKING:
    Activation: TypeAlias = str
else:
    Activation = Literal[tuple(ACTIVATIONS)]
"""Name of an activation."""
