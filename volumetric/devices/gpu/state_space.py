"""Recording of the operations of state-space layers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from volumetric.devices.gpu.command_list import RecordedDispatch, entry
from volumetric.devices.gpu.fixed_states import fixed_name
from volumetric.devices.gpu.kernels import elementwise
from volumetric.devices.gpu.kernels.dispatch import ceil_div
from volumetric.devices.gpu.kernels.state_space import ConvShape, ScanShape, causal_conv, selective_scan
from volumetric.graph.operations.state_space import conv_factors
from volumetric.graph.ops import Node

if TYPE_CHECKING:
    from volumetric.devices.gpu.encode import RecordingFrame, RowRecorder


def _columns(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    start, stop = node.attrs["starts"][1], node.attrs["stops"][1]
    x, y = node.inputs[0], node.outputs[0]
    dispatch = elementwise.columns(width=stop - start, start=start, of_width=r.width(x))
    return [entry(dispatch, {"x": frame.values[x], "y": frame.values[y]}, control=frame.control)]


def _grouped_norm(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    groups, width, gain = node.attrs["groups"], r.width(node.inputs[0]), r.graph.keys_by_role(node)["weight"]
    dispatch = elementwise.norm(
        width=width // groups,
        groups=groups,
        kind="rms",
        eps=node.attrs["eps"],
        unit_offset=False,
        weight=True,
        bias=False,
    )
    params = r.weights.vector("norm", (gain, 4 * ceil_div(width, 4)))
    values = {"x": frame.values[node.inputs[0]], "y": frame.values[node.outputs[0]]}
    return [entry(dispatch, values | ({} if params is None else {"norm_params": params}))]


def _conv(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    """Record a `causal_conv`; taps and bias are uploaded as ``[taps + 1, channels]`` float32."""
    attrs, keys = node.attrs, r.graph.keys_by_role(node)
    channels, _, taps = r.graph.tensors[node.inputs[1]].shape
    stride = 4 * ceil_div(channels, 4)

    def build() -> NDArray[np.float32]:
        params = np.zeros((taps + 1, stride), np.float32)
        factored = r.weights.values(keys["weight"]) * conv_factors(attrs, np.dtype(np.float32))
        params[:taps, :channels] = factored[:, 0].T
        if "bias" in keys:
            params[taps, :channels] = r.weights.values(keys["bias"])
        return params

    shape = ConvShape(
        channels=channels,
        taps=taps,
        width=r.width(node.inputs[0]),
        start=attrs["start"],
        activation=attrs["activation"],
    )
    buffers = {
        "x": frame.values[node.inputs[0]],
        "conv_params": r.weights.derived_buffer(("taps", keys["weight"], attrs["factors"]), build),
        "past": fixed_name(r.graph.states(node)["past"]),
        "y": frame.values[node.outputs[0]],
    }
    return [entry(causal_conv(shape, rows=_most(r, frame)), buffers, control=frame.control)]


def _scan(r: RowRecorder, node: Node, frame: RecordingFrame) -> list[RecordedDispatch]:
    """Record a `selective_scan`; rates, skip factors and biases of steps are one buffer."""
    attrs, keys = node.attrs, r.graph.keys_by_role(node)
    inputs = dict(zip(attrs["roles"], node.inputs, strict=True))
    heads, rates = attrs["heads"], r.graph.tensors[inputs["a_log"]]
    values = {name: frame.values[inputs[name]] for name in attrs["starts"]}
    params = r.weights.vector(
        "scan",
        (keys["a_log"], rates.size),
        (keys["d"], heads),
        *([(keys["dt_bias"], heads)] if "dt_bias" in keys else []),
    )
    shape = ScanShape(
        heads=heads,
        head_dim=attrs["head_dim"],
        groups=attrs["groups"],
        size=attrs["size"],
        widths={name: r.width(inputs[name]) for name in attrs["starts"]},
        starts=attrs["starts"],
        each=len(rates.shape) == 2,
        skip_at=rates.size,
        bias_at=rates.size + heads if "dt_bias" in keys else None,
        dt_factor=attrs["dt_factor"],
        z_factor=attrs["z_factor"],
        dt_min=attrs["dt_min"],
        dt_max=attrs["dt_max"],
    )
    buffers = {**values, "state": fixed_name(r.graph.states(node)["state"]), "y": frame.values[node.outputs[0]]}
    buffers |= {} if params is None else {"params": params}
    return [entry(selective_scan(shape, rows=_most(r, frame)), buffers, control=frame.control)]


def _most(r: RowRecorder, frame: RecordingFrame) -> int:
    """Maximum rows of a sequence in a call."""
    return min(frame.rows, r.most_rows) if frame.singles < frame.rows else 1


WRITERS: Mapping[str, Callable[[RowRecorder, Node, RecordingFrame], list[RecordedDispatch]]] = MappingProxyType(
    {"slice": _columns, "causal_conv": _conv, "selective_scan": _scan, "grouped_norm": _grouped_norm}
)
"""Operation → function that records it."""
