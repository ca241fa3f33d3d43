"""Resizing: along each axis a matrix of fixed weights, or a lookup for the nearest element."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.loaders.onnx_import.node_call import NodeCall
from volumetric.loaders.onnx_import.onnx_values import OnnxValue
from volumetric.loaders.onnx_import.operators.operator_table import operator


@operator("Upsample", static=(1,))
def _upsample(call: NodeCall, x: OnnxValue, scales: OnnxValue | None = None) -> OnnxValue:
    factors = call.attribute("scales") if scales is None else call.array(scales, "the scales").reshape(-1).tolist()
    y = call.tensor(x)
    linear = call.attribute("mode", "nearest") != "nearest"
    for axis, (n, scale) in enumerate(zip(x.shape, factors, strict=True)):
        count = int(np.floor(n * scale))
        if count != n:
            places = np.arange(count) / scale
            y = _apply(call, y, axis, _linear(places, n) if linear else np.floor(places).astype(int))
    return call.result(y, x.dtype)


@operator("Resize", static=(1, 2, 3))
def _resize(
    call: NodeCall,
    x: OnnxValue,
    roi: OnnxValue | None = None,
    scales: OnnxValue | None = None,
    sizes: OnnxValue | None = None,
) -> OnnxValue:
    """Emit an image in another size, axis by axis."""
    if call.opset < 11:
        roi, scales, sizes = None, roi, None
    rank = len(x.shape)
    axes = tuple(call.axis(a, rank) for a in call.numbers("axes") or range(rank))
    mode = str(call.attribute("mode", "nearest"))
    transform = str(
        call.attribute("coordinate_transformation_mode", "half_pixel" if call.opset >= 11 else "asymmetric")
    )
    bounds = None if roi is None or not roi.size else call.array(roi, "the region").reshape(2, -1)
    y = call.tensor(x)
    for i, (axis, count, scale) in enumerate(_targets(call, x.shape, axes, scales, sizes)):
        n = x.shape[axis]
        region = (float(bounds[0][i]), float(bounds[1][i])) if bounds is not None else (0.0, 1.0)
        if count == n and scale == 1 and transform != "tf_crop_and_resize":
            continue
        places = _places(transform, count, n, scale, region)
        y = _along(call, y, axis, places, n, scale, mode, outside=transform == "tf_crop_and_resize")
    return call.result(y, x.dtype)


def _targets(
    call: NodeCall, shape: tuple[int, ...], axes: tuple[int, ...], scales: OnnxValue | None, sizes: OnnxValue | None
) -> list[tuple[int, int, float]]:
    """Return axis, new size and scale."""
    if sizes is not None and sizes.size:
        wanted = call.ints(sizes, "the sizes")
        policy = call.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            choose = min if policy == "not_larger" else max
            scale = choose(w / shape[a] for w, a in zip(wanted, axes, strict=True))
            return [(a, int(np.floor(scale * shape[a] + 0.5)), scale) for a in axes]
        return [(a, w, w / shape[a]) for a, w in zip(axes, wanted, strict=True)]
    if scales is None or not scales.size:
        raise ShapeError(f"{call.label}: neither scales nor sizes are given")
    factors = [float(s) for s in call.array(scales, "the scales").reshape(-1)]
    if len(factors) != len(axes) or min(factors) <= 0:
        raise ShapeError(f"{call.label}: scales {factors} for {len(axes)} axes")
    return [(a, int(np.floor(shape[a] * s)), s) for a, s in zip(axes, factors, strict=True)]


def _places(transform: str, count: int, n: int, scale: float, region: tuple[float, float]) -> Array:
    """Return the coordinate in the input of each element of the output."""
    out = np.arange(count, dtype=np.float64)
    if transform == "asymmetric":
        return out / scale
    if transform == "align_corners":
        return out * (n - 1) / (count - 1) if count > 1 else np.zeros(1)
    if transform == "tf_crop_and_resize":
        start, stop = region
        if count > 1:
            return start * (n - 1) + out * (stop - start) * (n - 1) / (count - 1)
        return np.full(1, 0.5 * (start + stop) * (n - 1))
    if transform == "pytorch_half_pixel" and count == 1:
        return np.zeros(1) - 0.0
    if transform == "half_pixel_symmetric":
        whole = scale * n
        center = n / 2
        return center * (1 - count / whole) + (out + 0.5) / scale - 0.5
    return (out + 0.5) / scale - 0.5


def _along(call: NodeCall, x: int, axis: int, places: Array, n: int, scale: float, mode: str, *, outside: bool) -> int:
    skip = bool(call.attribute("exclude_outside", 0))
    if mode == "nearest":
        chosen: Any = np.clip(_nearest(places, str(call.attribute("nearest_mode", "round_prefer_floor"))), 0, n - 1)
    elif mode == "linear":
        smooth = bool(call.attribute("antialias", 0)) and scale < 1
        chosen = (
            _smoothed(places, n, scale, 1.0, lambda d: np.maximum(1 - d, 0), skip=skip)
            if smooth
            else _linear(places, n)
        )
    elif mode == "cubic":
        a = float(call.attribute("cubic_coeff_a", -0.75))
        smooth = bool(call.attribute("antialias", 0)) and scale < 1
        chosen = _smoothed(places, n, scale if smooth else 1.0, 2.0, lambda d: _cubic(d, a), skip=skip)
    else:
        raise call.refuse(f"the mode {mode}")
    if not outside:
        return _apply(call, x, axis, chosen)
    inside = (places >= 0) & (places <= n - 1)
    y = _apply(call, x, axis, chosen)
    fill = float(call.attribute("extrapolation_value", 0.0))
    shape = tuple(len(places) if i == axis else 1 for i in range(len(call.work.shape(x))))
    return call.select(call.work.constant(inside.astype(np.float64).reshape(shape)), y, call.work.scalar(fill))


def _nearest(places: Array, mode: str) -> Array:
    if mode == "floor":
        return np.floor(places).astype(int)
    if mode == "ceil":
        return np.ceil(places).astype(int)
    if mode == "round_prefer_ceil":
        return np.floor(places + 0.5).astype(int)
    return np.ceil(places - 0.5).astype(int)


def _linear(places: Array, n: int) -> Array:
    """Return the matrix ``[count, n]`` of linear interpolation; outside, the nearest element."""
    places = np.clip(places, 0, n - 1)
    return np.maximum(1 - np.abs(places[:, None] - np.arange(n)), 0)


def _cubic(d: Array, a: float) -> Array:
    """Weights of cubic convolution at distances, Keys 1981."""
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _smoothed(places: Array, n: int, scale: float, radius: float, weigh: Any, *, skip: bool) -> Array:
    """Return the matrix of a kernel that is widened by the scale; taps outside are left out, or read the border."""
    scale = min(scale, 1.0)
    reach = int(np.ceil(radius / scale)) + 1
    taps = np.floor(places)[:, None].astype(int) + np.arange(-reach, reach + 1)
    weights = weigh(np.abs(taps - places[:, None]) * scale)
    if skip:
        weights = np.where((taps < 0) | (taps >= n), 0.0, weights)
    total = weights.sum(1, keepdims=True)
    weights = weights / np.where(total == 0, 1, total)
    matrix = np.zeros((len(places), n))
    np.add.at(matrix, (np.arange(len(places))[:, None], np.clip(taps, 0, n - 1)), weights)
    return matrix


def _apply(call: NodeCall, x: int, axis: int, chosen: Array) -> int:
    """Emit a lookup (`chosen` are indices) or a product (a matrix) along an axis."""
    work, shape = call.work, call.work.shape(x)
    n = shape[axis]
    if chosen.ndim == 1:
        times = len(chosen) // n if n and len(chosen) % n == 0 else 0
        if times > 1 and (chosen == np.repeat(np.arange(n), times)).all():
            view = work.reshape(x, (prod(shape[: axis + 1]), 1, prod(shape[axis + 1 :])))
            wide = work.broadcast(view, (work.shape(view)[0], times, work.shape(view)[2]))
            return work.reshape(wide, (*shape[:axis], len(chosen), *shape[axis + 1 :]))
        return call.take(x, axis, chosen)
    count = len(chosen)
    if axis == len(shape) - 1:
        rows = work.reshape(x, (1, prod(shape[:-1]), n))
        y = work.gemm(rows, work.constant(np.ascontiguousarray(chosen.T)[None], "weights of places"))
    else:
        parts = work.reshape(x, (prod(shape[:axis]), n, prod(shape[axis + 1 :])))
        y = work.gemm(work.constant(chosen[None], "weights of places"), parts)
    return work.reshape(y, (*shape[:axis], count, *shape[axis + 1 :]))
