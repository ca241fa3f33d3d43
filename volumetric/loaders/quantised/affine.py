"""Integer codes with a scale and an integer zero point for each group of inputs: value = scale · (code − zero).

The zero point is subtracted from the code, which gives a signed number with the same scale: nothing is rounded, and
kernels support these schemes. Four bits with zero points in the middle of the range stay four bits; with other zero
points they span up to −15 … 15 and take eight bits; two and three bits take four. If eight bits are too few, the codes
stay and get the offset −scale · zero, as float32, in which that product is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Shape
from volumetric.dtypes import Packed, Scheme
from volumetric.loaders.quantised.quantised_source import (
    QuantisedMatrix,
    code_dtype,
    common_float_scales,
    pack,
    scheme_of,
)

Codes: TypeAlias = Callable[[int, int], NDArray[np.uint8]]
"""Reads the codes of rows ``start:stop``, one byte for each, ``[stop - start, k]``."""


def affine_matrix(
    shape: Shape,
    bits: int,
    group: int,
    parts: tuple[str, ...],
    codes: Codes,
    scales: NDArray[Any],
    zeros: NDArray[Any] | None,
) -> QuantisedMatrix:
    """Return a matrix that stays packed.

    Parameters
    ----------
    group : number of inputs that share a scale, 0 for whole rows
    codes : unsigned codes of `bits` bits
    scales : ``[rows, groups]``, in any float type
    zeros : ``[rows, groups]``, or None if all are the middle of the range
    """
    k, middle = shape[-1], 1 << (bits - 1)
    least, most = (
        (middle, middle) if zeros is None else (int(zeros.min(initial=middle)), int(zeros.max(initial=middle)))
    )
    reach = max(most, (1 << bits) - least)  # range of a signed code: -reach … reach - 1
    width = next((width for width in (4, 8) if reach <= 1 << (width - 1)), 0)
    scales = common_float_scales(scales)
    if width:
        signed = scheme_of(f"int{width}", group, scales.dtype)

        def centred(start: int, stop: int) -> Packed:
            offset = middle if zeros is None else zeros[start:stop].astype(np.int16)[:, index]
            numbers = codes(start, stop).astype(np.int16) - offset
            return pack(signed, k, numbers.astype(np.int8), scales[start:stop])

        index = np.arange(k) // (group or k or 1)
        return QuantisedMatrix(shape=shape, scheme=signed, parts=parts, rows=centred)
    affine = scheme_of(code_dtype(bits), group, np.dtype(np.float32))

    def unsigned(start: int, stop: int) -> Packed:
        scale = scales[start:stop].astype(np.float32)
        zero = np.float32(middle) if zeros is None else zeros[start:stop].astype(np.float32)
        return pack(affine, k, codes(start, stop), scale, -scale * zero)

    return QuantisedMatrix(shape=shape, scheme=affine, parts=parts, rows=unsigned)


def matrix_with_order(
    shape: Shape,
    parts: tuple[str, ...],
    codes: Codes,
    scales: NDArray[Any],
    zeros: NDArray[Any],
    index: NDArray[Any],
) -> QuantisedMatrix:
    """Return a matrix whose inputs have their group in `index`: decoded, since groups are not contiguous.

    Its type is that of the scales, as in the libraries that write these checkpoints: one rounding of scale · (code −
    zero).
    """
    scheme = Scheme.parse(scales.dtype.name)

    def rows(start: int, stop: int) -> Packed:
        scale, zero = (x[start:stop].astype(np.float32)[:, index] for x in (scales, zeros))
        with np.errstate(all="ignore"):  # scales come from a file
            values = scale * (codes(start, stop).astype(np.float32) - zero)
            return Packed.from_array(values.astype(scales.dtype))

    return QuantisedMatrix(shape=shape, scheme=scheme, parts=parts, rows=rows)
