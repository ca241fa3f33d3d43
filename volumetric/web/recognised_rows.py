"""RecognisedRows: which rows and elements of drawn tensors the contents of a buffer are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from volumetric.web.drawn_tensors import DrawnTensors
from volumetric.web.filled_buffers import WORDS, row_ranges, row_size
from volumetric.web.moved_bits import REST, UNITS, MovedBits, moved_bits
from volumetric.web.row_loops import Numbers, rows_as_loops, rows_of_loops

Fill: TypeAlias = list[list[Any]]
"""Entries of a buffer, see `filled`."""
_UNIT: Final = 16
"""Bytes at the start of a row by which it is recognised."""
_ADDED: Final = (0.0, -1.0)
"""What may be added to elements: some files store gains plus 1."""
_SAMPLE: Final = 256
"""Words that mostly show that contents are computed."""


class RecognisedRows:
    """The rows of all tensors with the contents of a seed, by how they begin in buffers.

    Parameters
    ----------
    tensors : drawn with that seed
    """

    def __init__(self, tensors: DrawnTensors) -> None:
        self._tensors = tensors
        self._names = list(tensors.entries)
        keys, owners, rows = [], [], []
        for number, (name, entry) in enumerate(tensors.entries.items()):
            bits, vector = moved_bits(entry.type), entry.type == "F32" and prod(entry.shape[:-1]) == 1
            if bits is None or vector or name in tensors.fixed or not entry.nbytes:
                continue
            for first, some in row_ranges(tensors, name):
                keys.append(_keys(_first_units(bits, some)))
                owners.append(np.full(len(some), number))
                rows.append(np.arange(first, first + len(some)))
        every = np.concatenate(keys) if keys else np.zeros(0, np.uint64)
        order = np.argsort(every, kind="stable")
        self._keys = every[order]
        self._owners = (np.concatenate(owners) if owners else np.zeros(0, np.int64))[order]
        self._rows = (np.concatenate(rows) if rows else np.zeros(0, np.int64))[order]

    def fill_of(self, contents: NDArray[np.uint8]) -> Fill | None:
        """Return where contents come from: rows of matrices, or elements and zeros; None if neither explains them."""
        return self._units(contents) or self._words(contents)

    def rest_of(self, fill: Fill) -> tuple[Fill, int] | None:
        """Return fill and bytes of the buffer with what belongs to the units in one; None if nothing does."""
        nbytes = 0
        for name, part, loops, *_ in fill:
            bits, blocks = self._layout(self._names.index(name)) if part == UNITS else (None, 0)
            if bits is None or REST not in bits.parts:
                return None
            nbytes += len(rows_of_loops(loops)[0]) * bits.row_bytes(REST, blocks)
        return [[name, REST, loops] for name, _, loops, *_ in fill], -(-nbytes // 4) * 4

    def _units(self, contents: NDArray[np.uint8]) -> Fill | None:
        first = self._find(contents[:_UNIT].reshape(1, -1)) if contents.size >= _UNIT else None
        if first is None:
            return None
        layout = self._layout(int(first[0][0]))
        size = layout[0].row_bytes(UNITS, layout[1])
        if contents.size % size:
            return None
        places = self._find(contents.reshape(-1, size)[:, :_UNIT])
        if places is None or any(self._layout(owner) != layout for owner in np.unique(places[0]).tolist()):
            return None
        return self._fill(UNITS, *places, np.arange(len(places[0])))

    def _words(self, contents: NDArray[np.uint8]) -> Fill | None:
        targets = np.flatnonzero(contents.view(np.uint32))
        written = contents.view(np.float32)[targets]
        for add in _ADDED:
            with np.errstate(all="ignore"):  # anything may be looked at as numbers
                words = (written - np.float32(add)).view(np.uint32) if add else written.view(np.uint32)
            if self._tensors.elements_of(words[:_SAMPLE]) is not None:
                places = self._tensors.elements_of(words)
                return None if places is None else self._fill(WORDS, *places, targets, *([add] if add else []))
        return None

    def _fill(self, part: str, owners: Numbers, rows: Numbers, targets: Numbers, *add: float) -> Fill | None:
        numbers, firsts = np.unique(owners, return_index=True)
        fill: Fill = []
        for number in numbers[np.argsort(firsts)].tolist():
            chosen = owners == number
            loops = rows_as_loops(rows[chosen], targets[chosen])
            if loops is None:
                return None
            fill.append([self._names[number], part, loops, *add])
        return fill

    def _find(self, units: NDArray[np.uint8]) -> tuple[Numbers, Numbers] | None:
        """Return tensor and row of each row that begins so; None if one is in no tensor."""
        wanted = _keys(np.ascontiguousarray(units))
        at = np.searchsorted(self._keys, wanted)
        if not self._keys.size or (self._keys[np.minimum(at, self._keys.size - 1)] != wanted).any():
            return None
        return self._owners[at], self._rows[at]

    def _layout(self, number: int) -> tuple[MovedBits, int]:
        """Return the layout of a tensor's type, and blocks of a row."""
        entry = self._tensors.entries[self._names[number]]
        bits = moved_bits(entry.type)
        assert bits is not None, "rows of other types are not listed"
        return bits, row_size(self._tensors, entry.name) // bits.block_bytes


def _first_units(bits: MovedBits, rows: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the first unit of each row, from as few blocks as have it."""
    blocks, each = 1, bits.row_bytes(UNITS, 8) // 8
    while blocks * each < _UNIT:
        blocks *= 2
    return bits.lay_out(UNITS, rows[:, : blocks * bits.block_bytes])[:, :_UNIT]


def _keys(units: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return a number for the 16 bytes of each row."""
    halves = np.ascontiguousarray(units).view(np.uint64)
    return halves[:, 0] * np.uint64(0x9E3779B97F4A7C15) ^ halves[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)


def kinds_of(fills: Sequence[Fill], tensors: DrawnTensors) -> list[str]:
    """Return the types whose layouts fills use, in the order of their first use."""
    return list(dict.fromkeys(tensors.entries[name].type for fill in fills for name, part, *_ in fill if part != WORDS))
