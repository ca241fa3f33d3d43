"""Cases of every operation over odd shapes: 1, primes, a little more and less than a tile, and nothing at all.

Any device is tested with them: `case_graph` makes a graph of one node, `case.inputs` are its inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.graph.scans import SCANS, ScanCase
from tests.graph.scans import emit as emit_scan
from tests.tiers import alike
from volumetric._typing import Array
from volumetric.graph import Graph, GraphBuilder
from volumetric.graph.numeric.activations import ACTIVATIONS
from volumetric.graph.numeric.cells import CELLS
from volumetric.graph.operations.edges import edges_of
from volumetric.graph.operations.elementwise import BINARY, SLOPES, UNARY
from volumetric.runtime.graph.network import DIALECT, GROUPED

OPEN = DIALECT | GROUPED | {"last", "delay"}
"""Operations for open rows: whole networks hold them to the layers (`test_open_rows`), bound graphs have none."""
RNG = np.random.default_rng(20)


@dataclass(frozen=True, kw_only=True)
class OpCase:
    """One node: its inputs (int32 or float32) and attributes."""

    op: str
    inputs: tuple[np.ndarray, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)


def case_graph(case: OpCase) -> Graph:
    """A graph of the one node: its inputs are the graph's, and so are its outputs."""
    work = GraphBuilder()
    inputs = [
        work.input(f"x{i}", x.shape, "int32" if np.issubdtype(x.dtype, np.integer) else "float32")
        for i, x in enumerate(case.inputs)
    ]
    return work.finish(work.emit(case.op, inputs, **case.attrs))


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ids(count: int, below: int) -> np.ndarray:
    return RNG.integers(0, below, count).astype(np.int32)


def with_odd_rows(x: np.ndarray) -> np.ndarray:
    """Rows with -inf here and there, of nothing else, with NaN, and with +inf."""
    x = x.copy()
    x[0, ::2] = -np.inf
    x[1] = -np.inf
    x[2, 1] = np.nan
    x[3, 0] = np.inf
    return x


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


_GEMM = {
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


_UNARY = {
    **{name: _unary(name, 3, 37) for name in UNARY},
    **{
        f"{name}-wide": OpCase(op="unary", inputs=(_wide(),), attrs={"name": name, "alpha": 1.0, "beta": 0.0})
        for name in ("sigmoid", "relu", "leaky_relu", "tanh", "abs", "sign", "softplus", "floor")
    },
    "silu-many": _unary("silu", 5, 7, 11, 13),
    "gelu-nothing": _unary("gelu", 0, 5),
}
_UNARY_GRAD = {
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


_BINARY = {
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


def _move(op: str, *shapes: tuple[int, ...], **attrs: Any) -> OpCase:
    return OpCase(op=op, inputs=tuple(normal(*shape) for shape in shapes), attrs=attrs)


_MOVING = {
    "reshape": _move("reshape", (3, 4, 5), shape=(6, 10)),
    "reshape-nothing": _move("reshape", (0, 4), shape=(2, 0, 7)),
    "permute-two": _move("permute", (33, 17), perm=(1, 0)),
    "permute-heads": _move("permute", (2, 7, 3, 2, 5), perm=(3, 0, 2, 1, 4)),
    "permute-middle": _move("permute", (3, 5, 2, 7), perm=(0, 2, 1, 3)),
    "permute-nothing": _move("permute", (3, 0, 2), perm=(2, 1, 0)),
    "slice": _move("slice", (5, 7, 3), starts=(1, 2, 0), stops=(4, 7, 2)),
    "slice-rows": _move("slice", (5, 7), starts=(2, 0), stops=(3, 7)),
    "flip": _move("flip", (5, 7, 3), axis=1),
    "flip-first": _move("flip", (17, 19), axis=0),
    "flip-last": _move("flip", (3, 1, 37), axis=2),
    "flip-empty": _move("flip", (0, 7), axis=0),
    "slice-empty": _move("slice", (5, 7), starts=(2, 3), stops=(2, 7)),
    "pad": _move("pad", (2, 3, 4), before=(1, 0, 2), after=(0, 3, 1)),
    "pad-empty": _move("pad", (0, 3), before=(2, 0), after=(1, 1)),
    "concat-last": _move("concat", (3, 5), (3, 1), (3, 17), axis=1),
    "concat-first": _move("concat", (2, 5), (1, 5), axis=0),
    "concat-middle": _move("concat", (2, 3, 5), (2, 1, 5), (2, 0, 5), axis=1),
    "concat-many": _move("concat", *[(2, i + 1) for i in range(11)], axis=1),
    "concat-one": _move("concat", (2, 5), axis=0),
    "broadcast": _move("broadcast", (3, 1, 5), shape=(3, 7, 5)),
    "broadcast-all": _move("broadcast", (1, 1), shape=(17, 33)),
    "broadcast-nothing": _move("broadcast", (1, 4), shape=(0, 4)),
    **{
        f"{name}-{what}": _move("reduce", shape, name=name, axes=axes)
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
    "sum-nothing": _move("reduce", (0, 5), name="sum", axes=(0,)),
    "mean-no-rows": _move("reduce", (0, 5), name="mean", axes=(1,)),
    "max-nan": OpCase(op="reduce", inputs=(with_odd_rows(normal(5, 6)),), attrs={"name": "max", "axes": (1,)}),
    "assign": _move("assign", (3, 5), key="buffer"),
}


def _on_rows(op: str, shape: tuple[int, int], **attrs: Any) -> dict[str, OpCase]:
    """The operation on plain rows, on odd ones, on none."""
    x = normal(*shape)
    return {
        "plain": OpCase(op=op, inputs=(x,), attrs=attrs),
        "odd": OpCase(op=op, inputs=(with_odd_rows(normal(5, shape[1])),), attrs=attrs),
        "large": OpCase(op=op, inputs=(x * 50 + 1000,), attrs=attrs),
        "none": OpCase(op=op, inputs=(normal(0, shape[1]),), attrs=attrs),
    }


def _share(rows: int, width: int, zeros: bool = False) -> np.ndarray:
    """Rows of probabilities."""
    y = np.exp(normal(rows, width))
    y = np.where(normal(rows, width) > 0.3, 0, y) if zeros else y
    y[:, 0] += 0.1
    return (y / y.sum(-1, keepdims=True)).astype(np.float32)


_ROWS = {
    "gather": OpCase(op="gather_rows", inputs=(normal(7, 5), ids(11, 7))),
    "gather-none": OpCase(op="gather_rows", inputs=(normal(7, 5), ids(0, 7))),
    "scatter": OpCase(op="scatter_rows", inputs=(normal(33, 5), ids(33, 7)), attrs={"rows": 9}),
    "scatter-many": OpCase(op="scatter_rows", inputs=(normal(2050, 3), ids(2050, 300)), attrs={"rows": 301}),
    "scatter-none": OpCase(op="scatter_rows", inputs=(normal(0, 5), ids(0, 7)), attrs={"rows": 3}),
    **{f"softmax-{k}": v for k, v in _on_rows("softmax", (17, 33)).items()},
    "softmax-long": _move("softmax", (3, 1031)),
    "softmax-one": _move("softmax", (3, 1)),
    "softmax-grad": OpCase(op="softmax_grad", inputs=(_share(17, 33), normal(17, 33))),
    "softmax-grad-long": OpCase(op="softmax_grad", inputs=(_share(2, 1031), normal(2, 1031))),
    **{f"entmax-{k}": v for k, v in _on_rows("entmax", (7, 13), alpha=1.5).items()},
    **{f"entmax-soft-{k}": v for k, v in _on_rows("entmax", (7, 5), alpha=1.1).items()},
    **{f"sparsemax-{k}": v for k, v in _on_rows("entmax", (17, 33), alpha=2.0).items()},
    "sparsemax-equal": OpCase(op="entmax", inputs=(np.ones((2, 5), np.float32),), attrs={"alpha": 2.0}),
    "sparsemax-long": _move("entmax", (2, 301), alpha=2.0),
    **{
        f"entmax-grad-{alpha}": OpCase(
            op="entmax_grad", inputs=(_share(7, 13, zeros=True), normal(7, 13)), attrs={"alpha": alpha}
        )
        for alpha in (1.1, 1.5, 2.0)
    },
    "entmax-grad-zeros": OpCase(
        op="entmax_grad", inputs=(np.zeros((2, 3), np.float32), normal(2, 3)), attrs={"alpha": 1.5}
    ),
    **{f"keep-{k}": v for k, v in _on_rows("keep_largest", (17, 7), k=2).items()},
    "keep-equal": OpCase(
        op="keep_largest", inputs=(np.array([[1, 2, 2, 2], [0, 0, 0, 0]], np.float32),), attrs={"k": 2}
    ),
    "keep-all": _move("keep_largest", (3, 4), k=4),
    "keep-nan": OpCase(
        op="keep_largest",
        inputs=(np.array([[np.nan, 1, 2, 3], [-np.inf, np.nan, -np.inf, 0]], np.float32),),
        attrs={"k": 2},
    ),
}


def _norms(rows: int, width: int) -> dict[str, OpCase]:
    cases: dict[str, OpCase] = {}
    x, g, gain, bias = normal(rows, width), normal(rows, width), normal(width), normal(width)
    if width == 1:  # its root mean square is its size: the gradient is what rounding leaves, less of large numbers
        x = x + np.sign(x)
    # A row of one element less its mean is 0: let nothing of that be rounded.
    even = np.round(x * 256) / np.float32(256) if width == 1 else x
    for kind, offset, inputs in (
        ("rms", False, (x,)),
        ("rms", True, (x, gain)),
        ("rms", False, (x, gain, bias)),
        ("layer", False, (even,)),
        ("layer", False, (even, gain)),
        ("layer", True, (even, gain, bias)),
    ):
        x = inputs[0]
        name = f"{kind}-{len(inputs)}-{rows}x{width}"
        attrs = {"kind": kind, "unit_offset": offset}
        cases[name] = OpCase(op="norm", inputs=inputs, attrs={**attrs, "eps": 1e-5})
        mean = x.mean(-1, keepdims=True) if kind == "layer" else 0 * x[:, :1]
        rstd = 1 / np.sqrt(np.square(x - mean).mean(-1, keepdims=True) + np.float32(1e-5))
        shift = np.full_like(mean, 0.25 * (kind == "layer"))  # stands for what rounding takes from a mean
        stats = np.concatenate([mean - shift, rstd, shift], -1)
        cases[f"grad-{name}"] = OpCase(op="norm_grad", inputs=(g, x, stats, *inputs[1:2]), attrs=attrs)
        both = {"bias": len(inputs) == 3}
        cases[f"param-{name}"] = OpCase(op="norm_param_grad", inputs=(g, x, stats), attrs=both)
    return cases


_NORMS = {
    **_norms(5, 7),
    **_norms(33, 65),
    **_norms(1, 1),
    **_norms(0, 3),
    "layer-far": OpCase(
        op="norm",
        inputs=(normal(9, 67) + np.float32(1e4),),  # a mean of float32 alone is off by 5e-4 here
        attrs={"kind": "layer", "unit_offset": False, "eps": 1e-5},
    ),
}


def _window(
    n: int, c: int, sizes: tuple[int, ...], counts: tuple[int, ...], **fields: tuple[int, ...]
) -> dict[str, OpCase]:
    attrs = {
        "stride": (1,) * len(sizes),
        "dilation": (1,) * len(sizes),
        "before": (0,) * len(sizes),
        **fields,
        "counts": counts,
    }
    deep, windows = c * int(np.prod(attrs["kernel"])), int(np.prod(counts))
    return {
        "unfold": OpCase(op="unfold", inputs=(normal(n, c, *sizes),), attrs=attrs),
        "fold": OpCase(op="fold", inputs=(normal(n, deep, windows),), attrs={**attrs, "sizes": sizes}),
    }


_IMAGES = {
    f"{way}-{name}": case
    for name, cases in {
        "1d": _window(2, 3, (7,), (5,), kernel=(3,)),
        "1d-same": _window(1, 2, (9,), (9,), kernel=(4,), dilation=(2,), before=(3,)),
        "2d": _window(3, 2, (5, 7), (5, 7), kernel=(3, 3), before=(1, 1)),
        "2d-everything": _window(2, 3, (5, 7), (2, 3), kernel=(3, 2), stride=(2, 3), before=(1, 2), dilation=(1, 2)),
        "2d-fewer": _window(1, 2, (6, 6), (2, 2), kernel=(2, 2), stride=(2, 2)),
        "2d-one": _window(17, 1, (1, 1), (1, 1), kernel=(1, 1)),
        "3d": _window(1, 2, (3, 3, 3), (2, 2, 3), kernel=(2, 1, 3), stride=(1, 2, 1), before=(0, 1, 1)),
        "none": _window(0, 2, (4, 4), (3, 3), kernel=(2, 2)),
    }.items()
    for way, case in cases.items()
}


def _pools(
    n: int, c: int, sizes: tuple[int, ...], counts: tuple[int, ...], **fields: tuple[int, ...]
) -> dict[str, OpCase]:
    x, attrs = normal(n, c, *sizes), _window(n, c, sizes, counts, **fields)["unfold"].attrs
    whole = {**attrs, "sizes": sizes}
    top = OpCase(op="pool_max", inputs=(x,), attrs=attrs)
    taps = case_outputs(top)[1]
    return {
        "pool-max": top,
        "pool-max-grad": OpCase(op="pool_max_grad", inputs=(normal(n, c, *counts), taps), attrs=whole),
        "pool-sum": OpCase(op="pool_sum", inputs=(x,), attrs=attrs),
        "pool-spread": OpCase(op="pool_spread", inputs=(normal(n, c, *counts),), attrs=whole),
    }


def _rope(back: bool, b: int, t: int, h: int, d: int, half: int) -> OpCase:
    angles = np.arange(t)[:, None] * 0.7 ** np.arange(half)
    tables = (np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    return OpCase(op="rope", inputs=(normal(b, t, h, d), *tables), attrs={"back": back})


def _recurrent(cell: str, b: int, t: int, size: int, *, bias: bool, resets: bool = False) -> dict[str, OpCase]:
    draw = np.random.default_rng((len(cell), b, t, size))  # of its own: relu's kink must not lie within a difference

    def normal(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape).astype(np.float32)

    blocks, count = CELLS[cell].blocks, len(CELLS[cell].states)
    states = [normal(b, size) for _ in range(count)]
    heads = 1
    if cell == "slstm":
        heads = {33: 3, 64: 4}.get(size, 1)
        states[2] = np.abs(states[2]) + np.float32(0.1)  # a normaliser; at 0 its gradient jumps
    from_x, weight = normal(b, t, blocks * size), normal(blocks * size, size // heads) * np.float32(0.5)
    end = (normal(blocks * size),) if bias else ()
    keep: tuple[Array, ...] = ()
    if resets:
        keep = ((normal(b, t) > -0.5).astype(np.float32),)
        keep[0][:1, 0] = 0
        states[0][:1] = np.nan  # which is forgotten
    attrs = {"cell": cell, "resets": resets}
    case = OpCase(op="recurrent", inputs=(from_x, weight, *states, *end, *keep), attrs={**attrs, "bias": bias})
    y, *more = case_outputs(case)
    g_last = tuple(normal(b, size) for _ in range(count - 1)) if resets else ()
    given = (normal(b, t, size), *g_last, y, *more[len(states) - 1 :], weight, *states, *keep)
    back = OpCase(op="recurrent_grad", inputs=given, attrs={**attrs, "last": bool(g_last)})
    name = f"{cell}-{b}-{t}-{size}{'-resets' if resets else ''}"
    return {name: case, f"grad-{name}": back}


def _cell(cell: str, rows: int, sets: int, size: int) -> dict[str, OpCase]:
    draw = np.random.default_rng((len(cell), rows, size))

    def normal(*shape: int) -> np.ndarray:
        return draw.standard_normal(shape).astype(np.float32)

    of, wide = CELLS[cell], CELLS[cell].blocks * size
    before = [normal(len(of.direct), rows, size)] if of.direct else []
    if cell == "slstm":
        before[0][1] = np.abs(before[0][1]) + np.float32(0.1)
        before[0][1:, : rows // 2] = 0  # a stream that begins
    attrs = {"cell": cell}
    inputs = (normal(rows, wide), normal(rows, wide), normal(sets, wide), *before)
    case = OpCase(op="cell", inputs=inputs, attrs=attrs)
    y, *more = case_outputs(case)
    several = len(of.states) > 1
    g = [normal(*x.shape) for x in (y, *more[:several])]
    back = OpCase(op="cell_grad", inputs=(*g, y, *more[:several], *more[several:], *before), attrs=attrs)
    return {f"cell-{cell}-{rows}-{size}": case, f"grad-cell-{cell}-{rows}-{size}": back}


def _linear_scan(
    b: int, t: int, width: int, *, reverse: bool = False, keep: bool = False, whole: bool = True
) -> OpCase:
    u, a = normal(b, t, width), (0.3 + RNG.random((b, t, width) if whole else (width,))).astype(np.float32)
    start = () if reverse else (normal(b, width),)
    kept = ((RNG.random((b, t)) < 0.7).astype(np.float32),) if keep else ()
    return OpCase(op="linear_scan", inputs=(u, a, *start, *kept), attrs={"reverse": reverse, "keep": keep})


def _rotate_scan(b: int, t: int, width: int, *, reverse: bool = False, keep: bool = False) -> OpCase:
    start = () if reverse else (normal(b, 2 * width),)
    kept = ((RNG.random((b, t)) < 0.7).astype(np.float32),) if keep else ()
    inputs = (normal(b, t, 2 * width), 0.5 * normal(width), 0.5 * normal(width), *start, *kept)
    return OpCase(op="rotate_scan", inputs=inputs, attrs={"reverse": reverse, "keep": keep})


def _depthwise(b: int, t: int, width: int, taps: int, *, bias: bool = True, resets: bool = False) -> dict[str, OpCase]:
    x, weight, past = normal(b, t, width), normal(width, 1, taps), normal(b, taps - 1, width)
    end = (normal(width),) if bias else ()
    keep: tuple[Array, ...] = ()
    if resets:
        keep = ((RNG.random((b, t)) < 0.6).astype(np.float32),)
        keep[0][:1, :1] = 0
        past[:1] = np.nan  # nobody sees it
    attrs = {"resets": resets}
    case = OpCase(op="depthwise_conv", inputs=(x, weight, past, *end, *keep), attrs={**attrs, "bias": bias})
    back = OpCase(op="depthwise_conv_grad", inputs=(normal(b, t, width), x, weight, past, *keep), attrs=attrs)
    name = f"depthwise-{b}-{t}-{width}-{taps}{'-resets' if resets else ''}"
    return {name: case, f"grad-{name}": back}


def _distances(b: int, t: int, memory: int, heads: int, width: int, *, resets: bool = False) -> OpCase:
    read = [normal(b, t, heads * width) for _ in range(4)]
    held = [normal(b, memory, heads * width) for _ in range(2)]
    age = (np.arange(b, dtype=np.float32) * 3 % (memory + 1))[:, None]
    for row in range(b):  # nobody sees what was before the sequence
        held[0][row, : memory - int(age[row, 0])] = held[1][row, : memory - int(age[row, 0])] = np.nan
    keep = ((RNG.random((b, t)) < 0.7).astype(np.float32),) if resets else ()
    inputs = (*read, normal(heads, memory + 1, width), *held, age, *keep)
    return OpCase(op="distance_attend", inputs=inputs, attrs={"heads": heads, "resets": resets})


def _crossed(e: int, p: int, n: int, m: int, heads: int, width: int, *, masked: bool = False, known: int = 0) -> OpCase:
    """Parts that ask from rows one behind the other, the same ones again, and any; with a mask one sees nothing.

    With so many keys and values `known` no rows are mapped to them.
    """
    rows, d = n + 3, heads * width
    asks, tells = (ids(e * p * count, rows).reshape(e, p, count) for count in (n, m))
    asks[:1] = np.arange(n)
    weights = [normal(e, d, d) / np.float32(d**0.5) for _ in range(4)]
    seen = [(RNG.random((m, n)) < 0.6).astype(np.float32)] if masked else []
    for mask in seen:
        mask[:, -1] = 0
    biases, tables = [normal(e, d) for _ in range(4)], []
    table = normal(rows, d)
    if known:
        weights, biases, tables = weights[::3], biases[::3], [normal(known, d) for _ in range(2)]
        tells = ids(tells.size, known).reshape(tells.shape)
        tells[-1:] = np.arange(m)  # one behind the other
    inputs = (table, asks, tells, *weights, *biases, *tables, *seen)
    return OpCase(op="cross_attend", inputs=inputs, attrs={"heads": heads, "masked": masked, "known": bool(known)})


def _weighed(n: int, terms: int, near: int, far: int, width: int) -> OpCase:
    """Nothing of rows that have no weight."""
    numbers, weights = ids(n * terms, near + far - 1).reshape(n, terms), normal(n, terms)
    weights[RNG.random((n, terms)) < 0.4] = 0
    tables = normal(near, width), normal(far, width)
    tables[1][-1:] = np.nan
    numbers[weights == 0] = near + far - 1
    return OpCase(op="weigh_rows", inputs=(*tables, numbers, weights))


def _edges(r: int, s: int, b: int, heads: int, key: int, value: int, **how: int) -> dict[str, OpCase]:
    """Receivers with 0 to 2 s edges; `queries` and `biases` of one stream and head, `masked` edges at -inf."""
    counts: Array = RNG.integers(0, 2 * s, r) if s else np.zeros(r, np.int64)
    counts[:1] = 0
    lists = edges_of(np.append(0, np.cumsum(counts)), RNG.integers(0, max(s, 1), counts.sum()), s)
    bias = normal(len(lists.senders), heads if how.get("biases", 0) else 1)
    if how.get("masked"):
        bias[::3] = -np.inf
        bias[lists.starts[1] : lists.starts[min(2, r)]] = -np.inf
    attrs = {
        "heads": heads,
        "most_in": int(counts.max(initial=0)),
        "most_out": int(np.diff(lists.out_starts).max(initial=0)),
    }
    q, kv = normal(r, b if how.get("queries") else 1, heads * key), normal(s, b, heads * (key + value))
    case = OpCase(op="edge_attend", inputs=(q, kv, bias, *lists), attrs=attrs)
    _, weights = case_outputs(case)
    back = OpCase(op="edge_attend_grad", inputs=(normal(r, b, heads * value), weights, q, kv, *lists), attrs=attrs)
    name = f"edges-{r}-{s}-{b}-{heads}"
    return {name: case, f"grad-{name}": back}


def _scan(case: ScanCase) -> OpCase:
    work, _, _ = emit_scan(case)
    return OpCase(op="scan", inputs=tuple(case.arrays), attrs=work.nodes[-1].attrs)


def case_outputs(case: OpCase, dtype: type = np.float32) -> list[np.ndarray]:
    """What the interpreter makes of a case."""
    from volumetric.graph import interpret

    graph = case_graph(case)
    return interpret(graph, case.inputs, {}, dtype)


_POOLS = {
    **{
        f"{way}-{name}": case
        for name, cases in {
            "1d": _pools(2, 3, (7,), (3,), kernel=(2,), stride=(2,)),
            "1d-partial": _pools(1, 2, (8,), (4,), kernel=(3,), stride=(2,)),
            "2d": _pools(3, 5, (17, 13), (9, 7), kernel=(3, 3), stride=(2, 2), before=(1, 1)),
            "2d-overlapping": _pools(2, 1, (6, 5), (5, 3), kernel=(2, 3)),
            "2d-everything": _pools(1, 3, (7, 9), (3, 3), kernel=(3, 2), stride=(2, 3), before=(1, 1), dilation=(1, 2)),
            "2d-gaps": _pools(1, 2, (9, 9), (2, 3), kernel=(2, 1), stride=(5, 4)),
            "2d-none": _pools(0, 2, (4, 4), (2, 2), kernel=(2, 2), stride=(2, 2)),
            "3d": _pools(1, 2, (5, 4, 7), (2, 2, 4), kernel=(2, 3, 1), stride=(2, 1, 2)),
            "one": _pools(1, 1, (1, 1), (1, 1), kernel=(1, 1)),
            "1d-long": _pools(3, 1, (71,), (35,), kernel=(2,), stride=(2,)),
            "1d-whole": _pools(3, 1, (1, 111, 1), (1, 2, 1), kernel=(1, 52, 1), stride=(1, 59, 1)),
            "1d-holes": _pools(1, 2, (37,), (33,), kernel=(3,), dilation=(4,), before=(2,)),
            "2d-long": _pools(1, 3, (5, 67), (3, 34), kernel=(3, 3), stride=(2, 2), before=(1, 1)),
        }.items()
        for way, case in cases.items()
    },
    "pool-max-odd": OpCase(
        op="pool_max",
        inputs=(
            np.array([[[np.nan, 1, np.nan, 2, np.inf, np.nan, -np.inf, -np.inf, 3, 3, 3, 2, 0.0, -0.0]]], np.float32),
        ),
        attrs={"kernel": (3,), "stride": (1,), "dilation": (1,), "before": (1,), "counts": (14,)},
    ),
    "pool-max-odd-many": OpCase(
        op="pool_max",
        inputs=(
            np.stack(
                [
                    np.where(np.arange(70) % 33 == 20, np.nan, 1.0),
                    np.where(np.arange(70) % 17 == 9, 3.0, 2.0),
                    np.full(70, -np.inf),
                    np.where(np.arange(70) == 69, np.inf, np.linspace(1, 2, 70)),
                ]
            )[None].astype(np.float32),
        ),
        attrs={"kernel": (70,), "stride": (70,), "dilation": (1,), "before": (0,), "counts": (1,)},
    ),
    "pool-max-odd-pairs": OpCase(
        op="pool_max",
        inputs=(
            np.tile(np.array([np.nan, 1, 2, np.nan, np.nan, np.nan, -np.inf, -np.inf, 3, 3], np.float32), (1, 1, 4)),
        ),
        attrs={"kernel": (2,), "stride": (2,), "dilation": (1,), "before": (0,), "counts": (20,)},
    ),
}

_SEQUENCES = {
    "rope": _rope(False, 2, 5, 3, 8, 4),
    "rope-back": _rope(True, 2, 5, 3, 8, 4),
    "rope-part": _rope(False, 1, 17, 1, 7, 2),
    "rope-none": _rope(False, 0, 3, 2, 4, 2),
    **_depthwise(2, 7, 33, 4),
    **_depthwise(3, 9, 16, 4, resets=True),
    **_depthwise(1, 1, 5, 3, bias=False),
    **_depthwise(2, 2, 144, 4, bias=False, resets=True),
    **_depthwise(1, 11, 17, 2, resets=True),
    **_depthwise(2, 0, 3, 4),
    "distances": _distances(3, 4, 5, 2, 3),
    "distances-resets": _distances(5, 7, 6, 1, 17, resets=True),
    "distances-one": _distances(2, 1, 37, 3, 16),
    "distances-more-than-held": _distances(2, 8, 1, 2, 2, resets=True),
    "crossed": _crossed(2, 3, 5, 7, 2, 3),
    "crossed-one": _crossed(1, 1, 1, 1, 1, 1),
    "crossed-masked": _crossed(2, 2, 19, 3, 3, 16, masked=True),
    "crossed-many": _crossed(1, 3, 67, 33, 4, 16),
    "crossed-wide": _crossed(2, 1, 9, 21, 1, 64, masked=True),
    "weighed": _weighed(5, 3, 4, 2, 17),
    "weighed-one": _weighed(1, 1, 1, 1, 1),
    "weighed-many": _weighed(37, 5, 9, 3, 64),
    "linear-scan": _linear_scan(2, 5, 17),
    "linear-scan-one": _linear_scan(1, 1, 1, keep=True),
    "linear-scan-keep": _linear_scan(3, 7, 5, keep=True),
    "linear-scan-vector": _linear_scan(2, 4, 33, keep=True, whole=False),
    "linear-scan-back": _linear_scan(2, 5, 19, reverse=True),
    "linear-scan-back-keep": _linear_scan(3, 6, 3, reverse=True, keep=True),
    "linear-scan-back-vector": _linear_scan(2, 3, 16, reverse=True, keep=True, whole=False),
    "linear-scan-no-steps": _linear_scan(2, 0, 3),
    **_edges(5, 4, 2, 2, 3, 2),
    **_edges(7, 5, 17, 1, 17, 33, queries=1),
    **_edges(3, 6, 1, 3, 4, 5, biases=1, masked=1),
    **_edges(2, 1, 3, 1, 1, 1, queries=1),
    **_edges(3, 0, 2, 1, 2, 2),
    **_edges(0, 3, 2, 1, 2, 2),
    "rotate-scan": _rotate_scan(2, 5, 17),
    "rotate-scan-one": _rotate_scan(1, 1, 1, keep=True),
    "rotate-scan-keep": _rotate_scan(3, 7, 5, keep=True),
    "rotate-scan-back": _rotate_scan(2, 5, 19, reverse=True),
    "rotate-scan-back-keep": _rotate_scan(3, 6, 3, reverse=True, keep=True),
    "rotate-scan-no-steps": _rotate_scan(2, 0, 3),
    **{
        name: case
        for cell in CELLS
        for shape in ((6, 3, 5), (5, 1, 33), (0, 0, 3))
        for name, case in _cell(cell, *shape).items()
    },
    "linear-scan-no-rows": _linear_scan(0, 3, 2, reverse=True),
    **{
        name: case
        for cell in CELLS
        for shape, bias, resets in (
            ((2, 5, 3), True, False),
            ((17, 3, 33), False, False),
            ((1, 1, 1), True, False),
            ((0, 2, 3), True, False),
            ((5, 6, 7), True, True),
            ((18, 2, 33), False, True),
            *([((6, 4, 64), True, True)] if cell == "slstm" else []),
        )
        for name, case in _recurrent(cell, *shape, bias=bias, resets=resets).items()
    },
}

_SCANS = {f"scan-{name}": _scan(case) for name, case in SCANS.items()}


def _chances(*shape: int) -> np.ndarray:
    return (0.05 + 0.9 * RNG.random(shape)).astype(np.float32)


def _loss(name: str, prediction: np.ndarray, target: np.ndarray, *weights: np.ndarray, **fields: Any) -> OpCase:
    return OpCase(op="loss", inputs=(prediction, target, *weights), attrs={"name": name, **fields})


def _weights(*shape: int) -> np.ndarray:
    return np.maximum(normal(*shape), 0)


_CLASSES = {"ignore_index": -100, "label_smoothing": 0.0}
_LOSSES = {
    "mse": _loss("mse", normal(5, 7), normal(5, 7)),
    "mse-weights": _loss("mse", normal(5, 7), normal(5, 7), _weights(5, 7)),
    "l1": _loss("l1", normal(7, 5), normal(7, 5)),
    "l1-weights-and-equals": _loss(
        "l1", np.array([[1, 2, -3]] * 7, np.float32), np.array([[1, 5, 0]] * 7, np.float32), _weights(7, 3)
    ),
    "huber": _loss("huber", 3 * normal(4, 3, 5), normal(4, 3, 5), _weights(4, 3, 5), delta=0.7),
    "bce": _loss("bce", 5 * normal(33, 3), _chances(33, 3), logits=True),
    "bce-chances": _loss("bce", _chances(7, 3), _chances(7, 3), _weights(7, 3), logits=False),
    "classes": _loss("cross_entropy", normal(17, 13), ids(17, 13), **_CLASSES),
    "classes-weights": _loss("cross_entropy", normal(17, 13), ids(17, 13), _weights(17), **_CLASSES),
    "classes-ignored": _loss(
        "cross_entropy", normal(5, 3), np.array([0, -100, 2, -100, 1], np.int32), **{**_CLASSES, "label_smoothing": 0.1}
    ),
    "classes-many": _loss("cross_entropy", 4 * normal(3, 1031), ids(3, 1031), **{**_CLASSES, "label_smoothing": 0.2}),
    "soft": _loss("cross_entropy", normal(5, 7), _share(5, 7), **_CLASSES),
    "soft-smooth": _loss(
        "cross_entropy", normal(5, 7), _share(5, 7, zeros=True), _weights(5), **{**_CLASSES, "label_smoothing": 0.3}
    ),
}

_OPTIMISERS: dict[str, dict[str, Any]] = {
    "sgd": {"name": "sgd", "weight_decay": 0.1},
    "momentum": {"name": "momentum", "weight_decay": 0.0, "momentum": 0.9, "dampening": 0.1, "nesterov": False},
    "nesterov": {"name": "momentum", "weight_decay": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": True},
    "rmsprop": {"name": "rmsprop", "weight_decay": 0.0, "alpha": 0.9, "eps": 1e-8, "momentum": 0.0, "centered": False},
    "rmsprop-all": {
        "name": "rmsprop",
        "weight_decay": 0.1,
        "alpha": 0.9,
        "eps": 1e-6,
        "momentum": 0.5,
        "centered": True,
    },
    "rmsprop-velocity": {
        "name": "rmsprop",
        "weight_decay": 0.0,
        "alpha": 0.9,
        "eps": 1e-6,
        "momentum": 0.5,
        "centered": False,
    },
    "adam": {"name": "adam", "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8},
    "adamw": {"name": "adamw", "weight_decay": 0.01, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8},
}


def _update(attrs: dict[str, Any], shape: tuple[int, ...], *, first: bool, apply: float = 1.0) -> OpCase:
    slots = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2}.get(attrs["name"], 0)
    if attrs["name"] == "rmsprop":
        slots = 1 + attrs["centered"] + bool(attrs["momentum"])
    step = 1 if first else 4
    corrections = (float(first), 0.0)
    if attrs["name"] in ("adam", "adamw"):
        corrections = (1 / (1 - attrs["beta1"] ** step), 1 / np.sqrt(1 - attrs["beta2"] ** step))
    scalars = np.array([0.01, 0.5, *corrections, apply], np.float32)
    values = [np.abs(normal(*shape)) * (0 if first else 1) for _ in range(slots)]
    if attrs["name"] == "rmsprop" and attrs["centered"]:
        # A variance that is no difference of nearly equal numbers: float32 has no digits for that.
        values[:2] = values[0] + np.float32(not first) * np.float32(0.1), np.float32(0.1) * values[1]
    return OpCase(
        op="update", inputs=(normal(*shape), normal(*shape), *values, scalars), attrs={**attrs, "in_place": False}
    )


def _dropout(p: float, *shape: int, stream: int = 0xC0FFEE11) -> OpCase:
    key = np.array([0x9E3779B9, 7], np.uint32).view(np.int32)
    return OpCase(op="dropout", inputs=(normal(*shape), key), attrs={"p": p, "stream": stream})


def _noisy(*shape: int, stream: int = 0xC0FFEE11, first: int = 0) -> OpCase:
    key = np.array([0x9E3779B9, 7], np.uint32).view(np.int32)
    return OpCase(op="normal", inputs=(normal(*shape), key), attrs={"stream": stream, "first": first})


def _gumbel(rows: int, width: int, first: int, seed: int) -> OpCase:
    positions = np.arange(first, first + rows, dtype=np.int32)
    return OpCase(op="gumbel", inputs=(normal(rows, width), positions), attrs={"seed": seed})


_TRAINING = {
    "gumbel": _gumbel(5, 67, 0, 3),
    "gumbel-narrow": _gumbel(9, 3, 1000, (7 << 32) + 0xFFFFFFFF),
    "gumbel-wide": _gumbel(3, 275, 0, 3),
    "gumbel-row": _gumbel(1, 160, 2**31 - 1, 0),
    "gumbel-nothing": _gumbel(0, 5, 0, 1),
    "gumbel-apart": OpCase(op="gumbel", inputs=(normal(3, 17), np.array([4, 0, 4], np.int32)), attrs={"seed": 2}),
    "normal": _noisy(5, 67),
    "normal-later": _noisy(3, 2, 17, stream=5, first=2**32 - 40),
    "normal-one": _noisy(1, first=3),
    "normal-nothing": _noisy(0, 5),
    "dropout": _dropout(0.3, 5, 67),
    "dropout-most": _dropout(0.9, 3, 2, 17, stream=5),
    "dropout-none": _dropout(0.0, 7),
    "dropout-all": _dropout(1.0, 3, 5),
    "dropout-nothing": _dropout(0.5, 0, 5),
    "dropout-nan": OpCase(
        op="dropout",
        inputs=(np.full((4, 9), np.nan, np.float32), np.array([1, -1], np.int32)),
        attrs={"p": 0.5, "stream": 1},
    ),
    **{f"loss-{name}": case for name, case in _LOSSES.items()},
    **{
        f"{name}-{'first' if first else 'later'}": _update(attrs, (5, 33), first=first)
        for name, attrs in _OPTIMISERS.items()
        for first in (True, False)
    },
    "update-not": _update(_OPTIMISERS["adamw"], (7,), first=False, apply=0.0),
    "sumsq": _move("sumsq", (3, 5), (67,), (1, 1)),
    "sumsq-nothing": _move("sumsq", (0, 5)),
    "sumsq-infinite": OpCase(op="sumsq", inputs=(normal(5), np.array([np.inf, 1], np.float32))),
    **{
        f"fake-{scheme}": OpCase(op="fake_quant", inputs=(normal(5, 67),), attrs={"scheme": scheme})
        for scheme in ("float32", "bfloat16", "float16", "int8:g32", "int4:g32", "uint4:g32", "int8:row", "float8_e4m3")
    },
}

_KNOWN = {
    "crossed-known": _crossed(2, 3, 5, 7, 2, 3, known=11),
    "crossed-known-one": _crossed(1, 1, 1, 1, 1, 1, known=1),
    "crossed-known-masked": _crossed(2, 2, 19, 3, 3, 16, masked=True, known=3),
    "crossed-known-many": _crossed(1, 3, 67, 33, 4, 16, known=40),
}

OP_CASES: dict[str, OpCase] = {
    f"{family}-{name}" if family else name: case
    for family, cases in {
        "gemm": _GEMM,
        "unary": _UNARY,
        "unary-grad": _UNARY_GRAD,
        "binary": _BINARY,
        "move": _MOVING,
        "rows": _ROWS,
        "norm": _NORMS,
        "": {**_IMAGES, **_POOLS, **_SEQUENCES, **_SCANS, **_TRAINING, **_KNOWN},
    }.items()
    for name, case in cases.items()
}
assert {*ACTIVATIONS} - {*SLOPES} == {"linear"}


def _operation(case: OpCase) -> tuple[object, ...]:
    """The operation, and which one of its functions."""
    return case.op, *(value for value in case.attrs.values() if isinstance(value, str))


alike({name: _operation(case) for name, case in OP_CASES.items()})
