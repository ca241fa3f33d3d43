"""Weights of the Go engine Loom inside its JSON: base64 of one vector for each layer, in the layer's numeric type.

Types narrower than a byte are packed with the first element in the high bits. All integers, 8-bit floats and narrower
types share one float32 scale: ``value = code · scale``. FP4 has a custom table, in which code 1 is 0.75 (0.5 in the OCP
standard); reading uses it, so values equal those in the engine.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import Final

import ml_dtypes
import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import CheckpointError
from volumetric.dtypes import DType, Packed, Scheme, parse_dtype
from volumetric.dtypes.bits import pack_codes

DTYPES: Final = {
    "float64": "float64", "float32": "float32", "float16": "float16", "bfloat16": "bfloat16",
    "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2",
    "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8",
    "uint64": "uint64", "uint32": "uint32", "uint16": "uint16", "uint8": "uint8",
    "int4": "int4", "uint4": "uint4", "fp4": "float4_e2m1fn", "int2": "int2", "uint2": "uint2",
    "ternary": "ternary", "binary": "binary",
}  # fmt: skip
"""The engine's name of a numeric type → ours."""
ALIASES: Final = {
    "fp64": "float64", "f64": "float64", "fp32": "float32", "f32": "float32", "fp16": "float16", "f16": "float16",
    "bf16": "bfloat16", "fp8": "fp8e4m3", "f4": "fp4",
    **{f"i{n}": f"int{n}" for n in (64, 32, 16, 8)}, **{f"u{n}": f"uint{n}" for n in (64, 32, 16, 8)},
}  # fmt: skip
"""Other spellings that the engine accepts."""
NAMES: Final = {ours: theirs for theirs, ours in DTYPES.items()}
_PLAIN: Final = ("float64", "float32", "float16", "bfloat16")
_FP4: Final = np.array([0, 0.75, 1, 1.5, 2, 3, 4, 6, -0.0, -0.75, -1, -1.5, -2, -3, -4, -6], np.float32)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WeightBlob:
    """One vector of weights.

    Attributes
    ----------
    dtype : the engine's name of the numeric type
    codes : values that are multiplied by `scale`, ``[count]``
    scale : 1 for types without a scale
    """

    dtype: str
    codes: Array
    scale: np.float32

    def store(self, codes: Array, *, packable: bool) -> Packed:
        """Return a part of the codes as a tensor: in this blob's numeric type if `packable`, else in float32."""
        if not packable or self.dtype == "fp4":
            return Packed.from_array(codes.astype(np.float32) * self.scale)
        if self.dtype in _PLAIN:
            return Packed.from_array(codes)
        kind = parse_dtype(DTYPES[self.dtype])
        has_offset = kind.kind == "uint"
        scheme = Scheme(dtype=kind, group=0, symmetric=not has_offset, scale_dtype=parse_dtype("float32"))
        k = codes.shape[-1]
        matrix = np.ascontiguousarray(_raw(codes, kind)).reshape(-1, k)
        scales = np.full((len(matrix), scheme.groups_per_row(k)), self.scale, np.float32)
        return Packed(
            scheme=scheme,
            shape=codes.shape,
            payload=pack_codes(matrix, kind.bits, scheme.words_per_row(k)),
            scales=scales,
            offsets=np.zeros_like(scales) if has_offset else None,
        )


def _raw(codes: Array, kind: DType) -> Array:
    """Return codes as input for `pack_codes`."""
    if kind.kind == "ternary":
        return (codes + 1).astype(np.uint8)
    if kind.kind == "binary":
        return (codes > 0).astype(np.uint8)
    return codes.astype(np.int8).view(np.uint8) & (2**kind.bits - 1) if kind.bits < 8 else codes


def decode_blob(text: str, dtype: str, scale: float, count: int, where: str) -> WeightBlob:
    """Read `count` weights. Raises `CheckpointError` for text that is not base64, or too short or long."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise CheckpointError(f"{where}: the weights are not base64: {error}") from None
    kind = parse_dtype(DTYPES[dtype])
    expected = -(-count * kind.bits // 8)
    if len(data) != expected:
        raise CheckpointError(f"{where}: {count} weights of {dtype} take {expected} bytes, the file has {len(data)}")
    one = np.float32(1)
    if kind.bits >= 8:
        codes = np.frombuffer(data, kind.host.newbyteorder("<") if kind.host.kind in "iuf" else kind.host)
        return WeightBlob(
            dtype=dtype, codes=codes.astype(kind.host), scale=one if dtype in _PLAIN else np.float32(scale)
        )
    raw = _unpack(np.frombuffer(data, np.uint8), kind.bits)[:count]
    if dtype == "fp4":
        return WeightBlob(dtype=dtype, codes=_FP4[raw], scale=np.float32(scale))
    if dtype == "binary":
        return WeightBlob(dtype=dtype, codes=2 * raw.astype(np.int8) - 1, scale=np.float32(scale))
    if kind.kind != "uint":
        shift = 8 - kind.bits
        return WeightBlob(dtype=dtype, codes=(raw << shift).view(np.int8) >> shift, scale=np.float32(scale))
    return WeightBlob(dtype=dtype, codes=raw, scale=np.float32(scale))


def _unpack(data: Array, bits: int) -> Array:
    shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    return ((data[:, None] >> shifts) & (2**bits - 1)).reshape(-1)


def encode_blob(values: Array, dtype: str, scale: np.float32) -> str | None:
    """Return the base64 text of float32 or float64 values in a numeric type, or None if a value would change."""
    if dtype == "float64":
        return base64.b64encode(values.astype("<f8").tobytes()).decode()
    kind = parse_dtype(DTYPES[dtype])
    with np.errstate(all="ignore"):
        scaled = values if dtype in _PLAIN else np.divide(values, scale, dtype=np.float64)
        if dtype in _PLAIN or kind.is_float:
            codes = scaled.astype(np.float32).astype(ml_dtypes.float4_e2m1fn if dtype == "fp4" else kind.host)
        else:
            codes = _clip_codes(np.rint(scaled), kind)
    if dtype == "fp4":
        codes = np.abs(_FP4[None] * scale - values[:, None]).argmin(1).astype(np.uint8)
        back = _FP4[codes] * scale
    else:
        back = codes.astype(np.float32) * (np.float32(1) if dtype in _PLAIN else scale)
    if not np.array_equal(back, values, equal_nan=True):
        return None
    if kind.bits >= 8:
        return base64.b64encode(np.ascontiguousarray(codes).tobytes()).decode()
    raw = codes if dtype == "fp4" else ((codes > 0) if dtype == "binary" else codes.astype(np.int8).view(np.uint8))
    return base64.b64encode(_pack(raw.astype(np.uint8) & (2**kind.bits - 1), kind.bits)).decode()


def _clip_codes(codes: Array, kind: DType) -> Array:
    if kind.kind in ("ternary", "binary"):
        return np.clip(codes, -1, 1).astype(np.int8)
    low = 0 if kind.kind == "uint" else -(2 ** (kind.bits - 1))
    high = float(2**kind.bits - 1 if kind.kind == "uint" else 2 ** (kind.bits - 1) - 1)
    if kind.bits == 64:
        high = np.nextafter(high, 0)  # the greatest float64 in the range of the type
    return np.clip(codes, low, high).astype(kind.host if kind.bits >= 8 else np.int8)


def _pack(codes: Array, bits: int) -> bytes:
    per = 8 // bits
    padded = np.pad(codes, (0, -len(codes) % per)).reshape(-1, per)
    shifts = np.arange(8 - bits, -1, -bits, dtype=np.uint8)
    return np.bitwise_or.reduce(padded << shifts, axis=1).astype(np.uint8).tobytes()
