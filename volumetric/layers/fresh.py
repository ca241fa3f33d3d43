"""Fresh values of parameters, by what their layers ask for."""

from __future__ import annotations

import numpy as np

from volumetric.layers.base import ParamSpec


def filled(spec: ParamSpec, rng: np.random.Generator) -> np.ndarray:
    """Return fresh values of a parameter."""
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
    if spec.init == "forget_block":
        blocks = np.zeros(spec.shape, np.float32)
        blocks[1] = np.linspace(3, 6, spec.shape[-1], dtype=np.float32)
        return blocks
    bound = 1 / np.sqrt(np.prod(spec.shape[1:], dtype=np.int64))
    return rng.uniform(-bound, bound, spec.shape).astype(np.float32)
