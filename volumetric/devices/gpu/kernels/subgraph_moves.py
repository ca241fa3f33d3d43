"""Copies between the values and states of a call and the tensors of a graph of fixed shape."""

from __future__ import annotations

from volumetric.devices.gpu.kernels.dispatch import Dispatch, WorkgroupGrid, ceil_div
from volumetric.devices.gpu.kernels.recurrence import RING

_GROUP = 128


def move_rows(words: int) -> Dispatch:
    """Copy rows of one or several sequences, `words` words in all.

    Buffers: x, y. Dims: rows, rows of a sequence, words of a row; of x and y each start, row length, sequence length.
    """
    return Dispatch(kernel="move_rows", grid=WorkgroupGrid(x=ceil_div(words, _GROUP)), constants={"WG": _GROUP})


def move_places(rows: int) -> Dispatch:
    """Write the positions of `rows` rows of the call in their sequences.

    Buffers: y, ctl. Dims: rows, rows of a sequence, number of the first row, rows from sequence to sequence.
    """
    return Dispatch(kernel="move_places", grid=WorkgroupGrid(x=ceil_div(rows, _GROUP)), constants={"WG": _GROUP})


def move_state(words: int, *, back: bool) -> Dispatch:
    """Copy a fixed state out of the lines of sequences, `words` words in all, or back into them.

    Buffers: x, y, ctl. Dims: words of a sequence, sequences, index of a row of the first, rows from there to the next,
    rows after it at whose end the state belongs.
    """
    constants = {"WG": _GROUP, "RING": RING, "BACK": back}
    return Dispatch(kernel="move_state", grid=WorkgroupGrid(x=ceil_div(words, _GROUP)), constants=constants)
