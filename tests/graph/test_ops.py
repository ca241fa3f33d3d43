"""Every operation against plain formulas, and its gradient against central differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.graph import slstm_formula
from tests.graph.op_cases import OP_CASES, OPEN, OpCase, case_graph, case_outputs
from tests.layers.test_vjp import MOST, differences
from tests.oracles.learner import as_stored
from volumetric.dtypes import Scheme
from volumetric.errors import ShapeError, SpecError, UnsupportedError
from volumetric.graph import GraphBuilder, differentiate, interpret
from volumetric.graph.numeric.cells import CELLS
from volumetric.graph.operations import OPS
from volumetric.graph.operations.recurrent_inputs import step_back_inputs
from volumetric.train.losses import LOSSES
from volumetric.train.optim import OPTIMISERS

A = np.ndarray
Attrs = Mapping[str, Any]

WITHOUT_GRADIENT = {
    "unary_grad",
    "softmax_grad",
    "entmax_grad",
    "norm_grad",
    "norm_param_grad",
    "pool_max_grad",
    "recurrent_grad",
    "cell_grad",
    "depthwise_conv_grad",
    "edge_attend_grad",
    "assign",
    "update",
}
"""Operations that only appear in gradients, or after them."""


def sigmoid(v: float) -> float:
    return 0.0 if v < -700 else 1 / (1 + math.exp(-v))


SCALAR: dict[str, Callable[[float], float]] = {
    "linear": lambda v: v,
    "relu": lambda v: v if v > 0 or math.isnan(v) else 0.0,
    "silu": lambda v: v * sigmoid(v),
    "gelu": lambda v: v * (1 + math.erf(v / math.sqrt(2))) / 2,
    "gelu_tanh": lambda v: v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3))) / 2,
    "tanh": math.tanh,
    "sigmoid": sigmoid,
    "leaky_relu": lambda v: v if v > 0 else 0.01 * v,
    "relu2": lambda v: max(v, 0) ** 2,
    "quick_gelu": lambda v: v * sigmoid(1.702 * v),
    "exp": lambda v: math.inf if v > 700 else math.exp(v),
    "log": math.log,
    "neg": lambda v: -v,
    "square": lambda v: v * v,
    "sqrt": math.sqrt,
    "rsqrt": lambda v: v**-0.5,
    "reciprocal": lambda v: 1 / v,
    "abs": math.fabs,
    "floor": lambda v: float(math.floor(v)) if math.isfinite(v) else v,
    "sin": lambda v: math.sin(v) if math.isfinite(v) else math.nan,
    "cos": lambda v: math.cos(v) if math.isfinite(v) else math.nan,
    "softplus": lambda v: max(v, 0.0) + math.log1p(math.exp(-abs(v))),
    "sign": lambda v: v if math.isnan(v) else float((v > 0) - (v < 0)),
}


def element_by_element(function: Callable[..., float], *xs: A) -> A:
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    flat = [np.broadcast_to(x, shape).ravel().tolist() for x in xs]
    return np.array([function(*v) for v in zip(*flat, strict=True)], np.float64).reshape(shape)


def gemm(xs: list[A], at: Attrs) -> list[A]:
    a, b, *bias = xs
    a, b = (a.swapaxes(1, 2) if at["trans_a"] else a), (b.swapaxes(1, 2) if at["trans_b"] else b)
    c = np.zeros((at["groups"], a.shape[1], b.shape[2]))
    for j in range(at["groups"]):
        for g in range(max(len(a), len(b), at["groups"]) if len(a) and len(b) else 0):
            if g % at["groups"] == j:
                c[j] += np.einsum("mk,kn->mn", a[g % len(a)], b[g % len(b)])
    for i in bias:
        c = c + (i if i.ndim == 1 else i[:, None])
    return [element_by_element(SCALAR[at["activation"]], c)]


def unary(xs: list[A], at: Attrs) -> list[A]:
    if at["name"] == "affine":
        return [element_by_element(lambda v: at["alpha"] * v + at["beta"], xs[0])]
    return [element_by_element(SCALAR[at["name"]], xs[0])]


def unary_grad(xs: list[A], at: Attrs) -> list[A]:
    g, x = xs
    from_result = {"from_tanh": lambda v: 1 - v * v, "from_sigmoid": lambda v: v - v * v}
    if at["name"] in from_result:
        return [g * element_by_element(from_result[at["name"]], x)]
    kink = {"relu": 0.0, "leaky_relu": 0.01, "relu2": 0.0}.get(at["name"], math.nan)
    f, h = SCALAR[at["name"]], 1e-5
    return [g * element_by_element(lambda v: kink if v == 0 else (f(v + h) - f(v - h)) / (2 * h), x)]


PAIR: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "max": lambda a, b: math.nan if math.isnan(a + b) else max(a, b),
    "min": lambda a, b: math.nan if math.isnan(a + b) else min(a, b),
    "greater": lambda a, b: float(a > b),
    "mul_nonzero": lambda a, b: 0.0 if b == 0 else a * b,
    "mask": lambda a, b: a if b else -math.inf,
}


def pad(xs: list[A], at: Attrs) -> list[A]:
    y = np.zeros([b + n + a for b, n, a in zip(at["before"], xs[0].shape, at["after"], strict=True)])
    y[tuple(slice(b, b + n) for b, n in zip(at["before"], xs[0].shape, strict=True))] = xs[0]
    return [y]


def scatter(xs: list[A], at: Attrs) -> list[A]:
    table = np.zeros((at["rows"], xs[0].shape[1]))
    for row, i in zip(*xs, strict=True):
        table[i] += row
    return [table]


def by_row(function: Callable[..., list[float]]) -> Callable[[list[A], Attrs], list[A]]:
    def run(xs: list[A], at: Attrs) -> list[A]:
        rows = [function(*(x[i].tolist() for x in xs), **at) for i in range(len(xs[0]))]
        return [np.array(rows, np.float64).reshape(xs[0].shape)]

    return run


def odd_row(x: list[float]) -> list[float] | None:
    if any(math.isnan(v) or v == math.inf for v in x):
        return [math.nan] * len(x)
    return [0.0] * len(x) if max(x) == -math.inf else None


def softmax(x: list[float]) -> list[float]:
    e = [math.exp(v - max(x)) for v in x] if odd_row(x) is None else []
    return odd_row(x) or [v / sum(e) for v in e]


def entmax(x: list[float], alpha: float) -> list[float]:
    """Bisection for τ; for α = 2 too, whose exact form must agree."""
    if odd_row(x) is not None:
        return odd_row(x) or []
    z = [(alpha - 1) * (v - max(x)) for v in x]
    low, high = -1.0, 0.0
    for _ in range(200):
        middle = (low + high) / 2
        enough = sum(max(v - middle, 0) ** (1 / (alpha - 1)) for v in z) >= 1
        low, high = (middle, high) if enough else (low, middle)
    y = [max(v - low, 0) ** (1 / (alpha - 1)) for v in z]
    return [v / sum(y) for v in y]


def entmax_grad(y: list[float], g: list[float], alpha: float) -> list[float]:
    s = [v ** (2 - alpha) if v > 0 else 0.0 for v in y]
    mean = sum(a * b for a, b in zip(s, g, strict=True)) / (sum(s) or 1.0)
    return [a * (b - mean) for a, b in zip(s, g, strict=True)]


def keep_largest(x: list[float], k: int) -> list[float]:
    falling = sorted((i for i in range(len(x)) if not math.isnan(x[i])), key=lambda i: (-x[i], i))[:k]
    return [v if i in falling or math.isnan(v) else -math.inf for i, v in enumerate(x)]


def gain_of(vectors: list[A], at: Attrs) -> A:
    return vectors[0] + at["unit_offset"] if vectors else np.ones(1)


def norm(xs: list[A], at: Attrs) -> list[A]:
    x, *vectors = xs
    mean = x.mean(1, keepdims=True) * (at["kind"] == "layer")
    rstd = (np.square(x - mean).mean(1, keepdims=True) + at["eps"]) ** -0.5
    bias = vectors[1] if len(vectors) > 1 else 0
    return [(x - mean) * rstd * gain_of(vectors, at) + bias, np.concatenate([mean, rstd, 0 * mean], 1)]


def norm_grad(xs: list[A], at: Attrs) -> list[A]:
    g, x, stats, *vectors = xs
    width = x.shape[1]
    rows = []
    for row, (mean, rstd, shift), i in zip(x, stats, g * gain_of(vectors, at), strict=True):
        n = (row - mean - shift) * rstd
        jacobian = np.eye(width) - np.outer(n, n) / width - (at["kind"] == "layer") / width
        rows.append(rstd * jacobian @ i)
    return [np.array(rows).reshape(x.shape)]


def norm_param_grad(xs: list[A], at: Attrs) -> list[A]:
    g, x, stats = xs
    return [np.einsum("rw,rw->w", g, (x - stats[:, :1] - stats[:, 2:]) * stats[:, 1:2]), g.sum(0)][: 1 + at["bias"]]


def window_pairs(sizes: tuple[int, ...], at: Attrs) -> list[tuple[int, int, tuple[int, ...]]]:
    """Tap, window and place of every element that a window reads inside of the image."""
    found = []
    for tap, t in enumerate(np.ndindex(*at["kernel"])):
        for window, w in enumerate(np.ndindex(*at["counts"])):
            fields = zip(t, w, at["stride"], at["dilation"], at["before"], strict=True)
            place = tuple(s * j + d * i - b for i, j, s, d, b in fields)
            if all(0 <= p < n for p, n in zip(place, sizes, strict=True)):
                found.append((tap, window, place))
    return found


def unfold(xs: list[A], at: Attrs) -> list[A]:
    n, c, *sizes = xs[0].shape
    y = np.zeros((n, c, math.prod(at["kernel"]), math.prod(at["counts"])))
    for tap, window, place in window_pairs(tuple(sizes), at):
        y[:, :, tap, window] = xs[0][(slice(None), slice(None), *place)]
    return [y.reshape(n, -1, y.shape[-1]) if n else y.reshape(0, c * y.shape[2], y.shape[3])]


def fold(xs: list[A], at: Attrs) -> list[A]:
    n, deep, windows = xs[0].shape
    taps = math.prod(at["kernel"])
    columns = xs[0].reshape(n, deep // taps, taps, windows)
    y = np.zeros((n, deep // taps, *at["sizes"]))
    for tap, window, place in window_pairs(at["sizes"], at):
        y[(slice(None), slice(None), *place)] += columns[:, :, tap, window]
    return [y]


def pool_max(xs: list[A], at: Attrs) -> list[A]:
    """Tap by tap: a later one wins where it is larger, or the first NaN."""
    y, tap = (np.full((*xs[0].shape[:2], *at["counts"]), v) for v in (-np.inf, 0.0))
    everywhere = (slice(None), slice(None))
    for t, window, place in window_pairs(xs[0].shape[2:], at):
        at_window = (*everywhere, *np.unravel_index(window, at["counts"]))
        new, old = xs[0][(*everywhere, *place)], y[at_window]
        wins = (new > old) | (np.isnan(new) & ~np.isnan(old))
        y[at_window], tap[at_window] = np.where(wins, new, old), np.where(wins, t, tap[at_window])
    return [y, tap]


def pool_back(xs: list[A], at: Attrs) -> list[A]:
    """Each window's number to all its elements, or to that of its tap."""
    y = np.zeros((*xs[0].shape[:2], *at["sizes"]))
    for t, window, place in window_pairs(at["sizes"], at):
        at_window = (slice(None), slice(None), *np.unravel_index(window, at["counts"]))
        y[(slice(None), slice(None), *place)] += xs[0][at_window] * (xs[1][at_window] == t if len(xs) > 1 else 1)
    return [y]


def pool_sum(xs: list[A], at: Attrs) -> list[A]:
    n, c = xs[0].shape[:2]
    columns = unfold(xs, at)[0]
    return [columns.reshape(n, c, math.prod(at["kernel"]), columns.shape[2]).sum(2).reshape(n, c, *at["counts"])]


def rope(xs: list[A], at: Attrs) -> list[A]:
    x, cos, sin = xs
    half = cos.shape[1]
    turn = cos + 1j * sin * (-1 if at["back"] else 1)
    z = (x[..., :half] + 1j * x[..., half : 2 * half]) * turn[None, :, None]
    return [np.concatenate([z.real, z.imag, x[..., 2 * half :]], -1)]


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
    of, cell = step_back_inputs(xs, at), CELLS[at["cell"]]
    rows, size = of.y.shape
    known = dict(zip(cell.direct, of.before[0], strict=True)) if of.before else {}
    starts = [known.get(name, np.zeros((rows, size))) for name in cell.states]
    others = [*of.others[0]] if of.others else []
    kept = [np.concatenate([*of.kept, *others], -1)[:, None]] if cell.kept else []
    given = [of.gy[:, None], *(of.g_others[0] if of.g_others else ()), of.y[:, None], *kept]
    weight = np.zeros((cell.blocks * size, size))
    last = {"resets": False, "last": bool(of.g_others)}
    pre, *more = recurrent_grad([*given, weight, *starts], {**at, **last})
    apart = [more.pop(0)[:, 0]] if cell.apart else []
    return [pre[:, 0], *apart, *more]


def linear_scan(xs: list[A], at: Attrs) -> list[A]:
    """Element by element."""
    u, a, *rest = xs
    batch, length, width = u.shape
    keep = rest[-1] if at["keep"] else np.ones((batch, length))
    factor = a if a.ndim == 3 else np.broadcast_to(a, u.shape)
    s = np.zeros(u.shape)
    for b, j in np.ndindex(batch, width):
        held = 0.0 if at["reverse"] else rest[0][b, j]
        for i in range(length):
            t = length - 1 - i if at["reverse"] else i
            reads = t + 1 if at["reverse"] else t  # the step whose factor meets what came before
            passed = keep[b, reads] * factor[b, reads, j] * held if reads < length else 0.0
            held = s[b, t, j] = passed + u[b, t, j]
    return [s]


def depthwise(xs: list[A], at: Attrs) -> list[A]:
    """Row by row, which tells what each sees."""
    x, weight, past, *rest = xs
    y = np.zeros(x.shape)
    keep = rest[-1] if at["resets"] else np.ones(x.shape[:2])
    for b, t in np.ndindex(x.shape[:2]):
        for lag, met in _rows_seen(x, past, keep, b, t, weight.shape[2]):
            y[b, t] += weight[:, 0, -1 - lag] * met
        y[b, t] += rest[0] if at["bias"] else 0
    return [y]


def _rows_seen(x: A, past: A, keep: A, b: int, t: int, taps: int) -> Iterator[tuple[int, A]]:
    for lag in range(taps):
        if lag and not (t - lag + 1 < 0 or keep[b, t - lag + 1]):
            return
        yield lag, x[b, t - lag] if lag <= t else past[b, t - lag]


def depthwise_back(xs: list[A], at: Attrs) -> list[A]:
    """Each product of a row and a weight hands back to both."""
    g, x, weight, past, *rest = xs
    keep = rest[-1] if at["resets"] else np.ones(x.shape[:2])
    g_x, g_weight, g_past = (np.zeros(of.shape) for of in (x, weight, past))
    for b, t in np.ndindex(x.shape[:2]):
        for lag, met in _rows_seen(x, past, keep, b, t, weight.shape[2]):
            (g_x if lag <= t else g_past)[b, t - lag] += weight[:, 0, -1 - lag] * g[b, t]
            g_weight[:, 0, -1 - lag] += met * g[b, t]
    return [g_x, g_weight, g_past, g.sum((0, 1))]


def cross_attend(xs: list[A], at: Attrs) -> list[A]:
    """Row by row, head by head."""
    table, asks, tells, *rest = xs
    known: list[A] = []
    if at["known"]:
        (wq, wo, bq, bo, *known), rest = rest[:6], rest[6:]
        weights, biases, seen = [wq, None, None, wo], [bq, None, None, bo], rest
    else:
        weights, biases, seen = rest[:4], rest[4:8], rest[8:]
    heads = at["heads"]
    width = table.shape[1] // heads
    y = np.zeros((*asks.shape, table.shape[1]))
    for e, part, i in np.ndindex(asks.shape):
        told = [m for m in range(tells.shape[2]) if not seen or seen[0][m, i]]
        if known:
            keys, values = (one[tells[e, part]] for one in known)
        else:
            keys, values = (table[tells[e, part]] @ weights[side][e] + biases[side][e] for side in (1, 2))
        asked, read = table[asks[e, part, i]] @ weights[0][e] + biases[0][e], np.zeros(table.shape[1])
        for h in range(heads if told else 0):
            own = slice(h * width, (h + 1) * width)
            powers = np.array([math.exp(asked[own] @ keys[m, own] / math.sqrt(width)) for m in told])
            read[own] = sum(p * values[m, own] for p, m in zip(powers / powers.sum(), told, strict=True))
        y[e, part, i] = read @ weights[3][e] + biases[3][e]
    return [y]


def weigh_rows(xs: list[A], at: Attrs) -> list[A]:
    rows = [*xs[0], *xs[1]]
    y = np.zeros((len(xs[2]), xs[0].shape[1]))
    for i, k in np.ndindex(xs[2].shape):
        if xs[3][i, k]:
            y[i] += xs[3][i, k] * rows[xs[2][i, k]]
    return [y]


def distance_attend(xs: list[A], at: Attrs) -> list[A]:
    """From a list of the rows that there have been."""
    content, position, k, v, r, keys, values, age, *keep = xs
    batch, length, inner = content.shape
    memory, heads = keys.shape[1], at["heads"]
    y, ends = np.zeros(content.shape), [np.zeros(keys.shape), np.zeros(keys.shape), np.zeros(age.shape)]
    for b in range(batch):
        first = memory - int(age[b, 0])
        rows = list(zip(keys[b, first:], values[b, first:], strict=True))
        for t in range(length):
            if keep and not keep[0][b, t]:
                rows = []
            rows = [*rows, (k[b, t], v[b, t])][-memory - 1 :]
            for h in range(heads):
                own = slice(h * inner // heads, (h + 1) * inner // heads)
                codes = r[h, memory + 1 - len(rows) :]
                logits = [
                    (content[b, t, own] @ key[own] + position[b, t, own] @ code) / math.sqrt(inner // heads)
                    for (key, _), code in zip(rows, codes, strict=True)
                ]
                powers = np.exp(np.array(logits) - max(logits))
                y[b, t, own] = sum(p * value[own] for p, (_, value) in zip(powers / powers.sum(), rows, strict=True))
            rows = rows[-memory:]
        for i, (key, value) in enumerate(reversed(rows)):
            ends[0][b, -1 - i], ends[1][b, -1 - i] = key, value
        ends[2][b] = len(rows)
    return [y, *ends]


def rotate_scan(xs: list[A], at: Attrs) -> list[A]:
    """With complex numbers."""
    u, g, phi, *rest = xs
    batch, length, wide = u.shape
    keep = rest[-1] if at["keep"] else np.ones((batch, length))
    width, s = wide // 2, np.zeros(u.shape)
    for b, j in np.ndindex(batch, width):
        by = complex(g[j], -phi[j] if at["reverse"] else phi[j])
        held = 0j if at["reverse"] else complex(rest[0][b, j], rest[0][b, j + width])
        for i in range(length):
            t = length - 1 - i if at["reverse"] else i
            reads = t + 1 if at["reverse"] else t
            held = (keep[b, reads] * by * held if reads < length else 0j) + complex(u[b, t, j], u[b, t, j + width])
            s[b, t, j], s[b, t, j + width] = held.real, held.imag
    return [s]


def edge_attend(xs: list[A], at: Attrs) -> list[A]:
    """Edge by edge."""
    q, kv, bias, starts, senders, *_ = xs
    heads, key = at["heads"], q.shape[2] // at["heads"]
    value = kv.shape[2] // heads - key
    m, weights = np.zeros((len(q), kv.shape[1], heads * value)), np.zeros((len(senders), kv.shape[1], heads))
    for r, b, a in np.ndindex(len(q), kv.shape[1], heads):
        own = range(starts[r], starts[r + 1])
        ask = q[r, b % q.shape[1], a * key : (a + 1) * key]
        scores = np.array(
            [kv[senders[e], b, a * key : (a + 1) * key] @ ask / key**0.5 + bias[e, a % bias.shape[1]] for e in own]
        )
        if not np.isfinite(scores).any():
            continue
        weights[own, b, a] = np.exp(scores - scores.max()) / np.exp(scores - scores.max()).sum()
        for e in own:
            there = slice(heads * key + a * value, heads * key + (a + 1) * value)
            m[r, b, a * value : (a + 1) * value] += weights[e, b, a] * kv[senders[e], b, there]
    return [m, weights]


def edge_attend_grad(xs: list[A], at: Attrs) -> list[A]:
    """Edge by edge, with the Jacobian of a softmax; the ways back from senders are not used."""
    g, weights, q, kv, starts, senders, readers, *_ = xs
    heads, key = at["heads"], q.shape[2] // at["heads"]
    value = kv.shape[2] // heads - key
    slope, g_q, g_kv = np.zeros(weights.shape), np.zeros(q.shape), np.zeros(kv.shape)
    for b, a in np.ndindex(kv.shape[1], heads):
        keys = slice(a * key, (a + 1) * key)
        values, out = slice(heads * key + a * value, heads * key + (a + 1) * value), slice(a * value, (a + 1) * value)
        for r in range(len(q)):
            own = slice(starts[r], starts[r + 1])
            w = weights[own, b, a]
            slope[own, b, a] = (np.diag(w) - np.outer(w, w)) @ (kv[senders[own], b, values] @ g[r, b, out])
        for e, (r, s) in enumerate(zip(readers, senders, strict=True)):
            g_q[r, b % q.shape[1], keys] += slope[e, b, a] * kv[s, b, keys] / key**0.5
            g_kv[s, b, keys] += slope[e, b, a] * q[r, b % q.shape[1], keys] / key**0.5
            g_kv[s, b, values] += weights[e, b, a] * g[r, b, out]
    return [slope, g_q, g_kv]


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


def scan(xs: list[A], at: Attrs) -> list[A]:
    """Step by step, and the body node by node."""
    body, count, last = at["body"], at["sequences"], len(xs) - at["states"]
    states, ys = xs[last:], []
    trails: list[list[A]] = []
    for t in range(at["length"]):
        t = at["length"] - 1 - t if at["reverse"] else t
        values = dict(zip(body.inputs, [*(x[t] for x in xs[:count]), *xs[count:last], *states], strict=True))
        values |= body.constants
        for node in body.nodes:
            made = FORMULAS[node.op]([values[i] for i in node.inputs], node.attrs)
            values.update(zip(node.outputs, made, strict=True))
        found = [values[i] for i in body.outputs]
        trails.append(states)
        ys.append(found[: len(found) - len(states)])
        states = found[len(found) - len(states) :]
    order = -1 if at["reverse"] else 1
    shapes = [
        (0, *body.tensors[i].shape) for i in (*body.outputs[: len(body.outputs) - len(states)], *body.inputs[last:])
    ]
    every = [[*y, *trail] for y, trail in zip(ys, trails, strict=True)][::order]
    stacked = [np.array([step[i] for step in every]) if every else np.zeros(shape) for i, shape in enumerate(shapes)]
    return [*stacked[: len(shapes) - len(states)], *states, *stacked[len(shapes) - len(states) :]]


def loss(xs: list[A], at: Attrs) -> list[A]:
    fields = {k: v for k, v in at.items() if k != "name"}
    terms = LOSSES[at["name"]](**fields).terms(*xs)
    return [np.array([terms.total]), np.array([terms.count]), terms.gradient]


def update(xs: list[A], at: Attrs) -> list[A]:
    w, g, *slots, scalars = xs
    if scalars[4] == 0:
        return [w, *slots]
    fields = {k: v for k, v in at.items() if k not in ("name", "in_place")}
    optimiser = OPTIMISERS[at["name"]](**fields)
    step = 1 if scalars[2] == 1 or not np.any(slots) else 4
    before = dict(zip(optimiser.slots, slots, strict=True))
    new, after = optimiser.update(w, g * scalars[1], before, step=step, rate=scalars[0])
    return [new, *(after[name] for name in optimiser.slots)]


def all_hashed(*words: int) -> list[int]:
    """PCG4D in Python's own integers."""
    v = [(n * 1664525 + 1013904223) % 2**32 for n in words]
    for last in (False, True):
        for a, b, c in ((0, 1, 3), (1, 2, 0), (2, 0, 1), (3, 1, 2)):
            v[a] = (v[a] + v[b] * v[c]) % 2**32
        v = v if last else [n ^ n >> 16 for n in v]
    return v


def hashed(*words: int) -> int:
    return all_hashed(*words)[0]


def dropout(xs: list[A], at: Attrs) -> list[A]:
    """Element by element."""
    x, key = xs
    y = np.zeros(x.shape)
    for i, place in enumerate(np.ndindex(x.shape)):
        if hashed(i, at["stream"], *(int(k) % 2**32 for k in key)) >> 8 >= at["p"] * 2**24:
            y[place] = x[place] / (1 - at["p"])
    return [y]


def gumbel(xs: list[A], at: Attrs) -> list[A]:
    """Element by element."""
    x, positions = xs
    y = np.array(x)
    for t, i in np.ndindex(x.shape):
        n = hashed(i, int(positions[t]), at["seed"] % 2**32, at["seed"] >> 32) >> 9
        y[t, i] -= math.log(-math.log((n + 0.5) / 2**23))
    return [y]


def noisy(xs: list[A], at: Attrs) -> list[A]:
    """Element by element."""
    x, key = xs
    y = np.array(x)
    for i, place in enumerate(np.ndindex(x.shape)):
        words = all_hashed((at["first"] + i) % 2**32, at["stream"], *(int(k) % 2**32 for k in key))
        u, v = (((n >> 9) + 0.5) / 2**23 for n in words[:2])
        y[place] += math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)
    return [y]


FORMULAS: dict[str, Callable[[list[A], Attrs], list[A]]] = {
    "gemm": gemm,
    "unary": unary,
    "unary_grad": unary_grad,
    "binary": lambda xs, at: [element_by_element(PAIR[at["name"]], *xs)],
    "reshape": lambda xs, at: [np.array(xs[0].ravel().tolist()).reshape(at["shape"])],
    "permute": lambda xs, at: [np.einsum(xs[0], range(xs[0].ndim), at["perm"])],
    "flip": lambda xs, at: [np.take(xs[0], range(xs[0].shape[at["axis"]])[::-1], at["axis"])],
    "slice": lambda xs, at: [xs[0][tuple(map(slice, at["starts"], at["stops"]))]],
    "pad": pad,
    "concat": lambda xs, at: [np.concatenate(xs, at["axis"])],
    "broadcast": lambda xs, at: [xs[0] + np.zeros(at["shape"])],
    "reduce": lambda xs, at: [getattr(np, at["name"])(xs[0], axis=at["axes"], keepdims=True)],
    "assign": lambda xs, at: xs,
    "gather_rows": lambda xs, at: [np.array([xs[0][i] for i in xs[1]]).reshape(len(xs[1]), xs[0].shape[1])],
    "scatter_rows": scatter,
    "softmax": by_row(softmax),
    "softmax_grad": by_row(
        lambda y, g: [v * (d - sum(a * b for a, b in zip(y, g, strict=True))) for v, d in zip(y, g, strict=True)]
    ),
    "entmax": by_row(entmax),
    "entmax_grad": by_row(entmax_grad),
    "keep_largest": by_row(keep_largest),
    "norm": norm,
    "norm_grad": norm_grad,
    "norm_param_grad": norm_param_grad,
    "unfold": unfold,
    "fold": fold,
    "pool_max": pool_max,
    "pool_max_grad": pool_back,
    "pool_sum": pool_sum,
    "pool_spread": pool_back,
    "rope": rope,
    "depthwise_conv": depthwise,
    "depthwise_conv_grad": depthwise_back,
    "cross_attend": cross_attend,
    "weigh_rows": weigh_rows,
    "distance_attend": distance_attend,
    "linear_scan": linear_scan,
    "rotate_scan": rotate_scan,
    "edge_attend": edge_attend,
    "edge_attend_grad": edge_attend_grad,
    "recurrent": recurrent,
    "cell": one_step,
    "cell_grad": one_step_back,
    "recurrent_grad": recurrent_grad,
    "scan": scan,
    "loss": loss,
    "update": update,
    "sumsq": lambda xs, at: [np.array([sum(float((x * x).sum()) for x in xs)])],
    "dropout": dropout,
    "gumbel": gumbel,
    "normal": noisy,
    "fake_quant": lambda xs, at: [as_stored(xs[0], Scheme.parse(at["scheme"]))],
}


def in_float64(case: OpCase) -> list[A]:
    return [x if np.issubdtype(x.dtype, np.integer) else x.astype(np.float64) for x in case.inputs]


@pytest.mark.thorough
@pytest.mark.parametrize("name", OP_CASES)
def test_an_operation_computes_its_formula(name: str) -> None:
    case = OP_CASES[name]
    with np.errstate(all="ignore"):
        want = FORMULAS[case.op](in_float64(case), case.attrs)
    for dtype, tolerance in ((np.float64, 1e-7), (np.float32, 2e-5)):
        got = case_outputs(case, dtype)
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert g.dtype == dtype
            assert g.shape == w.shape
            finite = w[np.isfinite(w)]
            scale = max(1.0, float(np.abs(finite).max(initial=0)))
            np.testing.assert_allclose(g / scale, w / scale, rtol=tolerance, atol=tolerance)


def test_every_operation_has_cases_and_a_formula() -> None:
    assert {case.op for case in OP_CASES.values()} == set(OPS) - OPEN == set(FORMULAS)


def test_every_operation_has_a_gradient_unless_it_ends_differentiation() -> None:
    without = {name for name, op in OPS.items() if op.vjp is None and op.vjp_of_all is None}
    assert without == WITHOUT_GRADIENT | OPEN - {"last"}


SMOOTH = [
    name
    for name, case in OP_CASES.items()
    if OPS[case.op].vjp is not None
    and all(np.isfinite(x).all() for x in case.inputs)
    and sum(x.size for x in case.inputs) < 700
    and case.op not in ("fake_quant", "keep_largest", "scan")  # a scan has all of its outputs differentiated elsewhere
    and case.attrs.get("name") not in ("mask", "mul_nonzero")
    and "large" not in name
    and "equal" not in name
]


def with_seeds(case: OpCase) -> tuple[Any, list[int]]:
    """Graph of ``Σ seed · output`` and of its gradients; which inputs have one."""
    work = GraphBuilder()
    inputs = [work.input("x", x.shape, "int32" if x.dtype == np.int32 else "float32") for x in case.inputs]
    outputs = work.emit(case.op, inputs, **case.attrs)[:1]
    seeds = {i: work.input("seed", work.shape(i)) for i in outputs}
    wanted = [i for i, x in zip(inputs, case.inputs, strict=True) if x.dtype != np.int32]
    grads = differentiate(work, seeds, wanted)
    return work.finish([*outputs, *grads.values()]), list(grads)


@pytest.mark.thorough
@pytest.mark.parametrize("name", SMOOTH)
def test_a_gradient_equals_central_differences(name: str) -> None:
    case = OP_CASES[name]
    graph, with_gradient = with_seeds(case)
    xs = in_float64(case)
    rng = np.random.default_rng(3)
    seed = rng.standard_normal(graph.tensors[graph.outputs[0]].shape)
    _, *grads = interpret(graph, [*xs, seed], {}, np.float64)
    assert with_gradient or case.attrs.get("name") in ("sign", "floor", "greater")
    for i, grad in zip(with_gradient, grads, strict=True):

        def total() -> float:
            return float((interpret(graph, [*xs, seed], {}, np.float64)[0] * seed).sum())

        want = differences(total, xs[i], MOST)
        looked_at = np.isfinite(want)
        assert looked_at.sum() == min(MOST, want.size)
        grad, want = grad[looked_at], want[looked_at]
        scale = max(np.abs(want).max(initial=0), 1e-3)
        np.testing.assert_allclose(grad / scale, want / scale, rtol=0, atol=2e-6, err_msg=f"input {i}")


def test_rounding_passes_gradients_straight_through() -> None:
    case = OP_CASES["fake-int4:g32"]
    graph, _ = with_seeds(case)
    seed = np.random.default_rng(1).standard_normal(case.inputs[0].shape)
    np.testing.assert_array_equal(interpret(graph, [*in_float64(case), seed], {}, np.float64)[1], seed)


@pytest.mark.parametrize("name", ["binary-mask", "binary-mul_nonzero", "rows-keep-plain"])
def test_what_is_switched_off_has_no_gradient(name: str) -> None:
    case = OP_CASES[name]
    graph, with_gradient = with_seeds(case)
    xs = in_float64(case)
    off = np.isneginf(FORMULAS[case.op](xs, case.attrs)[0]) if case.op == "keep_largest" else xs[1] == 0
    assert 0 < off.sum() < off.size
    seed = np.where(off, np.nan, 2.0)
    _, *grads = interpret(graph, [*xs, seed], {}, np.float64)
    if case.attrs.get("name") != "mul_nonzero":
        assert with_gradient == [0]
        np.testing.assert_array_equal(grads[0], np.where(off, 0, 2))
        return
    np.testing.assert_array_equal(grads[0], seed * xs[1])
    np.testing.assert_array_equal(grads[1], np.where(off, 0, 2 * xs[0]))


def test_gradients_of_gradients_are_refused() -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 3))
    y = work.softmax(x)
    seed = work.input("seed", (2, 3))
    g = differentiate(work, {y: seed}, [x])[x]
    with pytest.raises(UnsupportedError, match="softmax_grad"):
        differentiate(work, {g: seed}, [x])


@pytest.mark.parametrize(
    ("op", "shapes", "attrs", "message"),
    [
        (
            "gemm",
            [(1, 2, 3), (1, 2, 3)],
            {"trans_a": False, "trans_b": False, "groups": 1, "activation": "linear"},
            "do not multiply",
        ),
        (
            "gemm",
            [(4, 2, 3), (3, 3, 2)],
            {"trans_a": False, "trans_b": False, "groups": 4, "activation": "linear"},
            "do not give",
        ),
        ("binary", [(2, 3), (2, 4)], {"name": "add"}, "do not go together"),
        ("binary", [(2, 3), (2, 3)], {"name": "pow"}, "unknown name"),
        ("reduce", [(2, 3)], {"name": "sum", "axes": (1, 0)}, "no rising axes"),
        ("reduce", [(2, 0)], {"name": "max", "axes": (1,)}, "of nothing"),
        ("slice", [(2, 3)], {"starts": (0, 0), "stops": (2, 4)}, "not inside"),
        ("reshape", [(2, 3)], {"shape": (5,)}, "does not fill"),
        ("keep_largest", [(2, 3)], {"k": 4}, r"k must be 1 … 3"),
        ("update", [(3,), (3,), (5,)], {"name": "adamw", "in_place": True}, "has 2 slots"),
        ("twist", [(3,)], {}, "no operation"),
    ],
)
def test_what_does_not_fit_is_refused(
    op: str, shapes: list[tuple[int, ...]], attrs: dict[str, Any], message: str
) -> None:
    work = GraphBuilder()
    with pytest.raises((ShapeError, SpecError), match=message):
        work.emit(op, [work.input("x", shape) for shape in shapes], **attrs)


def test_only_the_first_output_has_a_gradient() -> None:
    work = GraphBuilder()
    x = work.input("x", (2, 3))
    stats = work.emit("norm", (x,), kind="rms", eps=1e-5, unit_offset=False)[1]
    with pytest.raises(UnsupportedError, match="only the first output of norm"):
        differentiate(work, {stats: work.input("seed", (2, 3))}, [x])


def test_a_case_graph_is_one_node() -> None:
    assert [node.op for node in case_graph(OP_CASES["gemm-plain"]).nodes] == ["gemm"]
