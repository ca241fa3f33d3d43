"""The nodes of attention: over the states of a sequence as one operation, or written out for whole sequences."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from volumetric._typing import Array
from volumetric.graph.build import GraphBuilder
from volumetric.graph.numeric.attention import seen_rows, temperature
from volumetric.graph.numeric.rope import rotation
from volumetric.graph.ops import HELD
from volumetric.layers import MultiHeadAttention
from volumetric.layers.nodes.places import Seen, cleaned, held_by, keep_last, mask_of, stand, warmth
from volumetric.layers.scope import Scope, linear


def emit_multi_head_attention(scope: Scope, spec: MultiHeadAttention, x: int) -> int:
    """Emit attention: on the rows of a call where the device has that, else written out."""
    work = scope.work
    if work.takes("attend", (x,), tuple(scope.params(spec).values())):
        return _over_states(scope, spec, x)
    rows = scope.sequenced(x)
    q, k, v = (_heads(scope, spec, name, rows) for name in ("q", "k", "v"))
    if work.shape(x)[0] and (held_by(scope, spec, x) is not None or scope.kept_before(x) is not None):
        return _from_anywhere(scope, spec, x, q, k, v)
    places = np.arange(work.shape(rows)[1])
    q, k = (_turned(work, spec, i, places) for i in (q, k))
    if spec.temperature_scale:
        factors = temperature(places, spec.temperature_scale, spec.temperature_every)
        q = work.binary("mul", q, work.constant(factors[:, None, None], "temperature"))
    seen = seen_rows(places, places, causal=spec.causal, window=spec.window, chunk=spec.chunk)
    mask = None if seen.all() else work.constant(seen.astype(np.float64), "mask")
    return _attend(scope, spec, x, q, k, v, Seen(mask))


def _from_anywhere(scope: Scope, spec: MultiHeadAttention, x: int, q: int, k: int, v: int) -> int:
    """Attention of rows that go on from states, or of sequences that begin anew inside of the call."""
    work, held = scope.work, held_by(scope, spec, x)
    places = stand(scope, x, held)
    length = work.shape(places)[1]
    if held is not None:
        k, v = work.concat((held.k, k), 1), work.concat((held.v, v), 1)
        keep_last(scope, spec, held, places, (k, v))
    every = work.shape(k)[1]
    # Scores go by distances alone, so that rows may turn as if all sequences began with the first row that is held.
    q = _turned(work, spec, q, np.arange(every - length, every))
    k = _turned(work, spec, k, np.arange(every))
    if spec.temperature_scale:
        q = work.binary("mul", q, warmth(work, spec, places))
    v, odd = cleaned(work, v)
    return _attend(scope, spec, x, q, k, v, Seen(mask_of(scope, spec, x, places, every - length), odd))


def _turned(work: GraphBuilder, spec: MultiHeadAttention, rows: int, places: Array) -> int:
    if spec.rope is None:
        return rows
    cos, sin = rotation(spec.rope, places)
    return work.rope(rows, work.constant(cos, "cos"), work.constant(sin, "sin"))


def _over_states(scope: Scope, spec: MultiHeadAttention, x: int) -> int:
    """Attention of the rows of a call over those that its sequence holds, as one node between two products."""
    work, p = scope.work, scope.params(spec)
    by_head = spec.qk_norm and spec.qk_norm_over != "all"
    with work.at(scope.path, mixes=False):
        if spec.qk_norm and not by_head:
            q, k = (_normed(scope, spec, p, name, linear(work, p, (name + ".",), x)) for name in ("q", "k"))
            qkv = work.concat((q, k, linear(work, p, ("v.",), x)), 1)
        else:
            qkv = linear(work, p, ("q.", "k.", "v."), x)
    given = {"qkv": qkv, "positions": work.positions()}
    given |= {n: p[f"{n}.weight"] for n in ("q_norm", "k_norm") if by_head and spec.qk_norm_gain}
    if spec.sinks:
        given["sinks"] = p["sinks"]
    if spec.causal and scope.resumes:
        given |= {name: scope.state(name, (HELD, spec.kv_heads, spec.width)) for name in ("k", "v")}
    made = work.emit(
        "attend",
        tuple(given.values()),
        roles=tuple(given),
        heads=spec.num_heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.width,
        scale=spec.factor,
        causal=spec.causal,
        window=spec.window,
        chunk=spec.chunk,
        softcap=spec.softcap,
        temperature_scale=spec.temperature_scale,
        temperature_every=spec.temperature_every,
        qk_norm=spec.qk_norm_kind if by_head else None,
        own_gains=by_head and spec.qk_norm_gain and spec.qk_norm_over == "each",
        qk_norm_eps=spec.qk_norm_eps,
        qk_norm_unit_offset=spec.qk_norm_unit_offset,
        rope=spec.rope,
    )
    with work.at(scope.path, mixes=False):
        return linear(work, p, ("o.",), made[0])


def _heads(scope: Scope, spec: MultiHeadAttention, name: Literal["q", "k", "v"], rows: int) -> int:
    """Project to queries, keys or values ``[B, T, heads, width]``; queries and keys are normalised."""
    work, p = scope.work, scope.params(spec)
    batch, length, _ = work.shape(rows)
    count, width = spec.num_heads if name == "q" else spec.kv_heads, spec.width
    y = linear(work, p, (name + ".",), rows)
    if name != "v" and spec.qk_norm:
        wide = count * width if spec.qk_norm_over == "all" else width
        y = _normed(scope, spec, p, name, work.reshape(y, (batch * length * count * width // wide, wide)))
    return work.reshape(y, (batch, length, count, width))


def _normed(scope: Scope, spec: MultiHeadAttention, p: Mapping[str, int], name: str, rows: int) -> int:
    """Emit the norm of rows of queries or keys, each a head or all of them."""
    work, kind, eps = scope.work, spec.qk_norm_kind, spec.qk_norm_eps
    if not spec.qk_norm_gain:
        return work.norm(rows, kind=kind, eps=eps)
    gain = p[f"{name}_norm.weight"]
    if spec.qk_norm_over != "each":
        return work.norm(rows, gain, kind=kind, eps=eps, unit_offset=spec.qk_norm_unit_offset)
    gain = work.affine(gain, 1.0, 1.0) if spec.qk_norm_unit_offset else gain
    every, width = work.shape(rows)
    count = work.shape(gain)[0] // width
    normal = work.reshape(work.norm(rows, kind=kind, eps=eps), (every // count, count, width))
    return work.reshape(work.binary("mul", normal, work.reshape(gain, (count, width))), (every, width))


def _attend(scope: Scope, spec: MultiHeadAttention, x: int, q: int, k: int, v: int, seen: Seen) -> int:
    """Emit attention of the queries ``[B, T, heads, width]`` over the keys and values ``[B, S, …]``, projected back.

    The output has the leading axes of `x`, the layer's input.
    """
    work = scope.work
    batch, length, _, width = work.shape(q)
    kv, every = spec.kv_heads, work.shape(k)[1]
    shared, groups = spec.num_heads // kv, batch * kv
    # Query heads that share a key head are the outer axis, so that keys and values simply go round in the products.
    q = work.reshape(q, (batch, length, kv, shared, width))
    q = work.reshape(work.permute(q, (3, 0, 2, 1, 4)), (shared * groups, length, width))
    sinks = None
    if spec.sinks:
        own = work.permute(work.reshape(scope.params(spec)["sinks"], (kv, shared)), (1, 0))
        own = work.broadcast(work.reshape(own, (shared, 1, kv, 1)), (shared, batch, kv, length))
        sinks = work.reshape(own, (shared * groups, length, 1))
    k, v = (work.reshape(work.permute(i, (0, 2, 1, 3)), (groups, every, width)) for i in (k, v))
    scores = work.gemm(work.affine(q, spec.factor), k, trans_b=True)  # q has fewer elements than the scores
    if spec.softcap is not None:
        scores = work.affine(work.unary(work.affine(scores, 1 / spec.softcap), "tanh"), spec.softcap)
    if seen.odd is not None:
        odd = work.reshape(work.permute(seen.odd, (0, 2, 3, 1)), (1, groups, 1, every))
        by_group = work.binary("add", work.reshape(scores, (shared, groups, length, every)), odd)
        scores = work.reshape(by_group, (shared * groups, length, every))
    if seen.mask is not None:
        scores = _masked(work, scores, seen.mask, kv)
    joined = work.reshape(work.gemm(_softmax(work, scores, sinks), v), (shared, batch, kv, length, width))
    joined = work.permute(joined, (1, 3, 2, 0, 4))
    joined = work.reshape(joined, (*work.shape(x)[:-1], spec.num_heads * width))
    return linear(work, scope.params(spec), ("o.",), joined)


def _masked(work: GraphBuilder, scores: int, mask: int, kv: int) -> int:
    """Emit the scores ``[shared · B · kv, T, S]`` of what a mask ``[T, S]`` or ``[B, T, S]`` shows, else -inf."""
    groups, length, every = work.shape(scores)
    if len(work.shape(mask)) == 2:
        return work.binary("mask", scores, mask)
    batch = work.shape(mask)[0]
    apart = work.reshape(scores, (groups // (batch * kv), batch, kv, length * every))
    mask = work.reshape(mask, (1, batch, 1, length * every))
    return work.reshape(work.binary("mask", apart, mask), (groups, length, every))


def _softmax(work: GraphBuilder, scores: int, sinks: int | None) -> int:
    """Emit ``softmax(scores)``, ``[groups, T, S]``; `sinks` ``[groups, T, 1]`` are logits that join it and leave it."""
    groups, length, every = work.shape(scores)
    if sinks is not None:
        scores = work.concat((scores, sinks), 2)
    wide = work.shape(scores)[2]
    y = work.reshape(work.softmax(work.reshape(scores, (groups * length, wide))), (groups, length, wide))
    return y if sinks is None else work.part(y, 2, 0, every)
