"""How weights lie in memory for the CPU: panels of 16 rows, one stream of bytes each.

Row ``r`` of a matrix is lane ``r % 16`` of panel ``r // 16``. A kernel broadcasts activations and keeps a row in each
lane, so it needs no sum across lanes and no shuffle, and the same panels serve one token and five hundred. Along k a
panel is a sequence of units (the last one padded with zeros):

======== ======= ===== ===============================================================================
format   unit, k bytes contents of a unit
======== ======= ===== ===============================================================================
float32  8       512   8 vectors, vector k = 16 rows
float16  8       256   the same with 2-byte numbers
bfloat16 8       256   4 vectors of 16 rows × 2 k, the form that products of pairs take
int8     64      1088  16 vectors of 16 rows × 4 k, bytes q + 128; scales of k < 32, then of the rest
int4     64      576   8 vectors of 16 rows × 8 k, low nibbles k 0-3, high nibbles k 4-7, q + 8; scales
uint4    64      640   as int4 with q; scales; offsets (value = scale · q + offset)
======== ======= ===== ===============================================================================

Scales and offsets are float16, 16 rows together. They stand in the stream because a second stream of scales was
measured to halve the bandwidth. All units are multiples of 64 bytes, so aligned panels stay aligned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ROWS = 16
"""Rows of a panel."""

BLOCK = 32
"""Numbers that share a scale, in integer weights and in quantised activations."""

FormatName = Literal["float32", "float16", "bfloat16", "int8", "int4", "uint4"]

Rounding = Literal["float32", "int8", "bfloat16"]
"""What a product rounds its activations to; float32 is no rounding."""

ROUNDINGS: tuple[Rounding, ...] = ("float32", "int8", "bfloat16")
"""Numbered as kernels know them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """One panel layout."""

    name: FormatName
    unit: int
    unit_bytes: int
    zero: int = 0  # what stands for 0 in the stored bytes

    @property
    def is_integer(self) -> bool:
        return self.unit == 64

    def units(self, k: int) -> int:
        """Units that `k` numbers need."""
        return -(-k // self.unit)

    def panel_bytes(self, k: int) -> int:
        """Bytes of one panel."""
        return self.units(k) * self.unit_bytes


FORMATS: dict[str, Format] = {
    "float32": Format(name="float32", unit=8, unit_bytes=512),
    "float16": Format(name="float16", unit=8, unit_bytes=256),
    "bfloat16": Format(name="bfloat16", unit=8, unit_bytes=256),
    "int8:g32": Format(name="int8", unit=64, unit_bytes=1088, zero=128),
    "int4:g32": Format(name="int4", unit=64, unit_bytes=576, zero=8),
    "uint4:g32": Format(name="uint4", unit=64, unit_bytes=640),
}
"""Text of a `Scheme` → its panel layout; every other scheme becomes float32 when it is made resident."""


def prepared_bytes(k: int, rounding: Rounding) -> int:
    """Bytes of one row of prepared activations, a multiple of 64; int8 rows have block scales and sums behind them."""
    padded = -(-k // 64) * 64
    size = {"float32": 4 * padded, "int8": padded + 12 * (padded // BLOCK), "bfloat16": 2 * padded}[rounding]
    # Rows a multiple of 4 KiB apart share the same few places of the level 1 cache; a tile reads several at once.
    return -(-size // 64) * 64 + (64 if size % 4096 == 0 else 0)
