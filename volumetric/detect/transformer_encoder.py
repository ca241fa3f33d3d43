"""torch's nn.TransformerEncoderLayer, recognised by names: attention, a perceptron, two norms and two sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from volumetric.base._typing import Array
from volumetric.detect.assumptions import AssumedError
from volumetric.detect.findings import Finding
from volumetric.detect.module_tree import ModuleNode
from volumetric.detect.parameter_fills import ParameterFill, verbatim_fill
from volumetric.layers import MLP, LayerNorm, LayerSpec, MultiHeadAttention, Residual, Sequential

_PARTS: Final = frozenset({"self_attn", "linear1", "linear2", "norm1", "norm2"})
_ASKS: Final[Mapping[str, str]] = {
    "num_attention_heads": "the rows of in_proj_weight fit any number of heads",
    "activation": "no tensor shows the activation between linear1 and linear2",
    "norm_first": "no tensor shows whether norms come before attention and perceptron, or after the sums",
}


def encoder_layer(node: ModuleNode) -> Finding | None:
    """Recognise a layer of an nn.TransformerEncoder, with biases, by its child modules."""
    if set(node.children) != _PARTS or node.tensors:
        return None
    attention = node.children["self_attn"]
    joint = attention.shape("in_proj_weight")
    if joint is None or len(joint) != 2 or not joint[1] or joint[0] != 3 * joint[1]:
        return None
    width = joint[1]
    hidden = (node.children["linear1"].shape("weight") or (0,))[0]
    square, vector = (width, width), (width,)
    expected_shapes = {
        "self_attn": {"in_proj_weight": joint, "in_proj_bias": (3 * width,)},
        "self_attn.out_proj": {"weight": square, "bias": vector},
        "linear1": {"weight": (hidden, width), "bias": (hidden,)},
        "linear2": {"weight": (width, hidden), "bias": vector},
        "norm1": {"weight": vector, "bias": vector},
        "norm2": {"weight": vector, "bias": vector},
    }
    inside = {"self_attn.out_proj": attention.children.get("out_proj"), **node.children}
    shapes = {name: _shapes(inside.get(name)) for name in expected_shapes}
    if shapes != expected_shapes or not hidden or set(attention.children) != {"out_proj"}:
        return None

    def choose(values: Mapping[str, Any]) -> tuple[LayerSpec, Mapping[str, ParameterFill]]:
        return _layer(node, width, hidden, values)

    return Finding(
        path=node.path,
        what=f"transformer encoder layer of {width}, MLP {width} → {hidden}",
        reason="torch's names of attention, two linear layers and two norms",
        tensors=tuple(entry.name for entry in node.all_tensors()),
        layer=choose({})[0],
        asks=_ASKS,
        choose=choose,
        assumes={"causal": False, "layer_norm_eps": 1e-5},
    )


def _shapes(node: ModuleNode | None) -> dict[str, Any] | None:
    return None if node is None else {name: entry.shape for name, entry in node.tensors.items()}


def _layer(
    node: ModuleNode, width: int, hidden: int, values: Mapping[str, Any]
) -> tuple[LayerSpec, Mapping[str, ParameterFill]]:
    """The layer with the user's values, or placeholders, and the fills of its parameters.

    ``y = norm1(x + attention(x))``, ``norm2(y + mlp(y))``; with `norm_first` ``y = x + attention(norm1(x))``,
    ``y + mlp(norm2(y))``: the two equations of torch's documentation.
    """
    first, causal = values.get("norm_first") or False, values.get("causal") or False
    for name, value in (("norm_first", first), ("causal", causal)):
        if type(value) is not bool:
            raise AssumedError(f"guess: {name} must be true or false, got {value!r}")
    heads = values.get("num_attention_heads") or 1
    if type(heads) is not int or heads < 1 or width % heads:
        raise AssumedError(
            f"guess: {width} elements cannot be split into {heads!r} heads", hint="give a divisor of the width"
        )
    eps = values.get("layer_norm_eps") or 1e-5
    if type(eps) is not float:
        raise AssumedError(f"guess: layer_norm_eps must be a number, got {eps!r}")
    attention = MultiHeadAttention(embed_dim=width, num_heads=heads, qkv_bias=True, out_bias=True, causal=causal)
    mlp = MLP(in_features=width, hidden_features=hidden, activation=values.get("activation") or "relu")
    norm = LayerNorm(num_features=width, eps=eps)
    if first:
        layers = (norm, attention, Residual(source="input"), norm, mlp, Residual(source="#2"))
        places = {"self_attn": 1, "norm1": 0, "mlp": 4, "norm2": 3}
    else:
        layers = (attention, Residual(), norm, mlp, Residual(), norm)
        places = {"self_attn": 0, "norm1": 2, "mlp": 3, "norm2": 5}
    joint = node.children["self_attn"]
    out = joint.children["out_proj"]
    fills = {f"{places['self_attn']}/o.{kind}": verbatim_fill(out.tensors[kind].name) for kind in ("weight", "bias")}
    for i, part in enumerate("qkv"):
        for kind in ("weight", "bias"):
            rows = slice(i * width, (i + 1) * width)
            name = joint.tensors[f"in_proj_{kind}"].name
            fills[f"{places['self_attn']}/{part}.{kind}"] = ParameterFill((name,), _rows(rows))
    for module, key in (("linear1", "mlp/up."), ("linear2", "mlp/down."), ("norm1", "norm1/"), ("norm2", "norm2/")):
        start, rest = key.split("/")
        for kind in ("weight", "bias"):
            fills[f"{places[start]}/{rest}{kind}"] = verbatim_fill(node.children[module].tensors[kind].name)
    return Sequential(layers=layers), fills


def _rows(rows: slice):
    def cut(values: Array) -> Array:
        return values[rows]

    return cut
