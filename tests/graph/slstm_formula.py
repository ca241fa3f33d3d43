"""`recurrent` and its gradient for an sLSTM, unit by unit: Beck et al. 2024, arXiv 2405.04517."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

A = np.ndarray
EPS = 1e-6


def sigmoid(v: float) -> float:
    return math.exp(min(v, 0.0)) / (1 + math.exp(-abs(v)))


def step(pre: list[float], c: float, n: float, m: float) -> tuple[float, list[float]]:
    """y and what is kept beside it: i f z o σ(f̃) c n m."""
    i, f, z, o = pre
    passed = m + math.log(sigmoid(f))
    most = i if n == 0 else max(i, passed)
    i, g = math.exp(i - most), math.exp(min(passed - most, 0.0))
    z, o = math.tanh(z), sigmoid(o)
    c, n = g * c + i * z, g * n + i
    return o * c / (n + EPS), [i, g, z, o, sigmoid(f), c, n, most]


def by_head(weight: A, h: A) -> A:
    """Pre-activations ``[4 H]`` from a state: a unit sees its head."""
    (wide, width), size = weight.shape, len(h)
    seen = [h[r % size // width * width :][:width] for r in range(wide)]
    return np.array([row @ of for row, of in zip(weight, seen, strict=True)])


def recurrent(xs: list[A], at: Mapping[str, Any]) -> list[A]:
    x, weight, y0, c0, n0, m0, *rest = xs
    batch, length, wide = x.shape
    size = wide // 4
    keep = rest.pop() if at["resets"] else np.ones((batch, length))
    bias = rest.pop() if at["bias"] else np.zeros(wide)
    y, kept = np.zeros((batch, length, size)), np.zeros((batch, length, 8, size))
    for row, t in np.ndindex(batch, length):
        before = [y[row, t - 1], *kept[row, t - 1, 5:]] if t else [s[row] for s in (y0, c0, n0, m0)]
        h, *others = before if keep[row, t] else np.zeros((4, size))
        pre = x[row, t] + by_head(weight, h) + bias
        for j in range(size):
            y[row, t, j], kept[row, t, :, j] = step(pre[j::size].tolist(), *(float(s[j]) for s in others))
    last = kept[:, -1, 5:].swapaxes(0, 1)
    return [y, *last, kept.reshape(batch, length, 8 * size)]


def unit_back(kept: list[float], before: list[float], g: list[float]) -> tuple[list[float], list[float]]:
    """Gradients of the pre-activations and of c, n and m before a step from those of y, c, n and m behind it."""
    i, f, z, o, s, c, n, _ = kept
    (c0, n0, _), (gy, gc, gn, gm), whole = before, g, n + EPS
    gc, gn = gc + gy * o / whole, gn - gy * o * c / whole**2
    by_i, by_f = (gc * z + gn) * i, (gc * c0 + gn * n0) * f
    by_f = 0.0 if n0 == 0 and f == 1 else by_f  # where the exponent is cut off at 0
    rest = gm - by_i - by_f  # through m, which both gates subtract, and which one of them is
    to_i, to_f = (by_i + rest, by_f) if n0 == 0 or i == 1 else (by_i, by_f + rest)
    return [to_i, to_f * (1 - s), gc * i * (1 - z * z), gy * c / whole * o * (1 - o)], [gc * f, gn * f, to_f]


def recurrent_grad(xs: list[A], at: Mapping[str, Any]) -> list[A]:
    gy, *rest = xs
    batch, length, size = gy.shape
    arrived = [rest.pop(0) for _ in range(3)] if at["last"] else np.zeros((3, batch, size))
    _, kept, weight, _, c0, n0, m0, *end = rest
    keep = end[0] if at["resets"] else np.ones((batch, length))
    kept, width = kept.reshape(batch, length, 8, size), weight.shape[1]
    pre, direct = np.zeros((batch, length, 4, size)), np.zeros((3, batch, size))
    for row in range(batch):
        g, others = np.zeros(size), np.array([s[row] for s in arrived])
        for t in reversed(range(length)):
            before = kept[row, t - 1, 5:] if t else np.array([s[row] for s in (c0, n0, m0)])
            before = before if keep[row, t] else np.zeros((3, size))
            for j in range(size):
                of = [g[j] + gy[row, t, j], *others[:, j]]
                pre[row, t, :, j], others[:, j] = unit_back(kept[row, t, :, j].tolist(), before[:, j].tolist(), of)
            direct[:, row] = others
            g, flat = np.zeros(size), pre[row, t].reshape(-1)
            for r, row_of in enumerate(weight):
                first = r % size // width * width
                g[first : first + width] += flat[r] * row_of
            g, others = (g, others) if keep[row, t] else (np.zeros(size), np.zeros((3, size)))
    return [pre.reshape(batch, length, 4 * size), direct]
