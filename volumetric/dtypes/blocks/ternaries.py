"""TQ1_0 and TQ2_0: blocks of 256 codes −1, 0, +1 with one float16 step. ``block_tq1_0``, ``block_tq2_0`` in ggml."""

from __future__ import annotations

import numpy as np

from volumetric.dtypes.blocks.format import BlockFormat, Bytes, Fields, halves, planes
from volumetric.dtypes.registry import parse_dtype

_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]


def _trits(packed: Bytes, count: int) -> Bytes:
    """`count` base-3 digits of each byte, first digits of all bytes first.

    A byte is ⌈256 · fraction⌉ of a number in base 3 below 1: times 3ⁱ, modulo 1, its next digit is the whole part of
    three times what is left.
    """
    shifted = packed[:, None, :] * _POWERS[:count]
    return ((shifted.astype(np.uint16) * np.uint16(3)) >> np.uint16(8)).astype(np.uint8).reshape(len(packed), -1)


def _split_tq1_0(blocks: Bytes) -> Fields:
    """32 and 16 bytes of five digits each, 4 bytes of four; step."""
    parts = [_trits(blocks[:, :32], 5), _trits(blocks[:, 32:48], 5), _trits(blocks[:, 48:52], 4)]
    return Fields(codes=np.concatenate(parts, axis=1), step=halves(blocks, 52))


def _split_tq2_0(blocks: Bytes) -> Fields:
    """64 bytes of four codes each; step."""
    return Fields(codes=planes(blocks[:, :64], 2, 32), step=halves(blocks, 64))


TQ1_0 = BlockFormat(
    name="tq1_0", size=256, block_bytes=54, dtype=parse_dtype("ternary"), group=256, zero=1, split=_split_tq1_0
)
TQ2_0 = BlockFormat(
    name="tq2_0", size=256, block_bytes=66, dtype=parse_dtype("ternary"), group=256, zero=1, split=_split_tq2_0
)
