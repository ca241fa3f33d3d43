"""Cells of stacks in PyTorch's own operations, step by step where it has nothing faster. Part of `torch_worker`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Params = Mapping[str, Any]
KINDS = ("causal_conv1d", "slstm", "mlstm", "agalite", "axon", "axon_linear", "xl_attention")


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


def _mlstm(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    torch, F, heads = layers.torch, layers.F, spec["num_heads"]

    def run(x: Any) -> Any:
        batch, _, width = x.shape
        q = F.silu(_mixed(layers, p["conv.weight"], p["conv.bias"], x))
        joined = torch.cat([q, q, x], -1)
        q, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (q, x))
        i, f = (layers.affine(p, name, joined).transpose(1, 2)[..., None] for name in ("i.", "f."))
        d = width // heads
        c, n, m = x.new_zeros(batch, heads, d, d), x.new_zeros(batch, heads, d), x.new_zeros(batch, heads, 1)
        ys = []
        for chunk in zip(*(part.split(spec["chunk_size"], 2) for part in (q, v, i, f)), strict=True):
            y, c, n, m = _chunk(torch, F, chunk, (c, n, m))
            ys.append(y)
        return _head_norm(layers, torch.cat(ys, 2).transpose(1, 2), p["norm.weight"])

    return run


def _chunk(torch: Any, F: Any, rows: Any, before: Any) -> tuple[Any, Any, Any, Any]:
    (q, v, i, f), (c, n, m) = rows, before
    length, k = q.shape[2], q / q.shape[-1] ** 0.5
    since = F.logsigmoid(f).cumsum(2)
    later = torch.ones(length, length, dtype=torch.bool, device=q.device).triu(1)
    gates = (since + (i - since).transpose(2, 3)).masked_fill(later, -torch.inf)
    base = since + m[..., None]
    most = torch.maximum(base, gates.amax(3, keepdim=True))
    passed, weights = torch.exp(base - most), torch.exp(gates - most)
    met = weights * (q @ k.transpose(2, 3))
    along = met.sum(3, keepdim=True) + passed * (q @ n[..., None])
    y = (met @ v + passed * (q @ c)) / (torch.maximum(along.abs(), torch.exp(-most)) + 1e-6)
    by_row = k * weights[:, :, -1, :, None]
    left = passed[:, :, -1:]
    return y, left * c + by_row.transpose(2, 3) @ v, left[..., 0] * n + by_row.sum(2), most[:, :, -1]


def _agalite(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    torch, heads, eta, r = layers.torch, spec["num_heads"], spec["eta"], spec["r"]

    def run(x: Any) -> Any:
        batch, length, _ = x.shape
        wide = layers.affine(p, "kqvbg.", x).view(batch, length, heads, 5, -1)
        small = layers.affine(p, "p.", x).view(batch, length, heads, 3, eta)
        k, q, v, beta, gamma = wide.unbind(3)
        p1, p2, p3 = small.unbind(3)
        keys = (k.relu()[..., None] * p1.relu()[..., None, :]).flatten(-2)
        asked = (q.relu()[..., None] * p2.relu()[..., None, :]).flatten(-2)
        decay, beta = (gamma.sigmoid()[..., None] * p3.sigmoid()[..., None, :]).flatten(-2), beta.sigmoid()
        turns = torch.linspace(-torch.pi, torch.pi, r, device=x.device)
        held_k, held_v, s = x.new_zeros(batch, r, *keys.shape[2:]), x.new_zeros(batch, r, *v.shape[2:]), 0.0
        ys = []
        for t in range(length):
            o = torch.cos(turns * (t + 2))[:, None, None]
            u, w = keys[:, t] * decay[:, t], v[:, t] * beta[:, t]
            held_k = (1 - decay[:, None, t]) * held_k + o * u[:, None]
            held_v = (1 - beta[:, None, t]) * held_v + o * w[:, None]
            s = (1 - decay[:, t]) * s + u
            met = (held_k * asked[:, None, t]).sum(-1, keepdim=True)
            whole = 2 * r * (s * asked[:, t]).sum(-1, keepdim=True) + spec["eps"]
            ys.append((held_v * met).sum(1) / whole)
        return layers.affine(p, "out.", torch.stack(ys, 1).flatten(2))

    return run


def _axon(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    torch, act = layers.torch, layers.act(spec["activation"])

    def run(x: Any) -> Any:
        rate, angle = p["nu"].exp(), p["theta"].exp()
        r = torch.exp(-rate)
        g, phi, gamma = r * torch.cos(angle), r * torch.sin(angle), torch.sqrt(torch.clamp(1 - r * r, min=1e-12))
        driven = gamma * (layers.affine(p, "input.", x) if spec["mix"] == "linear" else x)
        c1 = c2 = torch.zeros_like(driven[:, 0])
        pairs = []
        for now in driven.unbind(1):
            c1, c2 = g * c1 - phi * c2 + p["w1"] * now, g * c2 + phi * c1 + p["w2"] * now
            pairs.append(torch.cat([c1, c2], -1))
        return layers.affine(p, "out.", act(torch.stack(pairs, 1)))

    return run


def _axon_linear(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    beside = _axon(layers, spec, {name.removeprefix("axon/"): value for name, value in p.items() if "/" in name})
    return lambda x: layers.affine(p, "", x) + beside(x)


def _xl_attention(layers: Any, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
    torch, heads, most = layers.torch, spec["num_heads"], spec["memory"]

    def run(x: Any) -> Any:
        _, length, width = x.shape
        q, k, v = (layers.affine(p, f"{n}.", x).unflatten(-1, (heads, -1)).transpose(1, 2) for n in "qkv")
        far = torch.arange(length - 1, -1, -1, device=x.device)
        turns = far[:, None] * 10000.0 ** (-2 * torch.arange((width + 1) // 2, device=x.device) / width)
        codes = torch.cat([turns.sin(), turns.cos()], -1)[:, :width]
        r = layers.affine(p, "r.", codes.to(x.dtype)).unflatten(-1, (heads, -1)).transpose(0, 1)
        by_distance = (q + p["position_bias"][:, None]) @ r.transpose(1, 2)
        # Each row begins one place further right than the one above it.
        wide = layers.F.pad(by_distance, (0, 1)).flatten(2)[..., length - 1 : -1]
        by_distance = layers.F.pad(wide, (0, length * length - wide.shape[-1])).unflatten(-1, (length, length))
        logits = ((q + p["content_bias"][:, None]) @ k.transpose(2, 3) + by_distance) / q.shape[-1] ** 0.5
        apart = torch.arange(length, device=x.device)[:, None] - torch.arange(length, device=x.device)
        weights = logits.masked_fill((apart < 0) | (apart > most), -torch.inf).softmax(-1)
        return layers.affine(p, "o.", (weights @ v).transpose(1, 2).flatten(2))

    return run
