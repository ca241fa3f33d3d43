"""Recurrent cells, forward and backward."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from tests.graph import slstm_formula
from tests.graph.formulas.elements import A, Attrs, sigmoid
from tests.layers.test_vjp import differences
from volumetric.graph.numeric.numpy_cells import CELLS
from volumetric.graph.operations.recurrent_inputs import cell_grad_inputs


def torch_cell(
    cell: str, x: list[float], r: list[float], h: float, c: float, rounding: float = 0.0
) -> tuple[float, float, list[float]]:
    """One unit as torch's documentation has it: h and c after the step, and what is kept beside h.

    Parameters
    ----------
    rounding : what an lstm's c after the step is off
    """
    if cell == "lstm":
        i, f, o = (sigmoid(x[k] + r[k]) for k in (0, 1, 3))
        g = math.tanh(x[2] + r[2])
        after = f * c + i * g + rounding
        return o * math.tanh(after), after, [i, f, g, o, after]
    if cell == "gru":
        reset, z = sigmoid(x[0] + r[0]), sigmoid(x[1] + r[1])
        n = math.tanh(x[2] + reset * r[2])
        return (1 - z) * n + z * h, c, [reset, z, n, r[2]]
    return (math.tanh(x[0] + r[0]) if cell == "rnn_tanh" else max(x[0] + r[0], 0.0)), c, []


def recurrent(xs: list[A], at: Attrs) -> list[A]:
    """Unit by unit."""
    if at["cell"] == "slstm":
        return slstm_formula.recurrent(xs, at)
    x, weight, *rest = xs
    batch, length, wide = x.shape
    size = weight.shape[1]
    keep = rest.pop() if at["resets"] else np.ones((batch, length))
    bias = rest.pop() if at["bias"] else np.zeros(wide)
    kept = np.zeros((batch, length, {"lstm": 5, "gru": 4}.get(at["cell"], 0), size))
    y = np.zeros((batch, length, size))
    for row, t in np.ndindex(batch, length):
        h = y[row, t - 1] if t else rest[0][row]
        c = h if at["cell"] != "lstm" else kept[row, t - 1, 4] if t else rest[1][row]
        h, c = (h, c) if keep[row, t] else (np.zeros(size), np.zeros(size))
        r = np.einsum("ij,j->i", weight, h) + bias
        for j in range(size):
            y[row, t, j], _, numbers = torch_cell(
                at["cell"], x[row, t, j::size].tolist(), r[j::size].tolist(), float(h[j]), float(c[j])
            )
            kept[row, t, :, j] = numbers
    last = [kept[:, -1, 4]] if at["cell"] == "lstm" else []
    return [y, *last, *([kept.reshape(batch, length, kept.shape[2] * size)] if kept.shape[2] else [])]


def one_step(xs: list[A], at: Attrs) -> list[A]:
    """A step of `recurrent` of which the products are given."""
    x, from_h, bias, *before = xs
    cell, (rows, wide) = CELLS[at["cell"]], x.shape
    size = wide // cell.blocks
    y, others, kept = (np.zeros((n, rows, size)) for n in (1, len(cell.states) - 1, len(cell.keeps)))
    for row, j in np.ndindex(rows, size):
        own = (x[row] + bias[row // (rows // len(bias))])[j::size].tolist()
        found = [float(state[row, j]) for state in (before[0] if before else ())]
        if at["cell"] == "slstm":
            y[0, row, j], numbers = slstm_formula.step(
                [a + b for a, b in zip(own, from_h[row, j::size].tolist(), strict=True)], *found
            )
        else:
            h = found[0] if found else 0.0
            y[0, row, j], _, numbers = torch_cell(at["cell"], own, from_h[row, j::size].tolist(), h, h)
        kept[:, row, j], others[:, row, j] = numbers[: len(kept)], numbers[len(kept) :]
    flat = kept.transpose(1, 0, 2).reshape(rows, len(kept) * size)
    return [y[0], *([others] if len(others) else []), *([flat] if len(kept) else [])]


def one_step_back(xs: list[A], at: Attrs) -> list[A]:
    """The gradient of `recurrent` over a step, of which the weights give nothing."""
    of, cell = cell_grad_inputs(xs, at), CELLS[at["cell"]]
    rows, size = of.y.shape
    known = dict(zip(cell.direct, of.before[0], strict=True)) if of.before else {}
    starts = [known.get(name, np.zeros((rows, size))) for name in cell.states]
    others = [*of.others[0]] if of.others else []
    kept = [np.concatenate([*of.saved, *others], -1)[:, None]] if cell.saved_count else []
    given = [of.gy[:, None], *(of.g_others[0] if of.g_others else ()), of.y[:, None], *kept]
    weight = np.zeros((cell.blocks * size, size))
    last = {"resets": False, "last": bool(of.g_others)}
    pre, *more = recurrent_grad([*given, weight, *starts], {**at, **last})
    apart = [more.pop(0)[:, 0]] if cell.apart else []
    return [pre[:, 0], *apart, *more]


def recurrent_grad(xs: list[A], at: Attrs) -> list[A]:
    """Step by step, with the derivatives of a step by central differences of `torch_cell`."""
    cell = at["cell"]
    if cell == "slstm":
        return slstm_formula.recurrent_grad(xs, at)
    gy, *rest = xs
    arrived = rest.pop(0) if at["last"] else None
    y = rest.pop(0)
    batch, length, size = y.shape
    keep = rest.pop() if at["resets"] else np.ones((batch, length))
    kept = rest.pop(0) if cell in ("lstm", "gru") else None
    weight, *starts = rest
    blocks = len(weight) // size
    g_x, g_h = np.zeros((batch, length, blocks, size)), np.zeros((batch, length, blocks, size))
    direct = np.zeros((1, batch, size))
    for row in range(batch):
        g, gc = np.zeros(size), np.zeros(size) if arrived is None else arrived[row]
        for t in reversed(range(length)):
            h = y[row, t - 1] if t else starts[0][row]
            every = [] if kept is None else np.split(kept[row, t], kept.shape[-1] // size)
            c = h if cell != "lstm" else np.split(kept[row, t - 1], 5)[4] if t and kept is not None else starts[1][row]
            h, c = (h, c) if keep[row, t] else (np.zeros(size), np.zeros(size))
            g, passed, carried = g + gy[row, t], np.zeros(size), np.zeros(size)
            for j in range(size):
                found = cell_slopes(cell, [float(e[j]) for e in every], float(y[row, t, j]), float(h[j]), float(c[j]))
                (to_x, to_r, to_h, to_c), (c_to_x, _, _, c_to_c) = found
                g_x[row, t, :, j] = g[j] * to_x + gc[j] * c_to_x
                g_h[row, t, :, j] = g[j] * to_r + gc[j] * c_to_x
                passed[j], carried[j] = g[j] * to_h, g[j] * to_c + gc[j] * c_to_c
            g, gc = passed + g_h[row, t].reshape(-1) @ weight, carried
            direct[0, row] = carried if cell == "lstm" else passed
            g, gc = (g, gc) if keep[row, t] else (np.zeros(size), np.zeros(size))
    pre = [g.reshape(batch, length, blocks * size) for g in (g_x, g_h)]
    return pre[: 2 if cell == "gru" else 1] + ([direct] if cell in ("lstm", "gru") else [])


def logit(p: float) -> float:
    return math.log(p / (1 - p))


def inverse_tanh(v: float) -> float:
    return math.atanh(min(max(v, 1e-15 - 1), 1 - 1e-15))  # one that float32 has rounded to 1 has no slope either way


def cell_slopes(cell: str, kept: list[float], y: float, h: float, c: float) -> list[tuple[A, A, float, float]]:
    """Derivatives of h and of c after a step for from_x, from_h, h and c, which are found from what is kept."""
    if cell == "lstm":
        x, r = [logit(kept[0]), logit(kept[1]), inverse_tanh(kept[2]), logit(kept[3])], [0.0] * 4
    elif cell == "gru":
        x, r = [logit(kept[0]), logit(kept[1]), inverse_tanh(kept[2]) - kept[0] * kept[3]], [0.0, 0.0, kept[3]]
    else:
        x, r = [inverse_tanh(y) if cell == "rnn_tanh" else y if y > 0 else -1.0], [0.0]
    at, count = np.array([*x, *r, h, c]), len(x)
    rounding = kept[4] - torch_cell(cell, x, r, h, c)[1] if cell == "lstm" else 0.0

    def after(which: int) -> float:
        h, c, _ = torch_cell(cell, at[:count].tolist(), at[count:-2].tolist(), at[-2], at[-1], rounding)
        return (h, c)[which]

    both = [differences(partial(after, which), at) for which in (0, 1)]
    return [(d[:count], d[count:-2], float(d[-2]), float(d[-1])) for d in both]
