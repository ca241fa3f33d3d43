"""Expansion: each layer-level step becomes the few row-wise operations that fast devices implement."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

from volumetric._typing import ROWS
from volumetric.errors import UnsupportedError
from volumetric.layers import (
    MLP,
    Dense,
    Embedding,
    LayerNorm,
    MultiHeadAttention,
    PositionEmbedding,
    RMSNorm,
    Softcap,
    Softmax,
    SwiGLU,
)
from volumetric.runtime.lower import without_inert
from volumetric.runtime.plan import Plan, Step, Value

MATMUL_DEFAULTS: Mapping[str, Any] = MappingProxyType(
    {
        "norm": None,
        "norm_eps": 0.0,
        "norm_unit_offset": False,
        "combine": "concat",
        "activation": "linear",
        "residual": False,
        "softcap": None,
    }
)


def expand(plan: Plan) -> Plan:
    """Rewrite a layer-level plan with the operations embedding, norm, matmul, attend and the like."""
    plan = without_inert(plan)
    work = _Expansion(plan)
    for step in plan.steps:
        rule = RULES.get(step.op)
        if rule is None or not _by_rows(plan, step):
            raise UnsupportedError(
                f"layer {step.op!r} at {step.where} is no row-wise operation",
                hint="compile the plan on a device: it runs as tensor graphs there",
            )
        rule(work, step)
    return dataclasses.replace(plan, values=tuple(work.values), steps=tuple(work.steps))


def row_wise(plan: Plan) -> bool:
    """Whether `expand` can rewrite a plan: every layer has a rule here and works on rows of features."""
    plan = without_inert(plan)
    return all(step.op in RULES and _by_rows(plan, step) for step in plan.steps)


def _by_rows(plan: Plan, step: Step) -> bool:
    return all(len(plan.values[i].shape) <= 2 for i in (*step.inputs, *step.outputs))


class _Expansion:
    def __init__(self, plan: Plan) -> None:
        self.values = list(plan.values)
        self.steps: list[Step] = []

    def value(self, step: Step, name: str, width: int) -> int:
        self.values.append(Value(name=f"{step.where}.{name}", shape=(ROWS, width)))
        return len(self.values) - 1

    def emit(
        self, step: Step, op: str, inputs: tuple[int, ...], out: int, params: dict[str, str], **attrs: Any
    ) -> None:
        """Append a step in the place of `step`."""
        self.steps.append(
            dataclasses.replace(
                step,
                op=op,
                inputs=inputs,
                outputs=(out,),
                params=MappingProxyType(params),
                attrs=MappingProxyType(attrs),
                states=step.states if op == "attend" else MappingProxyType({}),
            )
        )

    def matmul(
        self, step: Step, x: int, out: int, names: tuple[str, ...], widths: tuple[int, ...], **attrs: Any
    ) -> None:
        """Emit one product with the matrices at the layer's paths `names`, biases where the layer has them."""
        params: dict[str, str] = {}
        for i, name in enumerate(names):
            params[f"weight.{i}"] = step.params[name + "weight"]
            if name + "bias" in step.params:
                params[f"bias.{i}"] = step.params[name + "bias"]
        self.emit(step, "matmul", (x,), out, params, **{**MATMUL_DEFAULTS, "parts": widths, **attrs})


def _embedding(work: _Expansion, step: Step) -> None:
    spec = cast("Embedding", step.attrs["spec"])
    work.emit(step, "embedding", step.inputs, step.outputs[0], dict(step.params), scale=spec.scale)


def _position_embedding(work: _Expansion, step: Step) -> None:
    spec = cast("PositionEmbedding", step.attrs["spec"])
    work.emit(step, "position_embedding", step.inputs, step.outputs[0], dict(step.params), offset=spec.offset)


def _norm(work: _Expansion, step: Step) -> None:
    spec = cast("RMSNorm | LayerNorm", step.attrs["spec"])
    kind, offset = ("rms", spec.unit_offset) if isinstance(spec, RMSNorm) else ("layer", False)
    attrs = {"kind": kind, "eps": spec.eps, "unit_offset": offset, "groups": 1}
    work.emit(step, "norm", step.inputs, step.outputs[0], dict(step.params), **attrs)


def _dense(work: _Expansion, step: Step) -> None:
    spec = cast("Dense", step.attrs["spec"])
    work.matmul(step, step.inputs[0], step.outputs[0], ("",), (spec.out_features,), activation=spec.activation)


def _swiglu(work: _Expansion, step: Step) -> None:
    spec = cast("SwiGLU", step.attrs["spec"])
    wide = spec.hidden_features
    hidden = work.value(step, "hidden", wide)
    gated = {"combine": "gated", "activation": spec.activation}
    work.matmul(step, step.inputs[0], hidden, ("gate.", "up."), (wide, wide), **gated)
    work.matmul(step, hidden, step.outputs[0], ("down.",), (spec.in_features,))


def _mlp(work: _Expansion, step: Step) -> None:
    spec = cast("MLP", step.attrs["spec"])
    hidden = work.value(step, "hidden", spec.hidden_features)
    work.matmul(step, step.inputs[0], hidden, ("up.",), (spec.hidden_features,), activation=spec.activation)
    work.matmul(step, hidden, step.outputs[0], ("down.",), (spec.in_features,))


def _attention(work: _Expansion, step: Step) -> None:
    spec = cast("MultiHeadAttention", step.attrs["spec"])
    q, kv = spec.num_heads * spec.width, spec.kv_heads * spec.width
    qkv = work.value(step, "qkv", q + 2 * kv)
    heads = work.value(step, "heads", q)
    work.matmul(step, step.inputs[0], qkv, ("q.", "k.", "v."), (q, kv, kv))
    params = {n: step.params[f"{n}.weight"] for n in ("q_norm", "k_norm") if spec.qk_norm}
    attrs = {
        "heads": spec.num_heads,
        "kv_heads": spec.kv_heads,
        "head_dim": spec.width,
        "scale": spec.factor,
        "causal": spec.causal,
        "window": spec.window,
        "softcap": spec.softcap,
        "qk_norm_eps": spec.qk_norm_eps,
        "qk_norm_unit_offset": spec.qk_norm_unit_offset,
        "rope": spec.rope,
    }
    work.emit(step, "attend", (qkv,), heads, params, **attrs)
    work.matmul(step, heads, step.outputs[0], ("o.",), (spec.embed_dim,))


def _softmax(work: _Expansion, step: Step) -> None:
    spec = cast("Softmax", step.attrs["spec"])
    work.emit(step, "softmax", step.inputs, step.outputs[0], {}, temperature=spec.temperature)


def _softcap(work: _Expansion, step: Step) -> None:
    spec = cast("Softcap", step.attrs["spec"])
    work.emit(step, "softcap", step.inputs, step.outputs[0], {}, cap=spec.cap)


def _as_is(work: _Expansion, step: Step) -> None:
    work.steps.append(step)


RULES: dict[str, Callable[[_Expansion, Step], None]] = {
    "embedding": _embedding,
    "position_embedding": _position_embedding,
    "rms_norm": _norm,
    "layer_norm": _norm,
    "dense": _dense,
    "swiglu": _swiglu,
    "mlp": _mlp,
    "multi_head_attention": _attention,
    "softmax": _softmax,
    "softcap": _softcap,
    "add": _as_is,
    "concat": _as_is,
}
"""Layer kind → how it is written for the fused plan; a network with another kind runs as tensor graphs."""
