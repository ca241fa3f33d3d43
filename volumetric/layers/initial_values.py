"""Initial values of parameters."""

from __future__ import annotations

import dataclasses
from typing import Final

import numpy as np

from volumetric.base._typing import Shape
from volumetric.layers.layer_spec import ParamSpec

_ROWS: Final = frozenset({"log_counts", "forget", "forget_block"})
_FIXED: Final = _ROWS | {"ones", "zeros"}


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
    if spec.init in ("uniform", "log_uniform", "ring"):
        return _from_bounds(spec, rng).astype(np.float32)
    bound = 1 / np.sqrt(np.prod(spec.shape[1:], dtype=np.int64))
    return rng.uniform(-bound, bound, spec.shape).astype(np.float32)


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
