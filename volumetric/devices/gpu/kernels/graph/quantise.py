"""Rounding to the values of a scheme, bit-identical to the codec: rules and their constants.

One case is not bit-identical: the means of ternary and binary groups, if NumPy's float64 sum, which depends on the
order of its terms, is at the midpoint between two float32 numbers.
"""

from __future__ import annotations

from math import prod
from typing import Any

import ml_dtypes
import numpy as np

from volumetric.devices.gpu.kernels.dispatch import Constant, ceil_div
from volumetric.devices.gpu.kernels.graph.kernel_launch import (
    LoweredNode,
    LoweringRequest,
    launch,
    one_each,
    result,
    single_launch,
    source,
    unsupported,
)
from volumetric.devices.gpu.kernels.graph.row_kernels import team_of
from volumetric.devices.gpu.kernels.graph.strided_copies import copy
from volumetric.dtypes import DType, Scheme

_EXACT = "graph/exact"
_MOST_SUMMED = 32768
"""Elements of a group whose sum fits the limbs of the shader."""
_SMALLEST_INVERTIBLE = np.float32(2.938736e-39)
"""Below this, 1/d is infinite in float32: the codec's own bound."""


def fake_quant(request: LoweringRequest) -> LoweredNode:
    """Round to the values of the scheme."""
    scheme = Scheme.parse(request.attrs["scheme"])
    if scheme.blocks is not None:
        raise unsupported("fake_quant", f"{scheme}: a block format is only for weights that are no longer trained")
    if scheme.dtype.kind == "table":
        raise unsupported("fake_quant", f"{scheme}: it has only a codec")
    if scheme.dtype.bits == 64:
        raise unsupported("fake_quant", f"{scheme}: it has no 64-bit numbers")
    if scheme.dtype.name == "float32":
        return single_launch(copy(request.out_size, request.caps, source(0), result()))
    return _lower_plain(request, scheme.dtype) if scheme.group is None else _lower_grouped(request, scheme)


def _lower_plain(request: LoweringRequest, dtype: DType) -> LoweredNode:
    rule = {"float": "float", "ternary": "ternary", "binary": "binary"}.get(dtype.kind, "integer")
    constants: dict[str, Constant] = {}
    if rule == "float":
        constants = _kind("CODE", dtype.host)
    elif rule == "integer":
        signed = dtype.kind == "int"
        constants = {"LEVELS": 2 ** (dtype.bits - signed) - 1, "LEAST": 2 ** (dtype.bits - 1) if signed else 0}
    buffers = {"x": source(0), "y": result()}
    preludes = (_EXACT, f"graph/quant/plain_{rule}")
    count = request.out_size
    return single_launch(
        one_each("fake_quant_plain", count, request.caps, buffers, (count,), constants=constants, preludes=preludes)
    )


def _lower_grouped(request: LoweringRequest, scheme: Scheme) -> LoweredNode:
    """Return rounding to a scheme with scales: a team of invocations for each group of a row."""
    width = request.inputs[0][-1]
    group = min(scheme.group or width, width)
    row_groups = ceil_div(width, group)
    groups = prod(request.inputs[0][:-1]) * row_groups
    rule = _rule(scheme.dtype)
    sums = rule in ("ternary", "binary")
    if sums and group > _MOST_SUMMED:
        raise unsupported("fake_quant", f"{scheme} in groups of {group}: at most {_MOST_SUMMED}")
    scale = scheme.scale_dtype.host if scheme.scale_dtype else np.dtype(np.float32)
    team, workgroup = team_of(groups, group, request.caps)
    constants = _kind("CODE", scheme.dtype.host if rule == "float_peak" else np.dtype(np.float32))
    constants |= _kind("SCALE", scale)
    constants |= {
        "SCALE_SMALLEST": _bits(ml_dtypes.finfo(scale).smallest_subnormal),
        "SMALLEST_INVERTIBLE": _bits(_SMALLEST_INVERTIBLE),
        "TEAM": team,
        "SUM": sums,
        "RANGE": rule in ("range", "wide_affine"),
        "FIRST": rule == "signed_peak",
        "ODD": rule == "float_peak",
        **_levels(rule, scheme.dtype),
    }
    return single_launch(
        launch(
            "fake_quant",
            ceil_div(groups, workgroup // team),
            {"x": source(0), "y": result()},
            (groups, width, group, row_groups),
            constants=constants,
            preludes=(_EXACT, f"graph/quant/{rule}"),
            workgroup=workgroup,
        )
    )


def _rule(dtype: DType) -> str:
    """The rule of `volumetric.dtypes.quantize` for a type."""
    if dtype.is_float:
        return "float_peak"
    if dtype.kind in ("ternary", "binary"):
        return dtype.kind
    if dtype.bits > 8:
        return "wide_affine" if dtype.kind == "uint" else "wide_peak"
    if dtype.kind == "uint":
        return "range"
    return "peak" if dtype.bits == 8 else "signed_peak"


def _levels(rule: str, dtype: DType) -> dict[str, Constant]:
    if rule == "signed_peak":
        return {"HALF": 2 ** (dtype.bits - 1)}
    if rule == "range":
        return {"LEVELS": 2**dtype.bits - 1}
    if rule in ("wide_peak", "wide_affine"):
        exponent = dtype.bits - (rule == "wide_peak")
        return {"LEVELS": 2**exponent - 1, "EXPONENT": exponent, "POWER_OF_TWO": dtype.bits == 32}
    return {}


def _kind(name: str, host: np.dtype[Any]) -> dict[str, Constant]:
    info = ml_dtypes.finfo(host)
    return {f"{name}_BITS": int(info.nmant), f"{name}_LEAST": -int(info.minexp), f"{name}_GREATEST": _bits(info.max)}


def _bits(value: Any) -> int:
    """Bits of a number as float32."""
    return int(np.float32(value).view(np.uint32))
