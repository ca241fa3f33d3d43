"""Steps of cross attention of many small parts of a table."""

from __future__ import annotations

from volumetric.kernels.cpu.graph.crossing import CROSS_ATTEND_ARGUMENTS, cross_scratch
from volumetric.kernels.cpu.graph.tiles import panel_shape
from volumetric.runtime.cpu.graph.steps import rule
from volumetric.runtime.cpu.steps import Draft
from volumetric.runtime.graph.ops import Node


@rule("cross_attend")
def cross_attend(draft: Draft, node: Node) -> None:
    """All parts."""
    known, masked = node.attrs["known"], node.attrs["masked"]
    if known:
        names = ("table", "asks", "tells", "wq", "wo", "bq", "bo", "wk", "wv", "seen")
    else:
        names = ("table", "asks", "tells", "wq", "wk", "wv", "wo", "bq", "bk", "bv", "bo", "seen")
    edges, parts, queries, width = draft.shape(node.outputs[0])
    keys, heads = draft.shape(node.inputs[2])[2], node.attrs["heads"]
    tall, wide = panel_shape()
    draft.want_scratch(cross_scratch(queries, keys, width, wide))
    products = 2 * width * (2 * width * (queries + (0 if known else keys)) + 2 * queries * keys)
    reads = dict.fromkeys(CROSS_ATTEND_ARGUMENTS[: CROSS_ATTEND_ARGUMENTS.index("y")])
    draft.add(
        "cross_attend",
        CROSS_ATTEND_ARGUMENTS,
        tall,
        wide,
        reads=reads | dict(zip(names, (*node.inputs, *([] if masked else [None])), strict=True)),
        writes={"y": node.outputs[0]},
        work=edges * parts * (products / 100 + 0.3 * heads * queries * keys),
        edges=edges,
        parts=parts,
        queries=queries,
        keys=keys,
        width=width,
        heads=heads,
        scale=float(width // heads) ** -0.5,
        known=int(known),
    )
