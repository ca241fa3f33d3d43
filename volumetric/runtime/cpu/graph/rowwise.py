"""Steps of operations on rows and of sequences."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from volumetric.kernels.cpu.cells import CELLS as CODES
from volumetric.kernels.cpu.graph.lookups import GATHER_ARGUMENTS, SCATTER_ARGUMENTS
from volumetric.kernels.cpu.graph.norms import NORM_ARGUMENTS, NORM_GRAD_ARGUMENTS, PARAM_GRAD_ARGUMENTS
from volumetric.kernels.cpu.graph.rows import (
    ENTMAX_ARGUMENTS,
    ENTMAX_GRAD_ARGUMENTS,
    GRAD_ARGUMENTS,
    KEEP_ARGUMENTS,
    ROW_ARGUMENTS,
)
from volumetric.kernels.cpu.graph.sequences import (
    BACK_ARGUMENTS,
    PACK_ARGUMENTS,
    ROPE_ARGUMENTS,
    STEP_ARGUMENTS,
    packed_bytes,
)
from volumetric.layers.recurrent import CELLS, Cell
from volumetric.runtime.cpu.graph.steps import Address, Draft, moved, rule
from volumetric.runtime.graph.ops import Node

_PACKED_PRODUCTS = 8
"""Products of a state with the weights from which packing these pays."""


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


def _states(draft: Draft, cell: Cell, starts: Sequence[int], y: int, kept: int, at: int) -> dict[str, Any]:
    """Where the states before step `at` lie: in the first ones, or in the rows of y and kept."""
    _, length, size = draft.shape(y)
    second = len(starts) > 1
    if at == 0:
        c = Address(starts[1]) if second else 0
        return {"h": Address(starts[0]), "h_row": 4 * size, "c": c, "c_row": 4 * size}
    h, each = Address(y, 4 * (at - 1) * size), 4 * cell.kept * size
    c = Address(kept, each * (at - 1) + 4 * len(cell.keeps) * size) if second else 0
    return {"h": h, "h_row": 4 * length * size, "c": c, "c_row": length * each}


def _packed(draft: Draft, weight: int, products: int) -> tuple[int, ...]:
    """Weights in the order of panels, where they are used often enough; or nothing."""
    wide, size = draft.shape(weight)
    if products < _PACKED_PRODUCTS:
        return ()
    blocks = wide // size
    packed = draft.temporary(packed_bytes(size, blocks))
    draft.add(
        "recurrent_pack",
        PACK_ARGUMENTS,
        blocks,
        reads=(weight,),
        writes=(packed,),
        work=moved(8 * wide * size),
        weight=Address(weight),
        packed=Address(packed),
        size=size,
    )
    return (packed,)


@rule("recurrent")
def recurrent(draft: Draft, node: Node) -> None:
    """A step of the table for each step of the sequence."""
    cell = CELLS[node.attrs["cell"]]
    from_x, weight, *rest = node.inputs
    y, *kept = node.outputs
    starts = rest[: len(cell.states)]
    batch, length, size = draft.shape(y)
    products = 2 * prod(draft.shape(weight)) * batch
    packed = _packed(draft, weight, batch * length)
    for at in range(length):
        draft.add(
            "recurrent_step",
            STEP_ARGUMENTS,
            *_constants(cell),
            reads=(*node.inputs, *node.outputs, *packed),
            writes=node.outputs,
            work=products / 40 + 4 * batch * size,
            from_x=Address(from_x),
            weight=Address(weight),
            bias=Address(rest[-1]) if node.attrs["bias"] else 0,
            y=Address(y),
            kept=Address(kept[0]) if kept else 0,
            batch=batch,
            length=length,
            size=size,
            at=at,
            packed=Address(packed[0]) if packed else 0,
            **_states(draft, cell, starts, y, kept[0] if kept else y, at),
        )


def _constants(cell: Cell) -> tuple[int, int, int]:
    return CODES.index(cell.name), cell.blocks, cell.kept


@rule("recurrent_grad")
def recurrent_grad(draft: Draft, node: Node) -> None:
    """The same backwards."""
    cell = CELLS[node.attrs["cell"]]
    gy, y, *rest = node.inputs
    kept = rest.pop(0) if cell.kept else y
    weight, *starts = rest
    g_x, *more = node.outputs
    batch, length, size = draft.shape(y)
    products = 2 * prod(draft.shape(weight)) * batch
    for at in reversed(range(length)):
        draft.add(
            "recurrent_back",
            BACK_ARGUMENTS,
            *_constants(cell),
            reads=(*node.inputs, *node.outputs),
            writes=node.outputs,
            work=products / 20 + 4 * batch * size,
            gy=Address(gy),
            y=Address(y),
            kept=Address(kept),
            weight=Address(weight),
            g_x=Address(g_x),
            g_h=Address(more[0] if cell.apart else g_x),
            carry=Address(more[-1]) if cell.direct else 0,
            batch=batch,
            length=length,
            size=size,
            at=at,
            **_states(draft, cell, starts, y, kept, at),
        )
