"""What products by matrix registers keep in a thread's scratch, and how much of it."""

from __future__ import annotations

from volumetric.kernels.cpu.panels import BLOCK, BY_NAME, UNIT, Format
from volumetric.kernels.cpu.tiles import byte_block_bytes

MATRIX_ROWS = 16
"""Rows of activations of a tile. So many are read, whether all are wanted or not."""

SUM_BYTES = 64 * MATRIX_ROWS
"""Of the integer sums of a group, or of a panel's results."""

PACKED_ROWS = 10
"""Rows up to which integer panels are multiplied as they lie in memory: beyond, opening them for tiles is faster."""

TILES_TOGETHER = 8
"""Tiles of rows that share an opened panel: enough to forget what opening costs."""

UNITS_TOGETHER = 4
"""Units whose sums are made before the first of them are scaled: more would not stay in the level 1 cache."""


def opened_bytes(form: Format) -> int:
    """Bytes of an opened unit of 64 k."""
    return 2 * byte_block_bytes(form.zero, form.group)


def about_bytes(form: Format) -> int:
    """Bytes of what `gather_about` writes of 16 rows for each block of 32 k."""
    return 64 * (1 + (BLOCK // form.group if form.zero == 0 else 0))


def sums_bytes(form: Format) -> int:
    """Bytes of the sums of `UNITS_TOGETHER` units."""
    return UNITS_TOGETHER * (UNIT // form.group) * SUM_BYTES


def matrix_scratch(k: int, name: str) -> int:
    """Bytes of scratch that `matrix_product` needs (and `prepare`, which needs one float row)."""
    form, units = BY_NAME[name], -(-k // UNIT)
    panels = 2 * (SUM_BYTES + units * opened_bytes(form))  # results and opened codes of two: gate and up
    about = TILES_TOGETHER * units * (UNIT // BLOCK) * about_bytes(form)
    return max(panels + sums_bytes(form) + about, 4 * UNIT * units)
