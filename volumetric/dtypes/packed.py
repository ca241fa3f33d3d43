"""Packed: one tensor in stored form. Checkpoints hold this layout, and shaders read it.

A tensor of shape ``(…, k)`` is `rows` rows of `k` codes, `rows` being the product of all other axes. Each row is a bit
string in which code j takes bits [j · bits, (j + 1) · bits), stored in 32-bit words, low bits first, padded with zeros
to a whole word; 64-bit codes take two words, low word first. Codes by kind:

- float: the bit pattern of the type;
- int: two's complement in `bits` bits;
- uint: plain binary;
- ternary: 0, 1, 2 mean −1, 0, +1;
- binary: 0, 1 mean −1, +1;
- table: the index in the table.

The value of a code is ``scale · code`` or ``scale · code + offset``, where scale and offset are those of its group.

In a block format (`volumetric.dtypes.blocks`) the words of a row are its blocks, byte for byte as in a GGUF file,
padded with zero bytes to a whole word; `scales` and `offsets` are None. If a last block holds more numbers than the row
has left, the rest is whatever its encoder put there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array, Shape, U32Array
from volumetric.base.errors import DTypeError, ShapeError
from volumetric.dtypes.bits import pack_codes, unpack_codes
from volumetric.dtypes.registry import DType, parse_dtype
from volumetric.dtypes.scheme import Scheme
from volumetric.dtypes.table_dtypes import numbers_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Packed:
    """A tensor as codes in 32-bit words, with its scales and offsets.

    Attributes
    ----------
    scheme : how codes represent values
    shape : logical shape; the last axis is the contiguous one
    payload : uint32 ``[rows, words_per_row]``
    scales : ``[rows, groups]`` in the scheme's scale dtype, or None
    offsets : like `scales`, or None

    Raises
    ------
    ShapeError
        An array has another shape than scheme and shape require.
    DTypeError
        An array has another dtype than the scheme requires.
    """

    scheme: Scheme
    shape: Shape
    payload: U32Array
    scales: NDArray[Any] | None = None
    offsets: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        scheme, k = self.scheme, self.k
        self._check("payload", self.payload, np.dtype(np.uint32), scheme.words_per_row(k))
        host = scheme.scale_dtype.host if scheme.scale_dtype else None
        self._check("scales", self.scales, host, scheme.groups_per_row(k))
        self._check("offsets", self.offsets, host if scheme.has_offset else None, scheme.groups_per_row(k))

    def _check(self, name: str, array: NDArray[Any] | None, dtype: np.dtype[Any] | None, columns: int) -> None:
        if array is None or dtype is None:
            if array is not None or dtype is not None:
                raise DTypeError(
                    f"{self.scheme} has {'no' if dtype is None else 'its'} {name}",
                    hint=f"Scheme.{'scale_dtype' if name == 'scales' else 'has_offset'} says which schemes have them",
                )
            return
        if array.dtype != dtype:
            raise DTypeError(f"{name} of {self.scheme} must be {dtype}, got {array.dtype}")
        if array.shape != (self.rows, columns):
            raise ShapeError(
                f"{name} of {self.scheme} for shape {self.shape} must be {(self.rows, columns)}, got {array.shape}"
            )

    @property
    def k(self) -> int:
        """Elements of a row: the size of the last axis."""
        return self.shape[-1] if self.shape else 1

    @property
    def rows(self) -> int:
        """Number of rows: the product of all axes but the last."""
        return prod(self.shape[:-1])

    @property
    def nbytes(self) -> int:
        """Bytes of payload, scales and offsets."""
        return sum(part.nbytes for part in (self.payload, self.scales, self.offsets) if part is not None)

    @property
    def bits_per_weight(self) -> float:
        """Stored bits per element, including padding and scales."""
        return self.scheme.bits_per_weight(self.shape)

    def __repr__(self) -> str:
        return f"<Packed {self.scheme} {self.shape}, {self.bits_per_weight:.2f} bits per weight>"

    def slice_rows(self, start: int, stop: int) -> Packed:
        """Return rows ``start:stop`` as a tensor of shape ``(stop - start, k)`` that shares this one's memory.

        Raises
        ------
        ShapeError
            The range is not within the rows.
        """
        if not 0 <= start <= stop <= self.rows:
            raise ShapeError(f"rows {start}:{stop} are outside of 0:{self.rows}")
        return Packed(
            scheme=self.scheme,
            shape=(stop - start, self.k),
            payload=self.payload[start:stop],
            scales=None if self.scales is None else self.scales[start:stop],
            offsets=None if self.offsets is None else self.offsets[start:stop],
        )

    def take_rows(self, rows: NDArray[np.integer[Any]]) -> Packed:
        """Return a copy of the rows with these indices, in this order, as a tensor of shape ``(len(rows), k)``.

        Raises
        ------
        ShapeError
            An index is negative or beyond the last row.
        """
        rows = np.asarray(rows).reshape(-1)
        outside = rows[(rows < 0) | (rows >= self.rows)]
        if outside.size:
            raise ShapeError(f"row {outside[0]} is outside of 0:{self.rows}")
        return Packed(
            scheme=self.scheme,
            shape=(rows.size, self.k),
            payload=self.payload[rows],
            scales=None if self.scales is None else self.scales[rows],
            offsets=None if self.offsets is None else self.offsets[rows],
        )

    def codes(self) -> NDArray[Any]:
        """Return the codes ``[rows, k]`` as numbers, without scale and offset.

        Integers narrower than a byte come as int8 or uint8, ternary and binary as int8 in {−1, 0, +1}, float4 as
        `ml_dtypes.float4_e2m1fn`, those of a table as its numbers in float32. Codes of whole bytes are a view of the
        payload. Those of block formats come as int8, as what their scales multiply.
        """
        dtype, blocks = self.scheme.dtype, self.scheme.blocks
        if blocks is not None:
            return blocks.numbers(blocks.split(self.raw_blocks()).codes).reshape(self.rows, -1)[:, : self.k]
        raw = unpack_codes(self.payload, dtype.bits, self.k)
        if dtype.values is not None:
            return numbers_of(dtype)[raw]
        if dtype.kind == "ternary":
            return raw.view(np.int8) - np.int8(1)
        if dtype.kind == "binary":
            return 2 * raw.view(np.int8) - np.int8(1)
        if dtype.kind == "int" and dtype.bits < 8:
            shift = 8 - dtype.bits  # moves the sign bit to bit 7 and back, which copies it downwards
            return (raw << shift).view(np.int8) >> shift
        return raw if dtype.kind == "uint" else raw.view(dtype.host)

    def raw_blocks(self) -> NDArray[np.uint8]:
        """Return the blocks of a block format, uint8 ``[rows · blocks per row, block bytes]``.

        A view of the payload if the rows are whole words.

        Raises
        ------
        DTypeError
            The scheme is no block format.
        """
        blocks = self.scheme.blocks
        if blocks is None:
            raise DTypeError(f"{self.scheme} does not consist of blocks", hint="use codes, scales and offsets")
        raw = np.ascontiguousarray(self.payload).view(np.uint8)[:, : blocks.row_bytes(self.k)]
        return raw.reshape(-1, blocks.block_bytes)

    @staticmethod
    def from_array(array: Array) -> Packed:
        """Return `array` as a tensor without scales, sharing its memory if the layouts agree.

        They agree when the array is C-contiguous, its rows are whole words, and it starts at a word boundary; otherwise
        the data is copied. An integer or float8 array becomes the scheme ``int8:none``, ``float8_e4m3fn:none``, …

        Raises
        ------
        DTypeError
            The array's dtype is not one of ours of at least 8 bits.
        """
        array = np.asarray(array)
        dtype = parse_dtype(array.dtype)
        if dtype.bits < 8:
            raise DTypeError(f"{dtype} arrays are not stored one element a byte", hint="use encode")
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))
        scheme = _plain(dtype)
        shape = array.shape
        k = shape[-1] if shape else 1
        rows = prod(shape[:-1])
        matrix = np.ascontiguousarray(array).reshape(rows, k)
        words = scheme.words_per_row(k)
        if matrix.ctypes.data % 4:
            matrix = matrix.copy()
        return Packed(scheme=scheme, shape=shape, payload=pack_codes(matrix, dtype.bits, words))


@lru_cache(64)
def _plain(dtype: DType) -> Scheme:
    """Return the scheme of a type without scales: one object shared by tens of thousands of tensors."""
    return Scheme(dtype=dtype)
