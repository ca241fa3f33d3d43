"""Unpack block formats once when they become resident: codes in units of 16 bytes, everything else separately.

Blocks of 210, 22 or 17 bytes never start at whole words, and none has its scales where 16-byte loads would bring them.
So the low bits of 32 (or 64) neighbours form a unit of `weights`, as in other formats, and the rest of a row goes into
`scales`: sections one after the other, each padded to whole words. Nothing is rounded, and nothing grows except by that
padding, by 6-bit scales in IQ4_XS, which take bytes, and by base-3 digits in TQ1_0, which take 2 bits: a byte holds
five of them, in an order that no unit of a row could be read by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import U32Array
from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.dtypes import BLOCK_FORMATS, OWN_FORMATS, BlockFormat, Packed
from volumetric.dtypes.blocks import Fields, named_format
from volumetric.dtypes.blocks.format import DeviceLayout, halves
from volumetric.dtypes.blocks.k_quants import six_bits

Bytes: TypeAlias = NDArray[np.uint8]

_CODES_AT_ONCE = 1 << 20
"""Codes unpacked at a time."""


class UnpackedBlocks:
    """Blocks ``[rows · blocks, block bytes]`` of rows, unpacked on demand."""

    def __init__(self, packed: Packed, layout: BlockLayout) -> None:
        self.raw: Bytes = packed.raw_blocks()
        self._rows, self._layout, self._pieces = packed.rows, layout, ceil_div(packed.k, layout.piece)

    @cached_property
    def fields(self) -> Fields:
        """Decoded fields of the blocks."""
        return named_format(self._layout.name).split(self.raw)

    @cached_property
    def codes(self) -> Bytes:
        """Codes ``[rows, pieces, piece]``."""
        piece = self._layout.piece
        codes = self.fields.codes.reshape(self._rows, -1)[:, : self._pieces * piece]
        if codes.shape[1] < self._pieces * piece:  # blocks shorter than a unit
            codes = np.pad(codes, ((0, 0), (0, self._pieces * piece - codes.shape[1])))
        return np.ascontiguousarray(codes).reshape(self._rows, self._pieces, piece)

    def by_row(self, values: NDArray[Any]) -> NDArray[Any]:
        """Values of blocks, or of their groups, as rows."""
        return np.ascontiguousarray(values).reshape(self._rows, -1)

    def low_bits(self) -> U32Array:
        """Units ``[rows, 4 · pieces]``: code 16 h + i has its low bits in byte i, from bit 4 h (or 2 h) on."""
        if self._layout.nibbles_at is not None:
            return self.by_row(_regroup_nibbles(self.raw, self._layout.nibbles_at))[:, : 4 * self._pieces]
        bits = 128 // self._layout.piece
        runs = self.codes.reshape(*self.codes.shape[:2], -1, 16) & np.uint8((1 << bits) - 1)
        low = runs[:, :, 0]
        for run in range(1, runs.shape[2]):
            low = low | runs[:, :, run] << np.uint8(bits * run)
        return np.ascontiguousarray(low).view(np.uint32).reshape(self._rows, -1)


def _regroup_nibbles(raw: Bytes, at: int) -> U32Array:
    """Units ``[n, 32]`` of 128 bytes, each 32 of which hold 32 codes in low halves and the next 32 in high halves.

    Works on four bytes at a time, which is several times faster than through the codes.
    """
    words = np.ascontiguousarray(raw[:, at : at + 128]).view(np.uint32).reshape(len(raw), 4, 8)
    first, second = words[:, :, :4], words[:, :, 4:]
    low, high = np.uint32(0x0F0F0F0F), np.uint32(0xF0F0F0F0)
    pieces = np.empty((len(raw), 4, 2, 4), np.uint32)
    pieces[:, :, 0] = (first & low) | ((second & low) << np.uint32(4))
    pieces[:, :, 1] = ((first & high) >> np.uint32(4)) | (second & high)
    return pieces.reshape(len(raw), 32)


@dataclass(frozen=True, slots=True)
class LayoutSection:
    """Part of a row in `scales`.

    Attributes
    ----------
    nbytes : bytes before padding to words, from the numbers of units and of blocks in a row
    fill : contents ``[rows, …]``
    """

    nbytes: Callable[[int, int], int]
    fill: Callable[[UnpackedBlocks], NDArray[Any]]


def _fifth_bits(blocks: UnpackedBlocks) -> NDArray[Any]:
    """Bit j of byte b of a word is bit 4 of code 4j + b."""
    fours = (blocks.codes.view(np.uint32) >> np.uint32(4)) & np.uint32(0x01010101)
    return np.bitwise_or.reduce(fours << np.arange(8, dtype=np.uint32), axis=-1)


def _two_bits(blocks: UnpackedBlocks) -> NDArray[Any]:
    """Bits 2j and 2j + 1 of byte b of word h are bits 4 and 5 of code 16h + 4j + b."""
    high = (blocks.codes >> np.uint8(4)).reshape(len(blocks.codes), -1, 4, 4)
    return high[:, :, 0] | high[:, :, 1] << np.uint8(2) | high[:, :, 2] << np.uint8(4) | high[:, :, 3] << np.uint8(6)


def _third_bits(blocks: UnpackedBlocks) -> NDArray[Any]:
    """Bit j of byte b of word h is bit 2 of code 32h + 4j + b."""
    fours = (blocks.codes.view(np.uint32).reshape(len(blocks.codes), -1, 8) >> np.uint32(2)) & np.uint32(0x01010101)
    return np.bitwise_or.reduce(fours << np.arange(8, dtype=np.uint32), axis=-1)


def _steps(blocks: UnpackedBlocks) -> NDArray[Any]:
    return blocks.by_row(blocks.fields.step)


def _pairs(blocks: UnpackedBlocks) -> NDArray[Any]:
    """Step and floor of each block, alternating."""
    floor = blocks.fields.floor
    return blocks.by_row(
        np.stack([blocks.fields.step, np.zeros_like(blocks.fields.step) if floor is None else floor], -1)
    )


def _scales(blocks: UnpackedBlocks) -> NDArray[Any]:
    return blocks.by_row(np.asarray(blocks.fields.scales))


def _scales_and_mins(blocks: UnpackedBlocks) -> NDArray[Any]:
    """Step and floor of a block, then its eight scales and mins of 6 bits: pair g begins at bit 12 g."""
    scales, mins = six_bits(blocks.raw[:, 4:16])
    ends = np.stack([halves(blocks.raw, 0), -halves(blocks.raw, 2)], -1).view(np.uint32)
    return blocks.by_row(np.concatenate([ends, _pack_twelve_bits(scales.view(np.uint8), mins)], axis=1))


def _pack_twelve_bits(first: Bytes, second: Bytes) -> U32Array:
    """Three words of eight pairs of 6 bits: the bits of pair g begin at bit 12 g."""
    pairs = (first.astype(np.uint32) | second.astype(np.uint32) << np.uint32(6)).astype(np.uint64)
    words = np.zeros((len(pairs), 3), np.uint32)
    for word in range(3):
        # Groups that reach into 32 bits from bit 32 `word` on.
        total = np.zeros(len(pairs), np.uint64)
        for g in range(8):
            shift = 12 * g - 32 * word
            if -12 < shift < 32:
                total |= pairs[:, g] << np.uint64(shift) if shift >= 0 else pairs[:, g] >> np.uint64(-shift)
        words[:, word] = total.astype(np.uint32)
    return words


def _unsigned_scales(blocks: UnpackedBlocks) -> NDArray[Any]:
    """16 scales of 6 bits, offset by 32."""
    scales = (np.asarray(blocks.fields.scales) + np.int8(32)).view(np.uint8)
    return blocks.by_row(_pack_twelve_bits(scales[:, ::2], scales[:, 1::2]))


def _scale_bytes(blocks: UnpackedBlocks) -> NDArray[Any]:
    """Bytes of Q2_K with a scale in the low half and a min in the high half."""
    return blocks.by_row(blocks.raw[:, :16])


def _exponents(blocks: UnpackedBlocks) -> NDArray[Any]:
    return blocks.by_row(blocks.raw[:, 0])


SECTIONS: Final[Mapping[str, LayoutSection]] = {
    "third_bits": LayoutSection(lambda pieces, blocks: 8 * pieces, _third_bits),
    "fifth_bits": LayoutSection(lambda pieces, blocks: 4 * pieces, _fifth_bits),
    "two_bits": LayoutSection(lambda pieces, blocks: 8 * pieces, _two_bits),
    "steps": LayoutSection(lambda pieces, blocks: 2 * blocks, _steps),
    "pairs": LayoutSection(lambda pieces, blocks: 4 * blocks, _pairs),
    "six_bits": LayoutSection(lambda pieces, blocks: 16 * blocks, _scales_and_mins),
    "scales_of_6": LayoutSection(lambda pieces, blocks: 12 * blocks, _unsigned_scales),
    "scales_of_4": LayoutSection(lambda pieces, blocks: 16 * blocks, _scale_bytes),
    "exponents": LayoutSection(lambda pieces, blocks: blocks, _exponents),
    "scales_8": LayoutSection(lambda pieces, blocks: 8 * blocks, _scales),
    "scales_16": LayoutSection(lambda pieces, blocks: 16 * blocks, _scales),
}
"""Section name in formats → the section."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockLayout:
    """Layout of the rows of one block format on the GPU.

    Attributes
    ----------
    name : the format
    piece : codes in 16 bytes: 32 with their four low bits, or 64 with two
    sections : parts of a row in `scales`, in this order
    shared : shader files in ``block`` linked with the format's own file to read it
    read : codes that kernels read at a time, None: as many as in 16 bytes
    nibbles_at : byte of a block at which low bits in the order of Q4_K start; None for other orders
    """

    name: str
    piece: int
    sections: tuple[LayoutSection, ...]
    shared: tuple[str, ...] = ()
    read: int | None = None
    nibbles_at: int | None = None

    def words(self, k: int) -> int:
        """Words of `scales` in a row of `k` codes."""
        pieces, blocks = ceil_div(k, self.piece), named_format(self.name).blocks(k)
        return sum(ceil_div(section.nbytes(pieces, blocks), 4) for section in self.sections)

    @property
    def bits_per_weight(self) -> float:
        """Bits per element in rows that need no padding."""
        k = 1024
        return 8 * (16 * ceil_div(k, self.piece) + 4 * self.words(k)) / k

    def lay_out(self, packed: Packed) -> tuple[U32Array, U32Array]:
        """Return units ``[rows, 4 · pieces]`` and the words of `scales` ``[rows, words]``.

        Works on some rows at a time, so that temporaries stay in the caches, and on all cores: NumPy releases the GIL
        for arrays of this size.
        """
        rows, k = packed.rows, packed.k
        pieces = np.empty((rows, 4 * ceil_div(k, self.piece)), np.uint32)
        rest = np.empty((rows, self.words(k)), np.uint32)
        some = max(_CODES_AT_ONCE // max(k, 1), 1)

        def fill(start: int) -> None:
            part = packed.slice_rows(start, min(start + some, rows))
            blocks = UnpackedBlocks(part, self)
            pieces[start : start + part.rows] = blocks.low_bits()
            at = 0
            for section in self.sections:
                words = _words(section.fill(blocks), part.rows)
                rest[start : start + part.rows, at : at + words.shape[1]] = words
                at += words.shape[1]

        if rows <= some:
            fill(0)
        else:
            with ThreadPoolExecutor() as pool:
                list(pool.map(fill, range(0, rows, some)))
        return pieces, rest


def _words(values: NDArray[Any], rows: int) -> U32Array:
    """Rows of bytes padded with zeros to whole words."""
    flat = np.ascontiguousarray(values).view(np.uint8).reshape(rows, -1)
    return np.ascontiguousarray(np.pad(flat, ((0, 0), (0, -flat.shape[1] % 4)))).view(np.uint32)


def _layout(form: BlockFormat, resident: DeviceLayout) -> BlockLayout:
    """Units of 32 codes with four low bits, or of 64 with two, of which kernels read fewer at a time."""
    piece = 32 if form.planes[0] == 4 else 64
    return BlockLayout(
        name=form.name,
        piece=piece,
        sections=tuple(SECTIONS[name] for name in resident.sections),
        shared=resident.shaders,
        read=None if piece == 32 else resident.read,
        nibbles_at=resident.nibbles_at,
    )


LAYOUTS = MappingProxyType(
    {
        name: _layout(form, form.resident)
        for name, form in {**BLOCK_FORMATS, **OWN_FORMATS}.items()
        if form.resident is not None
    }
)
"""Name of a block format → its layout on the GPU."""
