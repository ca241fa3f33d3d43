"""What products by matrix registers keep in a thread's scratch, and how much of it."""

from __future__ import annotations

from volumetric.devices.cpu.kernels.panels import BLOCK, BY_NAME, UNIT, Format
from volumetric.devices.cpu.kernels.tiles import byte_block_bytes

MATRIX_ROWS = 16
"""Rows of activations of a tile. So many are read, whether all are wanted or not."""

SUM_BYTES = 64 * MATRIX_ROWS
"""Of the integer sums of a group, or of a panel's results."""

PACKED_ROWS = 10
"""Rows up to which integer panels are multiplied as they lie in memory: beyond, opening them for tiles is faster."""

TILES_TOGETHER = 2
"""Tiles of rows that share opened units. With more of them rows and results leave the first cache: that costs more."""

UNITS_TOGETHER = 4
"""Units that are opened, multiplied with all these tiles and scaled: as many as stay in the level 1 cache meanwhile."""


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
    about = TILES_TOGETHER * (SUM_BYTES * 2 + units * (UNIT // BLOCK) * about_bytes(form))  # and results: gate and up
    return max(about + sums_bytes(form) + 2 * UNITS_TOGETHER * opened_bytes(form), 4 * UNIT * units)
