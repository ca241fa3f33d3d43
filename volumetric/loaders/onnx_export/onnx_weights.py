"""Weights as initialisers: the stored codes with DequantizeLinear where it computes the same values, else floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from volumetric.dtypes import Packed, Scheme, decode
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter
from volumetric.network.weight_store import WeightStore

if TYPE_CHECKING:
    from onnx import TensorProto

_FLOATS: Final = {"float16": "FLOAT16", "bfloat16": "BFLOAT16"}
_FLOAT8: Final = {"float8_e4m3fn": "FLOAT8E4M3FN", "float8_e5m2": "FLOAT8E5M2"}
_CODES: Final = {"int8": "INT8", "uint8": "UINT8", "int16": "INT16", "uint16": "UINT16"}
_SMALL: Final = {
    "int4": "INT4",
    "int2": "INT4",
    "ternary": "INT4",
    "binary": "INT4",
    "uint4": "UINT4",
    "uint2": "UINT4",
}
"""Types of codes → type of ONNX that holds them; those of less than 4 bits take 4."""


def write_weight(writer: OnnxWriter, key: str, store: WeightStore) -> tuple[str, bool]:
    """Write a parameter as float32 value of the graph.

    Returns
    -------
    Its name, and whether it is stored as in `store`, and not decoded to float32.
    """
    packed = store.packed()
    scheme = packed.scheme
    stored = _quantised(writer, key, packed) if scheme.group is not None else _plain(writer, key, packed)
    if stored is not None:
        return stored, True
    name = writer.initializer(key, _tensor(decode(packed, np.float32), "FLOAT"))
    return name, False


def has_codes(scheme: Scheme) -> bool:
    """Return whether an ONNX file has the codes of a scheme; if not, its weights are written as float32."""
    if scheme.group is not None:
        return scheme.dtype.name in _CODES | _SMALL | _FLOAT8
    return scheme.blocks is None and scheme.dtype.name in {"float32": "", **_FLOATS, **_FLOAT8}


def _plain(writer: OnnxWriter, key: str, packed: Packed) -> str | None:
    """Write floats without scales; None: in float32."""
    name, dtype = packed.scheme.dtype.name, packed.scheme.dtype
    if packed.scheme.blocks is not None:
        return None
    if name == "float32":
        return writer.initializer(key, _tensor(packed.codes().reshape(packed.shape), "FLOAT"))
    kind = (_FLOATS | _FLOAT8).get(dtype.name)
    if kind is None:
        return None
    stored = writer.initializer(f"{key}.{name}", _tensor(packed.codes().reshape(packed.shape), kind))
    return writer.cast(stored, "FLOAT")


def _quantised(writer: OnnxWriter, key: str, packed: Packed) -> str | None:
    """Write codes with scales, and offsets if there are any; None: ONNX has no such codes."""
    scheme, rows, k = packed.scheme, packed.rows, packed.k
    name, group = scheme.dtype.name, min(scheme.group or k, k)
    kind = (_CODES | _SMALL | _FLOAT8).get(name)
    if kind is None or not rows or not k or packed.scales is None:
        return None
    groups = -(-k // group)
    wide = groups * group  # a last group that is shorter is filled up, and cut afterwards
    scales = _factors(writer, f"{key}.scale", packed.scales)
    codes = packed.codes()
    if wide > k:
        codes = np.concatenate([codes, np.zeros((rows, wide - k), codes.dtype)], 1)
    stored = writer.initializer(f"{key}.codes", _tensor(codes, kind))
    apart = (rows, groups, group)
    if name in _FLOAT8:
        y = writer.reshape(writer.cast(stored, "FLOAT"), (rows, wide), apart)
        y = writer.node("Mul", y, writer.reshape(scales, (rows, groups), (rows, groups, 1)))
        y = writer.reshape(y, apart, (rows, wide))
    elif groups == 1:
        y = writer.node("DequantizeLinear", stored, writer.reshape(scales, (rows, 1), (rows,)), axis=0)
    else:
        y = writer.node("DequantizeLinear", stored, scales, axis=1, block_size=group)
    if packed.offsets is not None:
        offsets = _factors(writer, f"{key}.offset", packed.offsets)
        y = writer.reshape(y, (rows, wide), apart)
        y = writer.node("Add", y, writer.reshape(offsets, (rows, groups), (rows, groups, 1)))
        y = writer.reshape(y, apart, (rows, wide))
    y = writer.part(y, 1, 0, k) if wide > k else y
    return writer.reshape(y, (rows, k), packed.shape)


def _factors(writer: OnnxWriter, name: str, values: NDArray[np.generic]) -> str:
    """Write scales or offsets in their type, as float32 values: products with codes then round as ours."""
    kind = _FLOATS.get(values.dtype.name)
    if kind is None:
        return writer.initializer(name, _tensor(values, "FLOAT"))
    return writer.cast(writer.initializer(f"{name}.{values.dtype.name}", _tensor(values, kind)), "FLOAT")


def _tensor(values: NDArray[np.generic], kind: str) -> TensorProto:
    """Return a tensor; codes of 4 bits are packed two to a byte, the first one in the low half."""
    from onnx import TensorProto

    tensor = TensorProto(data_type=getattr(TensorProto, kind), dims=values.shape)
    raw = np.ascontiguousarray(values)
    if kind in ("INT4", "UINT4"):
        flat = raw.reshape(-1).view(np.uint8) & 0xF
        flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
        raw = flat[::2] | (flat[1::2] << 4)
    tensor.raw_data = raw.tobytes()
    return tensor
