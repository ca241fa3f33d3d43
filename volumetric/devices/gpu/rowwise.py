"""Recording of row-wise operations without matrix products."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from volumetric.base.errors import UnsupportedError
from volumetric.devices.gpu.command_list import RecordedDispatch, entry
from volumetric.devices.gpu.kernels import elementwise
from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.products import halving_norm
from volumetric.graph.ops import Node

if TYPE_CHECKING:
    from volumetric.devices.gpu.encode import RecordingFrame, RowRecorder


def _lookup(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    matrix = r.weights.matrix((r.graph.keys_by_role(node)["weight"],))
    x, y = node.input_by_role("x"), frame.values[node.outputs[0]]
    if x is None:
        ids = frame.values[node.inputs[0]]
        facts = {"width": matrix.k, "layout": matrix.format, "scale": node.attrs["scale"]}
        shards = [(elementwise.embedding(**facts, first=s.first, units=s.units), s.buffers) for s in matrix.shards]
        return [entry(dispatch, {"ids": ids, "y": y, **own}, control=frame.control) for dispatch, own in shards]
    if len(matrix.shards) != 1:
        raise UnsupportedError(f"{node.where}: the position table exceeds one binding", hint="use a smaller dtype")
    dispatch = elementwise.position_embedding(
        width=matrix.k, layout=matrix.format, offset=node.attrs["offset"], limit=matrix.units
    )
    return [entry(dispatch, {"x": frame.values[x], "y": y, **matrix.shards[0].buffers}, control=frame.control)]


def _norm(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    halving = halving_norm(r, node, frame)
    if halving is not None:
        return [halving]
    width, keys = r.width(node.inputs[0]), r.graph.keys_by_role(node)
    padded = 4 * ceil_div(width, 4)
    params = r.weights.vector("norm", (keys.get("weight"), padded), (keys.get("bias"), padded))
    dispatch = elementwise.norm(
        width=width,
        groups=1,
        kind=node.attrs["kind"],
        eps=node.attrs["eps"],
        unit_offset=node.attrs["unit_offset"],
        weight="weight" in keys,
        bias="bias" in keys,
    )
    buffers = {"x": frame.values[node.inputs[0]], "y": frame.values[node.outputs[0]]}
    buffers |= {} if params is None else {"norm_params": params}
    return [entry(dispatch, buffers)]


def _unary(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    facts = {name: node.attrs[name] for name in ("name", "alpha", "beta")}
    dispatch = elementwise.unary(width=r.width(node.outputs[0]), **facts)
    buffers = {"x": frame.values[node.inputs[0]], "y": frame.values[node.outputs[0]]}
    return [entry(dispatch, buffers, control=frame.control)]


def _binary(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    a, b = (frame.values[i] for i in node.inputs)
    dispatch = elementwise.binary(width=r.width(node.outputs[0]), name=node.attrs["name"])
    return [entry(dispatch, {"a": a, "b": b, "y": frame.values[node.outputs[0]]}, control=frame.control)]


def _concat(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    total = r.width(node.outputs[0])
    entries, at = [], 0
    for i in node.inputs:
        dispatch = elementwise.concat(width=r.width(i), at=at, out_width=total)
        entries.append(
            entry(dispatch, {"x": frame.values[i], "y": frame.values[node.outputs[0]]}, control=frame.control)
        )
        at += r.width(i)
    return entries


def _softmax(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    dispatch = elementwise.softmax(width=r.width(node.inputs[0]))
    buffers = {"x": frame.values[node.inputs[0]], "y": frame.values[node.outputs[0]]}
    return [entry(dispatch, buffers)]


def _keep_largest(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    dispatch = elementwise.keep_largest(width=r.width(node.inputs[0]), count=node.attrs["k"])
    buffers = {"x": frame.values[node.inputs[0]], "y": frame.values[node.outputs[0]]}
    return [entry(dispatch, buffers)]


def _record_mix(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    weights, *branches = (frame.values[i] for i in node.inputs)
    width, y, entries = r.width(node.outputs[0]), frame.values[node.outputs[0]], []
    for first in range(0, len(branches), elementwise.MIXED):
        part = branches[first : first + elementwise.MIXED]
        dispatch = elementwise.mix(
            width=width, branches=len(branches), first=first, count=len(part), weighted=node.attrs["weighted"]
        )
        names = {f"branch_{i}": branch for i, branch in enumerate(part)}
        entries.append(entry(dispatch, {"weights": weights, "y": y, **names}, control=frame.control))
    return entries


def _record_gated(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    x, factor = (frame.values[i] for i in node.inputs)
    facts = {name: node.attrs[name] for name in ("activation", "limit", "up_offset")}
    dispatch = elementwise.gated_activation(width=r.width(node.outputs[0]), **facts)
    return [entry(dispatch, {"x": x, "factor": factor, "y": frame.values[node.outputs[0]]}, control=frame.control)]


WRITERS: Mapping[str, Callable[[RowRecorder, Node, RecordingFrame], list[RecordedDispatch]]] = MappingProxyType(
    {
        "lookup": _lookup,
        "norm": _norm,
        "unary": _unary,
        "binary": _binary,
        "concat": _concat,
        "softmax": _softmax,
        "keep_largest": _keep_largest,
        "mix": _record_mix,
        "gated": _record_gated,
    }
)
"""Operation → function that records it."""
