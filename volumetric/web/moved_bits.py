"""Rows of GGUF blocks as rows of GPU buffers: which bit goes where, derived from the layouts of `weight_formats`.

Every layout that a template can name moves bits and inverts some of them. So a table says it all, and a program that
follows it needs to know nothing of blocks. See "Templates" in docs/web_format.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.kernels.weight_formats import FORMATS, WeightFormat
from volumetric.dtypes import Scheme
from volumetric.loaders.gguf_tensors import HOSTS, pack_tensor
from volumetric.loaders.gguf_types import BLOCK_TYPES, GGUF_TYPES, TYPE_NUMBERS

Bytes: TypeAlias = NDArray[np.uint8]
UNITS, REST = "units", "rest"
"""Parts of a row: those of `WeightFormat.lay_out`."""
_GROUPS: Final = (1, 2, 4)
_BEFORE: Final = 8
"""Bytes of zeros before a row, and after it: windows of 32 bits reach less far."""
_TRIED: Final = 9
"""Rows of up to so many blocks check a table: all remainders of a group, in more than one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSection:
    """A run of words in a part of a row.

    Attributes
    ----------
    blocks : consecutive blocks that give whole words, a group
    words : words of a group
    align : a section has a multiple of so many bytes, the last of which are zeros
    terms : (word of a group, delta, mask): the word has the bits in the mask from the 32 that begin `delta` bits after
        the first one of the group
    xor : constant of each word, which is added to them; empty: zeros
    """

    blocks: int
    words: int
    align: int
    terms: tuple[tuple[int, int, int], ...]
    xor: tuple[int, ...] = ()

    def used_bytes(self, blocks: int) -> int:
        """Bytes of a row of so many blocks, without those that align."""
        return -(-blocks * 4 * self.words // self.blocks)

    def row_bytes(self, blocks: int) -> int:
        """Bytes of a row of so many blocks."""
        return -(-self.used_bytes(blocks) // self.align) * self.align

    def fill(self, out: Bytes, rows: Bytes, block_bytes: int) -> None:
        """Write this section of rows ``[n, bytes of a row]`` to zeros ``[n, row_bytes]``."""
        blocks = rows.shape[1] // block_bytes
        step, groups = self.blocks * block_bytes, -(-blocks // self.blocks)
        padded = np.zeros((len(rows), _BEFORE + groups * step + _BEFORE), np.uint8)
        padded[:, _BEFORE : _BEFORE + rows.shape[1]] = rows
        words = np.zeros((len(rows), groups, self.words), np.uint32)
        words[:] = np.array(self.xor or 0, np.uint32)
        for word, delta, mask in self.terms:
            byte, bit = divmod(delta, 8)
            wide = np.ndarray(
                (len(rows), groups), "<u8" if bit else "<u4", padded, _BEFORE + byte, (padded.strides[0], step)
            )
            words[:, :, word] ^= (wide >> bit if bit else wide).astype(np.uint32) & np.uint32(mask)
        used = self.used_bytes(blocks)
        out[:, :used] = words.reshape(len(rows), -1).view(np.uint8)[:, :used]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedBits:
    """The layout of one type: part → its sections, one after the other."""

    block_bytes: int
    parts: Mapping[str, tuple[RowSection, ...]]

    def row_bytes(self, part: str, blocks: int) -> int:
        """Bytes of a row of so many blocks."""
        return sum(section.row_bytes(blocks) for section in self.parts[part])

    def lay_out(self, part: str, rows: Bytes) -> Bytes:
        """Return a part of rows ``[n, bytes of a row]``."""
        blocks = rows.shape[1] // self.block_bytes
        out = np.zeros((len(rows), self.row_bytes(part, blocks)), np.uint8)
        at = 0
        for section in self.parts[part]:
            size = section.row_bytes(blocks)
            section.fill(out[:, at : at + size], rows, self.block_bytes)
            at += size
        return out

    def described(self) -> dict[str, Any]:
        """Return the entry of network.json."""
        return {
            "block_bytes": self.block_bytes,
            "parts": {
                part: [
                    {
                        "blocks": one.blocks,
                        "words": one.words,
                        "align": one.align,
                        "terms": [list(term) for term in one.terms],
                        **({"xor": list(one.xor)} if one.xor else {}),
                    }
                    for one in sections
                ]
                for part, sections in self.parts.items()
            },
        }

    @classmethod
    def of(cls, described: Mapping[str, Any]) -> MovedBits:
        """Return the layout that an entry of network.json describes."""
        return cls(
            block_bytes=described["block_bytes"],
            parts={
                part: tuple(
                    RowSection(
                        blocks=one["blocks"],
                        words=one["words"],
                        align=one["align"],
                        terms=tuple((word, delta, mask) for word, delta, mask in one["terms"]),
                        xor=tuple(one.get("xor", ())),
                    )
                    for one in sections
                )
                for part, sections in described["parts"].items()
            },
        )


@cache
def moved_bits(kind: str) -> MovedBits | None:
    """Return the layout of a GGUF type; None if it has none on GPUs, or one that does more than to move bits."""
    if kind not in HOSTS and kind not in BLOCK_TYPES:
        return None
    layout = FORMATS.get(str(Scheme.parse(kind)))
    if layout is None:
        return None
    type_ = GGUF_TYPES[TYPE_NUMBERS[kind]]
    parts: dict[str, tuple[RowSection, ...]] = {}
    for part, sizes in _sections(layout, type_.block).items():
        sections: list[RowSection] = []
        for size, align in sizes:
            blocks = next(group for group in _GROUPS if group * size % 4 == 0)
            before = sum(section.row_bytes(blocks) for section in sections)
            section = _probed(layout, kind, part, blocks, before, size, align)
            if section is None:
                return None
            sections.append(section)
        parts[part] = tuple(sections)
    bits = MovedBits(block_bytes=type_.block_bytes, parts=parts)
    return bits if _is_right(bits, layout, kind) else None


def _sections(layout: WeightFormat, block: int) -> dict[str, list[tuple[int, int]]]:
    """Part → (bytes for a block, alignment in bytes) of its sections."""
    units = 8 * block  # elements of eight blocks: whole units of every format
    sizes = {UNITS: [(layout.row_bytes(units) // 8, 16)]}
    if layout.blocks is not None:
        counts = layout.row_bytes(units) // 16, 8
        sizes[REST] = [(section.nbytes(*counts) // 8, 4) for section in layout.blocks.sections]
    elif layout.group:
        sizes[REST] = [(layout.scale_bytes(units) // 8, 2)]
    return sizes


def _laid_out(layout: WeightFormat, kind: str, rows: Bytes) -> dict[str, Bytes]:
    """Return the parts of rows of blocks as they become resident."""
    type_ = GGUF_TYPES[TYPE_NUMBERS[kind]]
    shape = len(rows), rows.shape[1] // type_.block_bytes * type_.block
    units, rest = layout.lay_out(pack_tensor(np.ascontiguousarray(rows).reshape(-1), kind, shape))
    parts = {UNITS: units} | ({} if rest is None else {REST: rest})
    return {part: np.ascontiguousarray(words).view(np.uint8).reshape(len(rows), -1) for part, words in parts.items()}


def _probed(
    layout: WeightFormat, kind: str, part: str, blocks: int, before: int, size: int, align: int
) -> RowSection | None:
    """Return a section by what becomes of the numbers of all bits: row t has bit t of the number of each bit."""
    count = 8 * blocks * GGUF_TYPES[TYPE_NUMBERS[kind]].block_bytes
    numbers = np.arange(1, count + 1)  # 0: an output has no source
    planes = range(int(count).bit_length())
    probes = np.stack([np.zeros(count, np.uint8), *((numbers >> plane & 1).astype(np.uint8) for plane in planes)])
    laid = _laid_out(layout, kind, np.packbits(probes, axis=1, bitorder="little"))[part]
    words = blocks * size // 4
    bits = np.unpackbits(laid[:, before : before + 4 * words], axis=1, bitorder="little")
    moved = (bits[1:] ^ bits[0]).astype(np.int64)
    sources = moved.T @ (1 << np.arange(len(moved))) - 1
    if (sources >= count).any():
        return None
    masks: dict[tuple[int, int], int] = {}
    for at in np.flatnonzero(sources >= 0).tolist():
        word, bit = divmod(at, 32)
        delta = int(sources[at]) - bit
        masks[word, delta] = masks.get((word, delta), 0) | 1 << bit
    constants = np.packbits(bits[0], bitorder="little").view(np.uint32)
    return RowSection(
        blocks=blocks,
        words=words,
        align=align,
        terms=tuple((word, delta, mask) for (word, delta), mask in masks.items()),
        xor=tuple(constants.tolist()) if constants.any() else (),
    )


def _is_right(bits: MovedBits, layout: WeightFormat, kind: str) -> bool:
    """Whether a table lays random rows out as the layout does, for every remainder of a group."""
    draw = np.random.default_rng(0)
    for blocks in range(1, _TRIED + 1):
        rows = draw.integers(0, 256, (16, blocks * bits.block_bytes)).astype(np.uint8)
        with np.errstate(all="ignore"):
            parts = _laid_out(layout, kind, rows)
        if any(not np.array_equal(bits.lay_out(part, rows), laid) for part, laid in parts.items()):
            return False
    return True


def described_types(kinds: Sequence[str]) -> dict[str, Any]:
    """Return the entry ``types`` of network.json for types that have a layout."""
    tables = {kind: moved_bits(kind) for kind in kinds}
    return {str(TYPE_NUMBERS[kind]): bits.described() for kind, bits in tables.items() if bits is not None}
