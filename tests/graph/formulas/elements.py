"""Products, functions of elements and of pairs, and what moves elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

A = np.ndarray
Attrs = Mapping[str, Any]


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
    "erf": math.erf,
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
