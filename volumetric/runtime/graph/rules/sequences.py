"""Rules of layers that look at other rows: attention and the recurrent ones."""

from __future__ import annotations

from typing import Literal

import numpy as np

from volumetric._typing import Array
from volumetric.layers import GRU, LSTM, RNN, MultiHeadAttention
from volumetric.layers.rope import rotation
from volumetric.runtime.graph.rules.base import Scope, affine, rule


@rule("multi_head_attention")
def _attention(scope: Scope, spec: MultiHeadAttention, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    rows = scope.sequenced(x)
    batch, length, _ = work.shape(rows)
    shared, width = spec.num_heads // spec.kv_heads, spec.width
    groups = batch * spec.kv_heads
    # Query heads that share a key head are the outer axis, so that keys and values simply go round in the products.
    q = work.reshape(_heads(scope, spec, p, "q", rows), (batch, length, spec.kv_heads, shared, width))
    q = work.reshape(work.permute(q, (3, 0, 2, 1, 4)), (shared * groups, length, width))
    k, v = (
        work.reshape(work.permute(_heads(scope, spec, p, name, rows), (0, 2, 1, 3)), (groups, length, width))
        for name in ("k", "v")
    )
    probs = _probabilities(scope, spec, q, k, length)
    joined = work.reshape(work.gemm(probs, v), (shared, batch, spec.kv_heads, length, width))
    joined = work.permute(joined, (1, 3, 2, 0, 4))
    joined = work.reshape(joined, (*work.shape(x)[:-1], spec.num_heads * width))
    return affine(work, p, "o.", joined)


def _heads(scope: Scope, spec: MultiHeadAttention, p: dict[str, int], name: Literal["q", "k", "v"], rows: int) -> int:
    """Project to heads ``[B, T, heads, width]``, normalised and turned where that applies."""
    work = scope.work
    batch, length, _ = work.shape(rows)
    count, width = spec.num_heads if name == "q" else spec.kv_heads, spec.width
    y = affine(work, p, name + ".", rows)
    if name != "v" and spec.qk_norm:
        gain, eps = p[f"{name}_norm.weight"], spec.qk_norm_eps
        y = work.reshape(y, (batch * length * count, width))
        y = work.norm(y, gain, kind="rms", eps=eps, unit_offset=spec.qk_norm_unit_offset)
    y = work.reshape(y, (batch, length, count, width))
    if name == "v" or spec.rope is None:
        return y
    cos, sin = rotation(spec.rope, np.arange(length))
    return work.rope(y, work.constant(cos, "cos"), work.constant(sin, "sin"))


def _probabilities(scope: Scope, spec: MultiHeadAttention, q: int, k: int, length: int) -> int:
    """Emit ``softmax(scores)``, ``[groups, T, T]``."""
    work = scope.work
    scores = work.gemm(work.affine(q, spec.factor), k, trans_b=True)  # q has fewer elements than the scores
    if spec.softcap is not None:
        scores = work.affine(work.unary(work.affine(scores, 1 / spec.softcap), "tanh"), spec.softcap)
    seen = _seen(spec, length)
    if not seen.all():
        scores = work.binary("mask", scores, work.constant(seen, "mask"))
    shape = work.shape(scores)
    return work.reshape(work.softmax(work.reshape(scores, (shape[0] * length, length))), shape)


def _seen(spec: MultiHeadAttention, length: int) -> Array:
    """Which rows (columns) each row sees, 0 or 1."""
    distance = np.arange(length)[:, None] - np.arange(length)
    seen = distance >= 0 if spec.causal else np.ones_like(distance, bool)
    if spec.window is not None:
        seen = seen & (np.abs(distance) < spec.window)
    return seen.astype(np.float64)


@rule("rnn", "lstm", "gru")
def _recurrent(scope: Scope, spec: RNN | LSTM | GRU, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    rows = scope.sequenced(x)
    batch, length, _ = work.shape(rows)
    size = spec.hidden_size
    keys = [f"state/{scope.path}/{name}" for name in spec.states]
    remember = scope.remember and len(work.shape(x)) == 2  # with more axes every row is a sample of its own
    if remember:
        states = [work.stored(key, (batch, size)) for key in keys]
    else:
        states = [work.constant(np.zeros((batch, size)), "start")] * len(keys)
    cell = f"rnn_{spec.nonlinearity}" if isinstance(spec, RNN) else spec.kind
    y, *kept = work.recurrent(cell, affine(work, p, "ih.", rows), p["hh.weight"], states, p.get("hh.bias"))
    if remember and length:
        ends = [(y, 0), *((k, 4 * size) for k in kept if cell == "lstm")]
        for key, (of, start) in zip(keys, ends, strict=True):
            last = work.slice(of, (0, length - 1, start), (batch, length, start + size))
            work.assign(key, work.reshape(last, (batch, size)))
    return work.reshape(y, (*work.shape(x)[:-1], size))
