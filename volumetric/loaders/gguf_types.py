"""Numeric types of GGUF: their numbers, names and block sizes.

The table is a copy, which tests compare with the ``gguf`` package, because importing that package takes longer than
reading the whole header of a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from volumetric.dtypes import BLOCK_FORMATS


@dataclass(frozen=True, slots=True)
class GGUFType:
    """One tensor type: `block_bytes` hold `block` elements of the last axis."""

    name: str
    block: int
    block_bytes: int


GGUF_TYPES: Final[Mapping[int, GGUFType]] = {
    0: GGUFType("F32", 1, 4),
    1: GGUFType("F16", 1, 2),
    2: GGUFType("Q4_0", 32, 18),
    3: GGUFType("Q4_1", 32, 20),
    6: GGUFType("Q5_0", 32, 22),
    7: GGUFType("Q5_1", 32, 24),
    8: GGUFType("Q8_0", 32, 34),
    9: GGUFType("Q8_1", 32, 40),
    10: GGUFType("Q2_K", 256, 84),
    11: GGUFType("Q3_K", 256, 110),
    12: GGUFType("Q4_K", 256, 144),
    13: GGUFType("Q5_K", 256, 176),
    14: GGUFType("Q6_K", 256, 210),
    15: GGUFType("Q8_K", 256, 292),
    16: GGUFType("IQ2_XXS", 256, 66),
    17: GGUFType("IQ2_XS", 256, 74),
    18: GGUFType("IQ3_XXS", 256, 98),
    19: GGUFType("IQ1_S", 256, 50),
    20: GGUFType("IQ4_NL", 32, 18),
    21: GGUFType("IQ3_S", 256, 110),
    22: GGUFType("IQ2_S", 256, 82),
    23: GGUFType("IQ4_XS", 256, 136),
    24: GGUFType("I8", 1, 1),
    25: GGUFType("I16", 1, 2),
    26: GGUFType("I32", 1, 4),
    27: GGUFType("I64", 1, 8),
    28: GGUFType("F64", 1, 8),
    29: GGUFType("IQ1_M", 256, 56),
    30: GGUFType("BF16", 1, 2),
    34: GGUFType("TQ1_0", 256, 54),
    35: GGUFType("TQ2_0", 256, 66),
    39: GGUFType("MXFP4", 32, 17),
    40: GGUFType("NVFP4", 64, 36),
    41: GGUFType("Q1_0", 128, 18),
}
"""Type number in the file → type."""

TYPE_NUMBERS: Final[Mapping[str, int]] = {kind.name: number for number, kind in GGUF_TYPES.items()}

BLOCK_TYPES: Final = frozenset({"Q8_0", "Q4_0", "Q4_1"} | {each.gguf_type for each in BLOCK_FORMATS.values()})
"""Quantised types that stay packed: int8:g32, int4:g32, uint4:g32 are equal schemes, the others block formats."""

DECODED_TYPES: Final = frozenset({"IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"})
"""Quantised types that are decoded to float32 when a tensor is read."""
