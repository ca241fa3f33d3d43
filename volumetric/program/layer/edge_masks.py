"""Masks: which of the positions that an edge writes attend to which of those that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from msgspec import Struct
from msgspec.structs import force_setattr

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.base.hints import format_value
from volumetric.layers.field_checks import check_whole, tuple_of

Rect: TypeAlias = tuple[int, int, int, int]


class Full(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="full"):
    """Every position attends to every other, as without a mask."""


class Tile(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="tile"):
    """Positions attend to those in the same tile of the canvas, at any frame.

    Attributes
    ----------
    shape : sides of a tile along the spatial axes, in canvas coordinates: position s is in tile ⌊s / side⌋; missing
        axes have tiles of 1
    """

    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        """Check the fields."""
        force_setattr(self, "shape", tuple_of("Tile: shape", self.shape, int))
        if not self.shape:
            raise SpecError("Tile: shape needs at least one side")
        for side in self.shape:
            check_whole("Tile: a side", side)


class Rects(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="rects"):
    """Blocks of pairs: in ``(w0, w1, r0, r1)``, written positions w0 … w1 - 1 attend to r0 … r1 - 1 of those read.

    Positions count in the order of their regions. Blocks may overlap; pairs in no block are masked.
    """

    rects: tuple[Rect, ...]

    if TYPE_CHECKING:  # also accepts lists

        def __init__(self, rects: Sequence[Rect]) -> None: ...

    def __post_init__(self) -> None:
        """Check the fields."""
        rects = tuple_of("Rects", self.rects, (list, tuple))
        force_setattr(self, "rects", tuple(tuple_of("Rects: a block", rect, int) for rect in rects))
        for rect in self.rects:
            if len(rect) != 4 or not (0 <= rect[0] < rect[1] and 0 <= rect[2] < rect[3]):
                raise SpecError(
                    f"Rects: {format_value(rect)} is no block", hint="(w0, w1, r0, r1) with 0 ≤ w0 < w1 and 0 ≤ r0 < r1"
                )


class Bits(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag_field="kind", tag="bits"):
    """A mask pair by pair.

    Attributes
    ----------
    rows : one text for each position written, with "1" if it attends to the position read and "0" if not; also accepts
        an array ``[written, read]`` of bools, or of 0 and 1
    """

    rows: tuple[str, ...]

    if TYPE_CHECKING:  # also accepts arrays

        def __init__(self, rows: Sequence[str] | Sequence[Sequence[int]] | Array) -> None: ...

    def __post_init__(self) -> None:
        """Check the fields."""
        rows: Any = self.rows
        if isinstance(rows, np.ndarray) or (
            isinstance(rows, list | tuple) and any(not isinstance(r, str) for r in rows)
        ):
            rows = _rows_of(rows)
        rows = tuple_of("Bits", rows, str)
        force_setattr(self, "rows", rows)
        if not rows or not rows[0]:
            raise SpecError("Bits: the mask has no positions")
        if len(set(map(len, rows))) != 1:
            raise SpecError("Bits: rows have several lengths", hint="one digit for each position read")
        wrong = "".join(set("".join(rows)) - set("01"))
        if wrong:
            raise SpecError(f"Bits: {format_value(min(wrong))} is neither 0 nor 1")

    @property
    def array(self) -> Array:
        """Return the mask as bools ``[written, read]``."""
        digits = np.frombuffer("".join(self.rows).encode("ascii"), np.uint8)
        return (digits == ord("1")).reshape(len(self.rows), -1)


Mask: TypeAlias = Full | Tile | Rects | Bits


def _rows_of(array: Any) -> tuple[str, ...]:
    try:
        bits = np.asarray(array)
    except ValueError:
        raise SpecError("Bits: rows have several lengths") from None
    if bits.ndim != 2 or bits.dtype.kind not in "biuf" or not np.isin(bits, (0, 1)).all():
        raise SpecError("Bits: needs an array [written, read] of 0 and 1", hint=f"got {bits.dtype} {list(bits.shape)}")
    return tuple("".join("1" if one else "0" for one in row) for row in bits.astype(bool).tolist())


def mask_of(mask: Mask | None, written: Array, read: Array, what: str) -> Array | None:
    """Return a mask as bools ``[written, read]``; None: all are true.

    Parameters
    ----------
    written, read : coordinates ``[n, axes]`` of the positions, frame first
    what : owner of the mask, for errors
    """
    shape = len(written), len(read)
    if mask is None or isinstance(mask, Full):
        return None
    if isinstance(mask, Bits):
        truths = mask.array
        if truths.shape != shape:
            raise SpecError(f"{what}: mask must be {list(shape)} [written, read], got {list(truths.shape)}")
    elif isinstance(mask, Rects):
        truths = np.zeros(shape, bool)
        for w0, w1, r0, r1 in mask.rects:
            if w1 > shape[0] or r1 > shape[1]:
                raise SpecError(f"{what}: block {(w0, w1, r0, r1)} exceeds the mask {list(shape)} [written, read]")
            truths[w0:w1, r0:r1] = True
    else:
        axes = written.shape[1] - 1
        if len(mask.shape) > axes:
            raise SpecError(f"{what}: a tile of {len(mask.shape)} sides does not fit {axes} spatial axes")
        sides = np.asarray([*mask.shape, *[1] * (axes - len(mask.shape))])
        tiles = [at[:, 1:] // sides for at in (written, read)]
        truths = (tiles[0][:, None] == tiles[1][None]).all(-1)
    return None if truths.all() else truths
