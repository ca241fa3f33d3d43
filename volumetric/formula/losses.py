"""Element-wise losses, one entry each: the term of a prediction and a target, and its derivative.

An entry, also one that a package registers, creates a loss on every device and, under its name, in `volumetric.train`,
where a class may add options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.base.moved_modules import moved_names_getattr
from volumetric.base.registry import Registry
from volumetric.formula.derivative import derivative
from volumetric.formula.elementary import exp, larger, log, log_of_one_plus, magnitude, positive, smaller
from volumetric.formula.expression import Expression, variables, where

FIELDS: Final = 2
"""Maximum number of loss parameters in kernels."""

Y, T, DELTA = variables("y t delta")
"""The prediction, the target, and the field of huber."""
_D = Y - T
_BOUND = larger(smaller(_D, DELTA), -DELTA)  # both branches of huber at once: inside, it is the difference
_SMALL = exp(-magnitude(Y))


@dataclass(frozen=True, slots=True)
class LossTerm:
    """The term of one element.

    Attributes
    ----------
    value : of `Y`, `T` and the fields
    derivative : by `Y`; None: that of `value`. Set if another form is more exact, or safer
    fields : name of a parameter → its default; at most `FIELDS`
    meaning : description of the loss, in a sentence
    """

    value: Expression
    meaning: str
    derivative: Expression | None = None
    fields: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check that kernels have room for the fields."""
        if len(self.fields) > FIELDS:
            raise SpecError(f"a loss has at most {FIELDS} fields, got {', '.join(self.fields)}")

    @property
    def slope(self) -> Expression:
        """The derivative by `Y`."""
        return derivative(self.value, Y) if self.derivative is None else self.derivative


_TERMS: Final[dict[str, LossTerm]] = {
    "mse": LossTerm(_D * _D, "Mean squared error."),
    "l1": LossTerm(
        magnitude(_D),
        "Mean absolute error; its slope is 0 where prediction and target are equal, as in torch.",
        where(_D < 0, -1.0, where(_D > 0, 1.0, _D)),
    ),
    "huber": LossTerm(
        _BOUND * (_D - 0.5 * _BOUND),
        "Huber loss: half the square of the difference up to delta, from there on its line.",
        _BOUND,
        {"delta": 1.0},
    ),
    "bce": LossTerm(
        -(T * larger(log(Y), -100.0) + (1 - T) * larger(log(1 - Y), -100.0)),
        "Binary cross entropy of probabilities; logarithms stop at −100, as in torch.",
        _D / larger(Y * (1 - Y), 1e-12),
    ),
    "bce_logits": LossTerm(
        positive(Y) - Y * T + log_of_one_plus(_SMALL),
        "Binary cross entropy of logits, which neither overflows nor cancels.",
        where(Y < 0, _SMALL, 1.0) / (1 + _SMALL) - T,
    ),
}

TERMS: Final[Registry[LossTerm]] = Registry(group="volumetric.losses", own=_TERMS)
"""Name → term of an element."""


def term_of(attrs: Mapping[str, Any]) -> str:
    """Return the name of the term, from the attributes of an element-wise loss; bce has a second term, for logits."""
    return "bce_logits" if attrs["name"] == "bce" and attrs["logits"] else attrs["name"]


__getattr__ = moved_names_getattr(__name__)
