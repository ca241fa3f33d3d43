"""Rotary embedding and recurrent cells: operations that depend on the order of rows.

``rope``            x [B,T,H,D], cos [T,r/2], sin [T,r/2] → y. Elements i and i + r/2 of the first r of D rotate:
                    ``(x₁ cos − x₂ sin, x₂ cos + x₁ sin)``; ``back``: with −sin. The rest passes.
``recurrent``       from_x [B,T,nH], w_hh [nH,W], h0 [B,H] [, c0 [B,H] for lstm; c0, n0, m0 for slstm] [, b_hh [nH]]
                    [, keep [B,T]] → y [B,T,H] [, c_T [B,H], …] [, kept]. Units are heads of W; each head sees only its
                    own states. ``cell`` rnn_tanh rnn_relu (n=1, no kept), lstm (n=4; kept [B,T,5H] = i f g o c', blocks
                    concatenated), gru (n=3; kept [B,T,4H] = r z n hn), slstm (n=4; kept [B,T,8H] = i f z o σ(f̃) c' n'
                    m'). ``bias``, ``resets``: whether b_hh and keep are present. If keep, 0 or 1, is 0, the step
                    starts with zeros, even for NaN. Equations: `formula.cells`. y, whose last step is h_T, and
                    the other last states have gradients; all inputs but keep get them. T = 0: c_T = c0.
``recurrent_grad``  gy [, g of c_T, …], y [, kept], w_hh, h0 [, c0, …] [, keep] → g_from_x [B,T,nH] [, g_from_h [B,T,nH]
                    for gru; for the others they are equal] [, g_direct [n,B,H]: of c0 and the later states; for gru of
                    h0, without the path through w_hh; as if step 0 had no reset]. ``cell``, ``resets``, ``last``:
                    whether the g of c_T, … are present. T is 1 or more. kept is constant.
``recurrence``  x [ROWS, nH], weight.0 [nH,H] [, bias.0 [nH]], h: state [1,H] [, c for lstm] → y [ROWS,H], h [, c]
                after the last row. ``cell`` and equations as ``recurrent``; ``parts``: (nH,).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError, UnsupportedError
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.numeric.recurrent_cell import Cell
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats
from volumetric.graph.operations.recurrent_inputs import recurrent_grad_inputs, recurrent_inputs
from volumetric.graph.operations.rowwise import inputs_by_role
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def _infer_rope(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("rope", inputs)
    x, *tables = inputs
    _, length, _, width = axes_of("rope", x, 4)
    half = tables[0].shape[-1]
    require(all(t.shape == (length, half) for t in tables), "rope", f"cos and sin need {length} rows of one width")
    require(2 * half <= width, "rope", f"cannot rotate {2 * half} of {width} elements")
    return [float_output("turned", *x.shape)]


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
    require_floats("recurrent", inputs)
    cell = cell_of("recurrent", attrs)
    from_x, weight, *rest = inputs
    batch, length, wide = axes_of("recurrent", from_x, 3)
    size, states = wide // cell.blocks, len(cell.states)
    own = len(rest) == states + attrs["bias"] + attrs["resets"]
    require(own, "recurrent", f"got a wrong number of inputs for {cell.name}: {len(inputs)}")
    fits = weight.shape == (wide, weight.shape[-1]) and wide == cell.blocks * size and _divides(weight.shape[-1], size)
    require(fits, "recurrent", "the weight has a wrong shape")
    starts, bias, keep = recurrent_inputs(rest, attrs)
    require(all(t.shape == (batch, size) for t in starts), "recurrent", "the initial states have wrong shapes")
    require(all(t.shape == (wide,) for t in bias), "recurrent", "the bias has a wrong shape")
    require(all(t.shape == (batch, length) for t in keep), "recurrent", "keep needs shape [B, T]")
    last = [float_output(f"last {name}", batch, size) for name in cell.states[1:]]
    saved = [float_output("kept", batch, length, cell.saved_count * size)] if cell.saved_count else []
    return [float_output(cell.name, batch, length, size), *last, *saved]


def _divides(width: int, size: int) -> bool:
    """Return whether heads of this width divide all units."""
    return size == width or (width > 0 and size % width == 0)


def _run_recurrent(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Compute a cell over all steps."""
    from_x, weight, *rest = inputs
    cell = CELLS[attrs["cell"]]
    starts, bias, keep = recurrent_inputs(rest, attrs)
    every, tape = cell.run(from_x, weight, bias[0] if bias else None, starts, keep[0] if keep else None)
    h, *others = (np.ascontiguousarray(state[:, 1:]) for state in every)
    last = [np.ascontiguousarray(state[:, -1]) for state in every[1:]]
    return [h, *last, *([np.concatenate([*tape, *others], -1)] if cell.saved_count else [])]


def _vjp_recurrent(
    work: GraphBuilder, node: Node, grads: Sequence[int | None], needs_grad: Sequence[bool]
) -> Sequence[int | None]:
    """Emit the gradients of pre-activations, weight, initial states and bias; `keep` has none."""
    attrs, cell = node.attrs, CELLS[node.attrs["cell"]]
    from_x, weight, *rest = node.inputs
    starts, bias, keep = recurrent_inputs(rest, attrs)
    y, *last, saved = node.outputs if cell.saved_count else (*node.outputs, None)
    gy, *g_last = grads[: len(cell.states)]
    if grads[len(cell.states) :] != [None] * bool(cell.saved_count):
        raise UnsupportedError(f"the values that recurrent {node.where} stores for its gradient have no gradient")
    batch, length, size = work.shape(y)
    wide = work.shape(from_x)[2]
    if length == 0:
        return [None, None, None, *g_last, *(None for _ in (*bias, *keep))]
    seeds = [
        g if g is not None else work.zeros(work.shape(of)) for g, of in zip((gy, *g_last), (y, *last), strict=True)
    ]
    seeds = seeds if any(g is not None for g in g_last) else seeds[:1]
    back_inputs = (*seeds, y, *(() if saved is None else (saved,)), weight, *starts, *keep)
    gradients = work.emit("recurrent_grad", back_inputs, cell=cell.name, last=len(seeds) > 1, resets=attrs["resets"])
    g_x, g_h = gradients[0], gradients[int(cell.apart)]
    before = work.reshape(starts[0], (batch, 1, size))
    if length > 1:
        before = work.concat((before, work.part(y, 1, 0, length - 1)), 1)
    for of in keep:
        before = work.binary("mul_nonzero", before, work.reshape(of, (batch, length, 1)))
    g_weight = _weight_grad(work, g_h, before, work.shape(weight))
    g_bias = [work.reshape(work.reduce(g_h, "sum", (0, 1)), (wide,)) for _ in bias]
    first = work.reshape(work.part(g_h, 1, 0, 1), (batch, wide))
    ways = {cell.states[0]: [_state_gradient(work, first, weight, (batch, size))]}
    for i, name in enumerate(cell.direct):
        ways.setdefault(name, []).append(work.reshape(work.part(gradients[-1], 0, i, i + 1), (batch, size)))
    g_starts = [work.add(*ways[name]) if name in ways else None for name in cell.states]
    for of in keep:  # a reset of the first step cuts the gradient of the initial state
        g_starts = [g and work.binary("mul_nonzero", g, work.part(of, 1, 0, 1)) for g in g_starts]
    return [g_x, g_weight, *g_starts, *g_bias, *(None for _ in keep)]


def _weight_grad(work: GraphBuilder, g_h: int, before: int, shape: tuple[int, ...]) -> int:
    """Emit the gradient of the weights of each block and head from that of the products and the states they read."""
    (batch, length, size), (wide, width) = work.shape(before), shape
    blocks, heads, rows = wide // size, size // width, batch * length
    if heads == 1:
        flat_g, flat_h = (work.reshape(t, (1, rows, w)) for t, w in ((g_h, wide), (before, size)))
        return work.reshape(work.gemm(flat_g, flat_h, trans_a=True), shape)
    by_head = work.permute(work.reshape(g_h, (rows, blocks, heads, width)), (2, 0, 1, 3))
    states = work.permute(work.reshape(before, (rows, heads, width)), (1, 0, 2))
    product = work.gemm(work.reshape(by_head, (heads, rows, blocks * width)), states, trans_a=True)
    return work.reshape(work.permute(work.reshape(product, (heads, blocks, width, width)), (1, 0, 2, 3)), shape)


def _state_gradient(work: GraphBuilder, g: int, weight: int, shape: tuple[int, int]) -> int:
    """Emit the gradient ``[B, H]`` of a state from that of its products, ``[B, n H]``."""
    (batch, size), (wide, width) = shape, work.shape(weight)
    blocks, heads = wide // size, size // width
    if heads == 1:
        g = work.reshape(g, (1, batch, wide))
        return work.reshape(work.gemm(g, work.reshape(weight, (1, wide, size))), shape)
    by_head = work.permute(work.reshape(g, (batch, blocks, heads, width)), (2, 0, 1, 3))
    parts = work.permute(work.reshape(weight, (blocks, heads, width, width)), (1, 0, 2, 3))
    deep = (heads, blocks * width, width)
    product = work.gemm(work.reshape(by_head, (heads, batch, blocks * width)), work.reshape(parts, deep))
    return work.reshape(work.permute(product, (1, 0, 2)), shape)


def _infer_grad(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("recurrent_grad", inputs)
    cell = cell_of("recurrent_grad", attrs)
    states = len(cell.states)
    own = len(inputs) == 3 + attrs["last"] * (states - 1) + bool(cell.saved_count) + states + attrs["resets"]
    require(own, "recurrent_grad", "got a wrong number of inputs for its cell")
    of = recurrent_grad_inputs(inputs, attrs)
    batch, length, size = axes_of("recurrent_grad", of.y, 3)
    require(length, "recurrent_grad", "needs one step or more")
    require(of.gy.shape == of.y.shape, "recurrent_grad", "gy and y need one shape")
    require(
        all(t.shape == (batch, size) for t in (*of.g_last, *of.starts)), "recurrent_grad", "states have wrong shapes"
    )
    require(all(t.shape == (batch, length) for t in of.keep), "recurrent_grad", "keep needs shape [B, T]")
    pre = [
        float_output("from_x grad", batch, length, cell.blocks * size),
        float_output("from_h grad", batch, length, cell.blocks * size),
    ]
    direct = [float_output("direct grad", len(cell.direct), batch, size)] if cell.direct else []
    return [*pre[: 1 + cell.apart], *direct]


def _run_grad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    cell, of = CELLS[attrs["cell"]], recurrent_grad_inputs(inputs, attrs)
    parts = np.split(of.saved[0], cell.saved_count, -1) if cell.saved_count else []
    after = [of.y, *parts[len(cell.keeps) :]]
    every = tuple(np.concatenate([s[:, None], e], 1) for s, e in zip(of.starts, after, strict=True))
    tape, keep = tuple(parts[: len(cell.keeps)]), of.keep[0] if of.keep else None
    g_x, g_h, direct = cell.run_back(of.weight, every, tape, of.gy, of.g_last or None, keep)
    return [g_x, *([g_h] if cell.apart else []), *([np.stack(direct)] if direct else [])]


def _infer_recurrence(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("recurrence", inputs)
    by_role = inputs_by_role(inputs, attrs)
    rows, wide = axes_of("recurrence", by_role["x"], 2)
    size = by_role["weight.0"].shape[1]
    cell = cell_of("recurrence", attrs)
    require(wide == cell.blocks * size, "recurrence", f"x needs {cell.blocks} · {size} elements, got {wide}")
    require(by_role["weight.0"].shape == (wide, size), "recurrence", f"weight.0 needs shape {[wide, size]}")
    require(
        by_role.get("bias.0", float_output("", wide)).shape == (wide,), "recurrence", f"bias.0 needs {wide} elements"
    )
    states = [by_role[name] for name in cell.states if name in by_role]
    require(
        len(states) == len(cell.states), "recurrence", f"{cell.name} needs {len(cell.states)} states, got {len(states)}"
    )
    require(all(t.shape == (1, size) for t in states), "recurrence", f"states need shape {[1, size]}")
    return [float_output(attrs["cell"], rows, size), *(Tensor(name=t.name, shape=t.shape, key=t.key) for t in states)]


def _run_recurrence(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    by_role = inputs_by_role(inputs, attrs)
    cell = cell_of("recurrence", attrs)
    start = tuple(by_role[name] for name in cell.states)
    every, _ = cell.run(by_role["x"][None], by_role["weight.0"], by_role.get("bias.0"), start)
    return [np.ascontiguousarray(every[0][0, 1:]), *(state[0, -1:].copy() for state in every)]


declare("rope", _infer_rope, _run_rope, _vjp_rope)
declare("recurrent", _infer_recurrent, _run_recurrent, vjp_of_all=_vjp_recurrent)
declare("recurrent_grad", _infer_grad, _run_grad)
declare("recurrence", _infer_recurrence, _run_recurrence)
