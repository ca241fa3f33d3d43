"""What ports put into regions, and read of them."""

from __future__ import annotations

import math

from volumetric.layers.base import ParamSpec
from volumetric.layers.dense import affine_params
from volumetric.layers.program.carriers import norm_params
from volumetric.layers.program.facts import Facts, Place
from volumetric.layers.program.ports import In, Out


def port_params(facts: Facts) -> tuple[ParamSpec, ...]:
    """Return the parameters of all ports: ``ports.<name>.<…>``, and codes of the regions that inputs write."""
    d, found = facts.program.canvas.width, dict[str, ParamSpec]()
    for name, port in facts.program.ports.items():
        specs: tuple[ParamSpec, ...] = ()
        if isinstance(port, In):
            specs = affine_params(f"ports.{name}.", d, port.dim, bias=True)
            specs += tuple(
                ParamSpec(name=code, shape=(d,), init="normal", packable=False)
                for code in codes_of(facts.place(port.region))
            )
        elif isinstance(port, Out):
            wide = read_width(facts, port)
            specs = norm_params(f"ports.{name}.norm.", wide) + affine_params(
                f"ports.{name}.", port.dim, wide, bias=True
            )
        found |= {spec.name: spec for spec in specs}
    return tuple(found.values())


def codes_of(place: Place) -> tuple[str, str, str]:
    """Return the names of the learned vectors of a region, of its family, and of ⌊log₂ period⌋."""
    scale = math.floor(math.log2(place.region.period))
    return f"codes.region.{place.name}", f"codes.family.{place.region.family}", f"codes.period.{scale}"


def read_width(facts: Facts, port: Out) -> int:
    """Return how many numbers an output reads of its region."""
    d, place = facts.program.canvas.width, facts.place(port.region)
    rows = place.rows if place.through == "memory" else len(place.positions)
    return d * rows if port.pool == "flatten" else d
