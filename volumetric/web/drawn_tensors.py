"""DrawnTensors: the tensors of a GGUF model with numbered random contents, by which their places can be recognised."""

from __future__ import annotations

import hashlib
from math import prod
from typing import Final

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array
from volumetric.base.errors import UnsupportedError
from volumetric.loaders.gguf import GGUFSource
from volumetric.loaders.gguf_tensors import GGUFTensors
from volumetric.web.moved_bits import moved_bits

_NUMBERS: Final = 1 << 27
"""Different float32 elements: from 2 to 2^17, where each minus 1 is exact, and none becomes another."""
_TWO: Final = 128 << 23
"""Bits of 2.0, the least of them."""
_SPREAD: Final = 0x9E3779B1 % _NUMBERS
"""Odd, so that products with it are in another order and come back."""
_PER_SEED: Final = 0x2545F491
_AT_ONCE: Final = 1 << 20
"""Elements drawn at a time."""
_BLOCK: Final = 32
"""Bytes of one count of Philox."""
_FINITE: Final = {"F32": np.uint32(0xBFFFFFFF), "F16": np.uint16(0xBFFF), "BF16": np.uint16(0xBFFF)}
"""Bits of a number below 2: casts of infinity and NaN raise warnings."""


class DrawnTensors(GGUFTensors):
    """A source with the metadata and the tensors of another one.

    Elements of F32 tensors are different from each other, so each says where it comes from, see `elements_of`; if they
    are too many, those of the largest tensors are random bits, as all blocks are. A tensor that is read while `seed` is
    None has its real contents, for all seeds.

    Parameters
    ----------
    file : the other source
    where : what messages call it

    Attributes
    ----------
    seed : which contents to draw; None: those of the file
    fixed : tensors with their real contents → SHA-256 of them
    latest : tensor that was read last
    """

    __slots__ = ("_file", "_firsts", "_numbers", "fixed", "latest", "seed")

    def __init__(self, file: GGUFSource, where: str) -> None:
        super().__init__(where, file.metadata, file.entries)
        self._file = file
        self.seed: int | None = None
        self.fixed: dict[str, str] = {}
        self.latest: str = ""
        self._numbers = {name: number for number, name in enumerate(file.entries)}
        self._firsts: dict[str, int] = {}
        total = 0
        for name, entry in sorted(file.entries.items(), key=lambda item: item[1].nbytes):
            if entry.type == "F32" and total + prod(entry.shape) <= _NUMBERS:
                self._firsts[name] = total
                total += prod(entry.shape)

    def raw_part(self, name: str, start: int, stop: int) -> Array:
        """Return bytes of one tensor. Raises `UnsupportedError` for a type that templates do not have."""
        self.latest = name
        if self.seed is None and name not in self.fixed:
            self.fixed[name] = hashlib.sha256(self._file.raw(name).data).hexdigest()
        if name in self.fixed:
            return self._file.raw_part(name, start, stop)
        if name in self._firsts:
            return self._elements(name, start // 4, -(-stop // 4))[start % 4 : start % 4 + stop - start]
        kind = self.entries[name].type
        if moved_bits(kind) is None:
            raise UnsupportedError(
                f"tensor {name!r} of {self.where} has the type {kind}, and GPUs have no layout that moves its bits",
                hint="quantise the model to another type, or export it without --template",
            )
        raw = self._random(name, start, stop)
        if kind in _FINITE:
            raw.view(_FINITE[kind].dtype)[:] &= _FINITE[kind]
        return raw

    def release(self, name: str) -> None:
        """Release the pages of a tensor with its real contents."""
        if name in self.fixed:
            self._file.release(name)

    def elements_of(self, words: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return which tensor, by its number, and which element of it each word is; None if one is none of them."""
        places = words.astype(np.int64) - _TWO
        if not self._firsts or (places < 0).any() or (places >= _NUMBERS).any():
            return None
        numbers = (places - self._shift()) * pow(_SPREAD, -1, _NUMBERS) % _NUMBERS
        names = list(self._firsts)
        at = np.searchsorted(np.array(list(self._firsts.values()), np.int64), numbers, side="right") - 1
        elements = numbers - np.array(list(self._firsts.values()), np.int64)[at]
        if (elements >= np.array([prod(self.entries[name].shape) for name in names], np.int64)[at]).any():
            return None
        return np.array([self._numbers[name] for name in names], np.int64)[at], elements

    def _elements(self, name: str, start: int, stop: int) -> Array:
        first, words = self._firsts[name] + start, np.empty(stop - start, np.uint32)
        for at in range(0, len(words), _AT_ONCE):
            part = words[at : at + _AT_ONCE]
            numbers = np.arange(first + at, first + at + len(part), dtype=np.int64)
            part[:] = (numbers * _SPREAD + self._shift()) % _NUMBERS + _TWO
        return words.view(np.uint8)

    def _shift(self) -> int:
        return (self.seed or 0) * _PER_SEED % _NUMBERS

    def _random(self, name: str, start: int, stop: int) -> Array:
        count = start // _BLOCK
        stream = np.random.Philox(key=[self.seed or 0, self._numbers[name]], counter=[count, 0, 0, 0])
        words = stream.random_raw(4 * (-(-stop // _BLOCK) - count))
        return words.view(np.uint8)[start - count * _BLOCK : stop - count * _BLOCK]
