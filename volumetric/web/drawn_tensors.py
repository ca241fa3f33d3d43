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

_WORDS: Final = 1 << 31
"""Numbers that a float32 element may have: sign, 7 bits of exponent, 23 of fraction. None is zero, infinite or NaN."""
_LEAST_EXPONENT: Final = 64
_SPREAD: Final = 0x9E3779B1 % _WORDS
"""Odd, so that products with it are in another order and come back."""
_PER_SEED: Final = 0x2545F491
_AT_ONCE: Final = 1 << 20
"""Elements drawn at a time."""
_BLOCK: Final = 32
"""Bytes of one count of Philox."""
_FINITE: Final = np.uint16(0xBFFF)
"""Bits of a float16 or bfloat16 below 2."""


class DrawnTensors(GGUFTensors):
    """A source with the metadata and the tensors of another one.

    Elements of F32 tensors are different from each other, so each says where it comes from, see `elements_of`; blocks
    are random bits. A tensor that is read while `seed` is None has its real contents, for all seeds.

    Parameters
    ----------
    file : the other source

    Attributes
    ----------
    seed : which contents to draw; None: those of the file
    fixed : tensors with their real contents → SHA-256 of them

    Raises
    ------
    UnsupportedError : there are too many float32 elements to tell them apart
    """

    __slots__ = ("_file", "_firsts", "_numbers", "fixed", "seed")

    def __init__(self, file: GGUFSource, where: str) -> None:
        super().__init__(where, file.metadata, file.entries)
        self._file = file
        self.seed: int | None = None
        self.fixed: dict[str, str] = {}
        self._numbers = {name: number for number, name in enumerate(file.entries)}
        self._firsts: dict[str, int] = {}
        total = 0
        for name, entry in file.entries.items():
            if entry.type == "F32":
                self._firsts[name] = total
                total += prod(entry.shape)
        if total > _WORDS:
            raise UnsupportedError(
                f"{where} has {total} elements in F32, and a template tells {_WORDS} apart",
                hint="quantise the model: browsers have no room for it anyway",
            )

    def raw_part(self, name: str, start: int, stop: int) -> Array:
        """Return bytes of one tensor. Raises `UnsupportedError` for a type that templates do not have."""
        if self.seed is None and name not in self.fixed:
            self.fixed[name] = hashlib.sha256(self._file.raw_part(name, 0, self.entries[name].nbytes)).hexdigest()
        if name in self.fixed:
            return self._file.raw_part(name, start, stop)
        kind = self.entries[name].type
        if kind == "F32":
            return self._elements(name, start // 4, -(-stop // 4))[start % 4 : start % 4 + stop - start]
        if moved_bits(kind) is None:
            raise UnsupportedError(
                f"tensor {name!r} of {self.where} has the type {kind}, which GPUs have no layout for that moves bits",
                hint="quantise the model to another type, or export it without --template",
            )
        raw = self._random(name, start, stop)
        if kind in ("F16", "BF16"):  # a cast of a number that is none raises warnings
            raw.view(np.uint16)[:] &= _FINITE
        return raw

    def release(self, name: str) -> None:
        """Release the pages of a tensor with its real contents."""
        if name in self.fixed:
            self._file.release(name)

    def elements_of(self, words: NDArray[np.uint32]) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
        """Return which tensor, by its number, and which element of it each word is; None if one is none of them."""
        places = (words.astype(np.int64) & 0x7FFFFFFF) - (_LEAST_EXPONENT << 23)
        numbers = (places % (1 << 30)) | (words >> np.uint32(31)).astype(np.int64) << 30
        numbers = (numbers - self._shift()) * pow(_SPREAD, -1, _WORDS) % _WORDS
        names = [name for name in self._firsts if name not in self.fixed]
        firsts = np.array([self._firsts[name] for name in names], np.int64)
        counts = np.array([prod(self.entries[name].shape) for name in names], np.int64)
        at = np.searchsorted(firsts, numbers, side="right") - 1
        if not names or (places < 0).any() or (places >= 1 << 30).any() or (at < 0).any():
            return None
        elements = numbers - firsts[at]
        if (elements >= counts[at]).any():
            return None
        return np.array([self._numbers[name] for name in names], np.int64)[at], elements

    def _elements(self, name: str, start: int, stop: int) -> Array:
        first, words = self._firsts[name], np.empty(stop - start, np.uint32)
        for at in range(0, len(words), _AT_ONCE):
            part = words[at : at + _AT_ONCE]
            numbers = np.arange(first + start + at, first + start + at + len(part), dtype=np.int64)
            numbers = (numbers * _SPREAD + self._shift()) % _WORDS
            part[:] = (numbers >> 30 << 31) | (numbers % (1 << 30)) + (_LEAST_EXPONENT << 23)
        return words.view(np.uint8)

    def _shift(self) -> int:
        return (self.seed or 0) * _PER_SEED

    def _random(self, name: str, start: int, stop: int) -> Array:
        count = start // _BLOCK
        stream = np.random.Philox(key=[self.seed or 0, self._numbers[name]], counter=[count, 0, 0, 0])
        words = stream.random_raw(4 * (-(-stop // _BLOCK) - count))
        return words.view(np.uint8)[start - count * _BLOCK : stop - count * _BLOCK]
