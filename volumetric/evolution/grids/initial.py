"""Fresh weights of one layer, and how large their random changes are."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from volumetric.layers import Dense, LayerSpec, ParamSpec, Sequential
from volumetric.layers.fresh import filled

GAIN_UNIT = 0.1
"""Unit of change of parameters that begin as ones or zeros."""


def unit(spec: ParamSpec) -> float:
    """Return the standard deviation that a fresh tensor has, which is the unit of its mutations."""
    if spec.init == "fan_in":
        return 1 / math.sqrt(3 * max(1, math.prod(spec.shape[1:])))  # of the uniform distribution in ±1/√in
    if spec.init == "small_normal":
        return math.sqrt(0.4 / spec.shape[-1])
    return 0.02 if spec.init == "normal" else GAIN_UNIT


def fresh(spec: ParamSpec, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return random values of a parameter, distributed as those of a new network."""
    if spec.init in ("ones", "zeros"):
        return np.full(spec.shape, 1.0 if spec.init == "ones" else 0.0, np.float32)
    if spec.init not in ("fan_in", "normal"):
        return filled(spec, rng)
    if spec.init == "normal":
        return (unit(spec) * rng.standard_normal(spec.shape)).astype(np.float32)
    bound = math.sqrt(3) * unit(spec)
    return rng.uniform(-bound, bound, spec.shape).astype(np.float32)


def near_identity(spec: LayerSpec, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Return weights with which an inserted layer (see `structure.add_layer`) changes little of what passes through it.

    A dense layer is the identity and a little noise. In a sequential that adds its input at the end, what is added to
    the input is a tenth of what fresh weights would make it.
    """
    values = {param.name: fresh(param, rng) for param in spec.tensors()}
    if isinstance(spec, Dense):
        values["weight"] = (np.eye(spec.out_features) + 0.1 * values["weight"]).astype(np.float32)
        return values
    if isinstance(spec, Sequential):
        small = {param.name: values[param.name] * np.float32(0.1) for param in spec.params()}
        return {**values, **small}
    return values
