"""Steps of optimisers, each in one entry: a weight and its slots after an update, of those before and the gradient.

An entry, also one that a package registers, makes an optimiser on every device and, by its name, in
`volumetric.train`, where a class says more of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import compress, product
from typing import Any, Final

from volumetric.base.errors import SpecError
from volumetric.base.registry import Registry
from volumetric.formula.elementary import sqrt
from volumetric.formula.expression import Expression, equal, variable, variables, walk, where

W, G, RATE, FIRST, SECOND = variables("w g rate first second")
"""Weight, gradient, learning rate of the update, and what `Optimiser.knobs` makes of its number."""

Moved = tuple[Expression, dict[str, Expression]]
"""The new weight, and slot → its new value."""
Attributes = Mapping[str, Any]
"""Field → its value."""


@dataclass(frozen=True, slots=True, eq=False)
class Optimiser:
    """The step of an optimiser.

    Attributes
    ----------
    moved : what a step makes of `W`, `G`, slots and fields by their names, as the fields of `options` are set. Fields
        with ``rest_`` before their name are what is left of 1: in float32 that is not 1 minus the field
    fields : name → default, beside the learning rate
    options : fields that choose the form of a step by being 0, False or not
    knobs : of the fields and the number of an update, from 1: two numbers that a step has of it
    """

    moved: Callable[[Attributes], Moved]
    fields: Mapping[str, float | bool]
    options: tuple[str, ...] = ()
    knobs: Callable[[Attributes, int], tuple[float, float]] = lambda at, step: (0.0, 0.0)


def _sgd(at: Attributes) -> Moved:
    return W - RATE * _decayed(), {}


def _momentum(at: Attributes) -> Moved:
    g, momentum, old = _decayed(), *variables("momentum velocity")
    v = where(equal(FIRST, 0.0), variable("rest_dampening") * g + momentum * old, g)
    return W - RATE * (g + momentum * v if at["nesterov"] else v), {"velocity": v}


def _rmsprop(at: Attributes) -> Moved:
    g, alpha, rest = _decayed(), *variables("alpha rest_alpha")
    new = {"square": alpha * variable("square") + rest * g * g}
    spread = new["square"]
    if at["centered"]:
        new["mean"] = rest * g + alpha * variable("mean")
        spread = spread - new["mean"] * new["mean"]
        spread = where(spread > 0, spread, 0.0)  # a variance is not below 0, but its rounded difference can be
    move = g / (sqrt(spread) + variable("eps"))
    if at["momentum"]:
        new["velocity"] = move = variable("momentum") * variable("velocity") + move
    return W - RATE * move, new


def _adam(at: Attributes) -> Moved:
    move, new = _adam_move(_decayed())
    return W - move, new


def _adamw(at: Attributes) -> Moved:
    move, new = _adam_move(G)
    return W * (1 - RATE * variable("weight_decay")) - move, new


def _adam_move(g: Expression) -> Moved:
    m = variable("rest_beta1") * g + variable("beta1") * variable("mean")
    v = variable("rest_beta2") * g * g + variable("beta2") * variable("square")
    return RATE * FIRST * m / (sqrt(v) * SECOND + variable("eps")), {"mean": m, "square": v}


def _decayed() -> Expression:
    """The gradient with that of the weight's square."""
    return G + variable("weight_decay") * W


def _unbiased(at: Attributes, step: int) -> tuple[float, float]:
    """What means are multiplied by, and roots of mean squares, because both began at 0."""
    return 1 / (1 - at["beta1"] ** step), 1 / math.sqrt(1 - at["beta2"] ** step)


_ADAM: Final = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8}
_OPTIMISERS: Final[dict[str, Optimiser]] = {
    "sgd": Optimiser(_sgd, {"weight_decay": 0.0}),
    "momentum": Optimiser(
        _momentum,
        {"weight_decay": 0.0, "momentum": 0.9, "dampening": 0.0, "nesterov": False},
        ("nesterov",),
        lambda at, step: (float(step == 1), 0.0),  # the first velocity is the gradient
    ),
    "rmsprop": Optimiser(
        _rmsprop,
        {"weight_decay": 0.0, "alpha": 0.99, "eps": 1e-8, "momentum": 0.0, "centered": False},
        ("momentum", "centered"),
    ),
    "adam": Optimiser(_adam, {"weight_decay": 0.0, **_ADAM}, knobs=_unbiased),
    "adamw": Optimiser(_adamw, {"weight_decay": 1e-2, **_ADAM}, knobs=_unbiased),
}

OPTIMISERS: Final[Registry[Optimiser]] = Registry(group="volumetric.optimisers", own=_OPTIMISERS)
"""Name → step."""

FIELDS: Final = 8
"""Fields of a form that kernels have room for."""
SLOTS: Final = 3
"""Slots that they have room for."""


def step_of(form: str) -> Moved:
    """Return the step of an optimiser, whose name is followed by its options that are set.

    Raises
    ------
    KeyError : there is no such optimiser
    SpecError : kernels have no room for its fields or slots
    """
    name, *options = form.split("-")
    return _step(OPTIMISERS[name], tuple(options))


@cache
def _step(of: Optimiser, options: tuple[str, ...]) -> Moved:
    weight, slots = of.moved({option: option in options for option in of.options})
    if len(slots) > SLOTS or len(_fields(weight, slots)) > FIELDS:
        raise SpecError(f"a step computes with at most {SLOTS} slots and {FIELDS} fields")
    return weight, slots


def form_of(attrs: Attributes) -> str:
    """Return the form of an optimiser with these attributes, of which one is its name."""
    of = OPTIMISERS[attrs["name"]]
    return "-".join((attrs["name"], *(option for option in of.options if attrs[option])))


def fields_of(form: str) -> tuple[str, ...]:
    """Return the fields that a form computes with, those with ``rest_`` too."""
    return _fields(*step_of(form))


def _fields(moved: Expression, slots: Mapping[str, Expression]) -> tuple[str, ...]:
    names = {each.text for each in walk(moved, *slots.values()) if each.op == "variable"}
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
"""Forms of the optimisers of the engine → the step: what kernels know by number."""
