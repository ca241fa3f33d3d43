"""Moves between the values and states of a call and the tensors of a graph of fixed shape."""

from __future__ import annotations

from volumetric.kernels.gpu.dispatch import Dispatch, Grid, ceil_div
from volumetric.kernels.gpu.recurrence import RING

_GROUP = 128


def move_rows(words: int) -> Dispatch:
    """Copy rows, `words` words in all. Buffers: x, y. Dims: rows, words of a row, start and row length of x and y."""
    return Dispatch(kernel="move_rows", grid=Grid(x=ceil_div(words, _GROUP)), constants={"WG": _GROUP})


def move_state(words: int, *, back: bool) -> Dispatch:
    """Copy a fixed state of `words` words out of the line of a row's sequence, or back into it.

    Buffers: x, y, ctl. Dims: words, number of the row, rows after it at whose end the state belongs.
    """
    constants = {"WG": _GROUP, "RING": RING, "BACK": back}
    return Dispatch(kernel="move_state", grid=Grid(x=ceil_div(words, _GROUP)), constants=constants)
