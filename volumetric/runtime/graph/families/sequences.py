"""Rotary embedding and recurrent cells: what depends on the order of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError
from volumetric.layers.activations import sigmoid
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


BLOCKS = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}
"""Cell → pre-activations of a hidden unit."""
KEPT = {"lstm": 5, "gru": 4}
"""Cell → numbers of a hidden unit and step that the gradient needs besides the output."""


def _infer_recurrent(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    floats("recurrent", inputs)
    cell = attrs["cell"]
    if cell not in BLOCKS:
        raise SpecError(f"recurrent: unknown cell {cell!r}", hint="one of " + ", ".join(BLOCKS))
    from_x, weight, *rest = inputs
    batch, length, wide = axes_of("recurrent", from_x, 3)
    size = weight.shape[-1]
    states = 2 if cell == "lstm" else 1
    require(len(rest) == states + attrs["bias"], "recurrent", f"{len(inputs)} inputs do not make a {cell}")
    require(weight.shape == (wide, size) and wide == BLOCKS[cell] * size, "recurrent", "the weight does not fit")
    require(all(t.shape == (batch, size) for t in rest[:states]), "recurrent", "initial states do not fit")
    require(all(t.shape == (wide,) for t in rest[states:]), "recurrent", "the bias does not fit")
    kept = [out("kept", batch, length, KEPT[cell] * size)] if cell in KEPT else []
    return [out(cell, batch, length, size), *kept]


def _cell(cell: str, from_x: Array, from_h: Array, h: Array, c: Array) -> tuple[Array, list[Array]]:
    """Return h after one step, and what is kept of it."""
    if cell == "lstm":
        i, f, g, o = np.split(from_x + from_h, 4, axis=-1)
        i, f, g, o = sigmoid(i), sigmoid(f), np.tanh(g), sigmoid(o)
        c = f * c + i * g
        return o * np.tanh(c), [i, f, g, o, c]
    if cell == "gru":
        xr, xz, xn = np.split(from_x, 3, axis=-1)
        hr, hz, hn = np.split(from_h, 3, axis=-1)
        r, z = sigmoid(xr + hr), sigmoid(xz + hz)
        n = np.tanh(xn + r * hn)
        return (1 - z) * n + z * h, [r, z, n, hn]
    pre = from_x + from_h
    return np.tanh(pre) if cell == "rnn_tanh" else np.maximum(pre, 0), []


def run_recurrent(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Compute a cell over all steps."""
    from_x, weight, h, *rest = inputs
    cell = attrs["cell"]
    c = rest[0] if cell == "lstm" else h
    bias = rest[-1] if attrs["bias"] else 0
    size = weight.shape[-1]
    y = np.empty((*from_x.shape[:2], size), from_x.dtype)
    kept = np.empty((*from_x.shape[:2], KEPT.get(cell, 0) * size), from_x.dtype)
    for t in range(from_x.shape[1]):
        h, parts = _cell(cell, from_x[:, t], h @ weight.T + bias, h, c)
        y[:, t] = h
        if parts:
            kept[:, t] = np.concatenate(parts, -1)
        c = parts[-1] if cell == "lstm" else c
    return [y, kept] if cell in KEPT else [y]


def _vjp_recurrent(work: GraphBuilder, node: Node, g: int) -> list[int | None]:
    from_x, weight, h0, *_ = node.inputs
    cell, bias = node.attrs["cell"], node.attrs["bias"]
    y, states = node.outputs[0], node.inputs[2 : 4 if cell == "lstm" else 3]
    found = work.emit("recurrent_grad", (g, *node.outputs, weight, *states), cell=cell)
    g_x, g_h = found[0], found[-1]
    batch, length, size = work.shape(y)
    wide = work.shape(from_x)[2]
    before = work.reshape(h0, (batch, 1, size))
    if length > 1:
        before = work.concat((before, work.slice(y, (0, 0, 0), (batch, length - 1, size))), 1)
    elif length == 0:
        before = y
    flat_g, flat_h = (work.reshape(t, (1, batch * length, w)) for t, w in ((g_h, wide), (before, size)))
    g_weight = work.reshape(work.gemm(flat_g, flat_h, trans_a=True), (wide, size))
    g_bias = [work.reshape(work.reduce(g_h, "sum", (0, 1)), (wide,))] if bias else []
    return [g_x, g_weight, None, *([None] if cell == "lstm" else []), *g_bias]


def _infer_grad(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    floats("recurrent_grad", inputs)
    cell = attrs["cell"]
    if cell not in BLOCKS:
        raise SpecError(f"recurrent_grad: unknown cell {cell!r}", hint="one of " + ", ".join(BLOCKS))
    require(len(inputs) == 4 + (cell in KEPT) + (cell == "lstm"), "recurrent_grad", "has other inputs than its cell")
    batch, length, size = axes_of("recurrent_grad", inputs[1], 3)
    require(inputs[0].shape == inputs[1].shape, "recurrent_grad", "gy and y have one shape")
    wide = BLOCKS[cell] * size
    return [
        out("from_x grad", batch, length, wide),
        *([out("from_h grad", batch, length, wide)] if cell == "gru" else []),
    ]


def _cell_grad(
    cell: str, g: Array, gc: Array, y: Array, kept: Array, h: Array, c: Array
) -> tuple[Array, Array, Array, Array]:
    """Return the gradients of from_x, from_h, h (apart from what goes through from_h) and c before one step."""
    if cell == "lstm":
        i, f, new, o, after = np.split(kept, 5, axis=-1)
        bounded = np.tanh(after)
        gc = gc + g * o * (1 - bounded * bounded)
        parts = [gc * new * i * (1 - i), gc * c * f * (1 - f), gc * i * (1 - new * new), g * bounded * o * (1 - o)]
        pre = np.concatenate(parts, axis=-1)
        return pre, pre, np.zeros_like(g), gc * f
    if cell == "gru":
        r, z, n, hn = np.split(kept, 4, axis=-1)
        g_n = g * (1 - z) * (1 - n * n)
        g_z = g * (h - n) * z * (1 - z)
        g_r = g_n * hn * r * (1 - r)
        from_x = np.concatenate([g_r, g_z, g_n], axis=-1)
        return from_x, np.concatenate([g_r, g_z, g_n * r], axis=-1), g * z, gc
    pre = g * (1 - y * y) if cell == "rnn_tanh" else g * (y > 0)
    return pre, pre, np.zeros_like(g), gc


def _run_grad(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    gy, y, *rest = inputs
    cell = attrs["cell"]
    kept = rest.pop(0) if cell in KEPT else y  # the other cells need no more than y
    weight, h0 = rest[:2]
    size = y.shape[-1]
    g_x = np.empty((*y.shape[:2], BLOCKS[cell] * size), y.dtype)
    g_h = np.empty_like(g_x)
    g, gc = np.zeros_like(h0), np.zeros_like(h0)
    for t in reversed(range(y.shape[1])):
        h = y[:, t - 1] if t else h0
        c = h if cell != "lstm" else kept[:, t - 1, 4 * size :] if t else rest[2]
        g_x[:, t], g_h[:, t], g, gc = _cell_grad(cell, g + gy[:, t], gc, y[:, t], kept[:, t], h, c)
        g = g + g_h[:, t] @ weight
    return [g_x, g_h] if cell == "gru" else [g_x]


declare("rope", _infer_rope, _run_rope, _vjp_rope)
declare("recurrent", _infer_recurrent, run_recurrent, _vjp_recurrent)
declare("recurrent_grad", _infer_grad, _run_grad)
