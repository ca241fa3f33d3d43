"""The kernel that pools the rows of texts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from volumetric.devices.gpu.kernels.dispatch import Dispatch, WorkgroupGrid, ceil_div

POOLINGS: Final[Mapping[str, int]] = {
    "mean": 0,
    "mean_sqrt_len_tokens": 1,
    "weightedmean": 2,
    "max": 3,
    "cls": 4,
    "lasttoken": 5,
}
"""Poolings, by their numbers in the shader."""
_COLUMNS = 32
_TEAMS = 8


def pool_rows(*, width: int, pooling: str, at: int, stride: int, skipped: int, context: int) -> Dispatch:
    """One row for each whole sequence of a call. Buffers: x, y, ctl.

    Parameters
    ----------
    pooling : a key of `POOLINGS`
    at, stride : first vector of the result in a row of y, and vectors of such a row
    skipped : rows at the start of a sequence that do not count
    context : most rows of a sequence
    """
    return Dispatch(
        kernel="pool_rows",
        grid=WorkgroupGrid(x=ceil_div(ceil_div(width, 4), _COLUMNS), rows_each=1, over="pieces"),
        constants={
            "WG": _COLUMNS * _TEAMS,
            "COLUMNS": _COLUMNS,
            "WIDTH": width,
            "WIDTH4": ceil_div(width, 4),
            "POOLING": POOLINGS[pooling],
            "AT4": at,
            "STRIDE4": stride,
            "CONTEXT": context,
        },
        args=(skipped,),
    )
