"""Layout and size of the scratch that matrix-register products use in a thread."""

from __future__ import annotations

from volumetric.devices.cpu.kernels.panel_microkernels import byte_block_bytes
from volumetric.devices.cpu.kernels.panels import BLOCK, BY_NAME, UNIT, PanelFormat

MATRIX_ROWS = 16
"""Rows of activations per tile. All of them are read, whether requested or not."""

SUM_BYTES = 64 * MATRIX_ROWS
"""Bytes of the integer sums of a group, or of a panel's results."""

PACKED_ROWS = 10
"""Rows up to which integer panels are multiplied without unpacking; for more rows, unpacking into tiles is faster."""

TILES_TOGETHER = 2
"""Tiles of rows that share unpacked units. With more, rows and results leave the first-level cache: a loss."""

UNITS_TOGETHER = 4
"""Units that are unpacked, multiplied with all these tiles and scaled: as many as fit the level 1 cache."""


def unpacked_unit_bytes(form: PanelFormat) -> int:
    """Bytes of an unpacked unit of 64 k."""
    return 2 * byte_block_bytes(form.zero, form.group)


def about_bytes(form: PanelFormat) -> int:
    """Bytes that `gather_about` writes for 16 rows per block of 32 k."""
    return 64 * (1 + (BLOCK // form.group if form.zero == 0 else 0))


def sums_bytes(form: PanelFormat) -> int:
    """Bytes of the sums of `UNITS_TOGETHER` units."""
    return UNITS_TOGETHER * (UNIT // form.group) * SUM_BYTES


def matrix_scratch(k: int, name: str) -> int:
    """Bytes of scratch that `matrix_product` needs (and `prepare`, which needs one float row)."""
    form, units = BY_NAME[name], -(-k // UNIT)
    about = TILES_TOGETHER * (SUM_BYTES * 2 + units * (UNIT // BLOCK) * about_bytes(form))  # and results: gate and up
    return max(about + sums_bytes(form) + 2 * UNITS_TOGETHER * unpacked_unit_bytes(form), 4 * UNIT * units)
