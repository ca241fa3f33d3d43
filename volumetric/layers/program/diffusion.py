"""Noise that training puts on what diffusive regions hold: with it they learn to tell the clean content."""

from __future__ import annotations

from volumetric.graph.numeric.noise import stream_of
from volumetric.layers.program.facts import Facts, Place
from volumetric.layers.program.ports import Level


def diffuses(facts: Facts) -> tuple[Place, ...]:
    """Return the regions that training puts noise on: diffusive ones to which a port tells the level."""
    told = {port.region for port in facts.program.inputs.values() if isinstance(port, Level)}
    return tuple(place for place in facts.places if place.carrier == "diffusive" and place.name in told)


def stream_at(path: str, place: Place) -> int:
    """Return the number of a region's own stream of noise, in a layer at a path."""
    return stream_of(f"{path}/{place.name}/noise")
