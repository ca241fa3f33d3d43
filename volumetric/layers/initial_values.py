"""Initial values of parameters."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion
from volumetric.base.registry import Registry
from volumetric.layers.layer_spec import ParamSpec

_ROWS: Final = frozenset({"log_counts", "forget", "forget_block"})
_FIXED: Final = _ROWS | {"ones", "zeros"}
_BOUNDED: Final = ("uniform", "log_uniform", "ring")
NAMES: Final = (
    *("fan_in", "ones", "zeros", "normal", "log_counts", "small_steps", "small_normal", "normal_tenth"),
    *("normal_hundredth", "forget", "forget_block", "orthogonal", "orthogonal_wide", *_BOUNDED),
)
"""The engine's names of initial values, see `ParamSpec`."""

Initialiser: TypeAlias = Callable[[Shape, np.random.Generator], ArrayLike]
"""``f(shape, rng)`` returns the initial values of a parameter."""
F = TypeVar("F", bound=Callable[..., Any])

INITIALISERS: Final[Registry[Initialiser]] = Registry(group="volumetric.initialisers")
"""Name → initialiser outside the engine."""


def initialiser(name: str) -> Callable[[F], F]:
    """Register a function ``f(shape, rng)`` under a name that ``ParamSpec(init=…)`` and ``initialise(init=…)`` take.

    Matrices have the shape ``(out, in)``.

    Raises
    ------
    SpecError : the engine has the name

    Examples
    --------
    >>> @initialiser("he")
    ... def he(shape, rng):
    ...     return rng.standard_normal(shape) * (2 / shape[-1]) ** 0.5
    """

    def declare(function: F) -> F:
        if name in NAMES:
            raise SpecError(f"the engine has initial values {name!r}", hint="choose another name")
        INITIALISERS.declare(name, function, function.__module__)
        return function

    return declare


def check_init(name: str, where: str = "init") -> None:
    """Raise `SpecError` unless there are initial values of that name."""
    if name not in NAMES and name not in INITIALISERS:
        raise SpecError(
            f"{where}: no initial values are called {name!r}", hint=suggestion(name, (*NAMES, *INITIALISERS.names()))
        )


def is_drawn(spec: ParamSpec) -> bool:
    """Return whether initial values of a parameter are random."""
    return bool(spec.around) or spec.init not in _FIXED


def initial_value(spec: ParamSpec, rng: np.random.Generator) -> np.ndarray:
    """Return initial values of a parameter; draws nothing from `rng` unless it `is_drawn`."""
    if spec.around:
        return _noisy_copies(spec, rng)
    if spec.init == "ones":
        return np.ones(spec.shape, np.float32)
    if spec.init == "zeros":
        return np.zeros(spec.shape, np.float32)
    if spec.init == "normal":
        return (0.02 * rng.standard_normal(spec.shape)).astype(np.float32)
    if spec.init == "log_counts":
        return np.broadcast_to(np.log(np.arange(1, spec.shape[-1] + 1, dtype=np.float32)), spec.shape).copy()
    if spec.init == "small_steps":
        step = np.exp(rng.uniform(np.log(1e-3), np.log(1e-1), spec.shape))
        return np.log(np.expm1(step)).astype(np.float32)
    if spec.init == "small_normal":
        return (np.sqrt(0.4 / spec.shape[-1]) * rng.standard_normal(spec.shape)).astype(np.float32)
    if spec.init == "normal_tenth":
        return (0.1 * rng.standard_normal(spec.shape)).astype(np.float32)
    if spec.init == "normal_hundredth":
        return (0.01 * rng.standard_normal(spec.shape)).astype(np.float32)
    if spec.init in ("forget", "forget_block"):
        values = np.zeros(spec.shape, np.float32)
        values[1 if spec.init == "forget_block" else ...] = np.linspace(3, 6, spec.shape[-1], dtype=np.float32)
        return values
    if spec.init in ("orthogonal", "orthogonal_wide"):
        return (_orthogonal(spec.shape, rng) * (np.sqrt(2) if spec.init == "orthogonal_wide" else 1)).astype(np.float32)
    if spec.init in _BOUNDED:
        return _from_bounds(spec, rng).astype(np.float32)
    if spec.init != "fan_in":
        return _own_values(spec, rng)
    bound = 1 / np.sqrt(np.prod(spec.shape[1:], dtype=np.int64))
    return rng.uniform(-bound, bound, spec.shape).astype(np.float32)


def _own_values(spec: ParamSpec, rng: np.random.Generator) -> np.ndarray:
    """Return what a registered initialiser returns."""
    check_init(spec.init, spec.name)
    values = np.asarray(INITIALISERS[spec.init](spec.shape, rng), np.float32)
    if values.shape != spec.shape or not np.isfinite(values).all():
        what = "numbers that are not finite" if values.shape == spec.shape else f"shape {list(values.shape)}"
        raise SpecError(
            f"the initialiser {spec.init!r} returned {what} for {spec.name}",
            hint=f"return finite numbers of shape {list(spec.shape)}",
        )
    return values


def fixed_start(spec: ParamSpec) -> np.ndarray | None:
    """Return the fixed, non-constant values at (or with `around` near) which a parameter starts; None for others."""
    if spec.init not in _ROWS:
        return None
    one = dataclasses.replace(spec, shape=spec.shape[1:] if spec.around else spec.shape, around=0.0)
    return np.broadcast_to(initial_value(one, np.random.default_rng(0)), spec.shape)


def _noisy_copies(spec: ParamSpec, rng: np.random.Generator) -> np.ndarray:
    """Return copies of one entry along the first axis, plus noise if there are several."""
    count, *shape = spec.shape
    one = initial_value(dataclasses.replace(spec, shape=tuple(shape), around=0.0), rng)
    noise = spec.around * rng.standard_normal(spec.shape) if count > 1 else np.zeros(spec.shape)
    return (one + noise).astype(np.float32)


def _orthogonal(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    """Return a random matrix whose rows, or columns if these are fewer, are orthogonal and of length 1."""
    wide, narrow = max(shape), min(shape)
    q, r = np.linalg.qr(rng.standard_normal((wide, narrow)))
    q = q * np.sign(np.diag(r))
    return q if shape == (wide, narrow) else q.T


def _from_bounds(spec: ParamSpec, rng: np.random.Generator) -> np.ndarray:
    """Return random values that are computed from uniform draws between bounds."""
    low, high = spec.bounds
    least = np.finfo(np.float32).tiny
    if spec.init == "ring":
        lengths = np.sqrt(rng.uniform(low * low, high * high, spec.shape))
        return np.log(np.maximum(-np.log(np.clip(lengths, least, None)), least))
    values = rng.uniform(low, high, spec.shape)
    return values if spec.init == "uniform" else np.log(np.clip(values, least, None))
