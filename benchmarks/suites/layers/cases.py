"""What is measured: one size of every layer kind, as it might occur in a network of some ten million weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from volumetric.errors import SpecError
from volumetric.layers import (
    GRU,
    LSTM,
    MLP,
    MLSTM,
    RNN,
    SLSTM,
    Adapter,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AdaptiveSoftmax,
    AGaLiTe,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    Axon,
    AxonLinear,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    CausalConv1d,
    Clamp,
    Column,
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
    Dense,
    Discrete,
    Dropout,
    Embedding,
    Entmax,
    Gate,
    GridSoftmax,
    GroupNorm,
    GumbelSoftmax,
    HierarchicalSoftmax,
    KMeans,
    LastStep,
    LayerNorm,
    LayerSpec,
    Mamba,
    Mamba2,
    MaskedSoftmax,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
    MixtureSoftmax,
    MultiHeadAttention,
    Parallel,
    PassThrough,
    PositionEmbedding,
    PostUp,
    PostUpGated,
    PreUp,
    PreUpGated,
    Residual,
    RMSNorm,
    Scale,
    Sequential,
    ShortConv,
    Softcap,
    Softmax,
    Sparsemax,
    SwiGLU,
    XLAttention,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCase:
    """One layer and the shape of its input."""

    name: str
    spec: LayerSpec
    shape: tuple[int, ...]


def _experts(width: int) -> Parallel:
    branches = tuple(Dense(in_features=width, out_features=width, activation="silu") for _ in range(4))
    return Parallel(branches=branches, combine="filter", gate=Gate(in_features=width, out_features=4, top_k=2))


_BLOCK = Sequential(
    layers=(
        LayerNorm(num_features=512),
        MLP(in_features=512, hidden_features=2048, activation="gelu"),
        Residual(source="input"),
    )
)
_ROWS = (4096, 1024)
_CELLS = (8, 256, 128)
_LSTM = LSTM(input_size=128, hidden_size=128)

_SIZES: Final[dict[str, tuple[LayerSpec, tuple[int, ...]]]] = {
    "dense": (Dense(in_features=1024, out_features=1024), (256, 1024)),
    "mlp": (MLP(in_features=512, hidden_features=2048, activation="gelu"), (256, 512)),
    "swiglu": (SwiGLU(in_features=576, hidden_features=1536), (256, 576)),
    "multi_head_attention": (MultiHeadAttention(embed_dim=512, num_heads=8), (4, 256, 512)),
    "embedding": (Embedding(num_embeddings=32000, embedding_dim=512), (4096,)),
    "position_embedding": (PositionEmbedding(num_embeddings=512, embedding_dim=1024), (8, 512, 1024)),
    "rms_norm": (RMSNorm(num_features=1024), _ROWS),
    "layer_norm": (LayerNorm(num_features=1024), _ROWS),
    "conv1d": (Conv1d(in_channels=64, out_channels=64, kernel_size=3, padding=1), (16, 64, 1024)),
    "conv2d": (Conv2d(in_channels=64, out_channels=64, kernel_size=3, padding=1), (8, 64, 32, 32)),
    "conv3d": (Conv3d(in_channels=16, out_channels=32, kernel_size=3, padding=1), (2, 16, 16, 24, 24)),
    "conv_transpose1d": (
        ConvTranspose1d(in_channels=64, out_channels=64, kernel_size=4, stride=2, padding=1),
        (16, 64, 512),
    ),
    "conv_transpose2d": (
        ConvTranspose2d(in_channels=64, out_channels=32, kernel_size=4, stride=2, padding=1),
        (8, 64, 24, 24),
    ),
    "conv_transpose3d": (
        ConvTranspose3d(in_channels=16, out_channels=16, kernel_size=2, stride=2),
        (2, 16, 12, 16, 16),
    ),
    "max_pool1d": (MaxPool1d(kernel_size=2), (16, 64, 1024)),
    "max_pool2d": (MaxPool2d(kernel_size=2), (8, 64, 64, 64)),
    "max_pool3d": (MaxPool3d(kernel_size=2), (2, 32, 32, 32, 32)),
    "avg_pool1d": (AvgPool1d(kernel_size=2), (16, 64, 1024)),
    "avg_pool2d": (AvgPool2d(kernel_size=3, stride=2, padding=1), (8, 64, 64, 64)),
    "avg_pool3d": (AvgPool3d(kernel_size=2), (2, 32, 32, 32, 32)),
    "adaptive_avg_pool1d": (AdaptiveAvgPool1d(output_size=1), (16, 64, 1024)),
    "adaptive_avg_pool2d": (AdaptiveAvgPool2d(output_size=1), (8, 64, 64, 64)),
    "adaptive_avg_pool3d": (AdaptiveAvgPool3d(output_size=1), (2, 32, 32, 32, 32)),
    "adaptive_max_pool1d": (AdaptiveMaxPool1d(output_size=1), (16, 64, 1024)),
    "adaptive_max_pool2d": (AdaptiveMaxPool2d(output_size=1), (8, 64, 64, 64)),
    "adaptive_max_pool3d": (AdaptiveMaxPool3d(output_size=1), (2, 32, 32, 32, 32)),
    "batch_norm1d": (BatchNorm1d(num_features=64), (16, 64, 1024)),
    "batch_norm2d": (BatchNorm2d(num_features=64), (8, 64, 32, 32)),
    "batch_norm3d": (BatchNorm3d(num_features=16), (2, 16, 16, 24, 24)),
    "dropout": (Dropout(p=0.5), _ROWS),
    "group_norm": (GroupNorm(num_groups=8, num_channels=64), (8, 64, 32, 32)),
    "last_step": (LastStep(), (256, 64, 256)),
    "rnn": (RNN(input_size=256, hidden_size=256), (16, 64, 256)),
    "lstm": (LSTM(input_size=256, hidden_size=256), (16, 64, 256)),
    "gru": (GRU(input_size=256, hidden_size=256), (16, 64, 256)),
    "causal_conv1d": (CausalConv1d(channels=128), _CELLS),
    "slstm": (SLSTM(embed_dim=128), _CELLS),
    "mlstm": (MLSTM(embed_dim=128), _CELLS),
    "agalite": (AGaLiTe(embed_dim=128), _CELLS),
    "axon": (Axon(in_features=128, out_features=128, activation="silu"), _CELLS),
    "axon_linear": (AxonLinear(in_features=128, out_features=128), _CELLS),
    "xl_attention": (XLAttention(embed_dim=128), _CELLS),
    "pass_through": (PassThrough(core=_LSTM), _CELLS),
    "pre_up": (PreUp(embed_dim=128, core=CausalConv1d(channels=256)), _CELLS),
    "pre_up_gated": (PreUpGated(embed_dim=128, core=MLSTM(embed_dim=256)), _CELLS),
    "post_up": (PostUp(embed_dim=128, core=_LSTM), _CELLS),
    "post_up_gated": (PostUpGated(embed_dim=128, core=_LSTM), _CELLS),
    "adapter": (Adapter(embed_dim=128, core=_LSTM), _CELLS),
    "column": (Column(embed_dim=128, experts=(PostUp(embed_dim=128, core=_LSTM), CausalConv1d(channels=128))), _CELLS),
    "kmeans": (KMeans(num_clusters=256, in_features=128, output="features", temperature=4.0), (4096, 128)),
    "gate": (Gate(in_features=512, out_features=16, top_k=2), (4096, 512)),
    "parallel": (_experts(512), (256, 512)),
    "sequential": (_BLOCK, (256, 512)),
    "residual": (
        Sequential(layers=(Dense(in_features=512, out_features=512, activation="tanh"), Residual())),
        (512, 512),
    ),
    "short_conv": (ShortConv(embed_dim=512), (4, 256, 512)),
    "mamba": (Mamba(embed_dim=256, inner_features=512, dt_rank=16), (2, 128, 256)),
    "mamba2": (Mamba2(embed_dim=256, num_heads=8, head_dim=64, state_size=32), (2, 128, 256)),
    "scale": (Scale(factor=0.22), _ROWS),
    "discrete": (Discrete(function="sign"), _ROWS),
    "clamp": (Clamp(min=0.0, max=6.0), _ROWS),
    "softcap": (Softcap(cap=30.0), _ROWS),
    "softmax": (Softmax(), _ROWS),
    "masked_softmax": (MaskedSoftmax(mask=tuple(i % 4 != 3 for i in range(1024))), _ROWS),
    "gumbel_softmax": (GumbelSoftmax(temperature=0.7), _ROWS),
    "sparsemax": (Sparsemax(), _ROWS),
    "entmax": (Entmax(alpha=1.5), _ROWS),
    "grid_softmax": (GridSoftmax(rows=16, cols=64), _ROWS),
    "hierarchical_softmax": (HierarchicalSoftmax(levels=(32, 32)), (4096, 1056)),
    "adaptive_softmax": (AdaptiveSoftmax(n_classes=1022, cutoffs=(254, 510)), (4096, 1024)),
    "mixture_softmax": (MixtureSoftmax(components=4), (4096, 1028)),
}

CASES: Final[Mapping[str, LayerCase]] = MappingProxyType(
    {name: LayerCase(name=name, spec=spec, shape=shape) for name, (spec, shape) in _SIZES.items()}
)
"""Layer kind → its case. `reshape` and `flatten` compute nothing; PyTorch has nothing like a `fabric` or `program`."""


def chosen(names: Sequence[str] | None) -> tuple[LayerCase, ...]:
    """Return the cases of these kinds, or all; raise `SpecError` for a kind without one."""
    unknown = [name for name in names or () if name not in CASES]
    if unknown:
        raise SpecError(f"no layer is called {', '.join(unknown)}", hint="one of " + ", ".join(CASES))
    return tuple(CASES[name] for name in names or CASES)
