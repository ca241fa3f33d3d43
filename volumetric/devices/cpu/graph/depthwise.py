"""Steps of causal convolutions of channels."""

from __future__ import annotations

from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.graph.depthwise import (
    DEPTHWISE_ARGUMENTS,
    DEPTHWISE_BACK_ARGUMENTS,
    depthwise_scratch,
)
from volumetric.devices.cpu.step_builder import StepBuilder
from volumetric.graph.ops import Node


@rule("depthwise_conv")
def depthwise_conv(builder: StepBuilder, node: Node) -> None:
    """All channels of all sequences."""
    x, weight, past, *rest = node.inputs
    keep = rest.pop() if node.attrs["resets"] else None
    batch, length, width = builder.shape(x)
    taps = builder.shape(weight)[2]
    builder.want_scratch(depthwise_scratch(taps, 0))
    places = {"x": x, "weight": weight, "past": past, "bias": next(iter(rest), None), "keep": keep}
    work = move_nanoseconds(8 * batch * length * width) + batch * length * width * taps / 16
    size = {"batch": batch, "length": length, "width": width}
    builder.add(
        "depthwise_conv", DEPTHWISE_ARGUMENTS, taps, reads=places, writes={"y": node.outputs[0]}, work=work, **size
    )


@rule("depthwise_conv_grad")
def depthwise_conv_grad(builder: StepBuilder, node: Node) -> None:
    """Gradients of x, weight, past and bias."""
    g, x, weight, past, *keep = node.inputs
    batch, length, width = builder.shape(x)
    taps = builder.shape(weight)[2]
    builder.want_scratch(depthwise_scratch(taps, length))
    reads = {"g": g, "x": x, "weight": weight, "past": past, "keep": next(iter(keep), None)}
    writes = dict(zip(("g_x", "g_weight", "g_past", "g_bias"), node.outputs, strict=True))
    work = move_nanoseconds(12 * batch * length * width) + batch * length * width * taps / 6
    size = {"batch": batch, "length": length, "width": width}
    builder.add("depthwise_back", DEPTHWISE_BACK_ARGUMENTS, taps, reads=reads, writes=writes, work=work, **size)
