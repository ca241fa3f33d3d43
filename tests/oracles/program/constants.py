"""In NumPy: constants: regions whose rows are a parameter. Nothing changes them, and they are there from the."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays
from volumetric.base._typing import Array
from volumetric.program.layer.program_facts import Facts
from volumetric.program.layer.program_params import constants_of, rows_of


def put_in(facts: Facts, p: Arrays, canvas: Array, states: dict[str, Array]) -> list[str]:
    """Put the rows of constants on the canvas, which is written to, or beside it where they are no positions.

    Parameters
    ----------
    canvas : ``[B, positions, d]``
    states : get ``<region>.values`` of constants with `Region.slots`, as memories have them

    Returns
    -------
    names of these, which are of this row alone
    """
    apart: list[str] = []
    for place in constants_of(facts):
        rows = p[rows_of(place.name)].astype(canvas.dtype)
        if place.through == "positions":
            canvas[:, place.positions] = rows
        else:
            apart.append(f"{place.name}.values")
            states[apart[-1]] = np.broadcast_to(rows, (len(canvas), *rows.shape))
    return apart
