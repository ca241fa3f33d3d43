"""Layers in PyTorch's own operations, its fused ones where it has them. Part of `torch_worker`."""

from __future__ import annotations

import importlib
import itertools
import math
from collections.abc import Callable, Mapping
from typing import Any

Params = Mapping[str, Any]


class Layers:
    """The layers in PyTorch's own operations; its fused ones where it has them.

    Attributes
    ----------
    replaced : parameters that a module of PyTorch insists to own, by our names
    with_resets : the same function where sequences begin anew within the window, for peers that can
    decode : one step of one sequence, likewise
    learned : what ``"train"`` goes back through, where that is more than the layer once
    """

    def __init__(self, torch: Any, device: str) -> None:
        self.torch, self.F, self.device = torch, torch.nn.functional, device
        self.replaced: dict[str, Any] = {}
        self.with_resets: Callable[[Any], Any] | None = None
        self.decode: Callable[[], Any] | None = None
        self.learned: Callable[[Any], Any] | None = None

    def build(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        """Return the function of a layer."""
        kind = spec["kind"]
        for names, make in (
            (("conv1d", "conv2d", "conv3d"), self.convolution),
            (("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), self.transposed),
            (("rnn", "lstm", "gru"), self.recurrent),
            (("batch_norm1d", "batch_norm2d", "batch_norm3d"), self.batch_norm),
            (tuple(f"{name}_pool{axes}d" for name in ("max", "avg") for axes in (1, 2, 3)), self.pool),
            (tuple(f"adaptive_{name}_pool{axes}d" for name in ("max", "avg") for axes in (1, 2, 3)), self.adaptive),
        ):
            if kind in names:
                return make(spec, p)
        cells = importlib.import_module("torch_cells")
        if kind in cells.KINDS:
            return cells.build(self, spec, p)
        scaffolds = importlib.import_module("torch_scaffolds")
        if kind in scaffolds.KINDS:
            return scaffolds.build(self, spec, p)
        if kind == "clocked":
            return importlib.import_module("torch_clocked").build(self, p)
        if kind in ("mamba", "mamba2"):
            return importlib.import_module("torch_state_space").build(self, spec, p)  # from the folder of this script
        return getattr(self, kind)(spec, p)

    def act(self, name: str) -> Callable[[Any], Any]:
        F = self.F
        table = {
            "linear": lambda x: x,
            "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
            "leaky_relu": F.leaky_relu,
            "relu2": lambda x: F.relu(x).square(),
            "quick_gelu": lambda x: x * self.torch.sigmoid(1.702 * x),
        }
        return table.get(name) or getattr(F, name)

    def affine(self, p: Params, name: str, x: Any) -> Any:
        return self.F.linear(x, p[name + "weight"], p.get(name + "bias"))

    def dense(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        act = self.act(spec["activation"])
        return lambda x: act(self.affine(p, "", x))

    def mlp(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        act = self.act(spec["activation"])
        return lambda x: self.affine(p, "down.", act(self.affine(p, "up.", x)))

    def swiglu(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        act = self.act(spec["activation"])
        return lambda x: self.affine(p, "down.", act(self.affine(p, "gate.", x)) * self.affine(p, "up.", x))

    def multi_head_attention(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        heads = spec["num_heads"]

        def run(x: Any) -> Any:
            q, k, v = (self.affine(p, n + ".", x).unflatten(-1, (heads, -1)).transpose(1, 2) for n in "qkv")
            y = self.F.scaled_dot_product_attention(q, k, v, is_causal=spec["causal"])
            return self.affine(p, "o.", y.transpose(1, 2).flatten(2))

        return run

    def embedding(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: self.F.embedding(x, p["weight"])

    def position_embedding(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: x + p["weight"][: x.shape[-2]]

    def rms_norm(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: self.F.rms_norm(x, x.shape[-1:], p["weight"], spec["eps"])

    def layer_norm(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: self.F.layer_norm(x, x.shape[-1:], p["weight"], p["bias"], spec["eps"])

    def convolution(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        run, act = getattr(self.F, spec["kind"]), self.act(spec["activation"])
        names = ("stride", "padding", "dilation", "groups")
        rest = {name: _window(spec[name]) for name in names}
        return lambda x: act(run(x, p["weight"], p.get("bias"), **rest))

    def transposed(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        run, act = getattr(self.F, spec["kind"]), self.act(spec["activation"])
        names = ("stride", "padding", "output_padding", "groups", "dilation")
        rest = {name: _window(spec[name]) for name in names}
        return lambda x: act(run(x, p["weight"], p.get("bias"), **rest))

    def recurrent(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        cls = getattr(self.torch.nn, spec["kind"].upper())
        layer = cls(spec["input_size"], spec["hidden_size"], batch_first=True).to(p["ih.weight"].device)
        for part in ("ih", "hh"):
            for role in ("weight", "bias"):
                # The very tensors, so that gradients arrive where they are asked for.
                delattr(layer, f"{role}_{part}_l0")
                setattr(layer, f"{role}_{part}_l0", self.torch.nn.Parameter(p[f"{part}.{role}"].detach()))
        own = {
            f"{part}.{role}": getattr(layer, f"{role}_{part}_l0")
            for part in ("ih", "hh")
            for role in ("weight", "bias")
        }
        self.replaced.update(own)
        return lambda x: layer(x)[0]

    def pool(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        run = getattr(self.F, spec["kind"])
        rest = {name: _window(value) for name, value in spec.items() if name != "kind"}
        return lambda x: run(x, **rest)

    def adaptive(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        run, size = getattr(self.F, spec["kind"]), _window(spec["output_size"])
        return lambda x: run(x, size)

    def group_norm(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: self.F.group_norm(x, spec["num_groups"], p.get("weight"), p.get("bias"), spec["eps"])

    def batch_norm(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        names = ("running_mean", "running_var", "weight", "bias")
        kept = [p[name].detach() if name.startswith("running") else p[name] for name in names]
        return lambda x: self.F.batch_norm(x, *kept, training=self.torch.is_grad_enabled(), eps=spec["eps"])

    def dropout(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: self.F.dropout(x, spec["p"], training=self.torch.is_grad_enabled())

    def last_step(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: x[:, -1].contiguous()

    def kmeans(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        factor = -0.5 / spec["temperature"] ** 2
        return lambda x: (self.torch.cdist(x, p["centers"]).square() * factor).softmax(-1) @ p["centers"]

    def gate(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            logits = self.affine(p, "", x)
            if spec["top_k"]:
                top = logits.topk(spec["top_k"], -1)
                logits = self.torch.full_like(logits, -math.inf).scatter(-1, top.indices, top.values)
            return logits.softmax(-1)

        return run

    def parallel(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        gate = self.gate(spec["gate"], _below(p, "gate/"))
        branches = [self.build(b, _below(p, f"{i}/")) for i, b in enumerate(spec["branches"])]

        def run(x: Any) -> Any:
            weights = gate(x)
            return sum(branch(x) * weights[..., i : i + 1] for i, branch in enumerate(branches))

        return run

    def sequential(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        layers = [
            (child, None if child["kind"] == "residual" else self.build(child, _below(p, f"{i}/")))
            for i, child in enumerate(spec["layers"])
        ]

        def run(x: Any) -> Any:
            values = [x]
            for i, (child, layer) in enumerate(layers):
                if layer is None:
                    values.append(values[-1] + values[0 if child["source"] == "input" else i - 1])
                else:
                    values.append(layer(values[-1]))
            return values[-1]

        return run

    def short_conv(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        width, past = spec["embed_dim"], spec["kernel_size"] - 1

        def run(x: Any) -> Any:
            b, c, v = self.affine(p, "in.", x).chunk(3, -1)
            rows = self.F.pad((b * v).transpose(-1, -2), (past, 0))
            mixed = self.F.conv1d(rows, p["conv.weight"], p.get("conv.bias"), groups=width)
            return self.affine(p, "out.", c * mixed.transpose(-1, -2))

        return run

    def scale(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: x * spec["factor"]

    def clamp(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: x.clamp(spec.get("min"), spec.get("max"))

    def discrete(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        if spec.get("function", "sign") != "sign" or spec.get("surrogate", "none") != "none":
            raise NotImplementedError("torch has no layer for this")
        return lambda x: x.sign()

    def softcap(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: self.torch.tanh(x / spec["cap"]) * spec["cap"]

    def softmax(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: (x / spec["temperature"]).softmax(-1) if spec["temperature"] != 1 else x.softmax(-1)

    def masked_softmax(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        hidden: list[Any] = []

        def run(x: Any) -> Any:
            if not hidden:
                hidden.append(~self.torch.tensor(spec["mask"], device=x.device))
            return x.masked_fill(hidden[0], -math.inf).softmax(-1)

        return run

    def gumbel_softmax(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: self.F.gumbel_softmax(x, spec["temperature"])

    def sparsemax(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        def run(x: Any) -> Any:
            top = x.sort(-1, descending=True).values
            k = self.torch.arange(1, x.shape[-1] + 1, device=x.device)
            sums = top.cumsum(-1) - 1
            support = (k * top > sums).sum(-1, keepdim=True)
            return self.F.relu(x - sums.gather(-1, support - 1) / support)

        return run

    def entmax(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        if spec["alpha"] != 1.5:
            raise ValueError("only alpha 1.5 has a closed form")

        def run(x: Any) -> Any:
            x = x / 2
            x = x - x.max(-1, keepdim=True).values
            top = x.sort(-1, descending=True).values
            k = self.torch.arange(1, x.shape[-1] + 1, device=x.device)
            mean, squares = top.cumsum(-1) / k, top.square().cumsum(-1) / k
            delta = self.F.relu((1 - k * (squares - mean.square())) / k)
            tau = mean - delta.sqrt()
            support = (tau <= top).sum(-1, keepdim=True)
            return self.F.relu(x - tau.gather(-1, support - 1)).square()

        return run

    def grid_softmax(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        return lambda x: x.unflatten(-1, (spec["rows"], spec["cols"])).softmax(-1).flatten(-2)

    def hierarchical_softmax(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        a, b = spec["levels"]

        def run(x: Any) -> Any:
            first, second = x.split([a, a * b], -1)
            return (first.softmax(-1)[..., None] * second.unflatten(-1, (a, b)).softmax(-1)).flatten(-2)

        return run

    def adaptive_softmax(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        cuts = [*spec["cutoffs"], spec["n_classes"]]
        sizes = [b - a for a, b in itertools.pairwise(cuts)]

        def run(x: Any) -> Any:
            head, *tails = x.split([cuts[0] + len(sizes), *sizes], -1)
            head = head.softmax(-1)
            parts = [head[..., cuts[0] + i : cuts[0] + i + 1] * tail.softmax(-1) for i, tail in enumerate(tails)]
            return self.torch.cat([head[..., : cuts[0]], *parts], -1)

        return run

    def mixture_softmax(self, spec: Mapping[str, Any], p: Params) -> Callable[[Any], Any]:
        n = spec["components"]

        def run(x: Any) -> Any:
            weights, rest = x.split([n, x.shape[-1] - n], -1)
            return (weights.softmax(-1)[..., None] * rest.unflatten(-1, (n, -1)).softmax(-1)).sum(-2)

        return run


def _window(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _below(p: Params, prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in p.items() if name.startswith(prefix)}
