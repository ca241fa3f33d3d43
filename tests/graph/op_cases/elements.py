"""Products, functions of elements and of pairs, and what moves or sums elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.graph.op_cases.case import OpCase, normal, with_odd_rows
from volumetric.graph.operations.elementwise import BINARY, SLOPES, UNARY


def _gemm(
    a: tuple[int, ...],
    b: tuple[int, ...],
    groups: int,
    *,
    ta: bool = False,
    tb: bool = False,
    bias: int | tuple[int, int] = 0,
    act: str = "linear",
    scale: float = 1.0,
) -> OpCase:
    shape = (bias,) if isinstance(bias, int) else bias
    inputs = (normal(*a) * np.float32(scale), normal(*b), *((normal(*shape),) if bias else ()))
    attrs = {"trans_a": ta, "trans_b": tb, "groups": groups, "activation": act}
    return OpCase(op="gemm", inputs=inputs, attrs=attrs)


GEMM_CASES = {
    "plain": _gemm((1, 3, 5), (1, 5, 7), 1),
    "one": _gemm((1, 1, 1), (1, 1, 1), 1, bias=1),
    "layer": _gemm((1, 17, 31), (1, 33, 31), 1, tb=True, bias=33),
    "tiles": _gemm((1, 65, 63), (1, 127, 63), 1, tb=True),
    "row": _gemm((1, 1, 129), (1, 67, 129), 1, tb=True, bias=67, act="gelu"),
    "input-gradient": _gemm((1, 33, 15), (1, 15, 29), 1),
    "weight-gradient": _gemm((1, 65, 11), (1, 65, 13), 1, ta=True),
    "weight-gradient-long": _gemm((2, 771, 107), (2, 771, 70), 1, ta=True, bias=70, act="tanh", scale=0.01),
    "both-transposed": _gemm((2, 6, 4), (2, 5, 6), 2, ta=True, tb=True),
    "heads": _gemm((12, 9, 8), (3, 9, 8), 12, tb=True),
    "head-values": _gemm((12, 9, 9), (3, 9, 8), 12),
    "head-gradient": _gemm((12, 9, 7), (12, 9, 8), 3, ta=True),
    "left-shared": _gemm((1, 6, 10), (5, 10, 16), 5),
    "left-rounds": _gemm((2, 3, 10), (6, 10, 17), 6, act="relu"),
    "image-weights": _gemm((6, 3, 17), (6, 10, 17), 2, tb=True),
    "all-summed": _gemm((4, 3, 5), (4, 5, 2), 1, bias=2),
    "right-once": _gemm((4, 3, 5), (1, 5, 2), 4, bias=2, act="silu"),
    "bias-each": _gemm((5, 3, 70), (5, 9, 70), 5, tb=True, bias=(5, 9), act="tanh"),
    "bias-each-many": _gemm((3, 19, 70), (3, 70, 65), 3, bias=(3, 65), act="sigmoid"),
    "bias-each-summed": _gemm((6, 3, 17), (2, 17, 10), 2, bias=(2, 10)),
    "bias-each-right-once": _gemm((4, 3, 5), (1, 5, 2), 4, bias=(4, 2)),
    "bias-each-long": _gemm((2, 3, 1025), (2, 1025, 5), 2, bias=(2, 5), act="relu"),
    "no-groups": _gemm((0, 3, 5), (1, 5, 2), 0),
    "no-rows": _gemm((1, 0, 5), (1, 2, 5), 1, tb=True, bias=2),
    "nothing-to-sum": _gemm((1, 3, 0), (1, 0, 2), 1, bias=2, act="tanh"),
    "no-samples": _gemm((0, 4, 3), (0, 5, 3), 2, tb=True),
}


def _unary(name: str, *shape: int) -> OpCase:
    x = normal(*shape)
    x = np.abs(x) + np.float32(0.1) if name in ("log", "sqrt", "rsqrt", "reciprocal") else x
    odd = {"alpha": -1.5, "beta": 0.25} if name == "affine" else {"alpha": 1.0, "beta": 0.0}
    return OpCase(op="unary", inputs=(x,), attrs={"name": name, **odd})


def _wide() -> np.ndarray:
    return np.array([-np.inf, -1e30, -100, -20, -1e-6, -0.0, 0.0, 1e-6, 20, 100, np.inf, np.nan], np.float32)


UNARY_CASES = {
    **{name: _unary(name, 3, 37) for name in UNARY},
    **{
        f"{name}-wide": OpCase(op="unary", inputs=(_wide(),), attrs={"name": name, "alpha": 1.0, "beta": 0.0})
        for name in ("sigmoid", "relu", "leaky_relu", "tanh", "abs", "sign", "softplus", "floor")
    },
    "silu-many": _unary("silu", 5, 7, 11, 13),
    "gelu-nothing": _unary("gelu", 0, 5),
}
UNARY_GRAD_CASES = {
    **{name: OpCase(op="unary_grad", inputs=(normal(5, 13), normal(5, 13)), attrs={"name": name}) for name in SLOPES},
    **{
        f"{name}-kink": OpCase(
            op="unary_grad", inputs=(normal(3), np.array([-1, 0, 1], np.float32)), attrs={"name": name}
        )
        for name in ("relu", "leaky_relu", "relu2")
    },
}


def _binary(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> OpCase:
    right = normal(*b)
    if name == "mask":
        right = (right > 0).astype(np.float32)
    if name == "div":
        right = right + np.sign(right)
    if name == "mul_nonzero":
        right = right * (right > 0)
    left = normal(*a)
    if name in ("min", "max"):  # a central difference must not step over the place where they are equal
        left = np.where(np.abs(left - right) < 0.05, left + np.float32(0.2), left)
    return OpCase(op="binary", inputs=(left, right), attrs={"name": name})


BINARY_CASES = {
    **{name: _binary(name, (5, 7), (5, 7)) for name in BINARY},
    **{f"{name}-row": _binary(name, (4, 5, 7), (7,)) for name in BINARY},
    **{f"{name}-column": _binary(name, (5, 7), (5, 1)) for name in BINARY},
    "add-channel": _binary("add", (2, 3, 17), (1, 3, 1)),
    "mul-both": _binary("mul", (5, 1, 7), (1, 3, 1)),
    "sub-four": _binary("sub", (2, 1, 5, 1), (1, 3, 1, 7)),
    "div-scalar": _binary("div", (3, 33), (1,)),
    "div-left": _binary("div", (1,), (3, 33)),
    "add-nothing": _binary("add", (0, 3), (1, 3)),
    "mul_nonzero-nan": OpCase(
        op="binary",
        inputs=(np.array([np.nan, np.inf, np.nan, 2], np.float32), np.array([0, 0, 1, -0.0], np.float32)),
        attrs={"name": "mul_nonzero"},
    ),
    "mask-nan": OpCase(
        op="binary", inputs=(np.full((2, 2), np.nan, np.float32), np.eye(2, dtype=np.float32)), attrs={"name": "mask"}
    ),
    "max-nan": OpCase(
        op="binary",
        inputs=(np.array([np.nan, 1, np.nan], np.float32), np.array([1, np.nan, np.nan], np.float32)),
        attrs={"name": "max"},
    ),
    "greater-nan": OpCase(
        op="binary",
        inputs=(np.array([np.nan, 1, 2], np.float32), np.array([1, np.nan, 2], np.float32)),
        attrs={"name": "greater"},
    ),
}


def move(op: str, *shapes: tuple[int, ...], **attrs: Any) -> OpCase:
    return OpCase(op=op, inputs=tuple(normal(*shape) for shape in shapes), attrs=attrs)


MOVING_CASES = {
    "reshape": move("reshape", (3, 4, 5), shape=(6, 10)),
    "reshape-nothing": move("reshape", (0, 4), shape=(2, 0, 7)),
    "permute-two": move("permute", (33, 17), perm=(1, 0)),
    "permute-heads": move("permute", (2, 7, 3, 2, 5), perm=(3, 0, 2, 1, 4)),
    "permute-middle": move("permute", (3, 5, 2, 7), perm=(0, 2, 1, 3)),
    "permute-nothing": move("permute", (3, 0, 2), perm=(2, 1, 0)),
    "slice": move("slice", (5, 7, 3), starts=(1, 2, 0), stops=(4, 7, 2)),
    "slice-rows": move("slice", (5, 7), starts=(2, 0), stops=(3, 7)),
    "flip": move("flip", (5, 7, 3), axis=1),
    "flip-first": move("flip", (17, 19), axis=0),
    "flip-last": move("flip", (3, 1, 37), axis=2),
    "flip-empty": move("flip", (0, 7), axis=0),
    "slice-empty": move("slice", (5, 7), starts=(2, 3), stops=(2, 7)),
    "pad": move("pad", (2, 3, 4), before=(1, 0, 2), after=(0, 3, 1)),
    "pad-empty": move("pad", (0, 3), before=(2, 0), after=(1, 1)),
    "concat-last": move("concat", (3, 5), (3, 1), (3, 17), axis=1),
    "concat-first": move("concat", (2, 5), (1, 5), axis=0),
    "concat-middle": move("concat", (2, 3, 5), (2, 1, 5), (2, 0, 5), axis=1),
    "concat-many": move("concat", *[(2, i + 1) for i in range(11)], axis=1),
    "concat-one": move("concat", (2, 5), axis=0),
    "broadcast": move("broadcast", (3, 1, 5), shape=(3, 7, 5)),
    "broadcast-all": move("broadcast", (1, 1), shape=(17, 33)),
    "broadcast-nothing": move("broadcast", (1, 4), shape=(0, 4)),
    **{
        f"{name}-{what}": move("reduce", shape, name=name, axes=axes)
        for name in ("sum", "max", "mean")
        for what, shape, axes in (
            ("rows", (67, 5), (0,)),
            ("columns", (5, 67), (1,)),
            ("middle", (3, 7, 5), (1,)),
            ("outer", (3, 7, 5), (0, 2)),
            ("all", (3, 35, 11), (0, 1, 2)),
            ("one", (3, 1, 5), (1,)),
            ("four", (3, 2, 5, 7), (0, 2)),
        )
    },
    "sum-nothing": move("reduce", (0, 5), name="sum", axes=(0,)),
    "mean-no-rows": move("reduce", (0, 5), name="mean", axes=(1,)),
    "max-nan": OpCase(op="reduce", inputs=(with_odd_rows(normal(5, 6)),), attrs={"name": "max", "axes": (1,)}),
    "assign": move("assign", (3, 5), key="buffer"),
}
