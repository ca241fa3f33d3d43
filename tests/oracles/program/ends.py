"""In NumPy: what ports put into regions, and read of them. In NumPy."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays
from tests.oracles.dense import affine
from tests.oracles.program.carriers import layer_norm
from volumetric.base._typing import Array
from volumetric.program.layer.ports import In, Level, Signal
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.program_params import codes_of
from volumetric.program.layer.timing import timing_of


def taken_in(facts: Facts, p: Arrays, canvas: Array, x: Array, fires: Array) -> Array:
    """Return the canvas with a row put in, where regions fire: ``W x + b + code``, in place or on top.

    Parameters
    ----------
    canvas : ``[B, positions, d]``
    x : ``[B, columns]``
    fires : bool ``[B, regions]``
    """
    canvas = canvas.copy()
    for name, port in facts.program.inputs.items():
        if not isinstance(port, In):
            continue
        place = facts.place(port.region)
        code = facts.codes[place.positions].astype(x.dtype) + sum(p[one] for one in codes_of(place))
        value = affine(p, f"ports.{name}.", x[:, facts.inputs[name]])[:, None] + code
        now = canvas[:, place.positions]
        value = now + value if port.write == "add" else value
        canvas[:, place.positions] = np.where(fires[:, place.index, None, None], value, now)
    return canvas


def happening(facts: Facts, x: Array, name: str) -> Array:
    """Return where a signal happens, bool ``[B]``: its column is neither 0 nor NaN."""
    assert isinstance(facts.program.ports[name], Signal)
    column = x[:, facts.inputs[name]][:, 0]
    return np.logical_or(column > 0, column < 0)


def levels_at(facts: Facts, x: Array, step: int) -> dict[int, tuple[Array, Array]]:
    """Return noise levels ᾱ of diffusive regions before and behind a step of several, ``[B]``.

    They go in equal parts from what the port says, or 0, to 1.
    """

    inner, found = timing_of(facts).inner, dict[int, tuple[Array, Array]]()
    first = {port.region: x[:, facts.inputs[name]][:, 0] for name, port in _levels(facts).items()}
    for place in facts.places:
        if place.carrier == "diffusive":
            begun = first.get(place.name, np.zeros(len(x), x.dtype))
            shares = [n / (inner[place.index] + 1) for n in (step, step + 1)]
            before, after = (begun * x.dtype.type(1 - share) + x.dtype.type(share) for share in shares)
            found[place.index] = before, after
    return found


def _levels(facts: Facts) -> dict[str, Level]:
    return {name: port for name, port in facts.program.ports.items() if isinstance(port, Level)}


def handed_out(facts: Facts, p: Arrays, canvas: Array, states: dict[str, Array]) -> Array:
    """Return a row of all outputs, ``W LN(pool) + b`` side by side; a memory is read by its rows."""
    made: list[Array] = []
    for name, port in facts.program.outputs.items():
        place = facts.place(port.region)
        rows = states[f"{place.name}.values"] if place.through == "memory" else canvas[:, place.positions]
        pool = rows.mean(1) if port.pool == "mean" else rows.reshape(len(rows), -1)
        made.append(affine(p, f"ports.{name}.", layer_norm(p, f"ports.{name}.norm.", pool)))
    return np.concatenate(made, axis=1)
