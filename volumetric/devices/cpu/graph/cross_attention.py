"""Steps of cross attention of many small parts of a table."""

from __future__ import annotations

from volumetric.devices.cpu.graph.graph_rules import rule
from volumetric.devices.cpu.kernels.graph.cross_attention import CROSS_ATTEND_ARGUMENTS, cross_scratch
from volumetric.devices.cpu.kernels.graph.gemm_microkernels import panel_shape
from volumetric.devices.cpu.step_builder import StepBuilder
from volumetric.graph.operations.cross_attention import cross_attend_inputs
from volumetric.graph.ops import Node


@rule("cross_attend")
def cross_attend(builder: StepBuilder, node: Node) -> None:
    """All parts."""
    of = cross_attend_inputs(node.inputs, node.attrs)
    reads = dict.fromkeys(CROSS_ATTEND_ARGUMENTS[: CROSS_ATTEND_ARGUMENTS.index("y")])
    reads |= {"table": of.table, "asks": of.asks, "tells": of.tells}
    reads |= {f"w{side}": i for side, i in of.weights.items()} | {f"b{side}": i for side, i in of.biases.items()}
    reads |= dict(zip(("wk", "wv"), of.known, strict=False)) | dict(zip(("seen",), of.masks, strict=False))
    edges, parts, queries, width = builder.shape(node.outputs[0])
    keys, heads = builder.shape(node.inputs[2])[2], node.attrs["heads"]
    tall, wide = panel_shape()
    builder.want_scratch(cross_scratch(queries, keys, width, wide))
    products = 2 * width * (2 * width * (queries + (0 if of.known else keys)) + 2 * queries * keys)
    builder.add(
        "cross_attend",
        CROSS_ATTEND_ARGUMENTS,
        tall,
        wide,
        reads=reads,
        writes={"y": node.outputs[0]},
        work=edges * parts * (products / 100 + 0.3 * heads * queries * keys),
        edges=edges,
        parts=parts,
        queries=queries,
        keys=keys,
        width=width,
        heads=heads,
        scale=float(width // heads) ** -0.5,
        known=int(bool(of.known)),
    )
