"""Recording of the operations that work row by row without a matrix product."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from volumetric.errors import UnsupportedError
from volumetric.kernels.gpu import elementwise
from volumetric.kernels.gpu.dispatch import ceil_div
from volumetric.runtime.gpu.context import Call
from volumetric.runtime.gpu.recurrent import record_recurrence
from volumetric.runtime.plan import Step

if TYPE_CHECKING:
    from volumetric.runtime.gpu.record import Frame, Recorder


def _embedding(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    matrix = r.weights.matrix((step.params["weight"],))
    ids, y = frame.values[step.inputs[0]], frame.values[step.outputs[0]]
    calls = []
    for shard in matrix.shards:
        dispatch = elementwise.embedding(
            width=matrix.k,
            layout=matrix.format,
            scale=step.attrs["scale"],
            first=shard.first,
            units=shard.units,
            divisor=step.attrs["divisor"],
            turn=matrix.units if step.attrs["rounds"] > 1 else 0,
        )
        calls.append(r.bind(dispatch, frame, {"ids": ids, "y": y, **shard.buffers}))
    return calls


def _position_embedding(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    matrix = r.weights.matrix((step.params["weight"],))
    if len(matrix.shards) != 1:
        raise UnsupportedError(f"{step.where}: a position table over several bindings", hint="use a smaller dtype")
    dispatch = elementwise.position_embedding(
        width=matrix.k, layout=matrix.format, offset=step.attrs["offset"], limit=matrix.units
    )
    buffers = {"x": frame.values[step.inputs[0]], "y": frame.values[step.outputs[0]]}
    return [r.bind(dispatch, frame, {**buffers, **matrix.shards[0].buffers})]


def _norm(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    groups = step.attrs["groups"]
    width = r.width(step.inputs[0]) // groups
    padded = 4 * ceil_div(width, 4)
    params = r.weights.vector("norm", (step.params.get("weight"), padded), (step.params.get("bias"), padded))
    dispatch = elementwise.norm(
        width=width,
        groups=groups,
        kind=step.attrs["kind"],
        eps=step.attrs["eps"],
        unit_offset=step.attrs["unit_offset"],
        weight="weight" in step.params,
        bias="bias" in step.params,
    )
    buffers = {"x": frame.values[step.inputs[0]], "y": frame.values[step.outputs[0]]}
    buffers |= {} if params is None else {"norm_params": params}
    return [r.bind(dispatch, frame, buffers, control=False)]


def _join(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    """Join inputs two by two. A running result cannot be read and written at once: rounds alternate two buffers."""
    width = r.width(step.outputs[0])
    inputs = [frame.values[i] for i in step.inputs]
    scale = float(step.attrs.get("scale", 1.0))
    if len(inputs) == 1:
        inputs, scale = [inputs[0], inputs[0]], scale / 2  # (x + x) * scale / 2, exact in binary
    y = frame.values[step.outputs[0]]
    spare = r.spare(y.size) if len(inputs) > 2 else None
    calls = []
    left = inputs[0]
    for at, right in enumerate(inputs[1:], start=1):
        final = at == len(inputs) - 1
        out = y if (len(inputs) - 1 - at) % 2 == 0 else spare
        dispatch = elementwise.join(width=width, scale=scale if final else 1.0)
        calls.append(r.bind(dispatch, frame, {"a": left, "b": right, "y": out}))
        left = out
    return calls


def _concat(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    total = r.width(step.outputs[0])
    calls, at = [], 0
    for i in step.inputs:
        dispatch = elementwise.concat(width=r.width(i), at=at, out_width=total)
        calls.append(r.bind(dispatch, frame, {"x": frame.values[i], "y": frame.values[step.outputs[0]]}))
        at += r.width(i)
    return calls


def _softcap(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    dispatch = elementwise.apply(width=r.width(step.inputs[0]), softcap=step.attrs["cap"])
    return [r.bind(dispatch, frame, {"x": frame.values[step.inputs[0]], "y": frame.values[step.outputs[0]]})]


def _softmax(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    dispatch = elementwise.softmax(width=r.width(step.inputs[0]), temperature=step.attrs["temperature"])
    buffers = {"x": frame.values[step.inputs[0]], "y": frame.values[step.outputs[0]]}
    return [r.bind(dispatch, frame, buffers, control=False)]


def _keep_largest(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    dispatch = elementwise.keep_largest(width=r.width(step.inputs[0]), count=step.attrs["k"])
    buffers = {"x": frame.values[step.inputs[0]], "y": frame.values[step.outputs[0]]}
    return [r.bind(dispatch, frame, buffers, control=False)]


def _mix(r: Recorder, step: Step, frame: Frame) -> list[Call]:
    weights, *branches = (frame.values[i] for i in step.inputs)
    width, y, calls = r.width(step.outputs[0]), frame.values[step.outputs[0]], []
    for first in range(0, len(branches), elementwise.MIXED):
        part = branches[first : first + elementwise.MIXED]
        dispatch = elementwise.mix(width=width, branches=len(branches), first=first, count=len(part))
        names = {f"branch_{i}": branch for i, branch in enumerate(part)}
        calls.append(r.bind(dispatch, frame, {"weights": weights, "y": y, **names}))
    return calls


ROWWISE: Mapping[str, Callable[[Recorder, Step, Frame], list[Call]]] = MappingProxyType(
    {
        "embedding": _embedding,
        "position_embedding": _position_embedding,
        "norm": _norm,
        "add": _join,
        "concat": _concat,
        "softcap": _softcap,
        "softmax": _softmax,
        "keep_largest": _keep_largest,
        "mix": _mix,
        "recurrence": record_recurrence,
    }
)
"""Operation of the fused plan → how its dispatches are bound."""
