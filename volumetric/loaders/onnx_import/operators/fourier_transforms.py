"""Discrete Fourier transforms, as products with matrices of sines and cosines."""

from __future__ import annotations

from math import prod

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_types import dtype_of_code
from volumetric.loaders.onnx_import.onnx_values import OnnxValue, known_value
from volumetric.loaders.onnx_import.operators.operator_table import operator

_COSINES = {
    "HannWindow": (0.5, 0.5, 0.0),
    "HammingWindow": (25 / 46, 21 / 46, 0.0),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""Window → weights of the constant, of the cosine and of the cosine of twice the angle."""
_MOST = 4096
"""Longest transform: its matrix has this number of columns."""


def _matrix(size: int, bins: int, *, parts: int, inverse: bool = False) -> Array:
    """Return the matrix ``[size · parts, bins · 2]`` of a transform of numbers with 1 (real) or 2 parts."""
    angles = 2 * np.pi / size * (np.outer(np.arange(size), np.arange(bins)) % size) * (1 if inverse else -1)
    cos, sin = np.cos(angles), np.sin(angles)
    rows = [np.stack([cos, sin], -1)] if parts == 1 else [np.stack([cos, sin], -1), np.stack([-sin, cos], -1)]
    matrix = np.stack(rows, 1).reshape(size * parts, bins * 2)
    return matrix / size if inverse else matrix


def _bins(call: NodeCall, size: int) -> int:
    if size > _MOST:
        raise call.refuse(f"a transform of {size} elements", hint=f"at most {_MOST} are supported")
    return size // 2 + 1 if call.attribute("onesided", 1 if call.node.op == "STFT" else 0) else size


@operator("STFT", static=(1, 3))
def _stft(
    call: NodeCall, x: OnnxValue, step: OnnxValue, window: OnnxValue | None = None, length: OnnxValue | None = None
) -> OnnxValue:
    work = call.work
    if len(x.shape) == 3 and x.shape[2] == 2:
        raise call.refuse("a complex signal")
    if window is None and length is None:
        raise ShapeError(f"{call.label}: neither a window nor a length is given")
    size = int(call.number(length, "the length")) if length is not None else window.size  # pyright: ignore[reportOptionalMemberAccess]
    stride, bins = int(call.number(step, "the step")), _bins(call, size)
    batch, samples = x.shape[:2]
    count = (samples - size) // stride + 1
    if count < 1:
        raise ShapeError(f"{call.label}: a frame of {size} samples does not fit {samples}")
    fields = {"kernel": (size,), "stride": (stride,), "dilation": (1,), "before": (0,), "counts": (count,)}
    frames = work.unfold(work.reshape(call.tensor(x), (batch, 1, samples)), **fields)
    if window is not None:
        frames = call.pair("mul", frames, work.reshape(call.tensor(window), (1, size, 1)))
    matrix = work.constant(np.ascontiguousarray(_matrix(size, bins, parts=1).T)[None], "sines and cosines")
    y = work.permute(work.gemm(matrix, frames), (0, 2, 1))
    return call.result(y, x.dtype, (batch, count, bins, 2))


@operator("DFT", static=(1, 2))
def _dft(call: NodeCall, x: OnnxValue, length: OnnxValue | None = None, axis: OnnxValue | None = None) -> OnnxValue:
    work, rank = call.work, len(x.shape)
    along = (
        int(call.number(axis, "the axis")) if axis is not None else call.attribute("axis", 1 if call.opset < 20 else -2)
    )
    along = call.axis(along, rank)
    parts, inverse = x.shape[-1], bool(call.attribute("inverse", 0))
    if parts not in (1, 2) or along == rank - 1:
        raise ShapeError(f"{call.label}: the last axis must hold 1 or 2 parts of numbers, and is not transformed")
    one_sided = bool(call.attribute("onesided", 0))
    if inverse and one_sided:
        raise call.refuse("an inverse of one side")
    y = call.move_axis(call.tensor(x), along, rank - 2)
    *lead, present, _ = work.shape(y)
    size = present if length is None else int(call.number(length, "the length"))
    bins = _bins(call, size)
    if size < present:
        y = work.part(y, rank - 2, 0, size)
    elif size > present:
        y = work.pad(y, (0,) * rank, tuple(size - present if i == rank - 2 else 0 for i in range(rank)))
    matrix = work.constant(_matrix(size, bins, parts=parts, inverse=inverse)[None], "sines and cosines")
    y = work.gemm(work.reshape(y, (1, prod(lead), size * parts)), matrix)
    y = work.reshape(y, (*lead, bins, 2))
    return call.result(call.move_axis(y, rank - 2, along), x.dtype)


@operator(*_COSINES, static=(0,))
def _window(call: NodeCall, size: OnnxValue) -> OnnxValue:
    count = int(call.number(size, "the size"))
    if not 0 <= count <= _MOST:
        raise call.refuse(f"a window of {count} elements")
    span = count if call.attribute("periodic", 1) else max(count - 1, 1)
    angle = 2 * np.pi * np.arange(count) / span
    constant, once, twice = _COSINES[call.node.op]
    window = constant - once * np.cos(angle) + twice * np.cos(2 * angle)
    return known_value(window.astype(dtype_of_code(call.attribute("output_datatype", 1))))
