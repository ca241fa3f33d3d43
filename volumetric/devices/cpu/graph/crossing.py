"""Steps of cross attention of many small parts of a table."""

from __future__ import annotations

from volumetric.devices.cpu.graph.steps import rule
from volumetric.devices.cpu.kernels.graph.crossing import CROSS_ATTEND_ARGUMENTS, cross_scratch
from volumetric.devices.cpu.kernels.graph.tiles import panel_shape
from volumetric.devices.cpu.steps import Draft
from volumetric.graph.operations.crossing import given
from volumetric.graph.ops import Node


@rule("cross_attend")
def cross_attend(draft: Draft, node: Node) -> None:
    """All parts."""
    of = given(node.inputs, node.attrs)
    reads = dict.fromkeys(CROSS_ATTEND_ARGUMENTS[: CROSS_ATTEND_ARGUMENTS.index("y")])
    reads |= {"table": of.table, "asks": of.asks, "tells": of.tells}
    reads |= {f"w{side}": i for side, i in of.weights.items()} | {f"b{side}": i for side, i in of.biases.items()}
    reads |= dict(zip(("wk", "wv"), of.known, strict=False)) | dict(zip(("seen",), of.seen, strict=False))
    edges, parts, queries, width = draft.shape(node.outputs[0])
    keys, heads = draft.shape(node.inputs[2])[2], node.attrs["heads"]
    tall, wide = panel_shape()
    draft.want_scratch(cross_scratch(queries, keys, width, wide))
    products = 2 * width * (2 * width * (queries + (0 if of.known else keys)) + 2 * queries * keys)
    draft.add(
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
