"""Translations of operations that move, repeat or reduce data."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.base.errors import UnsupportedError
from volumetric.loaders.onnx_export.onnx_operations import Operands, translates
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter
from volumetric.loaders.onnx_export.open_graph import RowSize

_END: Final = np.iinfo(np.int64).max
_REDUCTIONS: Final = {"sum": "ReduceSum", "max": "ReduceMax", "mean": "ReduceMean"}


@translates("reshape")
def _reshape(writer: OnnxWriter, of: Operands) -> str:
    return writer.reshape(of.inputs[0], of.shapes[0], of.results[0])


@translates("permute")
def _permute(writer: OnnxWriter, of: Operands) -> str:
    return writer.node("Transpose", *of.inputs, perm=list(of.attrs["perm"]))


@translates("slice")
def _slice(writer: OnnxWriter, of: Operands) -> str:
    parts = zip(of.attrs["starts"], of.attrs["stops"], of.shapes[0], strict=True)
    cut = [(axis, a, b, size) for axis, (a, b, size) in enumerate(parts) if (a, b) != (0, size)]
    if not cut:
        return of.inputs[0]
    starts = writer.sizes(tuple(a for _, a, _, _ in cut))
    stops = writer.sizes(tuple(_END if b == size else b for _, _, b, size in cut))
    return writer.node("Slice", *of.inputs, starts, stops, writer.ints(*(axis for axis, *_ in cut)))


@translates("flip")
def _flip(writer: OnnxWriter, of: Operands) -> str:
    return writer.flipped(of.inputs[0], of.attrs["axis"])


@translates("pad")
def _pad(writer: OnnxWriter, of: Operands) -> str:
    return writer.node("Pad", of.inputs[0], writer.sizes((*of.attrs["before"], *of.attrs["after"])))


@translates("concat")
def _concat(writer: OnnxWriter, of: Operands) -> str:
    return writer.node("Concat", *of.inputs, axis=of.attrs["axis"])


@translates("broadcast")
def _broadcast(writer: OnnxWriter, of: Operands) -> str:
    value, shape = writer.value_of(of.inputs[0]), of.results[0]
    fixed = tuple(size for size in shape if not isinstance(size, RowSize))
    if value is not None and value.size == 1 and len(fixed) == len(shape):
        return writer.constant(np.broadcast_to(value, fixed))
    return writer.node("Expand", of.inputs[0], writer.sizes(shape))


@translates("reduce")
def _reduce(writer: OnnxWriter, of: Operands) -> str:
    return writer.node(_REDUCTIONS[of.attrs["name"]], of.inputs[0], writer.ints(*of.attrs["axes"]), keepdims=1)


@translates("assign")
def _assign(writer: OnnxWriter, of: Operands) -> str:
    value, *condition = of.inputs
    if condition:
        raise UnsupportedError("ONNX export of a buffer that changes under a condition")
    return value
