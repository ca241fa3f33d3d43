"""`cell`: one step of a recurrent cell from its pre-activations, for the bodies of loops.

``cell``            from_x [R,nH], from_h [R,nH], bias [m,nH]: of R/m rows each [, before [d,R,H]] → y [R,H] [, others
                    [s,R,H]] [, kept [R,kH]]: one step of a ``recurrent`` ``cell``, after its products. before: for
                    lstm c, for gru h, for slstm c, n, m; others: c, or c, n, m, after the step; kept: i f g o, r z n
                    hn, i f z o σ(f̃). y and others have gradients; all inputs get them.
``cell_grad``       gy [, g of others], y [, others] [, kept] [, before] → g_from_x [R,nH] [, g_from_h [R,nH] for gru]
                    [, g_before [d,R,H]]. ``cell``. kept is constant. It has no gradient.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import UnsupportedError
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.numeric.recurrent_cell import Cell, States
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats
from volumetric.graph.operations.recurrent_inputs import cell_grad_inputs
from volumetric.graph.operations.sequences import cell_of
from volumetric.graph.ops import Node, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder


def cell_step(
    work: GraphBuilder, cell: Cell, from_x: int, from_h: int, bias: int, before: int | None
) -> tuple[int, int | None]:
    """Emit a step for all rows: h ``[R, H]``, and the other states stacked, ``[states - 1, R, H]``, if any.

    Parameters
    ----------
    from_x, from_h : ``[R, blocks · H]``
    bias : ``[n, blocks · H]``; each row of it belongs to R / n consecutive rows
    before : the states of `cell.direct`, ``[direct, R, H]``
    """
    states = () if before is None else (before,)
    h, *more = work.emit("cell", (from_x, from_h, bias, *states), cell=cell.name)
    return h, more[0] if len(cell.states) > 1 else None


def _infer(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("cell", inputs)
    cell = cell_of("cell", attrs)
    expected = 3 + bool(cell.direct)
    require(len(inputs) == expected, "cell", f"got {len(inputs)} inputs, expected {expected} for {cell.name}")
    from_x, from_h, bias, *before = inputs
    rows, wide = axes_of("cell", from_x, 2)
    size = wide // cell.blocks
    require(from_h.shape == (rows, wide) and wide == cell.blocks * size, "cell", "pre-activations have wrong shapes")
    sets, _ = axes_of("cell", bias, 2)
    fits = bias.shape[1] == wide and (rows % sets == 0 if sets else not rows)
    require(fits, "cell", f"a bias of shape {list(bias.shape)} does not match {rows} rows of {wide} elements")
    require(all(t.shape == (len(cell.direct), rows, size) for t in before), "cell", "the states have wrong shapes")
    more = [float_output("states", len(cell.states) - 1, rows, size)] if len(cell.states) > 1 else []
    saved = [float_output("kept", rows, len(cell.keeps) * size)] if cell.keeps else []
    return [float_output(cell.name, rows, size), *more, *saved]


def _before(cell: Cell, direct: Sequence[Array], like: Array) -> States:
    """Return the states before a step, with zeros for those that it does not read."""
    known = dict(zip(cell.direct, direct[0], strict=True)) if direct else {}
    return tuple(known.get(name, np.zeros_like(like)) for name in cell.states)


def _run(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    cell = CELLS[attrs["cell"]]
    from_x, from_h, bias, *before = inputs
    rows, wide = from_x.shape
    own = np.repeat(bias, rows // max(len(bias), 1), 0)
    like = np.zeros((rows, wide // cell.blocks), from_x.dtype)
    (h, *others), saved = cell.step(from_x + own, from_h, _before(cell, before, like))
    more = [np.stack(others)] if others else []
    return [h, *more, *([np.concatenate(saved, -1)] if saved else [])]


def _vjp(
    work: GraphBuilder, node: Node, grads: Sequence[int | None], needs_grad: Sequence[bool]
) -> Sequence[int | None]:
    cell = CELLS[node.attrs["cell"]]
    _, _, bias, *before = node.inputs
    h, *more = node.outputs
    others, saved = more[: len(cell.states) > 1], more[len(cell.states) > 1 :]
    if grads[1 + len(others) :] != [None] * len(saved):
        raise UnsupportedError(f"the values that cell {node.where} stores for its gradient have no gradient")
    g = [seed if seed is not None else work.zeros(work.shape(i)) for i, seed in zip((h, *others), grads, strict=False)]
    gradients = list(work.emit("cell_grad", (*g, h, *others, *saved, *before), cell=cell.name))
    g_x, g_h = gradients[0], gradients[int(cell.apart)]
    (rows, wide), sets = work.shape(g_x), work.shape(bias)[0]
    g_bias = work.reshape(g_x, (sets, rows // max(sets, 1), wide))
    return [g_x, g_h, work.reshape(work.reduce(g_bias, "sum", (1,)), (sets, wide)), *gradients[1 + cell.apart :]]


def _infer_grad(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("cell_grad", inputs)
    cell = cell_of("cell_grad", attrs)
    several = len(cell.states) > 1
    own = 2 + 2 * several + bool(cell.keeps) + bool(cell.direct)
    require(len(inputs) == own, "cell_grad", f"got {len(inputs)} inputs, expected {own} for {cell.name}")
    of = cell_grad_inputs(inputs, attrs)
    rows, size = axes_of("cell_grad", of.y, 2)
    require(of.gy.shape == of.y.shape, "cell_grad", "gy and y must have the same shape")
    states = (len(cell.states) - 1, rows, size)
    require(all(t.shape == states for t in (*of.g_others, *of.others)), "cell_grad", "the states have wrong shapes")
    require(all(t.shape == (rows, len(cell.keeps) * size) for t in of.saved), "cell_grad", "kept has a wrong shape")
    require(all(t.shape == (len(cell.direct), rows, size) for t in of.before), "cell_grad", "before has a wrong shape")
    pre = [float_output("from_x grad", rows, cell.blocks * size), float_output("from_h grad", rows, cell.blocks * size)]
    direct = [float_output("direct grad", len(cell.direct), rows, size)] if cell.direct else []
    return [*pre[: 1 + cell.apart], *direct]


def _run_grad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    cell, of = CELLS[attrs["cell"]], cell_grad_inputs(inputs, attrs)
    saved = tuple(np.split(of.saved[0], len(cell.keeps), -1)) if cell.keeps else ()
    after = (of.y, *(of.others[0] if of.others else ()))
    g = (of.gy, *(of.g_others[0] if of.g_others else ()))
    g_x, g_h, direct = cell.back(saved, _before(cell, of.before, of.y), after, g)
    return [g_x, *([g_h] if cell.apart else []), *([np.stack(direct)] if direct else [])]


declare("cell", _infer, _run, vjp_of_all=_vjp)
declare("cell_grad", _infer_grad, _run_grad)
