"""Numeric types, schemes, packed tensors, and the reference codec between them and floating-point arrays."""

from __future__ import annotations

from volumetric.dtypes.blocks import BLOCK_FORMATS, OWN_FORMATS, BlockFormat, register_format
from volumetric.dtypes.codec import decode, decode_rows, encode, recode
from volumetric.dtypes.gguf_blocks import from_gguf, to_gguf
from volumetric.dtypes.packed import Packed
from volumetric.dtypes.registry import DTYPES, DType, parse_dtype
from volumetric.dtypes.scaled_rows import scaled_rows
from volumetric.dtypes.scheme import Scheme
from volumetric.dtypes.table_dtypes import register_dtype

__all__ = [
    "BLOCK_FORMATS",
    "DTYPES",
    "OWN_FORMATS",
    "BlockFormat",
    "DType",
    "Packed",
    "Scheme",
    "decode",
    "decode_rows",
    "encode",
    "from_gguf",
    "parse_dtype",
    "recode",
    "register_dtype",
    "register_format",
    "scaled_rows",
    "to_gguf",
]
