"""Optimisers: pure functions from weight, gradient and state to new weight and new state.

Formulas, defaults and the meaning of every option are torch's. State is explicit: an optimiser names its slots, each an
array shaped as the weight, zero before the first update.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final, Self, TypeAlias

import numpy as np

from volumetric import tables
from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.keywords import explained

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
        tables.check_fields(self, self.kind)
        self._within("lr", 0.0)
        self._within("weight_decay", 0.0)

    @property
    def slots(self) -> tuple[str, ...]:
        """Names of the state arrays of each weight."""
        return ()

    def update(self, w: Array, g: Array, slots: Slots, *, step: int, rate: float) -> tuple[Array, dict[str, Array]]:
        """Return the new weight and its new slots; nothing is changed in place.

        Parameters
        ----------
        w, g : weight and gradient, of one shape and dtype, which the results keep
        step : number of this update, from 1
        rate : learning rate of this update
        """
        raise NotImplementedError(self.kind)

    def for_weight(self, axes: int, *, decay_vectors: bool) -> Self:
        """Return the optimiser of a weight with so many axes: without decay for a vector, unless `decay_vectors`."""
        return self if axes > 1 or decay_vectors else replace(self, weight_decay=0.0)

    @property
    def attributes(self) -> dict[str, Any]:
        """What the operation ``update`` of graphs is told of it: its name and fields, without the rate."""
        return {"name": self.kind, **{f.name: getattr(self, f.name) for f in fields(self) if f.name != "lr"}}

    def knobs(self, step: int) -> tuple[float, float]:
        """Return the two numbers of update number `step`, from 1, that this operation takes beside rate and factor."""
        return 0.0, 0.0

    def _within(self, name: str, low: float, below: float = np.inf) -> None:
        value = getattr(self, name)
        if not low <= value < below:
            bound = f"{low} or more" if below == np.inf else f"in {low} … {below}, without the end"
            usual = next(f.default for f in fields(self) if f.name == name)
            raise SpecError(f"{self.kind}: {name} must be {bound}, got {value}", hint=f"its default is {usual}")

    def _decayed(self, w: Array, g: Array) -> Array:
        return g + self.weight_decay * w if self.weight_decay else g


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class SGD(Optimiser):
    """Gradient descent: ``w ← w − rate · g``."""

    kind: ClassVar[str] = "sgd"

    def update(self, w: Array, g: Array, slots: Slots, *, step: int, rate: float) -> tuple[Array, dict[str, Array]]:
        return w - rate * self._decayed(w, g), {}


@explained
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
            raise SpecError("momentum: nesterov needs a momentum and no dampening")

    @property
    def slots(self) -> tuple[str, ...]:
        """The velocity."""
        return ("velocity",)

    def knobs(self, step: int) -> tuple[float, float]:
        """1 in the first update."""
        return float(step == 1), 0.0

    def update(self, w: Array, g: Array, slots: Slots, *, step: int, rate: float) -> tuple[Array, dict[str, Array]]:
        g = self._decayed(w, g)
        v = g if step == 1 else self.momentum * slots["velocity"] + (1 - self.dampening) * g
        move = g + self.momentum * v if self.nesterov else v
        return w - rate * move, {"velocity": v}


@explained
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

    @property
    def slots(self) -> tuple[str, ...]:
        """Mean square, and those of the options in use."""
        return ("square", *(("mean",) if self.centered else ()), *(("velocity",) if self.momentum else ()))

    def update(self, w: Array, g: Array, slots: Slots, *, step: int, rate: float) -> tuple[Array, dict[str, Array]]:
        g = self._decayed(w, g)
        new = {"square": self.alpha * slots["square"] + (1 - self.alpha) * g * g}
        spread = new["square"]
        if self.centered:
            new["mean"] = self.alpha * slots["mean"] + (1 - self.alpha) * g
            # The variance cannot be below 0, but its rounded difference can.
            spread = np.maximum(spread - new["mean"] * new["mean"], 0)
        move = g / (np.sqrt(spread) + self.eps)
        if self.momentum:
            new["velocity"] = move = self.momentum * slots["velocity"] + move
        return w - rate * move, new


@explained
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

    @property
    def slots(self) -> tuple[str, ...]:
        """First and second moment."""
        return ("mean", "square")

    def knobs(self, step: int) -> tuple[float, float]:
        """What means are multiplied by, and roots of mean squares, because both began at 0."""
        return 1 / (1 - self.beta1**step), float(1 / np.sqrt(1 - self.beta2**step))

    def update(self, w: Array, g: Array, slots: Slots, *, step: int, rate: float) -> tuple[Array, dict[str, Array]]:
        move, new = self._move(self._decayed(w, g), slots, step, rate)
        return w - move, new

    def _move(self, g: Array, slots: Slots, step: int, rate: float) -> tuple[Array, dict[str, Array]]:
        m = self.beta1 * slots["mean"] + (1 - self.beta1) * g
        v = self.beta2 * slots["square"] + (1 - self.beta2) * g * g
        root = np.sqrt(v) / np.sqrt(1 - self.beta2**step).item() + self.eps
        return (rate / (1 - self.beta1**step)) * m / root, {"mean": m, "square": v}


@explained
@dataclass(frozen=True, slots=True, kw_only=True)
class AdamW(Adam):
    """Adam with decoupled weight decay: the weight shrinks by ``w (1 − rate · decay)`` before it moves as in Adam.

    Loshchilov and Hutter 2019 (arXiv 1711.05101).
    """

    kind: ClassVar[str] = "adamw"

    weight_decay: float = 1e-2

    def update(self, w: Array, g: Array, slots: Slots, *, step: int, rate: float) -> tuple[Array, dict[str, Array]]:
        move, new = self._move(g, slots, step, rate)
        return w * (1 - rate * self.weight_decay) - move, new


OPTIMISERS: Final[dict[str, type[Optimiser]]] = {cls.kind: cls for cls in (SGD, Momentum, RMSprop, Adam, AdamW)}
"""Name → optimiser."""
