"""Recurrent cells over the states of sequences: for each time step a product with all states, then the cell."""

from __future__ import annotations

from volumetric.devices.gpu.kernels.dispatch import Dispatch, WorkgroupGrid, ceil_div

RING = 4
"""Values that a fixed state keeps, each at its position modulo this: the current one, and those of the positions that
may be in flight beyond it."""
_GROUP = 64


def cell(name: str, *, hidden: int, step: int) -> Dispatch:
    """Time step `step` of each sequence. Buffers: from_x, from_h, h, c (of an lstm), y, ctl."""
    return Dispatch(
        kernel="recurrence",
        grid=WorkgroupGrid(x=ceil_div(hidden, _GROUP), rows_each=1, over="pieces"),
        constants={"WG": _GROUP, "HIDDEN": hidden, "RING": RING, "HAS_C": name == "lstm"},
        preludes=("graph/cells", f"graph/cell/{name}"),
        args=(step,),
    )
