"""Re-tile tensors of codes into panels: split them into bytes, scales and floors, and join these with one kernel."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.cpu.arena import address_of
from volumetric.devices.cpu.kernels.blocks.retile_codes import retile_codes
from volumetric.devices.cpu.kernels.panels import HEAD_UNITS, ROWS, UNIT, PanelFormat
from volumetric.dtypes import Packed
from volumetric.dtypes.bits import unpack_codes
from volumetric.dtypes.blocks.format import Fields

_CHUNK = 1 << 17
"""Numbers split at a time, such that temporaries stay in the second-level cache."""


class _ArrayAddress(NamedTuple):
    """Row-wise numbers for `retile_codes`."""

    memory: NDArray[Any] | None = None

    def arguments(self) -> tuple[int, int, int]:
        """Address, bytes from row to row, bytes of a number."""
        if self.memory is None:
            return 0, 0, 0
        return address_of(self.memory), self.memory.strides[0], self.memory.itemsize


def retile_coded_rows(packed: Packed, form: PanelFormat, target: int, panel_stride: int, first: int, last: int) -> None:
    """Write panels `first` … `last` - 1 of a tensor whose scheme the kernels know as `form`."""
    panels = max(_CHUNK // max(packed.k, 1) // ROWS, 1)
    for at in range(first, last, panels):
        stop = min(at + panels, last)
        part = packed.slice_rows(at * ROWS, min(stop * ROWS, packed.rows))
        _retile(part, form, target + at * panel_stride, panel_stride, stop - at)


def _fields(packed: Packed, form: PanelFormat) -> Fields:
    """A tensor split into fields; the codes of integers are shifted so that `form.zero` means 0."""
    blocks = packed.scheme.blocks
    if blocks is not None:
        return blocks.split(packed.raw_blocks())
    assert packed.scales is not None
    codes = np.zeros((packed.rows, form.units(packed.k) * UNIT), np.uint8)
    codes[:, : packed.k] = unpack_codes(packed.payload, packed.scheme.dtype.bits, packed.k)
    codes ^= np.uint8(form.zero)  # two's complement: its highest bit flips
    return Fields(codes=codes, step=packed.scales, floor=packed.offsets)


def _retile(packed: Packed, form: PanelFormat, target: int, panel_stride: int, panels: int) -> None:
    """Write `panels` panels of a block format to address `target`, `panel_stride` bytes apart."""
    codes = form.codes
    assert codes is not None
    fields, rows, units = _fields(packed, form), packed.rows, form.units(packed.k)
    headed = codes.head_bytes > 0

    def by_row(values: NDArray[Any] | None, count: int) -> _ArrayAddress:
        """`values` row by row, padded with zeros to `count` per row."""
        if values is None:
            return _ArrayAddress()
        values = values.reshape(rows, -1)
        if values.shape[1] < count:
            values = np.pad(values, ((0, 0), (0, count - values.shape[1])))
        return _ArrayAddress(np.ascontiguousarray(values))

    groups = units * codes.groups
    scales: NDArray[Any] | None = fields.scales if headed else fields.step
    floors: NDArray[Any] | None = fields.mins if headed else fields.floor
    if codes.floors == "uint4" and fields.scales is not None and fields.mins is not None:
        scales, floors = fields.scales.view(np.uint8) | (fields.mins << np.uint8(4)), None
    heads = None
    if headed:
        heads = np.zeros((len(fields.step), 2), np.float16)
        heads[:, 0] = fields.step
        if fields.floor is not None:
            heads[:, 1] = fields.floor
    arrays = by_row(fields.codes, units * UNIT), by_row(scales, groups), by_row(floors, groups)
    head = by_row(heads, 2 * -(-units // HEAD_UNITS))
    low, high = (*codes.planes, 0)[:2]
    retile_codes(
        *arrays[0].arguments()[:2],
        *arrays[1].arguments(),
        *arrays[2].arguments(),
        *head.arguments()[:2],
        rows,
        units,
        low,
        high,
        codes.groups,
        panel_stride,
        target,
        0,
        panels,
    )
