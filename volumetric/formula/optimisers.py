"""Optimiser steps, one entry each: a weight and its slots after an update, from their old values and the gradient.

An entry, also one that a package registers, creates an optimiser on every device and, under its name, in
`volumetric.train`, where a class adds validation and documentation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import compress, product
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.base.moved_modules import moved_names_getattr
from volumetric.base.registry import Registry
from volumetric.formula.elementary import sqrt
from volumetric.formula.expression import Expression, equal, subexpressions, variable, variables, where

W, G, RATE, FIRST, SECOND = variables("w g rate first second")
"""Weight, gradient, learning rate of the update, and the results of `OptimiserFormula.knobs`."""

Moved = tuple[Expression, dict[str, Expression]]
"""The new weight, and slot → its new value."""
Attributes = Mapping[str, Any]
"""Field → its value."""


@dataclass(frozen=True, slots=True, eq=False)
class OptimiserFormula:
    """The step of an optimiser.

    Attributes
    ----------
    moved : the results of a step by name, from `W`, `G`, slots and fields, for the set fields of `options`. Fields with
        the prefix ``rest_`` are 1 minus the field, computed in float64: in float32 the difference would be inexact
    fields : name → default, without the learning rate
    options : fields that select the form of a step by being set (neither 0 nor False)
    knobs : returns two numbers for a step from the fields and the number of the update, from 1
    """

    moved: Callable[[Attributes], Moved]
    fields: Mapping[str, float | bool]
    options: tuple[str, ...] = ()
    knobs: Callable[[Attributes, int], tuple[float, float]] = lambda at, step: (0.0, 0.0)


def _sgd(at: Attributes) -> Moved:
    return W - RATE * _add_weight_decay(), {}


def _momentum(at: Attributes) -> Moved:
    g, momentum, old = _add_weight_decay(), *variables("momentum velocity")
    v = where(equal(FIRST, 0.0), variable("rest_dampening") * g + momentum * old, g)
    return W - RATE * (g + momentum * v if at["nesterov"] else v), {"velocity": v}


def _rmsprop(at: Attributes) -> Moved:
    g, alpha, rest = _add_weight_decay(), *variables("alpha rest_alpha")
    new = {"square": alpha * variable("square") + rest * g * g}
    spread = new["square"]
    if at["centered"]:
        new["mean"] = rest * g + alpha * variable("mean")
        spread = spread - new["mean"] * new["mean"]
        spread = where(spread > 0, spread, 0.0)  # a variance is not below 0, but its rounded difference may be
    move = g / (sqrt(spread) + variable("eps"))
    if at["momentum"]:
        new["velocity"] = move = variable("momentum") * variable("velocity") + move
    return W - RATE * move, new


def _adam(at: Attributes) -> Moved:
    move, new = _adam_move(_add_weight_decay())
    return W - move, new


def _adamw(at: Attributes) -> Moved:
    move, new = _adam_move(G)
    return W * (1 - RATE * variable("weight_decay")) - move, new


def _adam_move(g: Expression) -> Moved:
    m = variable("rest_beta1") * g + variable("beta1") * variable("mean")
    v = variable("rest_beta2") * g * g + variable("beta2") * variable("square")
    return RATE * FIRST * m / (sqrt(v) * SECOND + variable("eps")), {"mean": m, "square": v}


def _add_weight_decay() -> Expression:
    """The gradient plus weight decay (L2)."""
    return G + variable("weight_decay") * W


def _bias_corrections(at: Attributes, step: int) -> tuple[float, float]:
    """Bias corrections: factors for means and for roots of mean squares, which both start at 0."""
    return 1 / (1 - at["beta1"] ** step), 1 / math.sqrt(1 - at["beta2"] ** step)


_ADAM: Final = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
_OPTIMISERS: Final[dict[str, OptimiserFormula]] = {
    "sgd": OptimiserFormula(_sgd, {"weight_decay": 0.0}),
    "momentum": OptimiserFormula(
        _momentum,
        {"weight_decay": 0.0, "momentum": 0.9, "dampening": 0.0, "nesterov": False},
        ("nesterov",),
        lambda at, step: (float(step == 1), 0.0),  # the first velocity is the gradient
    ),
    "rmsprop": OptimiserFormula(
        _rmsprop,
        {"weight_decay": 0.0, "alpha": 0.99, "eps": 1e-8, "momentum": 0.0, "centered": False},
        ("momentum", "centered"),
    ),
    "adam": OptimiserFormula(_adam, {"weight_decay": 0.0, **_ADAM}, knobs=_bias_corrections),
    "adamw": OptimiserFormula(_adamw, {"weight_decay": 1e-2, **_ADAM}, knobs=_bias_corrections),
}

OPTIMISERS: Final[Registry[OptimiserFormula]] = Registry(group="volumetric.optimisers", own=_OPTIMISERS)
"""Name → step."""

FIELDS: Final = 8
"""Maximum number of fields of a form in kernels."""
SLOTS: Final = 3
"""Maximum number of slots in kernels."""


def step_of(form: str) -> Moved:
    """Return the step of an optimiser, whose name is followed by its set options.

    Raises
    ------
    KeyError : the optimiser does not exist
    SpecError : it has more fields or slots than kernels have room for
    """
    name, *options = form.split("-")
    return _step(OPTIMISERS[name], tuple(options))


@cache
def _step(of: OptimiserFormula, options: tuple[str, ...]) -> Moved:
    weight, slots = of.moved({option: option in options for option in of.options})
    check_size(weight, slots)
    return weight, slots


def check_size(weight: Expression, slots: Mapping[str, Expression]) -> None:
    """Raise `SpecError` if a step has more slots or fields than kernels have room for."""
    if len(slots) > SLOTS or len(_fields(weight, slots)) > FIELDS:
        raise SpecError(
            f"an optimiser step has at most {SLOTS} slots and {FIELDS} fields, got {len(slots)} and "
            f"{len(_fields(weight, slots))}"
        )


def form_of(attrs: Attributes) -> str:
    """Return the form of an optimiser from its attributes, which include its name."""
    of = OPTIMISERS[attrs["name"]]
    return "-".join((attrs["name"], *(option for option in of.options if attrs[option])))


def fields_of(form: str) -> tuple[str, ...]:
    """Return the fields of a form, including those with ``rest_``."""
    return _fields(*step_of(form))


def _fields(moved: Expression, slots: Mapping[str, Expression]) -> tuple[str, ...]:
    names = {each.text for each in subexpressions(moved, *slots.values()) if each.op == "variable"}
    return tuple(sorted(names - {"w", "g", "rate", "first", "second", *slots}))


def field(attrs: Attributes, name: str) -> float:
    """Return the value of a field of `fields_of`."""
    return 1 - float(attrs[name.removeprefix("rest_")]) if name.startswith("rest_") else float(attrs[name])


FORMS: Final[dict[str, Moved]] = {
    form: step_of(form)
    for name, of in OPTIMISERS.own.items()
    for chosen in product((False, True), repeat=len(of.options))
    for form in ["-".join((name, *compress(of.options, chosen)))]
}
"""Forms of the engine's optimisers → the step; kernels know these by number."""


__getattr__ = moved_names_getattr(__name__)
