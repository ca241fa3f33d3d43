"""Carriers: what regions make of what edges bring. In NumPy; each is a formula over rows, and its parameters."""

from __future__ import annotations

import dataclasses

from volumetric.layers.base import ParamSpec
from volumetric.layers.dense import affine_params
from volumetric.layers.program.attention.heads import QKVO, square_maps
from volumetric.layers.program.facts import Facts, Place

EPS = 1e-5
"""Of norms."""
KEY_RATE = 0.1
"""How fast keys of a memory follow what is written, beside its values."""
TRUST = -1.0
"""Bias of a filter's gain at first: σ(-1) = 0.27 of an error is believed."""

ROWS = "rows"
"""Parameter of a constant: what it holds."""


def carrier_params(facts: Facts, place: Place) -> tuple[ParamSpec, ...]:
    """Return the parameters of a region, ``regions.<name>.<…>``."""
    d, found = facts.program.canvas.width, list[ParamSpec]()
    if place.carrier == "filter":
        found += norm_params("predict.norm.", d)
        found += affine_params("predict.", d, d, bias=False, init="zeros")
        bias = ParamSpec(name="gain.bias", shape=(d,), init="uniform", bounds=(TRUST, TRUST), packable=False)
        found += (*affine_params("gain.", d, 2 * d, bias=False), bias)
    if place.carrier == "memory":
        rows = place.region.slots or len(place.positions)
        found.append(ParamSpec(name="memory.keys", shape=(rows, d), init="orthogonal", packable=False))
        for name in ("q", "k", "v"):
            found += affine_params(f"memory.{name}.", d, d, bias=False)
        found += affine_params("memory.write.", 1, d, bias=True)
    if place.carrier == "constant":
        found.append(ParamSpec(name=ROWS, shape=(place.rows, d), init="normal", packable=False))
    identity = place.region.identity
    if identity is not None:
        found.append(ParamSpec(name="slots", shape=(identity.capacity, d), init="normal", packable=False))
        found += square_maps(d, *(f"bind.{name}" for name in QKVO))
        found += norm_params("bind.norm.", d)
        if identity.births:
            found += affine_params("life.up.", max(1, d // 2), d, bias=True)
            found += affine_params("life.down.", 1, max(1, d // 2), bias=True)
    return tuple(dataclasses.replace(of, name=f"regions.{place.name}.{of.name}") for of in found)


def norm_params(name: str, d: int) -> tuple[ParamSpec, ...]:
    """Gain and bias of a layer norm."""
    gain = ParamSpec(name=f"{name}weight", shape=(d,), init="ones", packable=False)
    return gain, ParamSpec(name=f"{name}bias", shape=(d,), init="zeros", packable=False)
