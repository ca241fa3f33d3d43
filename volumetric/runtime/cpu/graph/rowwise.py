"""Steps of operations on rows, and of rotary embedding."""

from __future__ import annotations

from volumetric.kernels.cpu.graph.lookups import GATHER_ARGUMENTS, SCATTER_ARGUMENTS
from volumetric.kernels.cpu.graph.norms import NORM_ARGUMENTS, NORM_GRAD_ARGUMENTS, PARAM_GRAD_ARGUMENTS
from volumetric.kernels.cpu.graph.rows import (
    ENTMAX_ARGUMENTS,
    ENTMAX_GRAD_ARGUMENTS,
    GRAD_ARGUMENTS,
    KEEP_ARGUMENTS,
    ROW_ARGUMENTS,
)
from volumetric.kernels.cpu.graph.sequences import ROPE_ARGUMENTS
from volumetric.runtime.cpu.graph.steps import Address, Draft, moved, rule
from volumetric.runtime.graph.ops import Node


@rule("gather_rows")
def gather_rows(draft: Draft, node: Node) -> None:
    """Rows of a table."""
    (table, ids), [y] = node.inputs, node.outputs
    count, width = draft.shape(y)
    draft.add(
        "gather_rows",
        GATHER_ARGUMENTS,
        reads=(table, ids),
        writes=(y,),
        work=moved(8 * count * width),
        table=Address(table),
        ids=Address(ids),
        y=Address(y),
        count=count,
        width=width,
        rows=draft.shape(table)[0],
    )


@rule("scatter_rows")
def scatter_rows(draft: Draft, node: Node) -> None:
    """Sums of rows with the same id."""
    (g, ids), [y] = node.inputs, node.outputs
    rows, width = draft.shape(y)
    count = draft.shape(g)[0]
    draft.add(
        "scatter_rows",
        SCATTER_ARGUMENTS,
        reads=(g, ids),
        writes=(y,),
        work=moved(4 * (rows + 3 * count) * width),
        g=Address(g),
        ids=Address(ids),
        y=Address(y),
        count=count,
        width=width,
        rows=rows,
    )


@rule("softmax", "entmax", "keep_largest")
def by_row(draft: Draft, node: Node) -> None:
    """Softmax and its relatives."""
    [x], [y] = node.inputs, node.outputs
    rows, width = draft.shape(x)
    common = {"reads": (x,), "writes": (y,), "x": Address(x), "y": Address(y), "rows": rows, "width": width}
    work, size = moved(12 * rows * width), rows * width
    if node.op == "softmax":
        draft.add("softmax", ROW_ARGUMENTS, work=work + 0.4 * size, **common)
    elif node.op == "keep_largest":
        draft.add("keep_largest", KEEP_ARGUMENTS, work=work + size * node.attrs["k"], **common, k=node.attrs["k"])
    elif node.attrs["alpha"] == 2:
        draft.add("sparsemax", ROW_ARGUMENTS, work=work + 10 * size, **common)
    else:
        scale = node.attrs["alpha"] - 1
        draft.add("entmax", ENTMAX_ARGUMENTS, work=work + 30 * size, **common, scale=float(scale), inverse=1 / scale)


@rule("softmax_grad", "entmax_grad")
def by_row_grad(draft: Draft, node: Node) -> None:
    """Their gradients."""
    (y, g), [gx] = node.inputs, node.outputs
    rows, width = draft.shape(y)
    common = {
        "reads": (y, g),
        "writes": (gx,),
        "y": Address(y),
        "g": Address(g),
        "gx": Address(gx),
        "rows": rows,
        "width": width,
    }
    work = moved(16 * rows * width)
    if node.op == "softmax_grad":
        draft.add("softmax_grad", GRAD_ARGUMENTS, work=work, **common)
    else:
        exponent = float(2 - node.attrs["alpha"])
        draft.add("entmax_grad", ENTMAX_GRAD_ARGUMENTS, work=work + rows * width, **common, exponent=exponent)


@rule("norm")
def norm(draft: Draft, node: Node) -> None:
    """Norm of rows."""
    x, *vectors = node.inputs
    y, stats = node.outputs
    rows, width = draft.shape(x)
    draft.add(
        "norm",
        NORM_ARGUMENTS,
        int(node.attrs["kind"] == "layer"),
        reads=node.inputs,
        writes=node.outputs,
        work=moved(12 * rows * width) + 20 * rows,
        x=Address(x),
        gain=Address(vectors[0]) if vectors else 0,
        bias=Address(vectors[1]) if len(vectors) > 1 else 0,
        y=Address(y),
        stats=Address(stats),
        rows=rows,
        width=width,
        eps=float(node.attrs["eps"]),
        offset=float(bool(node.attrs["unit_offset"])),
    )


@rule("norm_grad")
def norm_grad(draft: Draft, node: Node) -> None:
    """Gradient of the rows."""
    g, x, stats, *vectors = node.inputs
    rows, width = draft.shape(x)
    draft.add(
        "norm_grad",
        NORM_GRAD_ARGUMENTS,
        int(node.attrs["kind"] == "layer"),
        reads=node.inputs,
        writes=node.outputs,
        work=moved(24 * rows * width) + 20 * rows,
        g=Address(g),
        x=Address(x),
        stats=Address(stats),
        gain=Address(vectors[0]) if vectors else 0,
        gx=Address(node.outputs[0]),
        rows=rows,
        width=width,
        offset=float(bool(node.attrs["unit_offset"])),
    )


@rule("norm_param_grad")
def norm_param_grad(draft: Draft, node: Node) -> None:
    """Gradients of gain and bias."""
    g, x, stats = node.inputs
    rows, width = draft.shape(x)
    draft.add(
        "norm_param_grad",
        PARAM_GRAD_ARGUMENTS,
        reads=node.inputs,
        writes=node.outputs,
        work=moved(12 * rows * width),
        g=Address(g),
        x=Address(x),
        stats=Address(stats),
        ggain=Address(node.outputs[0]),
        gbias=Address(node.outputs[1]) if node.attrs["bias"] else 0,
        rows=rows,
        width=width,
    )


@rule("rope")
def rope(draft: Draft, node: Node) -> None:
    """Turn pairs of elements."""
    (x, cos, sin), [y] = node.inputs, node.outputs
    batch, length, heads, width = draft.shape(x)
    draft.add(
        "rope",
        ROPE_ARGUMENTS,
        reads=node.inputs,
        writes=(y,),
        work=moved(8 * draft.tensor(x).size),
        x=Address(x),
        cos=Address(cos),
        sin=Address(sin),
        y=Address(y),
        rows=batch * length * heads,
        length=length,
        heads=heads,
        width=width,
        half=draft.shape(cos)[1],
        sign=-1.0 if node.attrs["back"] else 1.0,
    )
