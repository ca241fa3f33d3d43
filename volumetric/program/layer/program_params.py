"""Parameters of a program (of regions, edges and ports), and states of a stream."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from volumetric.base._typing import Shape
from volumetric.base.errors import SpecError
from volumetric.layers.dense import affine_params
from volumetric.layers.layer_spec import ParamSpec
from volumetric.program.layer.carriers import ROWS, carrier_params, norm_params
from volumetric.program.layer.edge_tasks import EdgeTask, params_of, tasks_of
from volumetric.program.layer.ports import In, Out
from volumetric.program.layer.program_facts import Facts, Place, check_weights
from volumetric.program.layer.recipes import recipe_params


@lru_cache(maxsize=32)
def all_params(facts: Facts) -> tuple[ParamSpec, ...]:
    """Return the parameters of ports, regions, recipes and edges, in this order; raise `SpecError` if too large."""
    params = *port_params(facts), *region_params(facts), *recipe_params(facts), *params_of(facts)
    check_weights(params)
    return params


def port_params(facts: Facts) -> tuple[ParamSpec, ...]:
    """Return the parameters of all ports, ``ports.<name>.<…>``, and codes of the regions that inputs write."""
    d, params = facts.program.canvas.width, dict[str, ParamSpec]()
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
        params |= {spec.name: spec for spec in specs}
    return tuple(params.values())


def codes_of(place: Place) -> tuple[str, str, str]:
    """Return the names of the learned vectors of a region, of its family, and of ⌊log₂ period⌋."""
    scale = math.floor(math.log2(place.region.period))
    return f"codes.region.{place.name}", f"codes.family.{place.region.family}", f"codes.period.{scale}"


def read_width(facts: Facts, port: Out) -> int:
    """Return the number of values that an output reads from its region."""
    d, place = facts.program.canvas.width, facts.place(port.region)
    rows = place.rows if place.through == "memory" else len(place.positions)
    return d * rows if port.pool == "flatten" else d


AGE = "age"
"""State: number of steps of a stream so far, up to the longest lag."""


def region_params(facts: Facts) -> tuple[ParamSpec, ...]:
    """Return the parameters of all regions."""
    return tuple(of for place in facts.places for of in carrier_params(facts, place))


def longest_lags(facts: Facts) -> dict[int, int]:
    """Return region → the number of steps back that edges read it, if any."""
    steps_back: dict[int, int] = {}
    for task in tasks_of(facts):
        number, back = task.source
        if back:
            steps_back[number] = max(steps_back.get(number, 0), back)
    return steps_back


def states_of(facts: Facts) -> dict[str, Shape]:
    """Return the states of a stream in addition to the canvas, by name; all start with zeros.

    ``<region>.keys`` and ``.values`` of a memory, persistent ``.slots`` (keys and slots as offsets from their learned
    values), ``.past`` rows of the last steps, newest first, ``.meter``, and the `AGE`.
    """
    d, back = facts.program.canvas.width, longest_lags(facts)
    shapes: dict[str, Shape] = {}
    for place in facts.places:
        name, identity = place.name, place.region.identity
        if place.carrier == "memory":
            rows = place.region.slots or len(place.positions)
            shapes |= {f"{name}.keys": (rows, d), f"{name}.values": (rows, d)}
        if identity is not None and identity.mode == "persistent":
            shapes[f"{name}.slots"] = (identity.capacity, d)
        if place.index in back:
            shapes[f"{name}.past"] = (back[place.index], place.rows, d)
        if place.meter is not None:
            shapes[f"{name}.meter"] = (len(place.meter.kinds) + 1,)
    return shapes | ({AGE: (1,)} if back else {})


def metered_by(task: EdgeTask, read: Place) -> bool:
    """Return whether an edge of a program with parity feeds the meter of the region that it reads."""
    return read.region.carrier == "residual" and task.wire.edge.lag is None


def rows_of(region: str) -> str:
    """Return the parameter name of a constant region's content, ``[rows, d]``."""
    return f"regions.{region}.{ROWS}"


def constants_of(facts: Facts) -> tuple[Place, ...]:
    """Return the regions that are constants."""
    return tuple(place for place in facts.places if place.carrier == "constant")


def disturbances(facts: Facts) -> list[str]:
    """Return everything that would change a constant, one sentence each."""
    messages: list[str] = []
    constants = constants_of(facts)
    if not constants:
        return messages
    counts = np.bincount(
        np.concatenate([place.positions for place in facts.places]), minlength=facts.program.canvas.positions
    )
    for place in constants:
        what = f"region {place.name!r} is a constant"
        messages += [
            f"{what}, but edge {facts.wires[number].name!r} writes it" for number in facts.writers[place.index]
        ]
        for name, port in facts.program.inputs.items():
            if isinstance(port, In) and port.region == place.name:
                messages.append(f"{what}, but port {name!r} writes to it")
        if counts[place.positions].max() > 1:
            messages.append(f"{what}, but another region shares its positions")
    return messages


def check_constants(facts: Facts) -> None:
    """Raise `SpecError` if something would change a constant."""
    messages = disturbances(facts)
    if messages:
        raise SpecError(messages[0], hint="remove it, or use another carrier for the region")
