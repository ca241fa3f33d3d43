"""Optimisers: pure functions from weight, gradient and state to new weight and new state.

Formulas, defaults and options follow torch. State is explicit: an optimiser names its slots, each an array of the
weight's shape, zero before the first update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np

from volumetric.base import config_tables
from volumetric.base._typing import Array
from volumetric.base.call_errors import explain_call_errors
from volumetric.base.errors import SpecError
from volumetric.base.registry import Registry
from volumetric.formula import optimisers as formula
from volumetric.formula.optimisers import OPTIMISERS as STEPS
from volumetric.formula.optimisers import form_of, step_of
from volumetric.graph.numeric.numpy_formulas import optimiser_step

Slots: TypeAlias = Mapping[str, Array]
"""Slot name → array, for one weight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimiser:
    """Base of all optimisers.

    Attributes
    ----------
    lr : learning rate, before the schedule's factor
    weight_decay : pulls weights towards zero; added to the gradient (L2), except in AdamW, where it is decoupled
    """

    kind: ClassVar[str]

    lr: float = 1e-3
    weight_decay: float = 0.0

    def __post_init__(self) -> None:
        """Check the fields."""
        config_tables.check_fields(self, self.kind)
        self._within("lr", 0.0)
        self._within("weight_decay", 0.0)
        if self.weight_decay and self.kind in STEPS and "weight_decay" not in STEPS[self.kind].fields:
            raise SpecError(
                f"{self.kind}: the step has no weight_decay",
                hint="add it to the step: w * (1 - rate * weight_decay), with weight_decay=0.0 among its arguments",
            )

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the state arrays of each weight."""
        return tuple(step_of(form_of(self.attributes))[1])

    def update(self, w: Array, g: Array, slots: Slots, *, step: int, rate: float) -> tuple[Array, dict[str, Array]]:
        """Return the new weight and its new slots; nothing is modified in place.

        Parameters
        ----------
        w, g : weight and gradient, of the same shape and dtype as the results
        step : index of this update, from 1
        rate : learning rate of this update
        """
        knobs = (rate, *self.knobs(step))
        new, *after = optimiser_step(w, g, [slots[name] for name in self.slots], self.attributes, knobs)
        return new, dict(zip(self.slots, after, strict=True))

    def for_weight(self, axes: int, *, decay_vectors: bool) -> Self:
        """Return the optimiser of a weight with `axes` axes: without decay for a vector, unless `decay_vectors`."""
        return self if axes > 1 or decay_vectors else replace(self, weight_decay=0.0)

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of the graph operation ``update``: name and fields, without the rate."""
        return {"name": self.kind, **{f.name: getattr(self, f.name) for f in fields(self) if f.name != "lr"}}

    def knobs(self, step: int) -> tuple[float, float]:
        """Return the two inputs of this operation, besides rate and factor, for update `step`, from 1."""
        return STEPS[self.kind].knobs(self.attributes, step)

    def _within(self, name: str, low: float, below: float = np.inf) -> None:
        value = getattr(self, name)
        if not low <= value < below:
            bound = f"{low} or more" if below == np.inf else f"in {low} … {below}, without the end"
            usual = next(f.default for f in fields(self) if f.name == name)
            raise SpecError(f"{self.kind}: {name} must be {bound}, got {value}", hint=f"its default is {usual}")


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class SGD(Optimiser):
    """Gradient descent: ``w ← w − rate · g``."""

    kind: ClassVar[str] = "sgd"


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Momentum(Optimiser):
    """Gradient descent with a velocity: ``v ← μ v + (1 − dampening) g``, ``w ← w − rate · v``.

    The first velocity is g, undampened. With `nesterov` the weight moves by ``g + μ v``.
    """

    kind: ClassVar[str] = "momentum"

    momentum: float = 0.9
    dampening: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        Optimiser.__post_init__(self)
        self._within("momentum", 0.0)
        if self.nesterov and (self.dampening or not self.momentum):
            raise SpecError("momentum: nesterov needs momentum above 0 and dampening 0")


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class RMSprop(Optimiser):
    """Gradient over its running root mean square: ``s ← α s + (1 − α) g²``, ``w ← w − rate · g / (√s + eps)``.

    `centered` subtracts the square of the running mean from s; `momentum` gives the quotient a velocity.
    Tieleman and Hinton 2012, lecture 6.5; Graves 2013 (arXiv 1308.0850) for the centred form.
    """

    kind: ClassVar[str] = "rmsprop"

    lr: float = 1e-2
    alpha: float = 0.99
    eps: float = 1e-8
    momentum: float = 0.0
    centered: bool = False

    def __post_init__(self) -> None:
        """Check the fields."""
        Optimiser.__post_init__(self)
        self._within("alpha", 0.0, 1.0)
        self._within("eps", 0.0)
        self._within("momentum", 0.0)


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class Adam(Optimiser):
    """Adam, with weight decay as a part of the gradient.

    ``m ← β₁ m + (1 − β₁) g``, ``v ← β₂ v + (1 − β₂) g²``, ``w ← w − rate · m̂ / (√v̂ + eps)`` with
    ``m̂ = m / (1 − β₁ᵗ)`` and ``v̂ = v / (1 − β₂ᵗ)``. Kingma and Ba 2015 (arXiv 1412.6980).
    """

    kind: ClassVar[str] = "adam"

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        """Check the fields."""
        Optimiser.__post_init__(self)
        self._within("beta1", 0.0, 1.0)
        self._within("beta2", 0.0, 1.0)
        self._within("eps", 0.0)


@explain_call_errors
@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: the weight shrinks by ``w (1 − rate · decay)`` before it moves as in Adam.

    Loshchilov and Hutter 2019 (arXiv 1711.05101).
    """

    kind: ClassVar[str] = "adamw"

    weight_decay: float = 1e-2


def _make_optimiser_class(name: str, of: formula.OptimiserFormula) -> type[Optimiser]:
    """Return the class of an optimiser that is defined only by a formula."""
    own = [(each, type(default), default) for each, default in of.fields.items()]
    namespace = {"kind": name, "__doc__": f"The step `{name}` of formulas.", "__module__": __name__}
    optimiser_class = make_dataclass(
        name, own, bases=(Optimiser,), namespace=namespace, frozen=True, slots=True, kw_only=True
    )
    return explain_call_errors(optimiser_class)


_CLASSES: Final[tuple[type[Optimiser], ...]] = (SGD, Momentum, RMSprop, Adam, AdamW)


def _of_steps(name: str | None) -> None:
    """Create the class of an optimiser that has a step but no class; for None, of all such imported steps."""
    for each in STEPS.imported_names() if name is None else (name,):
        if not OPTIMISERS.is_declared(each) and each in STEPS and not OPTIMISERS.is_declared(each):
            OPTIMISERS[each] = _make_optimiser_class(each, STEPS[each])


_KINDS: Final = frozenset(cls.kind for cls in _CLASSES)


def _optimiser_name(name: str) -> str:
    """Return the name here of an optimiser: that of torch and Keras has capitals."""
    return name.lower() if isinstance(name, str) and name.lower() in _KINDS else name


OPTIMISERS: Final[Registry[type[Optimiser]]] = Registry(
    _of_steps, group=STEPS.group, own={cls.kind: cls for cls in _CLASSES}, spelled=_optimiser_name
)
"""Name → optimiser, in any case. Steps without a class are included."""
