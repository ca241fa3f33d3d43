"""Rules of layers that treat each row on its own: affine maps, blocks, norms, lookups, kmeans."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from volumetric.errors import ShapeError
from volumetric.graph.build import GraphBuilder
from volumetric.runtime.graph.rules.base import Scope, flat, gated, linear, rule, scaled

if TYPE_CHECKING:
    from volumetric.layers import (
        MLP,
        Clamp,
        Dense,
        Discrete,
        Embedding,
        Gate,
        KMeans,
        LayerNorm,
        PositionEmbedding,
        RMSNorm,
        Scale,
        Softcap,
        SwiGLU,
    )


@rule("dense")
def _dense(scope: Scope, spec: Dense, x: int) -> int:
    return linear(scope.work, scope.params(spec), ("",), x, activation=spec.activation)


@rule("mlp")
def _mlp(scope: Scope, spec: MLP, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    return linear(work, p, ("down.",), linear(work, p, ("up.",), x, activation=spec.activation))


@rule("swiglu")
def _swiglu(scope: Scope, spec: SwiGLU, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    if spec.gate_factor != 1:
        gate = scaled(work, linear(work, p, ("gate.",), x), spec.gate_factor)
        return linear(work, p, ("down.",), gated(work, gate, linear(work, p, ("up.",), x), spec.activation))
    bounds = {"limit": spec.limit, "up_offset": spec.up_offset}
    hidden = linear(work, p, ("gate.", "up."), x, activation=spec.activation, combine="gated", **bounds)
    return linear(work, p, ("down.",), hidden)


@rule("rms_norm")
def _rms_norm(scope: Scope, spec: RMSNorm, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    y = work.norm(flat(work, x), p["weight"], kind="rms", eps=spec.eps, unit_offset=spec.unit_offset)
    return work.reshape(y, work.shape(x))


@rule("layer_norm")
def _layer_norm(scope: Scope, spec: LayerNorm, x: int) -> int:
    work, p = scope.work, scope.params(spec)
    return work.reshape(work.norm(flat(work, x), p["weight"], p.get("bias"), kind="layer", eps=spec.eps), work.shape(x))


@rule("embedding")
def _embedding(scope: Scope, spec: Embedding, ids: int) -> int:
    work, table = scope.work, scope.params(spec)["weight"]
    if work.takes("embedding", (ids,), (table,)):
        return work.emit("embedding", (ids, table), roles=("ids", "weight"), scale=float(spec.scale))[0]
    return work.affine(work.gather_rows(table, ids), spec.scale)


@rule("position_embedding")
def _position_embedding(scope: Scope, spec: PositionEmbedding, x: int) -> int:
    work, table = scope.work, scope.params(spec)["weight"]
    if work.takes("position_embedding", (x,), (table,)):
        roles = ("x", "positions", "weight")
        inputs = (x, work.positions(), table)
        return work.emit("position_embedding", inputs, roles=roles, offset=spec.offset)[0]
    rows = scope.sequenced(x)
    end = spec.offset + work.shape(rows)[1]
    if end > spec.num_embeddings:
        raise ShapeError(f"position {end - 1} is beyond the {spec.num_embeddings} learned positions at {scope.path}")
    return work.reshape(work.binary("add", rows, work.part(table, 0, spec.offset, end)), work.shape(x))


@rule("softcap")
def _softcap(scope: Scope, spec: Softcap, x: int) -> int:
    work = scope.work
    if work.takes("softcap", (x,)):
        return work.emit("softcap", (x,), cap=float(spec.cap))[0]
    return work.affine(work.unary(work.affine(x, 1 / spec.cap), "tanh"), spec.cap)


@rule("scale")
def _scale(scope: Scope, spec: Scale, x: int) -> int:
    return scaled(scope.work, x, spec.factor)


@rule("clamp")
def _clamp(scope: Scope, spec: Clamp, x: int) -> int:
    work = scope.work
    if spec.min is not None:
        x = work.binary("max", x, work.scalar(spec.min))
    return x if spec.max is None else work.binary("min", x, work.scalar(spec.max))


@rule("discrete")
def _discrete(scope: Scope, spec: Discrete, x: int) -> int:
    work = scope.work
    y = sent(work, spec, x)
    if spec.surrogate == "none":
        return y
    c, constant = (_surrogate(work, spec, x) for _ in range(2))
    work.detached.add(constant)
    return work.add(y, work.binary("sub", c, constant))  # plus 0: the surrogate's gradient, and the very values


def sent(work: GraphBuilder, spec: Discrete, x: int) -> int:
    """Emit what a discrete layer makes of `x`; NaN stays."""
    zero = work.scalar(0.0)
    if spec.function == "ternary":
        above = work.binary("max", work.unary(work.affine(x, 1.0, -spec.threshold), "sign"), zero)
        return work.add(above, work.binary("min", work.unary(work.affine(x, 1.0, spec.threshold), "sign"), zero))
    y = work.unary(x, "sign")
    return work.binary("max", y, zero) if spec.function == "step" else y


def _surrogate(work: GraphBuilder, spec: Discrete, x: int) -> int:
    """Emit a function of `x` with the derivative of the surrogate."""
    near = work.binary("min", work.binary("max", x, work.scalar(-1.0)), work.scalar(1.0))
    if spec.surrogate == "clip":
        return near
    return work.binary("sub", near, work.affine(work.binary("mul", near, work.unary(near, "abs")), 0.5))


@rule("gate")
def _gate(scope: Scope, spec: Gate, x: int) -> int:
    work = scope.work
    activation = "sigmoid" if spec.scoring == "sigmoid" else "linear"
    y = flat(work, linear(work, scope.params(spec), ("",), x, activation=activation))
    if spec.scoring == "softmax_all":
        y = work.softmax(y)
    if spec.top_k is not None and spec.top_k < spec.out_features:
        y = work.keep_largest(y, spec.top_k)
        if spec.scoring != "softmax":  # scores are not below 0: what is not kept becomes 0, and NaN stays
            native = work.takes("activate", (y,))
            y = work.emit("activate", (y,), activation="relu")[0] if native else work.unary(y, "relu")
    if spec.scoring == "softmax":
        y = work.softmax(y)
    return work.reshape(y, (*work.shape(x)[:-1], spec.out_features))


@rule("kmeans")
def _kmeans(scope: Scope, spec: KMeans, x: int) -> int:
    work, centers = scope.work, scope.params(spec)["centers"]
    clusters, width = work.shape(centers)
    middle = work.reduce(centers, "mean", (0,))
    work.detached.add(middle)  # the assignment does not depend on it: it only keeps numbers small
    rows, at = work.binary("sub", flat(work, x), middle), work.binary("sub", centers, middle)
    norms = work.reshape(work.reduce(work.unary(at, "square"), "sum", (1,)), (clusters,))
    count = prod(work.shape(x)[:-1])
    logits = work.gemm(
        work.reshape(rows, (1, count, width)),
        work.reshape(at, (1, clusters, width)),
        work.affine(norms, -0.5),
        trans_b=True,
    )
    logits = work.affine(work.reshape(logits, (count, clusters)), 1 / spec.temperature**2)
    y = work.softmax(logits)
    if spec.output == "features":
        y = work.gemm(work.reshape(y, (1, count, clusters)), work.reshape(centers, (1, clusters, width)))
    return work.reshape(y, spec.output_shape(work.shape(x)))
