"""Levels of a quantised matrix: scales of all its groups are fixed first, then codes are chosen column by column.

For integers the scales minimise the weighted squared error (`scales.search`), for block formats their encoders choose
them with the same weights. Both are ``value = scale · number + floor`` with a number for each code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Array, F32Array
from volumetric.dtypes import Packed, Scheme
from volumetric.dtypes.bits import pack_codes
from volumetric.dtypes.blocks.format import BlockFormat, Fields, fit_rows, scales_of
from volumetric.loaders.calibration.scale_search import search


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLevels:
    """Scales of a matrix ``[n, k]``.

    Attributes
    ----------
    scheme : scheme of the result
    group : columns that share a scale
    scale, floor : ``[groups, n]``
    numbers : values of codes before scaling, ascending
    codes : the code of each number
    parts : stored form of the scales: scales and offsets of integers, fields of a block format
    """

    scheme: Scheme
    group: int
    scale: F32Array
    floor: F32Array
    numbers: F32Array
    codes: NDArray[np.uint8]
    parts: tuple[Array, Array] | Fields

    def round_nearest(self, weight: F32Array) -> F32Array:
        """Return the nearest values for ``[n, k]``, element by element."""
        group = np.arange(weight.shape[1]) // self.group
        return self._nearest(self.scale[group], self.floor[group], weight.T)[1].T

    def nearest(self, column: int, x: F32Array) -> tuple[NDArray[np.uint8], F32Array]:
        """Return codes for the elements of a column, ``[n]``, and the values of the codes."""
        return self._nearest(self.scale[column // self.group], self.floor[column // self.group], x)

    def _nearest(self, scale: F32Array, floor: F32Array, x: F32Array) -> tuple[NDArray[np.uint8], F32Array]:
        scaled = np.divide(x - floor, scale, out=np.zeros_like(x), where=scale != 0)
        low = self.numbers[0]
        if self.numbers[-1] - low == len(self.numbers) - 1:
            at = np.clip(np.rint(scaled), low, self.numbers[-1]) - low
        else:
            at = np.searchsorted((self.numbers[1:] + self.numbers[:-1]) / 2, scaled)
        index = at.astype(np.intp)
        return self.codes[index], self.numbers[index] * scale + floor

    def pack_codes(self, codes: NDArray[np.uint8]) -> Packed:
        """Return the matrix of codes ``[n, k]``."""
        scheme, (rows, k) = self.scheme, codes.shape
        blocks = scheme.blocks
        if blocks is None:
            assert not isinstance(self.parts, Fields)
            scales, offsets = self.parts
            words = pack_codes(codes, scheme.dtype.bits, scheme.words_per_row(k))
            return Packed(
                scheme=scheme,
                shape=codes.shape,
                payload=np.ascontiguousarray(words),
                scales=scales,
                offsets=offsets if scheme.has_offset else None,
            )
        assert isinstance(self.parts, Fields)
        filled = np.zeros((rows, blocks.blocks(k) * blocks.size), np.uint8)
        filled[:, :k] = codes
        raw = blocks.join(self.parts._replace(codes=filled.reshape(-1, blocks.size))).reshape(rows, -1)
        payload = np.zeros((rows, scheme.words_per_row(k)), np.uint32)
        payload.view(np.uint8)[:, : raw.shape[1]] = raw
        return Packed(scheme=scheme, shape=codes.shape, payload=payload)


def fit(weight: F32Array, importance: F32Array, scheme: Scheme) -> CodeLevels:
    """Return the scales for a matrix whose inputs have these mean squares.

    Parameters
    ----------
    weight : ``[n, k]``
    importance : ``[k]``, above 0
    scheme : integers with scales, or a block format
    """
    return _integers(weight, importance, scheme) if scheme.blocks is None else _blocks(weight, importance, scheme)


def _integers(weight: F32Array, importance: F32Array, scheme: Scheme) -> CodeLevels:
    k = weight.shape[1]
    size, bits = scheme.group or k, scheme.dtype.bits
    rules = [search(weight[:, at : at + size], importance[at : at + size], scheme) for at in range(0, k, size)]
    scale, floor = np.stack([rule.scale for rule in rules]), np.stack([rule.offset for rule in rules])
    numbers = np.arange(rules[0].low, rules[0].high + 1)
    host = scheme.scale_dtype.host if scheme.scale_dtype else None
    stored = tuple(np.ascontiguousarray(part.T.astype(host)) for part in (scale, floor))
    return CodeLevels(
        scheme=scheme,
        group=size,
        scale=scale,
        floor=floor,
        numbers=numbers.astype(np.float32),
        codes=(numbers & ((1 << bits) - 1)).astype(np.uint8),
        parts=(stored[0], stored[1]),
    )


def _blocks(weight: F32Array, importance: F32Array, scheme: Scheme) -> CodeLevels:
    blocks = scheme.blocks
    assert isinstance(blocks, BlockFormat)
    fields = fit_rows(blocks, weight, importance)
    scale, floor = scales_of(fields)
    numbers = blocks.numbers(np.arange(blocks.levels, dtype=np.uint8)).astype(np.float32)
    order = np.argsort(numbers, kind="stable")
    by_group = scale.reshape(len(weight), -1).T
    return CodeLevels(
        scheme=scheme,
        group=blocks.size // scale.shape[1],
        scale=np.ascontiguousarray(by_group),
        floor=np.zeros_like(by_group) if floor is None else np.ascontiguousarray(floor.reshape(len(weight), -1).T),
        numbers=numbers[order],
        codes=order.astype(np.uint8),
        parts=fields,
    )
