"""IQ4_NL, IQ4_XS and MXFP4: codes of 4 bits that name one of 16 values which are not evenly spaced.

Layouts: ``block_iq4_nl`` and so on in ggml's ``ggml-common.h``; MXFP4 is that of the OCP Microscaling Formats
specification 1.0, its numbers doubled and its scales halved so that the table is of integers.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from volumetric.dtypes.blocks.format import BlockFormat, Bytes, Fields, halves, planes
from volumetric.dtypes.registry import parse_dtype

_CURVE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1 = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)


def _split_iq4_nl(blocks: Bytes) -> Fields:
    """float16 step; 16 bytes, elements j and j + 16 in byte j."""
    return Fields(codes=planes(blocks[:, 2:], 4, 16), step=halves(blocks, 0))


def _split_iq4_xs(blocks: Bytes) -> Fields:
    """float16 step; two high bits of 8 scales; 4 bytes of their low bits, two each; 128 bytes of codes."""
    high = planes(blocks[:, 2:4], 2, 1)
    scales = planes(blocks[:, 4:8], 4, 1) | (high << np.uint8(4))
    return Fields(codes=planes(blocks[:, 8:], 4, 16), step=halves(blocks, 0), scales=scales.view(np.int8) - np.int8(32))


def _split_mxfp4(blocks: Bytes) -> Fields:
    """One byte e for a scale of 2**(e − 127), halved here; 16 bytes of codes."""
    e = blocks[:, 0].astype(np.uint16)
    # 2**(e − 128) as bfloat16: its exponent is e − 1; below that the numbers are subnormal and shift instead.
    bits = np.where(e < 2, np.uint16(0x20) << e, (np.maximum(e, 1) - np.uint16(1)) << np.uint16(7))
    return Fields(codes=planes(blocks[:, 1:], 4, 16), step=bits.astype(np.uint16).view(ml_dtypes.bfloat16))


IQ4_NL = BlockFormat(
    name="iq4_nl", size=32, block_bytes=18, dtype=parse_dtype("int4"), group=32, table=_CURVE, split=_split_iq4_nl
)
IQ4_XS = BlockFormat(
    name="iq4_xs", size=256, block_bytes=136, dtype=parse_dtype("int4"), group=32, table=_CURVE, split=_split_iq4_xs
)
MXFP4 = BlockFormat(
    name="mxfp4",
    size=32,
    block_bytes=17,
    dtype=parse_dtype("float4_e2m1fn"),
    group=32,
    table=_E2M1,
    split=_split_mxfp4,
)
