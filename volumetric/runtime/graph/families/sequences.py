"""Rotary embedding and recurrent cells: what depends on the order of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.layers.recurrent import CELLS, Cell
from volumetric.runtime.graph.families.base import Attrs, axes_of, declare, floats, out, require
from volumetric.runtime.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.runtime.graph.build import GraphBuilder


def _infer_rope(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    floats("rope", inputs)
    x, *tables = inputs
    _, length, _, width = axes_of("rope", x, 4)
    half = tables[0].shape[-1]
    require(all(t.shape == (length, half) for t in tables), "rope", f"tables need {length} rows of one width")
    require(2 * half <= width, "rope", f"cannot turn {2 * half} elements of {width}")
    return [out("turned", *x.shape)]


def _run_rope(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    x, cos, sin = inputs
    half = cos.shape[-1]
    cos, sin = cos[:, None], sin[:, None] * (-1 if attrs["back"] else 1)
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return [np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)]


def _vjp_rope(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    _, cos, sin = node.inputs
    return [work.rope(g, cos, sin, back=not node.attrs["back"]), None, None]


def cell_of(op: str, attrs: Attrs) -> Cell:
    """Return the cell that an operation names."""
    if attrs["cell"] not in CELLS:
        raise SpecError(f"{op}: unknown cell {attrs['cell']!r}", hint="one of " + ", ".join(CELLS))
    return CELLS[attrs["cell"]]


def _infer_recurrent(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    floats("recurrent", inputs)
    cell = cell_of("recurrent", attrs)
    from_x, weight, *rest = inputs
    batch, length, wide = axes_of("recurrent", from_x, 3)
    size, states = weight.shape[-1], len(cell.states)
    require(len(rest) == states + attrs["bias"], "recurrent", f"{len(inputs)} inputs do not make a {cell.name}")
    require(weight.shape == (wide, size) and wide == cell.blocks * size, "recurrent", "the weight does not fit")
    require(all(t.shape == (batch, size) for t in rest[:states]), "recurrent", "initial states do not fit")
    require(all(t.shape == (wide,) for t in rest[states:]), "recurrent", "the bias does not fit")
    kept = [out("kept", batch, length, cell.kept * size)] if cell.kept else []
    return [out(cell.name, batch, length, size), *kept]


def _run_recurrent(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Compute a cell over all steps."""
    from_x, weight, *rest = inputs
    cell = CELLS[attrs["cell"]]
    every, tape = cell.run(from_x, weight, rest[-1] if attrs["bias"] else None, tuple(rest[: len(cell.states)]))
    h, *others = (np.ascontiguousarray(state[:, 1:]) for state in every)
    return [h, np.concatenate([*tape, *others], -1)] if cell.kept else [h]


def _vjp_recurrent(work: GraphBuilder, node: Node, g: int) -> Sequence[int | None]:
    cell, bias = CELLS[node.attrs["cell"]], node.attrs["bias"]
    from_x, weight, *rest = node.inputs
    y, states = node.outputs[0], rest[: len(cell.states)]
    batch, length, size = work.shape(y)
    wide = work.shape(from_x)[2]
    if length == 0:
        return [None] * len(node.inputs)
    found = work.emit("recurrent_grad", (g, *node.outputs, weight, *states), cell=cell.name)
    g_x, g_h = found[0], found[int(cell.apart)]
    before = work.reshape(states[0], (batch, 1, size))
    if length > 1:
        before = work.concat((before, work.slice(y, (0, 0, 0), (batch, length - 1, size))), 1)
    flat_g, flat_h = (work.reshape(t, (1, batch * length, w)) for t, w in ((g_h, wide), (before, size)))
    g_weight = work.reshape(work.gemm(flat_g, flat_h, trans_a=True), (wide, size))
    g_bias = [work.reshape(work.reduce(g_h, "sum", (0, 1)), (wide,))] if bias else []
    first = work.reshape(work.part(g_h, 1, 0, 1), (1, batch, wide))
    ways = {"h": [work.reshape(work.gemm(first, work.reshape(weight, (1, wide, size))), (batch, size))]}
    for i, name in enumerate(cell.direct):
        ways.setdefault(name, []).append(work.reshape(work.part(found[-1], 0, i, i + 1), (batch, size)))
    g_states = [work.add(*ways[name]) if name in ways else None for name in cell.states]
    return [g_x, g_weight, *g_states, *g_bias]


def _infer_grad(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    floats("recurrent_grad", inputs)
    cell = cell_of("recurrent_grad", attrs)
    own = len(inputs) == 3 + bool(cell.kept) + len(cell.states)
    require(own, "recurrent_grad", "has other inputs than its cell")
    batch, length, size = axes_of("recurrent_grad", inputs[1], 3)
    require(length, "recurrent_grad", "needs a step")
    require(inputs[0].shape == inputs[1].shape, "recurrent_grad", "gy and y have one shape")
    pre = [out("from_x grad", batch, length, cell.blocks * size), out("from_h grad", batch, length, cell.blocks * size)]
    direct = [out("direct grad", len(cell.direct), batch, size)] if cell.direct else []
    return [*pre[: 1 + cell.apart], *direct]


def _run_grad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    cell = CELLS[attrs["cell"]]
    gy, y, *rest = inputs
    parts = np.split(rest.pop(0), cell.kept, -1) if cell.kept else []
    weight, *starts = rest
    after = [y, *parts[len(cell.keeps) :]]
    every = tuple(np.concatenate([s[:, None], e], 1) for s, e in zip(starts, after, strict=True))
    g_x, g_h, direct = cell.run_back(weight, every, tuple(parts[: len(cell.keeps)]), gy)
    return [g_x, *([g_h] if cell.apart else []), *([np.stack(direct)] if direct else [])]


declare("rope", _infer_rope, _run_rope, _vjp_rope)
declare("recurrent", _infer_recurrent, _run_recurrent, _vjp_recurrent)
declare("recurrent_grad", _infer_grad, _run_grad)
