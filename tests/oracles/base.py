"""What an oracle is: a layer's forward pass and its gradients, written out in NumPy, apart from the graph."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

from tests.oracles.memory import Memory
from tests.oracles.training import Training
from volumetric.base._typing import Array

Arrays: TypeAlias = Mapping[str, Array]
Saved: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Grads:
    """Gradients with respect to the inputs, None where there is none, and to the parameters by name."""

    inputs: tuple[Array | None, ...]
    params: dict[str, Array] = field(default_factory=dict)


class Oracle:
    """The arithmetic of one layer, which the graph that it writes is held to.

    Parameters
    ----------
    spec : the layer
    """

    spec: Any

    def __init__(self, spec: Any) -> None:
        self.spec = spec

    def __getattr__(self, name: str) -> Any:
        """Return a field or a method of the layer."""
        return getattr(self.spec, name)

    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        """Return the output, and what `vjp` needs; with a `memory` the rows go on from those that it counts."""
        raise NotImplementedError(self.spec.kind)

    def train_forward(self, p: Arrays, *xs: Array, training: Training) -> tuple[Array, Saved]:
        """Return the output as it is while training; for most layers that is `forward` of whole sequences."""
        return self.forward(p, *xs)

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        """Return the gradients of ``sum(gy * y)``."""
        raise NotImplementedError(self.spec.kind)


ORACLES: dict[type, type] = {}
"""Class of specs → its oracle."""

C = TypeVar("C", bound=type)


def oracle_of(*specs: type) -> Callable[[C], C]:
    """Make a class the oracle of specs, and of those derived from them that have none of their own."""

    def declare(cls: C) -> C:
        ORACLES.update(dict.fromkeys(specs, cls))
        return cls

    return declare


@cache
def _load() -> None:
    """Import all modules that declare oracles."""
    package = import_module("tests.oracles")
    for module in pkgutil.walk_packages(package.__path__, "tests.oracles."):
        import_module(module.name)


def oracle(spec: Any) -> Any:
    """Return the oracle of a layer, or of an attention rule."""
    _load()
    of = next((ORACLES[cls] for cls in type(spec).__mro__ if cls in ORACLES), None)
    if of is None:
        raise NotImplementedError(f"{type(spec).__name__} has no oracle")
    return of(spec)


def below(p: Arrays, prefix: str) -> dict[str, Array]:
    """Return the parameters whose path starts with ``prefix/``, with that part removed."""
    start = prefix + "/"
    return {name[len(start) :]: value for name, value in p.items() if name.startswith(start)}


def rows(x: Array) -> Array:
    """View `x` as a matrix: all leading axes become rows."""
    return x.reshape(-1, x.shape[-1])
