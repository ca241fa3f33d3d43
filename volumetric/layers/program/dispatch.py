"""Dispatch: what all edges that fire write, from the canvas as it was before the step. In NumPy."""

from __future__ import annotations

import numpy as np

from volumetric._typing import Array
from volumetric.layers.program.facts import Facts
from volumetric.layers.program.tasks import tasks_of


def positions_kept(facts: Facts) -> Array:
    """Return the positions where what edges add comes on top of what was there, bool ``[positions]``."""
    kept = np.zeros(facts.program.canvas.positions, np.bool_)
    if facts.program.parity:
        return kept
    for task in tasks_of(facts):
        if task.wire.write == "add" and task.place.region.keeps_old and task.place.carrier != "residual":
            kept[task.place.positions[task.shares > 0]] = True
    return kept
