"""How weight matrices lie in GPU memory, one row of the table for each scheme that kernels read natively.

Rows of the packed payload are padded with zeros to whole pieces of 16 bytes, the widest load of WGSL. Nothing else is
rearranged: the payload of `Packed` goes to the GPU as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

from volumetric.kernels.gpu.dispatch import ceil_div


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """One native layout.

    Attributes
    ----------
    prelude : shader file that reads it
    piece : elements in 16 bytes
    group : elements that share a scale, 0 without scales
    affine : scale and offset share a word; otherwise scales pack two halves a word
    """

    prelude: str
    piece: int
    group: int = 0
    affine: bool = False

    def pieces(self, k: int) -> int:
        """Pieces in a row of `k` elements."""
        return ceil_div(k, self.piece)

    def groups(self, k: int) -> int:
        """Scales in a row of `k` elements."""
        return ceil_div(k, self.group) if self.group else 0

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` elements, scales not counted."""
        return 16 * self.pieces(k)


FORMATS = MappingProxyType(
    {
        "float32": WeightFormat(prelude="dtype/float32", piece=4),
        "float16": WeightFormat(prelude="dtype/float16", piece=8),
        "bfloat16": WeightFormat(prelude="dtype/bfloat16", piece=8),
        "int8:g32": WeightFormat(prelude="dtype/int8_g32", piece=16, group=32),
        "int4:g32": WeightFormat(prelude="dtype/int4_g32", piece=32, group=32),
        "uint4:g32": WeightFormat(prelude="dtype/uint4_g32", piece=32, group=32, affine=True),
    }
)
"""Canonical scheme text → layout. Schemes that are not here are decoded to float32 when they become resident."""
