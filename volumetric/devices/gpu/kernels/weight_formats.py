"""Layout of weight matrices in GPU memory, one table row for each scheme that kernels read natively.

Rows of the packed payload are padded with zeros to whole units of 16 bytes, the widest load of WGSL. Nothing else is
rearranged: the payload of `Packed` goes to the GPU unchanged. Only GGUF's block formats are unpacked (`blocks`).
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from volumetric.base._typing import U32Array
from volumetric.devices.gpu.kernels.block_layout import LAYOUTS, BlockLayout
from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.dtypes import Packed


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """One native layout.

    Attributes
    ----------
    prelude : shader file that reads it
    piece : elements that kernels read at a time: those in 16 bytes, or fewer in some block formats
    group : elements that share a scale, 0 without scales
    affine : scale and offset share a word; otherwise scales pack two halves a word, or are
    wide : float32 scales, of float codes
    blocks : layout of a block format, None for other schemes
    """

    prelude: str
    piece: int
    group: int = 0
    affine: bool = False
    wide: bool = False
    blocks: BlockLayout | None = None

    @property
    def integer(self) -> bool:
        """Whether codes are integers, which may be multiplied by rounded activations."""
        return self.group > 0 and not self.wide

    @property
    def preludes(self) -> tuple[str, ...]:
        """Shader files to link: `prelude`, and those it shares with other formats."""
        shared = ("float8",) if self.wide else () if self.blocks is None else self.blocks.shared
        return (*(f"block/{name}" for name in shared), self.prelude)

    def pieces(self, k: int) -> int:
        """Units in a row of `k` elements."""
        return ceil_div(k, self.piece)

    def groups(self, k: int) -> int:
        """Scales in a row of `k` elements; for block formats, words in addition to the units."""
        if self.blocks is not None:
            return self.blocks.words(k)
        return ceil_div(k, self.group) if self.group else 0

    def scale_bytes(self, k: int) -> int:
        """Bytes of a row of `k` elements in addition to its units."""
        return self.groups(k) * (4 if self.affine or self.wide or self.blocks is not None else 2)

    def lay_out(self, packed: Packed) -> tuple[U32Array, NDArray[np.uint16] | None]:
        """Return the words of units ``[rows, …]``, and scales as 16-bit words per row, None without."""
        if self.blocks is not None:
            pieces, rest = self.blocks.lay_out(packed)
            return pieces, rest.reshape(-1).view(np.uint16)
        payload = packed.payload
        missing = self.row_bytes(packed.k) // 4 - payload.shape[1]
        padded = np.pad(payload, ((0, 0), (0, missing))) if missing else payload
        return padded, _scale_words(packed, affine=self.affine) if self.group else None

    def row_bytes(self, k: int) -> int:
        """Bytes of a row of `k` elements, excluding scales."""
        return 16 * ceil_div(k, self.piece if self.blocks is None else self.blocks.piece)


def _scale_words(packed: Packed, *, affine: bool) -> NDArray[np.uint16]:
    """Scales, or scales and offsets alternating."""
    scales = np.ascontiguousarray(packed.scales).view(np.uint16)
    if not affine:
        return scales.reshape(-1)
    return np.stack([scales, np.ascontiguousarray(packed.offsets).view(np.uint16)], axis=-1).reshape(-1)


FORMATS = MappingProxyType(
    {
        "float32": WeightFormat(prelude="dtype/float32", piece=4),
        "float16": WeightFormat(prelude="dtype/float16", piece=8),
        "bfloat16": WeightFormat(prelude="dtype/bfloat16", piece=8),
        "int8:g32": WeightFormat(prelude="dtype/int8_g32", piece=16, group=32),
        "int4:g32": WeightFormat(prelude="dtype/int4_g32", piece=32, group=32),
        "uint8:g32": WeightFormat(prelude="dtype/uint8_g32", piece=16, group=32, affine=True),
        "float8_e4m3fn:g32": WeightFormat(prelude="dtype/float8_e4m3fn_g32", piece=16, group=32, wide=True),
        "float8_e5m2:g32": WeightFormat(prelude="dtype/float8_e5m2_g32", piece=16, group=32, wide=True),
        "uint4:g32": WeightFormat(prelude="dtype/uint4_g32", piece=32, group=32, affine=True),
        **{
            name: WeightFormat(prelude=f"dtype/{name}", piece=layout.read or layout.piece, group=32, blocks=layout)
            for name, layout in LAYOUTS.items()
        },
    }
)
"""Canonical scheme text → layout. Other schemes are decoded to float32 when they become resident."""
