"""Softmaxes, the largest of a row, and norms."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from tests.graph.formulas.elements import A, Attrs


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
