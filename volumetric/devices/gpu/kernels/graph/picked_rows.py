"""The kernel that picks rows of a resident table for several runs of a graph."""

from __future__ import annotations

from volumetric.devices.gpu.kernels.dispatch import Dispatch, WorkgroupGrid, ceil_div

_GROUP = 256


def pick_rows(words: int) -> Dispatch:
    """Copy rows of a table, `words` words in all.

    Buffers: x, ids, y. Dims: runs, rows of a run, words of a row, words of y from run to run.
    """
    return Dispatch(kernel="graph/pick_rows", grid=WorkgroupGrid(x=ceil_div(words, _GROUP)), constants={"WG": _GROUP})
