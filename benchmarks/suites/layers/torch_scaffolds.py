"""Scaffolds and columns in PyTorch's own operations, around layers that the worker builds. Part of `torch_worker`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

Params = Mapping[str, Any]
KINDS = ("pass_through", "pre_up", "pre_up_gated", "post_up", "post_up_gated", "adapter", "column")


def build(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    """Return the function of a layer on ``[B, T, width]``; `layers` is the worker's."""
    kind = spec["kind"].removesuffix("_gated")
    if kind == "column":
        return _column(layers, spec, p, [_inner(layers, of, p, str(i)) for i, of in enumerate(spec["experts"])])
    core = _inner(layers, spec["core"], p, "core")
    return core if kind == "pass_through" else globals()[f"_{kind}"](layers, spec, p, core)


def _inner(layers: Any, spec: Mapping[str, Any], p: Params, path: str) -> Callable[[Any], Any]:
    start = path + "/"
    return layers.build(spec, {name[len(start) :]: value for name, value in p.items() if name.startswith(start)})


def _norm(layers: Any, x: Any, p: Params, name: str) -> Any:
    return layers.F.layer_norm(x, x.shape[-1:], p[f"{name}.weight"], p.get(f"{name}.bias"))


def _join(layers: Any, p: Params, name: str, x: Any, f: Any) -> Any:
    if f"{name}.bias" not in p:
        return x + f

    def product(matrix: str, of: Any) -> Any:
        return layers.affine(p, f"{name}.{matrix}.", of)

    r = (product("wr", f) + product("ur", x)).sigmoid()
    z = (product("wz", f) + product("uz", x) - p[f"{name}.bias"]).sigmoid()
    return (1 - z) * x + z * (product("wg", f) + product("ug", r * x)).tanh()


def _pre_up(layers: Any, spec: Mapping[str, Any], p: Params, core: Callable[[Any], Any]) -> Callable[[Any], Any]:
    plain = spec["activate_input"] is False or (
        spec["activate_input"] is None and spec["core"].get("projection") == "dense" and spec["core"]["kind"] == "mlstm"
    )

    def run(x: Any) -> Any:
        a, z = layers.affine(p, "in.", _norm(layers, x, p, "norm")).chunk(2, -1)
        beside = layers.F.silu(a)
        whole = core(a if plain else beside) + p["skip"] * beside
        return _join(layers, p, "gate", x, layers.affine(p, "out.", whole * layers.F.silu(z)))

    return run


def _post_up(layers: Any, spec: Mapping[str, Any], p: Params, core: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(x: Any) -> Any:
        h = _join(layers, p, "gate1", x, core(_norm(layers, x, p, "norm1")))
        hidden = layers.F.silu(layers.affine(p, "up.", _norm(layers, h, p, "norm2")))
        return _join(layers, p, "gate2", h, layers.affine(p, "down.", hidden))

    return run


def _adapter(layers: Any, spec: Mapping[str, Any], p: Params, core: Callable[[Any], Any]) -> Callable[[Any], Any]:
    act = layers.act(spec["activation"])

    def run(x: Any) -> Any:
        h = core(x)
        return h + p["gate"] * layers.affine(p, "up.", act(layers.affine(p, "down.", _norm(layers, h, p, "norm"))))

    return run


def _column(
    layers: Any, spec: Mapping[str, Any], p: Params, experts: list[Callable[[Any], Any]]
) -> Callable[[Any], Any]:
    torch, keys = layers.torch, spec["key_dim"] or spec["embed_dim"]
    size = math.sqrt(keys) if spec["scale"] == "root" else keys
    local = spec["refine_temperature"] * math.sqrt(spec["refine_dim"] or spec["embed_dim"])

    def run(x: Any) -> Any:
        u = layers.F.rms_norm(x, x.shape[-1:], p["norm.weight"], spec["eps"])
        changes = torch.stack([expert(u) - u for expert in experts], -2)
        prior = (p["prior.keys"] @ p["prior.k.weight"].T) @ (p["prior.q.weight"] @ p["prior.context"])
        logits = prior / (size * spec["temperature"])
        if spec["refine"]:
            logits = logits + spec["refine"] / local * (layers.affine(p, "refine.q.", u) @ p["refine.keys"].T)
        asked = layers.affine(p, "mix.q.", u)[..., None, :] + p["mix.bias"]
        looks = (asked @ layers.affine(p, "mix.k.", changes).transpose(-1, -2) / math.sqrt(keys)).softmax(-1)
        mixed = changes + layers.affine(p, "mix.out.", looks @ layers.affine(p, "mix.v.", changes))
        whole = (logits.softmax(-1)[..., None] * mixed).sum(-2) + u - x
        head = layers.affine(p, "head.down.", layers.F.gelu(layers.affine(p, "head.up.", whole)))
        return x + p["alpha"] * whole + p["alpha_head"] * head

    return run
