"""Cells of stacks in PyTorch's own operations, step by step where it has nothing faster. Part of `torch_worker`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Params = Mapping[str, Any]
KINDS = ("causal_conv1d", "slstm")


def build(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    """Return the function of a layer on ``[B, T, width]``; `layers` is the worker's."""
    return globals()[f"_{spec['kind']}"](layers, spec, p)


def _causal_conv1d(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    return lambda x: _mixed(layers, p["weight"], p.get("bias"), x)


def _mixed(layers: Any, weight: Any, bias: Any, x: Any) -> Any:
    rows = layers.F.pad(x.transpose(-1, -2), (weight.shape[-1] - 1, 0))
    groups = len(weight) if weight.shape[1] == 1 else 1
    return layers.F.conv1d(rows, weight, bias, groups=groups).transpose(-1, -2)


def _head_norm(layers: Any, y: Any, gain: Any) -> Any:
    """The norm of each head of ``[B, T, heads, width]``."""
    return layers.F.layer_norm(y, y.shape[-1:]).flatten(2) * gain


def _slstm(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    torch, F, heads = layers.torch, layers.F, spec["num_heads"]

    def run(x: Any) -> Any:
        batch, length, width = x.shape
        seen = F.silu(_mixed(layers, p["conv.weight"], p["conv.bias"], x)) if spec["kernel_size"] else x
        split = {"i": seen, "f": seen, "z": x, "o": x}
        from_x = torch.stack(
            [torch.einsum("bthi,hoi->btho", of.unflatten(-1, (heads, -1)), p[f"{g}.weight"]) for g, of in split.items()]
        )
        y = c = n = m = x.new_zeros(batch, heads, width // heads)
        ys = []
        for t in range(length):
            i, f, z, o = from_x[:, :, t] + torch.einsum("bhi,ghoi->gbho", y, p["r.weight"]) + p["bias"][:, None]
            passed = m + F.logsigmoid(f)
            m = torch.where(n == 0, i, torch.maximum(i, passed))
            i, f = torch.exp(i - m), torch.exp(torch.clamp(passed - m, max=0))
            c, n = f * c + i * torch.tanh(z), f * n + i
            y = torch.sigmoid(o) * c / (n + 1e-6)
            ys.append(y)
        return _head_norm(layers, torch.stack(ys, 1), p["norm.weight"])

    return run
