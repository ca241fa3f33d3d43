"""Fused row operations: fast devices run them on packed weights and on the states of sequences.

``gated``       a, b → ``act(a) · b``. ``activation``; ``limit`` and ``up_offset`` as in ``linear``.
``linear``      x [, residual], weight.i [Nᵢ,K] …, bias.i [Nᵢ] … [, norm.weight [K] [, norm.bias]] → y. With
                ``n = norm(x)`` (``norm`` None, rms, layer; ``norm_eps``, ``norm_unit_offset`` as in ``norm``):
                ``combine`` concat: ``act(n Wᵢᵀ + bᵢ)`` concatenated; gated: ``act(n W₀ᵀ + b₀) · (n W₁ᵀ + b₁)``.
                ``limit`` and ``up_offset`` change the factors of a gated one, as in `layers.SwiGLU`.
                Then ``+ residual``; then ``softcap · tanh(y / softcap)`` unless None. ``activation``; ``parts``: (Nᵢ).
``lookup``      ids int32 [ROWS], weight [V,D] [, x] → ``scale · weight[ids + offset]`` [+ x].
``attend``      qkv [ROWS, (heads + 2 kv_heads) · head_dim], positions [, q_norm [head_dim], k_norm] [, sinks [heads]]
                [, k, v: states [HELD, kv_heads, head_dim]] → y [ROWS, heads · head_dim] [, k, v with the new rows].
                Head norms (``qk_norm`` rms, layer, None; ``qk_norm_eps``, ``qk_norm_unit_offset``; with
                ``own_gains`` they are [heads · head_dim] and [kv_heads · head_dim]), ``rope``
                (`numeric.rope.Rope` or None), then attention, see `layers.attention`: ``heads kv_heads head_dim
                scale causal window chunk softcap temperature_scale temperature_every``. Without states, rows see
                only rows of their call.
``mix``         weights [ROWS,n], n x → Σ weightᵢ · xᵢ, without those of weight 0, even if NaN. If not ``weighted``,
                the sum of the xᵢ whose weight is not 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.numeric.activations import activate, check_activation
from volumetric.graph.numeric.attention_mask import attention_mask, temperature
from volumetric.graph.numeric.norms import rms_norm, without_mean
from volumetric.graph.numeric.rope import rotate
from volumetric.graph.numeric.softmax import softmax
from volumetric.graph.operations.operation import Attrs, axes_of, declare, float_output, require, require_floats
from volumetric.graph.ops import HELD, Tensor

if TYPE_CHECKING:
    from volumetric.graph.build import GraphBuilder

LINEAR = MappingProxyType(
    {
        "norm": None,
        "norm_eps": 0.0,
        "norm_unit_offset": False,
        "combine": "concat",
        "activation": "linear",
        "residual": False,
        "softcap": None,
        "limit": None,
        "up_offset": 0.0,
    }
)
"""Attributes of a `linear` that is only a product, except ``parts`` and ``roles``."""


def inputs_by_role(inputs: Sequence[Any], attrs: Attrs) -> dict[str, Any]:
    """Return the inputs of a node by role."""
    return dict(zip(attrs["roles"], inputs, strict=True))


def infer_linear(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    """Check a `linear` and return its output."""
    require_floats("linear", inputs)
    check_activation(attrs["activation"])
    by_role = inputs_by_role(inputs, attrs)
    rows, k = axes_of("linear", by_role["x"], 2)
    parts = attrs["parts"]
    for i, n in enumerate(parts):
        require(by_role[f"weight.{i}"].shape == (n, k), "linear", f"weight.{i} needs shape {[n, k]}")
        require(by_role.get(f"bias.{i}", float_output("", n)).shape == (n,), "linear", f"bias.{i} needs {n} elements")
    for name in ("norm.weight", "norm.bias"):
        require(by_role.get(name, float_output("", k)).shape == (k,), "linear", f"{name} needs {k} elements")
    if attrs["combine"] not in ("concat", "gated") or attrs["norm"] not in (None, "rms", "layer"):
        raise SpecError(f"linear: unknown combine {attrs['combine']!r} or norm {attrs['norm']!r}")
    gated = attrs["combine"] == "gated"
    require(not gated or (len(parts) == 2 and parts[0] == parts[1]), "linear", "a gate needs two equal parts")
    product = float_output("product", rows, parts[0] if gated else sum(parts))
    require(
        by_role.get("residual", product).shape == product.shape,
        "linear",
        f"the residual needs shape {list(product.shape)}",
    )
    return [product]


def _apply_norm(x: Array, by_role: dict[str, Array], attrs: Attrs) -> Array:
    if attrs["norm"] is None:
        return x
    gain = by_role.get("norm.weight", np.ones(x.shape[1], x.dtype))
    gain = gain + 1 if attrs["norm_unit_offset"] else gain
    if attrs["norm"] == "layer":
        x = without_mean(x)
    return rms_norm(x, gain, attrs["norm_eps"])[0] + by_role.get("norm.bias", x.dtype.type(0))


def run_linear(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Compute a `linear`."""
    by_role = inputs_by_role(inputs, attrs)
    x = _apply_norm(by_role["x"], by_role, attrs)
    products = [
        x @ by_role[f"weight.{i}"].T + by_role.get(f"bias.{i}", x.dtype.type(0)) for i in range(len(attrs["parts"]))
    ]
    if attrs["combine"] == "gated":
        y = _apply_gate(products[0], products[1], attrs)
    else:
        y = np.concatenate([activate(attrs["activation"], part) for part in products], 1)
    y = y + by_role["residual"] if "residual" in by_role else y
    return [_apply_softcap(y, attrs["softcap"])]


def linear_nodes(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int]:
    """Emit a `linear` without norm and epilogue, on the last axis of x, in general operations."""
    by_role = inputs_by_role(inputs, attrs)
    x, activation = by_role["x"], attrs["activation"]

    def product(i: int, name: str) -> int:
        *lead, width = work.shape(x)
        weight = by_role[f"weight.{i}"]
        rows, wide = prod(lead), work.shape(weight)[0]
        a, b = work.reshape(x, (1, rows, width)), work.reshape(weight, (1, wide, width))
        y = work.unary(work.gemm(a, b, by_role.get(f"bias.{i}"), trans_b=True), name)
        return work.reshape(y, (*lead, wide))

    if attrs["combine"] == "concat":
        products = [product(i, activation) for i in range(len(attrs["parts"]))]
        return (work.concat(products, len(work.shape(x)) - 1),)
    if attrs["limit"] is not None:
        return gate_nodes(work, attrs, (product(0, "linear"), product(1, "linear")))
    return (work.binary("mul", product(0, activation), product(1, "linear")),)


def _apply_gate(gate: Array, up: Array, attrs: Attrs) -> Array:
    if attrs["limit"] is not None:
        limit = gate.dtype.type(attrs["limit"])
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit) + gate.dtype.type(attrs["up_offset"])
    return activate(attrs["activation"], gate) * up


def _apply_softcap(y: Array, cap: float | None) -> Array:
    return y if cap is None else y.dtype.type(cap) * np.tanh(y / y.dtype.type(cap))


def _infer_lookup(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    ids, weight, *others = inputs
    require_floats("lookup", [weight, *others])
    require(ids.dtype == "int32", "lookup", "ids must be int32")
    (rows,), (_, width) = axes_of("lookup", ids, 1), axes_of("lookup", weight, 2)
    require(all(x.shape == (rows, width) for x in others), "lookup", f"x needs shape {[rows, width]}")
    return [float_output("rows", rows, width)]


def _run_lookup(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    ids, weight, *others = inputs
    rows = weight[ids + attrs["offset"]] * weight.dtype.type(attrs["scale"])
    return [sum(others, rows)]


def _infer_attend(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    by_role = inputs_by_role(inputs, attrs)
    rows, width = axes_of("attend", by_role["qkv"], 2)
    heads, kv, size = attrs["heads"], attrs["kv_heads"], attrs["head_dim"]
    require(
        width == (heads + 2 * kv) * size,
        "attend",
        f"qkv needs {heads} + 2 · {kv} heads of {size} elements, got {width}",
    )
    require(by_role["positions"].shape == (rows,), "attend", "positions need an element for each row")
    require(("k" in by_role) == ("v" in by_role), "attend", "the states k and v must be passed together")
    require(
        by_role.get("sinks", float_output("", heads)).shape == (heads,), "attend", "sinks need an element for each head"
    )
    for name, count in (("q_norm", heads), ("k_norm", kv)):
        wide = count * size if attrs["own_gains"] else size
        require(by_role.get(name, float_output("", wide)).shape == (wide,), "attend", f"{name} needs {wide} elements")
    states = [by_role[name] for name in ("k", "v") if name in by_role]
    require(all(t.shape == (HELD, kv, size) for t in states), "attend", f"states need shape [HELD, {kv}, {size}]")
    return [float_output("heads", rows, heads * size), *(Tensor(name=t.name, shape=t.shape, key=t.key) for t in states)]


def softmax_with_sinks(scores: Array, sinks: Array | None) -> Array:
    """Return the softmax over the last axis of ``[..., H, T, S]`` with one extra logit per head, without its share."""
    if sinks is None:
        return softmax(scores)
    column = np.broadcast_to(sinks.astype(scores.dtype)[:, None, None], (*scores.shape[:-1], 1))
    return softmax(np.concatenate([scores, column], axis=-1))[..., :-1]


def _run_attend(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    """Compute attention of the rows of a call, ``[T, heads · head_dim]``, and the new keys and values."""
    by_role = inputs_by_role(inputs, attrs)
    heads, kv, size = attrs["heads"], attrs["kv_heads"], attrs["head_dim"]
    every = by_role["qkv"].reshape(len(by_role["qkv"]), heads + 2 * kv, size)
    places = by_role["positions"]
    q, k = every[:, :heads], every[:, heads : heads + kv]
    q, k = (_norm_and_rotate(part, by_role.get(name), places, attrs) for part, name in ((q, "q_norm"), (k, "k_norm")))
    keys_values = [np.ascontiguousarray(part) for part in (k, every[:, heads + kv :])]
    there = places
    if "k" in by_role:
        first = int(places[0]) if len(places) else 0
        keys_values = [
            np.concatenate([by_role[n][:first], new]) for n, new in zip(("k", "v"), keys_values, strict=True)
        ]
        there = np.arange(len(keys_values[0]))
    if attrs["temperature_scale"]:
        factors = temperature(places, attrs["temperature_scale"], attrs["temperature_every"])
        q = q * factors.astype(q.dtype)[:, None, None]
    q = q.swapaxes(0, 1)
    k, v = (np.repeat(part.swapaxes(0, 1), heads // kv, axis=0) for part in keys_values)
    scores = _apply_softcap(q @ k.swapaxes(1, 2) * q.dtype.type(attrs["scale"]), attrs["softcap"])
    mask = attention_mask(places, there, causal=attrs["causal"], window=attrs["window"], chunk=attrs["chunk"])
    sinks = by_role.get("sinks")
    y = softmax_with_sinks(np.where(mask, scores, scores.dtype.type(-np.inf)), sinks) @ v
    joined = np.ascontiguousarray(y.swapaxes(0, 1).reshape(len(places), heads * size))
    return [joined, *(keys_values if "k" in by_role else [])]


def _norm_and_rotate(heads: Array, gain: Array | None, places: Array, attrs: Attrs) -> Array:
    """Apply the norm and rope to queries or keys ``[T, heads, head_dim]``."""
    if attrs["qk_norm"] is not None:
        gain = np.ones(heads.shape[-1], heads.dtype) if gain is None else gain
        gain = gain + 1 if attrs["qk_norm_unit_offset"] else gain
        gain = gain.reshape(heads.shape[1:]) if attrs["own_gains"] else gain
        heads = without_mean(heads) if attrs["qk_norm"] == "layer" else heads
        heads = rms_norm(heads, gain, attrs["qk_norm_eps"])[0]
    return heads if attrs["rope"] is None else rotate(attrs["rope"], heads, places)


def _infer_mix(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("mix", inputs)
    weights, *branches = inputs
    rows, count = axes_of("mix", weights, 2)
    require(count == len(branches) > 0, "mix", f"got {count} weights for {len(branches)} branches")
    require(len({t.shape for t in branches}) == 1, "mix", "all branches need one shape")
    require(branches[0].shape[0] == rows, "mix", "weights and branches need the same rows")
    return [float_output("mixture", *branches[0].shape)]


def _run_mix(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    weights, *branches = inputs
    total = np.zeros_like(branches[0])
    for i, branch in enumerate(branches):
        weight = weights[:, i : i + 1]
        weight = weight if attrs["weighted"] else (weight != 0).astype(weight.dtype)
        total = total + np.where(weight == 0, 0, branch * weight)
    return [total]


def mix_nodes(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int]:
    """Emit a `mix` of values with any axes in general operations."""
    weights, *branches = inputs
    factors = work.split(weights, [1] * len(branches), len(work.shape(weights)) - 1)
    if not attrs["weighted"]:  # the sign of a weight, which is not negative, selects the branch
        factors = [work.unary(factor, "sign") for factor in factors]
    pairs = zip(branches, factors, strict=True)
    return (work.add(*(work.binary("mul_nonzero", branch, factor) for branch, factor in pairs)),)


def _infer_gated(inputs: Sequence[Tensor], attrs: Attrs) -> list[Tensor]:
    require_floats("gated", inputs)
    check_activation(attrs["activation"])
    gate, up = inputs
    require(gate.shape == up.shape, "gated", "both inputs need one shape")
    return [float_output("gated", *axes_of("gated", gate, 2))]


def gate_nodes(work: GraphBuilder, attrs: Attrs, inputs: Sequence[int]) -> tuple[int]:
    """Emit ``act(a) · b`` in general operations."""
    gate, up = inputs
    if attrs["limit"] is not None:
        limit = attrs["limit"]
        gate, up = (work.binary("min", of, work.scalar(limit)) for of in (gate, up))
        up = work.affine(work.binary("max", up, work.scalar(-limit)), 1.0, attrs["up_offset"])
    return (work.binary("mul", work.unary(gate, attrs["activation"]), up),)


declare("gated", _infer_gated, lambda inputs, attrs: [_apply_gate(inputs[0], inputs[1], attrs)], written_out=gate_nodes)
declare("linear", infer_linear, run_linear, written_out=linear_nodes)
declare("lookup", _infer_lookup, _run_lookup)
declare("attend", _infer_attend, _run_attend)
declare("mix", _infer_mix, _run_mix, written_out=mix_nodes)
