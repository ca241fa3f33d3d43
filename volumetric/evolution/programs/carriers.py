"""Carriers and slots as genes. What is new computes the same at first: in place where that can be, else in a twin."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from volumetric.evolution.programs.change import Change, Mark, region_replaced
from volumetric.evolution.programs.edges import one_of
from volumetric.evolution.programs.regions import CARRIERS, otherwise_many, with_carrier
from volumetric.evolution.programs.twins import twin_of
from volumetric.layers.program.declared import Program
from volumetric.layers.program.identity import Identity
from volumetric.layers.program.region import Carrier

_SLOTS = 8
"""Most slots that mutation gives a region that is read by its positions."""
_OPEN = 16.0
"""Bias of a gate that lets all through: σ(16) is 1 to the rounding of float32."""


def change_carrier(program: Program, mark: Mark, rng: np.random.Generator) -> Change | None:
    """Give a region another carrier.

    A deterministic region becomes a filter that believes all that it is told, ``K = σ(16) = 1``, which computes the
    same. Where the new carrier is a residual's or a memory's, it is a twin of the region that gets it, since what edges
    read of these is something else at once. A region of another carrier gets such a twin or, as often, turns
    deterministic.
    """
    name = _one_written(program, rng)
    if name is None:
        return None
    region = program.canvas.regions[name]
    others: list[Carrier] = [carrier for carrier in CARRIERS if carrier != region.carrier]
    carrier = one_of(others, rng)
    if region.carrier != "deterministic" and rng.random() < 0.5:
        return Change(program=region_replaced(program, name, with_carrier(region, "deterministic")))
    changed = with_carrier(region, carrier)
    if (region.carrier, carrier) == ("deterministic", "filter"):
        start = f"regions.{name}.gain"
        begins = {f"{start}.weight": 0.0, f"{start}.bias": _OPEN}
        return Change(program=region_replaced(program, name, changed), begins=begins)
    return twin_of(program, name, mark, rng, as_region=changed, event=(carrier,))


def change_slots(program: Program, mark: Mark, rng: np.random.Generator) -> Change | None:
    """Let a region be read through slots, or change or drop those that it is read through.

    A twin of the region is what gets slots, so that the program computes the same. Births begin with a gate that lets
    all through; slots that stay keep what they begin with.
    """
    name = _one_written(program, rng)
    if name is None:
        return None
    region, choice = program.canvas.regions[name], rng.random()
    now = region.identity
    if now is None:
        capacity = int(rng.integers(1, _SLOTS + 1))
        read = replace(region, identity=Identity(capacity))
        return twin_of(program, name, mark, rng, as_region=read, event=("slots", capacity))
    if choice < 0.25:
        return Change(program=region_replaced(program, name, replace(region, identity=None)))
    if choice < 0.5:
        other = replace(now, mode="ephemeral" if now.mode == "persistent" else "persistent")
        return Change(program=region_replaced(program, name, replace(region, identity=other)))
    if choice < 0.65:
        begins = {f"regions.{name}.life.down.weight": 0.0, f"regions.{name}.life.down.bias": _OPEN}
        made = region_replaced(program, name, replace(region, identity=replace(now, births=not now.births)))
        return Change(program=made, begins=begins)
    many = replace(now, capacity=otherwise_many(now.capacity, rng))
    return None if many == now else Change(program=region_replaced(program, name, replace(region, identity=many)))


def _one_written(program: Program, rng: np.random.Generator) -> str | None:
    able = [name for name, region in program.canvas.regions.items() if region.carrier != "constant"]
    return one_of(able, rng) if able else None
