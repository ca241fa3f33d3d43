"""BlockFormat: numbers stored in self-contained blocks of bytes, as ggml defines them, plus one format of this package.

A block holds `size` neighbours of a row and everything needed to decode them. All formats follow one formula,

    value = (step · scale_g) · code + (floor · min_g),

with one float `step` (and `floor`) per block and small integers `scale_g`, `min_g` per group of neighbours;
missing factors are 1, and a missing floor is 0. Products in the brackets, and the product with the code, are
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
    """The decoded parts of n blocks.

    Attributes
    ----------
    codes : uint8 ``[n, size]``, before subtracting `BlockFormat.zero` or looking up `BlockFormat.table`
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
"""Storage of scales: int8 and uint4 are multiplied by the step of the block; ``head``: the step alone is the scale."""

FloorKind = Literal["none", "float16", "uint8", "uint4"]
"""Storage of floors: uint8 and uint4 are multiplied by the block's floor; uint4 is the high half of a scale's byte."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLayout:
    """How devices hold a format; planes of bits, groups and zero follow from the format itself.

    Attributes
    ----------
    scales, floors : how CPU panels store them
    sections : parts of a row after its low bits on a GPU, in this order: names in `devices.gpu.kernels.blocks.SECTIONS`
    shaders : files in the shaders' ``block`` folder linked with the format's own file in ``dtype`` to read it
    nibbles_at : byte of a block at which low bits in the order of Q4_K start; None for other orders
    read : codes that GPU kernels read at a time, if 16 bytes hold the two low bits of 64 codes
    ends : bytes of a block at which its step, and its floor, lie as float16; None: byte 0 is the exponent of the step
    """

    scales: ScaleKind = "float16"
    floors: FloorKind = "none"
    sections: tuple[str, ...]
    shaders: tuple[str, ...] = ()
    nibbles_at: int | None = None
    read: int = 32
    ends: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockFormat:
    """One block format. There is exactly one instance for each.

    Attributes
    ----------
    name : text form as a scheme, ``"q4_k"``
    size : numbers of a block
    block_bytes : bytes of a block
    dtype : the numeric type of the codes, or the nearest one
    group : numbers that share a scale
    levels : number of codes
    split : splits blocks, uint8 ``[n, block_bytes]``, into `Fields`
    join : the inverse of `split`
    fit : computes scales for finite float32 ``[n, size]``, and the nearest codes; the weight of each number is passed
        as float32 of that shape, or None to let its size decide, as in ggml
    zero : the code of 0
    table : values of the codes, int8, if they are not evenly spaced
    in_gguf : whether it is a GGUF type
    resident : how devices hold it; None: decoded
    calibrated : whether calibration may choose it
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
    resident: DeviceLayout | None = None
    calibrated: bool = True

    @property
    def gguf_type(self) -> str:
        """Name of the GGUF tensor type, if the format is one."""
        return self.name.upper()

    @property
    def planes(self) -> tuple[int, ...]:
        """Bits of the codes in planes of 4, 2 and 1, lowest first."""
        bits = (self.levels - 1).bit_length()
        return tuple(plane for plane in (4, 2, 1) if bits & plane)

    def blocks(self, k: int) -> int:
        """Blocks in a row of `k` numbers; the last one may be filled only partly."""
        return -(-k // self.size)

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` numbers, before padding to whole words."""
        return self.blocks(k) * self.block_bytes

    def encode(self, x: F32Array, importance: F32Array | None) -> Bytes:
        """Return blocks ``[n, block_bytes]`` of numbers ``[n, size]``, see `fit`."""
        return self.join(self.fit(x, importance))

    def numbers(self, codes: Bytes) -> NDArray[np.int8]:
        """Return the unscaled values of codes."""
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
        # Equality is identity, so copying and unpickling must return the single instance.
        from volumetric.dtypes.blocks import named_format

        return named_format, (self.name,)


def scales_of(fields: Fields) -> tuple[F32Array, F32Array | None]:
    """Scale, and floor if the format has floors, of each group of numbers: ``[n, groups]``."""
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
    """Codes of `bits` bits from bytes ``[n, bytes]``, in reading order.

    In each `run` bytes the lowest bits hold `run` neighbours, the next bits the next `run`, and so on.
    """
    (n, size), per = packed.shape, 8 // bits
    runs = packed.reshape(n, size // run, run)
    out = np.empty((n, runs.shape[1], per, run), np.uint8)
    for part in range(per):
        np.right_shift(runs, np.uint8(bits * part), out=out[:, :, part])
    out &= np.uint8((1 << bits) - 1)
    return out.reshape(n, size * per)


def packed_planes(codes: Bytes, bits: int, run: int) -> Bytes:
    """Bytes of codes ``[n, numbers]`` of `bits` bits: the inverse of `planes`."""
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
    x : ``[rows, k]``; rows are padded with zeros of weight 0
    importance : weight of the squared error of each column, ``[k]``, or None
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
    # As in ggml: numbers that are large in their block keep some weight even if activations are small.
    counts *= np.sqrt(np.square(padded).mean(axis=1, keepdims=True) + np.square(padded))
    return blocks.fit(padded, counts)
