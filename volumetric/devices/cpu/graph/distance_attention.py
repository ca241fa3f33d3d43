"""Steps of attention by content and distance."""

from __future__ import annotations

from volumetric.devices.cpu.graph.graph_rules import move_nanoseconds, rule
from volumetric.devices.cpu.kernels.graph.distance_attention import DISTANCE_ATTEND_ARGUMENTS, distance_scratch
from volumetric.devices.cpu.step_builder import StepBuilder
from volumetric.graph.ops import Node


@rule("distance_attend")
def distance_attend(builder: StepBuilder, node: Node) -> None:
    """A few rows of all sequences."""
    names = ("content", "position", "k", "v", "r", "keys", "values", "age", "keep")
    batch, length, inner = builder.shape(node.outputs[0])
    memory, heads = builder.shape(node.outputs[1])[1], node.attrs["heads"]
    width = inner // heads
    builder.want_scratch(distance_scratch(memory))
    builder.add(
        "distance_attend",
        DISTANCE_ATTEND_ARGUMENTS,
        reads=dict(zip(names, (*node.inputs, *([] if node.attrs["resets"] else [None])), strict=True)),
        writes=dict(zip(("y", "new_keys", "new_values", "new_age"), node.outputs, strict=True)),
        work=batch * (4 * move_nanoseconds(4 * memory * inner) + length * memory * inner / 8),
        batch=batch,
        length=length,
        memory=memory,
        heads=heads,
        width=width,
        scale=float(width) ** -0.5,
    )
