"""The nodes of sLSTM, and what cells with heads share."""

from __future__ import annotations

from math import prod

from volumetric.graph.build import GraphBuilder
from volumetric.graph.numeric.slstm_cell import CELL as SLSTM_CELL
from volumetric.layers import SLSTM
from volumetric.layers.head_norm import EPS as NORM_EPS
from volumetric.layers.nodes.convolved import causal_conv
from volumetric.layers.scope import Scope, flat, start


def _gates(scope: Scope, spec: SLSTM, p: dict[str, int], seen: int, x: int) -> int:
    """Emit what gates i, f, z, o get from rows, side by side; i and f read another thing than z and o."""
    work, (heads, width), count = scope.work, spec.by_head, scope.work.shape(x)[:-1]
    rows = prod(count)
    # Groups of a product are the heads of gates i and f, then those of z and o.
    by_head = [work.permute(work.reshape(of, (rows, heads, width)), (1, 0, 2)) for of in (seen, x)]
    weights = [work.concat([p["i.weight"], p["f.weight"]], 1), work.concat([p["z.weight"], p["o.weight"]], 1)]
    bias = work.permute(work.reshape(p["bias"], (2, 2, heads, width)), (0, 2, 1, 3))
    bias = work.reshape(bias, (2 * heads, 2 * width))
    gates = work.gemm(work.concat(by_head, 0), work.concat(weights, 0), bias, trans_b=True)
    gates = work.permute(work.reshape(gates, (2, heads, rows, 2, width)), (2, 0, 3, 1, 4))
    return work.reshape(gates, (*count, 4 * spec.embed_dim))


def _gates_of_maps(scope: Scope, spec: SLSTM, seen: int, x: int) -> int:
    """The same from maps that remember."""
    work = scope.work
    made = [scope.child(name).emit(of, read) for (name, of), read in zip(spec.maps.items(), (seen, x), strict=True)]
    joined = work.concat(made, len(work.shape(x)) - 1)
    bias = scope.param("bias", (4, *spec.by_head))
    return work.binary("add", joined, work.reshape(bias, (4 * spec.embed_dim,)))


def head_norm(work: GraphBuilder, y: int, gain: int, x: int) -> int:
    """Emit the norm of each head of ``[B, T, heads, width]`` as rows like `x`."""
    normal = work.norm(flat(work, y), kind="layer", eps=NORM_EPS)
    return work.binary("mul", work.reshape(normal, work.shape(x)), gain)


def emit_slstm(scope: Scope, spec: SLSTM, x: int) -> int:
    """Emit an sLSTM."""
    work, (heads, width) = scope.work, spec.by_head
    p = {of.name: scope.param(of.name, of.shape) for of in spec.params() if "/" not in of.name}
    seen = causal_conv(scope, x, p["conv.weight"], p["conv.bias"], activation="silu") if spec.kernel_size else x
    from_x = scope.sequenced(_gates_of_maps(scope, spec, seen, x) if spec.maps else _gates(scope, spec, p, seen, x))
    batch, length, _ = work.shape(from_x)
    starts = [start(scope, x, name, (spec.embed_dim,)) for name in SLSTM_CELL.states]
    weight = work.reshape(p["r.weight"], (4 * spec.embed_dim, width))
    y, *others = work.recurrent(SLSTM_CELL.name, from_x, weight, starts, None, scope.kept_before(x))
    if scope.keeps_state(x) and length:
        ends = (work.reshape(work.last(y, 1), (batch, spec.embed_dim)), *others)
        for name, end in zip(SLSTM_CELL.states, ends, strict=False):
            scope.keep(name, end)
    return head_norm(work, work.reshape(y, (batch, length, heads, width)), p["norm.weight"], x)
