"""State-space layers in PyTorch's own operations, which has no scan: step by step. Part of `torch_worker`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Params = Mapping[str, Any]


def build(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    """Return the function of a layer on ``[B, T, width]``; `layers` is the worker's."""
    return (_mamba if spec["kind"] == "mamba" else _mamba2)(layers, spec, p)


def _mamba(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    rank, size, F = spec["dt_rank"], spec["state_size"], layers.F

    def run(x: Any) -> Any:
        v, z = layers.affine(p, "in.", x).chunk(2, -1)
        u = _mixed(layers, p, v)
        r, b, c = layers.affine(p, "x.", u).split([rank, size, size], -1)
        dt = F.softplus(layers.affine(p, "dt.", r))
        y = _scan(layers, u[..., None], dt, -p["a_log"].exp(), b[:, :, None], c[:, :, None])[..., 0]
        return layers.affine(p, "out.", (y + p["d"] * u) * F.silu(z))

    return run


def _mamba2(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    heads, width, groups, size = (spec[name] for name in ("num_heads", "head_dim", "groups", "state_size"))
    inner, F = heads * width, layers.F

    def run(x: Any) -> Any:
        batch, length, _ = x.shape
        z, w, r = layers.affine(p, "in.", x).split([inner, inner + 2 * groups * size, heads], -1)
        v, b, c = _mixed(layers, p, w).split([inner, groups * size, groups * size], -1)
        v = v.view(batch, length, heads, width)
        b, c = (part.view(batch, length, groups, size).repeat_interleave(heads // groups, 2) for part in (b, c))
        y = _scan(layers, v, F.softplus(r + p["dt_bias"]), -p["a_log"].exp()[:, None], b, c)
        y = (y + p["d"][:, None] * v).reshape(batch, length, inner) * F.silu(z)
        parts = F.rms_norm(y.view(batch, length, groups, -1), (inner // groups,), eps=spec["norm_eps"])
        return layers.affine(p, "out.", parts.reshape(batch, length, inner) * p["norm.weight"])

    return run


def _mixed(layers: Any, p: Params, x: Any) -> Any:
    weight = p["conv.weight"]
    rows = layers.F.pad(x.transpose(-1, -2), (weight.shape[-1] - 1, 0))
    mixed = layers.F.conv1d(rows, weight, p.get("conv.bias"), groups=len(weight))
    return layers.F.silu(mixed.transpose(-1, -2))


def _scan(layers: Any, x: Any, dt: Any, a: Any, b: Any, c: Any) -> Any:
    """``[B, T, heads, width]`` of the same, steps, rates ``[heads, size or 1]``, and ``[B, T, heads or 1, size]``."""
    held, ys = 0.0, []
    for t in range(x.shape[1]):
        taken = (dt[:, t, :, None] * x[:, t])[..., None] * b[:, t, :, None]
        held = layers.torch.exp(dt[:, t, :, None, None] * a[:, None]) * held + taken
        ys.append((held * c[:, t, :, None]).sum(-1))
    return layers.torch.stack(ys, 1)
