"""Layout of weights in CPU memory: panels of 16 rows, each one stream of bytes.

Row ``r`` of a matrix is lane ``r % 16`` of panel ``r // 16``. A kernel broadcasts activations and keeps a row in each
lane, so it needs no sum across lanes and no shuffle, and the same panels serve one token and five hundred. Along k a
panel is a sequence of units (the last one padded with zeros). Floats have units of 8 k:

======== ===== ===============================================================================
format   bytes contents of a unit
======== ===== ===============================================================================
float32  512   8 vectors, vector k = 16 rows
float16  256   the same with 2-byte numbers
bfloat16 256   4 vectors of 16 rows × 2 k, the form that products of pairs take
======== ===== ===============================================================================

Integers have units of 64 k, which `CodeLayout` describes: the bits of the codes, plane by plane, then scales, then
floors (value = scale · code + floor), 16 rows together. They are in the stream because a second stream of scales was
measured to halve the bandwidth. If scales are small integers, a head with the float16 that multiplies them (and one for
the floors) precedes every 4 units. All units and heads are multiples of 64 bytes, so aligned panels stay aligned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from volumetric.dtypes import BLOCK_FORMATS, OWN_FORMATS, BlockFormat
from volumetric.dtypes.blocks.format import DeviceLayout, FloorKind, ScaleKind

ROWS = 16
"""Rows of a panel."""

BLOCK = 32
"""Numbers that share a scale in quantised activations."""

UNIT = 64
"""Numbers in a unit of codes."""

HEAD_UNITS = 4
"""Units under one head."""

Rounding = Literal["float32", "int8", "bfloat16"]
"""Rounding of activations in a product; float32 is no rounding."""

ROUNDINGS: tuple[Rounding, ...] = ("float32", "int8", "bfloat16")
"""Numbered as in kernels."""

SCALE_KINDS: tuple[ScaleKind, ...] = ("float16", "bfloat16", "int8", "uint4", "head", "float32")
FLOOR_KINDS: tuple[FloorKind, ...] = ("none", "float16", "uint8", "uint4")
_STORED_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2, "int8": 1, "uint8": 1, "uint4": 1, "head": 0, "none": 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallFloat:
    """Floats of eight bits: sign, exponent, mantissa.

    Attributes
    ----------
    mantissa : its bits
    power : exponents are stored with this bias less than those of float32
    special : codes from this value on, without the sign, are ∞ and NaN
    """

    mantissa: int
    power: int
    special: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLayout:
    """A unit of 64 codes of 16 rows.

    A plane of b bits has b vectors for each 32 k. In a 32-bit lane of vector w, the b bits from bit ``8 i + b c`` on
    belong to k = ``32 w / b + 4 c + i``: so one shift and one mask give the bytes of four neighbours.

    Attributes
    ----------
    planes : bits of each plane, lowest bits of the codes first
    zero : the code that means 0; 0 exactly if there are floors
    group : numbers that share a scale, 16 or 32
    scales, floors : their storage
    table : values of up to 16 codes that are not evenly spaced; they are multiplied as bytes + 128, so `zero` is 128
    floats : codes are floats, which are multiplied by unrounded activations
    """

    planes: tuple[int, ...]
    zero: int = 0
    group: int = 32
    scales: ScaleKind = "float16"
    floors: FloorKind = "none"
    table: tuple[int, ...] | None = None
    floats: SmallFloat | None = None

    @property
    def groups(self) -> int:
        """Scales of a row in a unit."""
        return UNIT // self.group

    @property
    def scales_at(self) -> int:
        """Bytes of a unit before its scales."""
        return 2 * 64 * sum(self.planes)

    @property
    def floors_at(self) -> int:
        """Bytes of a unit before its floors."""
        return self.scales_at + self.groups * ROWS * _STORED_BYTES[self.scales]

    @property
    def unit_bytes(self) -> int:
        """Bytes of a unit."""
        each = 0 if self.floors == "uint4" else _STORED_BYTES[self.floors]  # in the bytes of the scales
        return -(-(self.floors_at + self.groups * ROWS * each) // 64) * 64

    @property
    def head_bytes(self) -> int:
        """Bytes of the head of every `HEAD_UNITS` units; 0 = none."""
        return 64 if self.scales in ("int8", "uint4", "head") else 0


@dataclass(frozen=True, kw_only=True)
class PanelFormat:
    """One panel layout; `codes` if weights are codes, in units of 64 k, else `unit` and `unit_bytes` of floats."""

    name: str
    unit: int = UNIT
    codes: CodeLayout | None = None
    float_bytes: int = 0

    @property
    def is_coded(self) -> bool:
        """Whether panels hold codes with scales."""
        return self.codes is not None

    @property
    def is_integer(self) -> bool:
        """Whether codes are integers, which byte products can multiply."""
        return self.codes is not None and self.codes.floats is None

    @property
    def zero(self) -> int:
        """The stored byte that means 0."""
        return 0 if self.codes is None else self.codes.zero

    @property
    def group(self) -> int:
        """Numbers that share a scale."""
        return 0 if self.codes is None else self.codes.group

    @cached_property
    def unit_bytes(self) -> int:
        """Bytes of a unit of a panel."""
        return self.float_bytes if self.codes is None else self.codes.unit_bytes

    @cached_property
    def head_bytes(self) -> int:
        """Bytes of the scales at the head of some units; 0 without."""
        return 0 if self.codes is None else self.codes.head_bytes

    def units(self, k: int) -> int:
        """Number of units for `k` numbers."""
        return -(-k // self.unit)

    def panel_bytes(self, k: int) -> int:
        """Bytes of one panel."""
        units = self.units(k)
        return units * self.unit_bytes + -(-units // HEAD_UNITS) * self.head_bytes


_E4M3 = SmallFloat(mantissa=3, power=120, special=0x7F)
_E5M2 = SmallFloat(mantissa=2, power=112, special=0x7C)


def _kernel_name(text: str) -> str:
    """Name of a scheme's panels, without colons, which have another meaning there."""
    return text.replace(":g32", "").replace(":", "_")


_CODES = {
    "int8:g32": CodeLayout(planes=(8,), zero=128),
    "int4:g32": CodeLayout(planes=(4,), zero=8),
    "uint4:g32": CodeLayout(planes=(4,), floors="float16"),
    "uint8:g32": CodeLayout(planes=(8,), floors="float16"),
    "int2:g32": CodeLayout(planes=(2,), zero=2),
    "uint2:g32": CodeLayout(planes=(2,), floors="float16"),
    "int8:g32:float32": CodeLayout(planes=(8,), zero=128, scales="float32"),
    "int4:g32:float32": CodeLayout(planes=(4,), zero=8, scales="float32"),
    "float8_e4m3fn:g32": CodeLayout(planes=(8,), scales="float32", floats=_E4M3),
    "float8_e5m2:g32": CodeLayout(planes=(8,), scales="float32", floats=_E5M2),
}


def _codes_of(form: BlockFormat, resident: DeviceLayout) -> CodeLayout:
    """Panels of a block format: scales of more than 32 neighbours are in the head."""
    return CodeLayout(
        planes=form.planes,
        zero=form.zero if form.table is None else 128,
        group=min(form.group, BLOCK),
        scales=resident.scales,
        floors=resident.floors,
        table=form.table,
    )


_CODES |= {
    name: _codes_of(form, form.resident)
    for name, form in {**BLOCK_FORMATS, **OWN_FORMATS}.items()
    if form.resident is not None
}

FORMATS: dict[str, PanelFormat] = {
    "float32": PanelFormat(name="float32", unit=8, float_bytes=512),
    "float16": PanelFormat(name="float16", unit=8, float_bytes=256),
    "bfloat16": PanelFormat(name="bfloat16", unit=8, float_bytes=256),
} | {text: PanelFormat(name=_kernel_name(text), codes=codes) for text, codes in _CODES.items()}
"""Text of a `Scheme` → its panel layout; every other scheme is converted to float32."""

BY_NAME = {form.name: form for form in FORMATS.values()}
"""The same by the names used in kernels."""


def prepared_bytes(k: int, rounding: Rounding) -> int:
    """Bytes of one row of prepared activations, a multiple of 64; int8 rows are followed by block scales and sums."""
    padded = -(-k // 64) * 64
    size = {"float32": 4 * padded, "int8": padded + 16 * (padded // BLOCK), "bfloat16": 2 * padded}[rounding]
    # Rows a multiple of 4 KiB apart share the same few sets of the level 1 cache; a tile reads several at once.
    return -(-size // 64) * 64 + (64 if size % 4096 == 0 else 0)
