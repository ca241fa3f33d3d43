"""Rules of cells with heads, whose steps are the body of a scan or the chunks of one."""

from __future__ import annotations

from volumetric._typing import Shape
from volumetric.layers import SLSTM
from volumetric.layers.head_norm import EPS as NORM_EPS
from volumetric.layers.slstm import CELL, EPS, GATES
from volumetric.runtime.graph.build import GraphBuilder
from volumetric.runtime.graph.rules.base import Scope, flat, rule
from volumetric.runtime.graph.rules.convolved import causal_conv


def start(scope: Scope, x: int, name: str, shape: Shape) -> int:
    """Return a state as the rows of `x` find it, ``[sequences, *shape]``: zeros where none is kept."""
    whole = (scope.work.shape(scope.sequenced(x))[0], *shape)
    return scope.state(name, whole) if scope.keeps_state(x) else scope.work.zeros(whole)


def by_head(work: GraphBuilder, weight: int, x: int, bias: int | None = None) -> int:
    """Emit ``W x + b`` within each head for ``[B, T, E]`` and ``[heads, out, in]``: ``[heads, B, T, out]``."""
    batch, length, _ = work.shape(x)
    heads, out, width = work.shape(weight)
    rows = work.permute(work.reshape(x, (batch * length, heads, width)), (1, 0, 2))
    y = work.gemm(rows, weight, trans_b=True)
    y = y if bias is None else work.binary("add", y, work.reshape(bias, (heads, 1, out)))
    return work.reshape(y, (heads, batch, length, out))


def head_norm(work: GraphBuilder, y: int, gain: int, x: int) -> int:
    """Emit the norm of each head of ``[B, T, heads, width]`` as rows like `x`."""
    normal = work.norm(flat(work, y), kind="layer", eps=NORM_EPS)
    return work.binary("mul", work.reshape(normal, work.shape(x)), gain)


@rule("slstm")
def _slstm(scope: Scope, spec: SLSTM, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    heads, width = spec.by_head
    seen = causal_conv(scope, x, p["conv.weight"], p["conv.bias"], activation="silu") if spec.kernel_size else x
    rows, seen = scope.sequenced(x), scope.sequenced(seen)
    batch, length, _ = work.shape(rows)
    bias = {g: work.reshape(work.part(p["bias"], 0, at, at + 1), (heads, width)) for at, g in enumerate(GATES)}
    pairs = (("i", "f"), seen), (("z", "o"), rows)
    made = [
        by_head(work, work.concat([p[f"{g}.weight"] for g in of], 1), read, work.concat([bias[g] for g in of], 1))
        for of, read in pairs
    ]
    pre = work.permute(work.concat(made, 3), (2, 0, 1, 3))  # [T, heads, B, 4 · width]
    weight = work.reshape(work.permute(p["r.weight"], (1, 0, 2, 3)), (heads, 4 * width, width))
    starts = [start(scope, x, name, (spec.embed_dim,)) for name in CELL.states]
    starts = [work.permute(work.reshape(s, (batch, heads, width)), (1, 0, 2)) for s in starts]
    keep = scope.kept_before(x)
    kept = [] if keep is None else [work.reshape(work.permute(keep, (1, 0)), (length, 1, batch, 1))]
    [y], ends = work.scan(_slstm_step, [pre, *kept], [weight], starts)
    if scope.keeps_state(x):
        for name, end in zip(CELL.states, ends, strict=True):
            scope.keep(name, work.reshape(work.permute(end, (1, 0, 2)), (batch, spec.embed_dim)))
    return head_norm(work, work.permute(y, (2, 0, 1, 3)), p["norm.weight"], x)


def _slstm_step(
    work: GraphBuilder, xs: list[int], constants: list[int], states: list[int]
) -> tuple[list[int], list[int]]:
    """One step of `layers.slstm`, of all heads ``[heads, B, width]``."""
    pre, *kept = xs
    states = [work.binary("mul_nonzero", s, keep) for s in states for keep in kept] or states
    y, c, n, m = states
    width = work.shape(y)[2]
    pre = work.binary("add", pre, work.gemm(y, constants[0], trans_b=True))
    i, f, z, o = work.split(pre, (width,) * 4, 2)
    passed = work.binary("sub", m, work.unary(work.unary(f, "neg"), "softplus"))
    begun = work.binary("greater", work.unary(n, "abs"), work.scalar(0.0))
    most = work.binary("max", i, work.binary("mask", passed, begun))
    i = work.unary(work.binary("sub", i, most), "exp")
    f = work.unary(work.binary("min", work.binary("sub", passed, most), work.scalar(0.0)), "exp")
    c = work.add(work.binary("mul", f, c), work.binary("mul", i, work.unary(z, "tanh")))
    n = work.add(work.binary("mul", f, n), i)
    y = work.binary("div", work.binary("mul", work.unary(o, "sigmoid"), c), work.affine(n, 1.0, EPS))
    return [y], [y, c, n, most]
