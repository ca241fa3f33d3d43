"""BlockFormat: numbers stored in self-contained blocks of bytes, as ggml defines them, and one of our own.

A block holds `size` neighbours of a row with everything that they need. All formats here are one formula,

    value = (step · scale_g) · code + (floor · min_g),

with one float `step` (and `floor`) for the block and small integers `scale_g`, `min_g` for each group of neighbours;
what a format has none of counts as 1, a missing floor as 0. Products in the brackets, and the one with the code, are
exact in float32, so a value is rounded once, and any kernel that computes the formula gives the bits of ggml's own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import F32Array
from volumetric.dtypes.registry import DType

Bytes = NDArray[np.uint8]


class Fields(NamedTuple):
    """What n blocks hold, taken apart.

    Attributes
    ----------
    codes : uint8 ``[n, size]``, before `BlockFormat.zero` is subtracted or `BlockFormat.table` looked up
    step : ``[n]`` in float16 or bfloat16
    scales : int8 ``[n, groups]``, or None
    floor : ``[n]`` float16, or None
    mins : uint8 ``[n, groups]``, or None
    """

    codes: Bytes
    step: NDArray[Any]
    scales: NDArray[np.int8] | None = None
    floor: NDArray[np.float16] | None = None
    mins: Bytes | None = None


ScaleKind = Literal["float16", "bfloat16", "int8", "uint4", "head", "float32"]
"""How scales are stored; int8 and uint4 times the step of the block, which alone is the scale for ``head``."""

FloorKind = Literal["none", "float16", "uint8", "uint4"]
"""How floors are stored; uint8 and uint4 times the floor of the block, uint4 in the scale's byte, above it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resident:
    """How devices hold a format; planes of bits, groups and zero follow from the format itself.

    Attributes
    ----------
    scales, floors : how CPU panels store them
    sections : what a row has beside its low bits on a GPU, in this order: names in `kernels.gpu.blocks.SECTIONS`
    shaders : files in the shaders' ``block`` that make a reader together with the format's own in ``dtype``
    nibbles_at : byte of a block from which on its low bits stand as those of Q4_K, None elsewhere
    read : codes that kernels of a GPU take at a time, where a piece of 16 bytes has two low bits of 64 codes
    """

    scales: ScaleKind = "float16"
    floors: FloorKind = "none"
    sections: tuple[str, ...]
    shaders: tuple[str, ...] = ()
    nibbles_at: int | None = None
    read: int = 32


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockFormat:
    """One block format. There is exactly one instance for each.

    Attributes
    ----------
    name : text form as a scheme, ``"q4_k"``
    size : numbers of a block
    block_bytes : bytes of a block
    dtype : the numeric type that holds the codes, or is nearest to it
    group : numbers that share a scale
    levels : how many codes there are
    split : takes blocks, uint8 ``[n, block_bytes]``, apart
    join : makes blocks of what `split` gives
    fit : finds scales for finite float32 ``[n, size]``, and the codes nearest to it; how much each number counts comes
        as float32 of that shape, or None to let its size decide, as in ggml
    zero : the code that stands for 0
    table : values of the codes where they are not evenly spaced, int8
    in_gguf : whether GGUF has it as a type
    resident : how devices hold it; None: as what it decodes to
    calibrated : whether it is among those that calibration chooses from
    """

    name: str
    size: int
    block_bytes: int
    dtype: DType
    group: int
    levels: int
    split: Callable[[Bytes], Fields]
    join: Callable[[Fields], Bytes]
    fit: Callable[[F32Array, F32Array | None], Fields]
    zero: int = 0
    table: tuple[int, ...] | None = None
    in_gguf: bool = True
    resident: Resident | None = None
    calibrated: bool = True

    @property
    def gguf_type(self) -> str:
        """Name of the GGUF tensor type, of those that are."""
        return self.name.upper()

    @property
    def planes(self) -> tuple[int, ...]:
        """Bits of the codes in planes of 4, 2 and 1, lowest first."""
        bits = (self.levels - 1).bit_length()
        return tuple(plane for plane in (4, 2, 1) if bits & plane)

    def blocks(self, k: int) -> int:
        """Blocks that a row of `k` numbers takes; the last one may hold fewer numbers than it could."""
        return -(-k // self.size)

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` numbers, before padding to whole words."""
        return self.blocks(k) * self.block_bytes

    def encode(self, x: F32Array, importance: F32Array | None) -> Bytes:
        """Return blocks ``[n, block_bytes]`` of numbers ``[n, size]``, see `fit`."""
        return self.join(self.fit(x, importance))

    def numbers(self, codes: Bytes) -> NDArray[np.int8]:
        """Return what codes stand for before they are scaled."""
        if self.table is not None:
            return np.array(self.table, np.int8)[codes]
        return codes.view(np.int8) - np.int8(self.zero)

    def decode(self, blocks: Bytes) -> F32Array:
        """Return the values ``[n, size]`` of blocks ``[n, block_bytes]``, bit for bit those of ggml."""
        fields = self.split(blocks)
        n = len(blocks)
        scale, floor = scales_of(fields)
        values = self.numbers(fields.codes).astype(np.float32).reshape(n, scale.shape[1], -1)
        values *= scale[..., None]
        if floor is not None:
            values += floor[..., None]
        return values.reshape(n, self.size)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"BlockFormat({self.name})"

    def __reduce__(self) -> tuple[Callable[[str], BlockFormat], tuple[str]]:
        # Identity is equality, so copies and unpickled values must be the one instance.
        from volumetric.dtypes.blocks import named_format

        return named_format, (self.name,)


def scales_of(fields: Fields) -> tuple[F32Array, F32Array | None]:
    """Scale, and floor where there is one, of each group of numbers: ``[n, groups]``."""
    scale = fields.step.astype(np.float32)[:, None]
    if fields.scales is not None:
        scale = scale * fields.scales
    if fields.floor is None:
        return scale, None
    floor = fields.floor.astype(np.float32)[:, None]
    return scale, floor if fields.mins is None else floor * fields.mins


def halves(blocks: Bytes, at: int) -> NDArray[np.float16]:
    """The float16 at byte `at` of each block."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")[:, 0]


def half_bytes(values: NDArray[Any]) -> Bytes:
    """``[n]`` float16 as bytes ``[n, 2]``."""
    return np.ascontiguousarray(values.astype("<f2", copy=False)).view(np.uint8).reshape(-1, 2)


def planes(packed: Bytes, bits: int, run: int) -> Bytes:
    """Codes of `bits` bits out of bytes ``[n, bytes]``, in reading order.

    Of each `run` bytes the lowest bits are `run` neighbours, the next bits the next `run`, and so on.
    """
    (n, size), per = packed.shape, 8 // bits
    runs = packed.reshape(n, size // run, run)
    out = np.empty((n, runs.shape[1], per, run), np.uint8)
    for part in range(per):
        np.right_shift(runs, np.uint8(bits * part), out=out[:, :, part])
    out &= np.uint8((1 << bits) - 1)
    return out.reshape(n, size * per)


def packed_planes(codes: Bytes, bits: int, run: int) -> Bytes:
    """Bytes of codes ``[n, numbers]`` of `bits` bits: undoes `planes`, which has the order."""
    (n, numbers), per = codes.shape, 8 // bits
    parts = codes.reshape(n, numbers // (per * run), per, run)
    out = np.zeros((n, parts.shape[1], run), np.uint8)
    for part in range(per):
        out |= (parts[:, :, part] & np.uint8((1 << bits) - 1)) << np.uint8(bits * part)
    return out.reshape(n, numbers // per)


def fit_rows(blocks: BlockFormat, x: F32Array, importance: F32Array | None) -> Fields:
    """Return scales and codes of the blocks of rows, see `BlockFormat.fit`.

    Parameters
    ----------
    x : ``[rows, k]``; numbers beyond the end of a row are zeros that do not count
    importance : how much the squared error of each column counts, ``[k]``, or None
    """
    rows, k = x.shape
    padded = np.zeros((rows, blocks.blocks(k) * blocks.size), np.float32)
    padded[:, :k] = x
    padded = padded.reshape(-1, blocks.size)
    if importance is None:
        return blocks.fit(padded, None)
    counts = np.zeros((rows, padded.size // max(rows, 1)), np.float32)
    counts[:, :k] = importance
    counts = counts.reshape(padded.shape)
    # As in ggml: numbers that are large in their block keep weight where activations say little.
    counts *= np.sqrt(np.square(padded).mean(axis=1, keepdims=True) + np.square(padded))
    return blocks.fit(padded, counts)
