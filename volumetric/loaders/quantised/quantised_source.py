"""Shared parts of all methods: matrices that consist of several tensors, and a view of the checkpoint with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import Shape
from volumetric.base.errors import CheckpointError, UnsupportedError
from volumetric.dtypes import Packed, Scheme
from volumetric.dtypes.bits import pack_codes, unpack_codes
from volumetric.dtypes.registry import parse_dtype
from volumetric.loaders.tensor_source import TensorEntry, TensorSource

logger: logging.Logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedMatrix:
    """One weight of a quantised checkpoint.

    Attributes
    ----------
    shape : logical shape ``(out, in)``, or ``(count, out, in)`` of a stack
    scheme : scheme of the result of `rows`
    parts : tensors of the checkpoint that form it, and that are hidden otherwise
    rows : function that reads rows ``start:stop``, counted over all matrices of a stack
    """

    shape: Shape
    scheme: Scheme
    parts: tuple[str, ...]
    rows: Callable[[int, int], Packed]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantisedWeights:
    """Result of a method for a checkpoint.

    Attributes
    ----------
    matrices : name in the family, ``"….q_proj.weight"`` → the matrix
    ignored : tensors that do not affect weights, such as scales of activations
    """

    matrices: Mapping[str, QuantisedMatrix]
    ignored: tuple[str, ...] = ()


class QuantisedSource:
    """A checkpoint with assembled matrices: a `TensorSource` whose other tensors are those of `inner`.

    Parameters
    ----------
    inner : the files
    reading : result of the method
    """

    __slots__ = ("_inner", "_matrices", "entries")

    def __init__(self, inner: TensorSource, reading: QuantisedWeights) -> None:
        self._inner, self._matrices = inner, reading.matrices
        used = {part: name for name, matrix in reading.matrices.items() for part in matrix.parts}
        self.entries: dict[str, TensorEntry] = {}
        for name, entry in inner.entries.items():
            if name in used:
                self.entries.setdefault(used[name], self._entry(used[name]))
            elif name not in reading.ignored:
                self.entries[name] = entry

    def _entry(self, name: str) -> TensorEntry:
        matrix = self._matrices[name]
        nbytes = sum(self._inner.entries[part].nbytes for part in matrix.parts)
        return TensorEntry(name=name, type=str(matrix.scheme), shape=matrix.shape, start=0, stop=nbytes)

    def scheme(self, name: str) -> Scheme:
        """Return the scheme of one tensor."""
        return self._matrices[name].scheme if name in self._matrices else self._inner.scheme(name)

    def packed(self, name: str) -> Packed:
        """Read one tensor."""
        if name not in self._matrices:
            return self._inner.packed(name)
        return self.packed_rows(name, 0, prod(self._matrices[name].shape[:-1]))

    def packed_rows(self, name: str, start: int, stop: int) -> Packed:
        """Read some rows of one tensor."""
        if name not in self._matrices:
            return self._inner.packed_rows(name, start, stop)
        return self._matrices[name].rows(start, stop)

    def release(self, name: str) -> None:
        """Drop the mapped pages of one tensor, or of all tensors of a matrix."""
        parts = self._matrices[name].parts if name in self._matrices else (name,)
        for part in parts:
            self._inner.release(part)


def array_of(source: TensorSource, name: str, *, types: Sequence[str], axes: int | None = None) -> NDArray[Any]:
    """Return a tensor as an array of its stored type, a view of the file if possible.

    Parameters
    ----------
    types : allowed type tags, such as ``("I32", "U32")``
    axes : required number of axes

    Raises
    ------
    CheckpointError
        It is missing, or has another type or rank.
    """
    entry = entry_of(source, name)
    if entry.type not in types or (axes is not None and len(entry.shape) != axes):
        rank = "" if axes is None else f" of {axes} axes"
        raise CheckpointError(
            f"tensor {name!r} is {entry.type} {list(entry.shape)}, expected {' or '.join(types)}{rank}"
        )
    packed = source.packed(name)
    return packed.codes().reshape(entry.shape)


def entry_of(source: TensorSource, name: str) -> TensorEntry:
    """Return the entry of a tensor; raises `CheckpointError` with its name if it is missing."""
    if name not in source.entries:
        raise CheckpointError(f"the quantised weights lack tensor {name!r}", hint="finish the download")
    return source.entries[name]


def expect_shape(what: str, shape: Shape, *expected: Shape) -> None:
    """Raise `CheckpointError` unless a tensor has one of the expected shapes."""
    if tuple(shape) not in expected:
        raise CheckpointError(
            f"tensor {what!r} has shape {list(shape)}, expected {' or '.join(str(list(s)) for s in expected)}"
        )


def stems(source: TensorSource, ending: str) -> list[str]:
    """Names of the modules that have a tensor with this suffix."""
    return [name.removesuffix(ending) for name in source.entries if name.endswith(ending)]


def groups_of(k: int, size: int) -> int:
    """Number of groups of `size` neighbours in a row of `k`; size 0 means the whole row."""
    return -(-k // (size or k)) if k else 0


FLOATS = ("F16", "BF16", "F32")
"""Types of scales."""


def scheme_of(codes: str, group: int, scales: np.dtype[Any]) -> Scheme:
    """Return the scheme of codes of a type, with a scale of dtype `scales` for each `group` (0: each row)."""
    text = f"{codes}:{f'g{group}' if group else 'row'}:{parse_dtype(scales).name}"
    return Scheme.parse(text)


def pack(
    scheme: Scheme,
    k: int,
    codes: NDArray[Any],
    scales: NDArray[Any] | None = None,
    offsets: NDArray[Any] | None = None,
) -> Packed:
    """Return rows of codes ``[rows, k]`` with scales ``[rows, groups]`` as a packed tensor.

    Codes narrower than a byte have one byte each; the low bits of negative codes are used.
    """
    bits, rows = scheme.dtype.bits, codes.shape[0]
    raw = np.ascontiguousarray(codes)
    raw = raw.view(np.uint8) & np.uint8((1 << bits) - 1) if bits < 8 else raw.view(f"u{bits // 8}")
    host = scheme.scale_dtype.host if scheme.scale_dtype else None
    return Packed(
        scheme=scheme,
        shape=(rows, k),
        payload=np.ascontiguousarray(pack_codes(raw, bits, scheme.words_per_row(k))),
        scales=None if scales is None else np.ascontiguousarray(scales, host),
        offsets=None if offsets is None else np.ascontiguousarray(offsets, host),
    )


def dense_codes(words: NDArray[Any], bits: int, k: int) -> NDArray[np.uint8]:
    """Unpack ``[rows, words]`` of 32 bits; a row is one bit string of codes of up to 8 bits, low bits first."""
    rows = np.ascontiguousarray(words).view(np.uint32)
    if bits in (1, 2, 4, 8):
        return unpack_codes(rows, bits, k)
    string = np.unpackbits(rows.view(np.uint8), axis=1, count=bits * k, bitorder="little")
    weights = np.left_shift(1, np.arange(bits)).astype(np.uint8)
    return (string.reshape(len(rows), k, bits) * weights).sum(-1, dtype=np.uint8)


def code_dtype(bits: int) -> str:
    """Narrowest unsigned type that kernels support for codes of `bits` bits."""
    if bits > 8:
        raise UnsupportedError(f"codes of {bits} bits are not supported", hint="supported: up to 8 bits")
    return "uint4" if bits <= 4 else "uint8"


def common_float_scales(scales: NDArray[Any], *more: NDArray[Any]) -> NDArray[Any]:
    """Return bfloat16 scales as float16, which kernels support, if all of them (and `more`) are exact in it."""
    if scales.dtype.name != "bfloat16":
        return scales
    with np.errstate(all="ignore"):  # the comparison detects overflow
        same = all(np.array_equal(part.astype(np.float16).astype(part.dtype), part) for part in (scales, *more))
    return scales.astype(np.float16) if same else scales


def log_decoded(method: str, names: Iterable[str], dtype: str, why: str) -> None:
    """Log that some matrices do not stay packed, their size, and how to keep them small."""
    some = list(names)
    if some:
        logger.warning(
            "%d matrices quantised by %s are decoded to %s, as that library does: %s. "
            'dtype="int8" or "int4:g32" makes them smaller, but rounds again',
            len(some),
            method,
            dtype,
            why,
        )


def elements(shape: Shape) -> int:
    """Number of elements of a tensor of this shape."""
    return prod(shape)
