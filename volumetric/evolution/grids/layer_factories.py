"""Layers that fit between two shapes, their fresh weights, and the unit of random changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray

from volumetric import layers as nn
from volumetric.base._typing import Shape
from volumetric.base.errors import VolumetricError
from volumetric.evolution.grids.grid_config import GridMutationConfig
from volumetric.layers.initial_values import initial_value

VOCABULARY: Final = 256
"""Rows of an embedding that replaces another kind of layer."""
Maker = Callable[[Shape, Shape, np.random.Generator], nn.LayerSpec]


def _heads(width: int) -> int:
    return next(heads for heads in (4, 3, 2, 1) if width % heads == 0)


def _parallel(read: Shape, output: Shape, rng: np.random.Generator) -> nn.LayerSpec:
    return nn.Parallel(branches=(_dense(read, output, rng), _dense(read, output, rng)), combine="avg")


def _sequential(read: Shape, output: Shape, rng: np.random.Generator) -> nn.LayerSpec:
    inner = nn.Dense(in_features=read[-1], out_features=read[-1], activation="tanh")
    return nn.Sequential(layers=(inner, nn.Residual(source="input"), _dense(read, output, rng)))


def _dense(read: Shape, output: Shape, rng: np.random.Generator) -> nn.LayerSpec:
    return nn.Dense(in_features=read[-1], out_features=output[-1], activation="relu")


def _lstm(width: int) -> nn.LSTM:
    return nn.LSTM(input_size=width, hidden_size=width)


def _column(read: Shape, output: Shape, rng: np.random.Generator) -> nn.LayerSpec:
    width = read[-1]
    experts = nn.PostUp(embed_dim=width, core=_lstm(width)), nn.PassThrough(core=nn.CausalConv1d(channels=width))
    return nn.Column(embed_dim=width, experts=experts)


def _of_heads(cls: Callable[..., nn.LayerSpec]) -> Maker:
    return lambda read, _, __: cls(embed_dim=read[-1], num_heads=_heads(read[-1]))


def _feed_forward(cls: Callable[..., nn.LayerSpec]) -> Maker:
    return lambda read, _, rng: cls(in_features=read[-1], hidden_features=int(rng.integers(1, 4)) * read[-1])


def _conv(cls: Callable[..., nn.LayerSpec]) -> Maker:
    def make(read: Shape, output: Shape, rng: np.random.Generator) -> nn.LayerSpec:
        return cls(in_channels=read[1], out_channels=output[1], kernel_size=3, padding=1, activation="relu")

    return make


MAKERS: Final = MappingProxyType[str, Maker](
    {
        "dense": _dense,
        "multi_head_attention": _of_heads(nn.MultiHeadAttention),
        "swiglu": _feed_forward(nn.SwiGLU),
        "mlp": _feed_forward(nn.MLP),
        "rms_norm": lambda read, _, __: nn.RMSNorm(num_features=read[-1]),
        "layer_norm": lambda read, _, __: nn.LayerNorm(num_features=read[-1]),
        "conv1d": _conv(nn.Conv1d),
        "conv2d": _conv(nn.Conv2d),
        "conv3d": _conv(nn.Conv3d),
        "conv_transpose1d": _conv(nn.ConvTranspose1d),
        "conv_transpose2d": _conv(nn.ConvTranspose2d),
        "conv_transpose3d": _conv(nn.ConvTranspose3d),
        "rnn": lambda read, output, _: nn.RNN(input_size=read[-1], hidden_size=output[-1]),
        "lstm": lambda read, output, _: nn.LSTM(input_size=read[-1], hidden_size=output[-1]),
        "gru": lambda read, output, _: nn.GRU(input_size=read[-1], hidden_size=output[-1]),
        "causal_conv1d": lambda read, _, __: nn.CausalConv1d(channels=read[-1]),
        "slstm": _of_heads(nn.SLSTM),
        "mlstm": _of_heads(nn.MLSTM),
        "agalite": _of_heads(nn.AGaLiTe),
        "axon": lambda read, output, _: nn.Axon(in_features=read[-1], out_features=output[-1]),
        "axon_linear": lambda read, output, _: nn.AxonLinear(in_features=read[-1], out_features=output[-1]),
        "xl_attention": _of_heads(nn.XLAttention),
        "pass_through": lambda read, output, _: nn.PassThrough(
            core=nn.LSTM(input_size=read[-1], hidden_size=output[-1])
        ),
        "pre_up": lambda read, _, __: nn.PreUp(embed_dim=read[-1], core=_lstm(2 * read[-1])),
        "pre_up_gated": lambda read, _, __: nn.PreUpGated(embed_dim=read[-1], core=_lstm(2 * read[-1])),
        "post_up": lambda read, _, __: nn.PostUp(embed_dim=read[-1], core=_lstm(read[-1])),
        "post_up_gated": lambda read, _, __: nn.PostUpGated(embed_dim=read[-1], core=_lstm(read[-1])),
        "adapter": lambda read, output, rng: nn.Adapter(
            embed_dim=output[-1], bottleneck=max(1, output[-1] // 4), core=_dense(read, output, rng)
        ),
        "column": _column,
        "embedding": lambda _, output, __: nn.Embedding(num_embeddings=VOCABULARY, embedding_dim=output[-1]),
        "kmeans": lambda read, output, _: nn.KMeans(num_clusters=output[-1], in_features=read[-1]),
        "softmax": lambda *_: nn.Softmax(),
        "sparsemax": lambda *_: nn.Sparsemax(),
        "entmax": lambda *_: nn.Entmax(),
        "parallel": _parallel,
        "sequential": _sequential,
    }
)
"""Kind → layer from one shape to another; `fitting` checks whether it fits."""


def fitting(
    read: Shape, output: Shape, rules: GridMutationConfig, *, ids: bool, rng: np.random.Generator
) -> Iterator[nn.LayerSpec]:
    """Yield a layer of each kind that maps values of shape `read` to values of shape `output`.

    Parameters
    ----------
    read, output : shapes, with rows as the first axis
    rules : kinds to choose from, and whether rows are sequences; with more than two axes each row is a sequence itself
    ids : whether the layer reads token ids, which only embeddings can
    """
    strangers = rules.sequences is False and len(read) <= 2
    for kind in rules.kinds:
        if (kind == "embedding") != ids:
            continue
        try:
            spec = MAKERS[kind](read, output, rng)
            if spec.output_shape(read) == output and not (strangers and spec.contextual):
                yield spec
        except (VolumetricError, IndexError):
            continue


GAIN_UNIT = 0.1
"""Unit of change of parameters that are initialised to ones or zeros."""


def unit(spec: nn.ParamSpec) -> float:
    """Return the standard deviation of a fresh tensor, which is the unit of its mutations."""
    if spec.init == "fan_in":
        return 1 / math.sqrt(3 * max(1, math.prod(spec.shape[1:])))  # of the uniform distribution in ±1/√in
    if spec.init == "small_normal":
        return math.sqrt(0.4 / spec.shape[-1])
    return 0.02 if spec.init == "normal" else GAIN_UNIT


def fresh_values(spec: nn.ParamSpec, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return random values of a parameter with the distribution of a new network."""
    if spec.init in ("ones", "zeros"):
        return np.full(spec.shape, 1.0 if spec.init == "ones" else 0.0, np.float32)
    if spec.init not in ("fan_in", "normal"):
        return initial_value(spec, rng)
    if spec.init == "normal":
        return (unit(spec) * rng.standard_normal(spec.shape)).astype(np.float32)
    bound = math.sqrt(3) * unit(spec)
    return rng.uniform(-bound, bound, spec.shape).astype(np.float32)


def near_identity(spec: nn.LayerSpec, rng: np.random.Generator) -> dict[str, NDArray[np.float32]]:
    """Return weights with which an inserted layer (see `mutate.add_layer`) is close to the identity.

    A dense layer is the identity plus a little noise. In a sequential with a residual connection, the residual is a
    tenth of that of fresh weights.
    """
    values = {param.name: fresh_values(param, rng) for param in spec.tensors()}
    if isinstance(spec, nn.Dense):
        values["weight"] = (np.eye(spec.out_features) + 0.1 * values["weight"]).astype(np.float32)
        return values
    if isinstance(spec, nn.Sequential):
        small = {param.name: values[param.name] * np.float32(0.1) for param in spec.params()}
        return {**values, **small}
    return values
