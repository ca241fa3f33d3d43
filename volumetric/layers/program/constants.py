"""Constants: regions whose rows are a parameter. Nothing changes them, and they are there from the first step on."""

from __future__ import annotations

import numpy as np

from volumetric.errors import SpecError
from volumetric.layers.program.carriers import ROWS
from volumetric.layers.program.facts import Facts, Place
from volumetric.layers.program.ports import In


def rows_of(region: str) -> str:
    """Return the name of the parameter that a constant of this name holds, ``[rows, d]``."""
    return f"regions.{region}.{ROWS}"


def constants_of(facts: Facts) -> tuple[Place, ...]:
    """Return the regions that are constants."""
    return tuple(place for place in facts.places if place.carrier == "constant")


def disturbances(facts: Facts) -> list[str]:
    """Return what would change a constant, one sentence each."""
    found: list[str] = []
    constants = constants_of(facts)
    if not constants:
        return found
    counts = np.bincount(
        np.concatenate([place.positions for place in facts.places]), minlength=facts.program.canvas.positions
    )
    for place in constants:
        what = f"region {place.name!r} is a constant"
        found += [f"{what}, but edge {facts.wires[number].name!r} writes it" for number in facts.writers[place.index]]
        for name, port in facts.program.inputs.items():
            if isinstance(port, In) and port.region == place.name:
                found.append(f"{what}, but port {name!r} puts something in")
        if counts[place.positions].max() > 1:
            found.append(f"{what}, but another region is at positions of it")
    return found


def check_constants(facts: Facts) -> None:
    """Raise `SpecError` where something would change a constant."""
    found = disturbances(facts)
    if found:
        raise SpecError(found[0], hint="leave it out, or give the region another carrier")
