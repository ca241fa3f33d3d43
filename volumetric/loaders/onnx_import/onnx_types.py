"""Numbers of ONNX's tensor types, from onnx.proto3 (TensorProto.DataType)."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.loaders.onnx_import.onnx_declaration import onnx_dtype

TYPE_NAMES: Final[dict[int, str]] = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    16: "bfloat16",
    17: "float8_e4m3fn",
    18: "float8_e4m3fnuz",
    19: "float8_e5m2",
    20: "float8_e5m2fnuz",
    21: "uint4",
    22: "int4",
}
"""Number of a type → its name in NumPy or ml_dtypes."""
_OTHERS: Final[dict[int, str]] = {8: "text", 14: "complex64", 15: "complex128", 23: "float4_e2m1"}


def type_name(code: int) -> str:
    """Return the name of a type. Raises `UnsupportedError`."""
    if code not in TYPE_NAMES:
        what = _OTHERS.get(code, f"number {code}")
        raise UnsupportedError(
            f"the ONNX type {what} is not supported", hint="one of " + ", ".join(TYPE_NAMES.values())
        )
    return TYPE_NAMES[code]


def dtype_of_code(code: int) -> np.dtype:
    """Return the NumPy type of a number. Raises `UnsupportedError`."""
    return onnx_dtype(type_name(code))
