"""Block formats: what GGUF stores beside Q8_0, Q4_0 and Q4_1, kept as it is. They are schemes, not numeric types."""

from __future__ import annotations

from types import MappingProxyType

from volumetric.dtypes.blocks.fives import Q5_0, Q5_1
from volumetric.dtypes.blocks.format import BlockFormat, Fields
from volumetric.dtypes.blocks.fours import IQ4_NL, IQ4_XS, MXFP4
from volumetric.dtypes.blocks.k_quants import Q2_K, Q3_K, Q4_K, Q5_K, Q6_K
from volumetric.dtypes.blocks.ternaries import TQ1_0, TQ2_0

BLOCK_FORMATS = MappingProxyType(
    {each.name: each for each in (Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, Q5_0, Q5_1, IQ4_NL, IQ4_XS, MXFP4, TQ1_0, TQ2_0)}
)
"""Name → format."""


def find_format(name: str) -> BlockFormat | None:
    """Return the block format of that name, or None; case and ``_ - .`` do not matter."""
    folded = name.strip().lower().translate(_DROPPED)
    return _FOLDED.get(folded)


def named_format(name: str) -> BlockFormat:
    """Return the block format of exactly that name."""
    return BLOCK_FORMATS[name]


_DROPPED = str.maketrans("", "", "_-. ")
_FOLDED = {name.translate(_DROPPED): each for name, each in BLOCK_FORMATS.items()}

__all__ = ["BLOCK_FORMATS", "BlockFormat", "Fields", "find_format", "named_format"]
