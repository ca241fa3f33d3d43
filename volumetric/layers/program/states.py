"""What regions keep of a stream, and what they learn."""

from __future__ import annotations

from volumetric._typing import Shape
from volumetric.layers.base import ParamSpec
from volumetric.layers.program.carriers import carrier_params
from volumetric.layers.program.facts import Facts, Place
from volumetric.layers.program.tasks import Task, tasks_of

AGE = "age"
"""State: steps of a stream so far, up to the longest lag."""


def region_params(facts: Facts) -> tuple[ParamSpec, ...]:
    """Return the parameters of all regions."""
    return tuple(of for place in facts.places for of in carrier_params(facts, place))


def longest(facts: Facts) -> dict[int, int]:
    """Return how many steps back each region is read, where it is."""
    found: dict[int, int] = {}
    for task in tasks_of(facts):
        number, back = task.source
        if back:
            found[number] = max(found.get(number, 0), back)
    return found


def states_of(facts: Facts) -> dict[str, Shape]:
    """Return what a program keeps of a stream beside its canvas, by name; all of it begins with zeros.

    ``<region>.keys`` and ``.values`` of a memory and ``.slots`` that persist (the first and the last less what is
    learned), ``.past`` rows as they were told in the last steps, newest first, ``.meter``, and the `AGE`.
    """
    d, back = facts.program.canvas.width, longest(facts)
    found: dict[str, Shape] = {}
    for place in facts.places:
        name, identity = place.name, place.region.identity
        if place.carrier == "memory":
            rows = place.region.slots or len(place.positions)
            found |= {f"{name}.keys": (rows, d), f"{name}.values": (rows, d)}
        if identity is not None and identity.mode == "persistent":
            found[f"{name}.slots"] = (identity.capacity, d)
        if place.index in back:
            found[f"{name}.past"] = (back[place.index], place.rows, d)
        if place.meter is not None:
            found[f"{name}.meter"] = (len(place.meter.kinds) + 1,)
    return found | ({AGE: (1,)} if back else {})


def metered_by(task: Task, read: Place) -> bool:
    """Whether an edge of a program with parity feeds the meter of the region that it reads."""
    return read.region.carrier == "residual" and task.wire.edge.lag is None
