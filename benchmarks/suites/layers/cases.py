"""What is measured: one size of every layer kind, as it might occur in a network of some ten million weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from volumetric import layers as nn
from volumetric.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCase:
    """One layer and the shape of its input."""

    name: str
    spec: nn.LayerSpec
    shape: tuple[int, ...]


def _experts(width: int) -> nn.Parallel:
    branches = tuple(nn.Dense(in_features=width, out_features=width, activation="silu") for _ in range(4))
    return nn.Parallel(branches=branches, combine="filter", gate=nn.Gate(in_features=width, out_features=4, top_k=2))


_BLOCK = nn.Sequential(
    layers=(
        nn.LayerNorm(num_features=512),
        nn.MLP(in_features=512, hidden_features=2048, activation="gelu"),
        nn.Residual(source="input"),
    )
)
_ROWS = (4096, 1024)
_CELLS = (8, 256, 128)
_LSTM = nn.LSTM(input_size=128, hidden_size=128)
_EXPERTS = nn.PostUp(embed_dim=128, core=_LSTM), nn.CausalConv1d(channels=128)

_SIZES: Final[dict[str, tuple[nn.LayerSpec, tuple[int, ...]]]] = {
    "dense": (nn.Dense(in_features=1024, out_features=1024), (256, 1024)),
    "mlp": (nn.MLP(in_features=512, hidden_features=2048, activation="gelu"), (256, 512)),
    "swiglu": (nn.SwiGLU(in_features=576, hidden_features=1536), (256, 576)),
    "multi_head_attention": (nn.MultiHeadAttention(embed_dim=512, num_heads=8), (4, 256, 512)),
    "embedding": (nn.Embedding(num_embeddings=32000, embedding_dim=512), (4096,)),
    "position_embedding": (nn.PositionEmbedding(num_embeddings=512, embedding_dim=1024), (8, 512, 1024)),
    "rms_norm": (nn.RMSNorm(num_features=1024), _ROWS),
    "layer_norm": (nn.LayerNorm(num_features=1024), _ROWS),
    "conv1d": (nn.Conv1d(in_channels=64, out_channels=64, kernel_size=3, padding=1), (16, 64, 1024)),
    "conv2d": (nn.Conv2d(in_channels=64, out_channels=64, kernel_size=3, padding=1), (8, 64, 32, 32)),
    "conv3d": (nn.Conv3d(in_channels=16, out_channels=32, kernel_size=3, padding=1), (2, 16, 16, 24, 24)),
    "conv_transpose1d": (
        nn.ConvTranspose1d(in_channels=64, out_channels=64, kernel_size=4, stride=2, padding=1),
        (16, 64, 512),
    ),
    "conv_transpose2d": (
        nn.ConvTranspose2d(in_channels=64, out_channels=32, kernel_size=4, stride=2, padding=1),
        (8, 64, 24, 24),
    ),
    "conv_transpose3d": (
        nn.ConvTranspose3d(in_channels=16, out_channels=16, kernel_size=2, stride=2),
        (2, 16, 12, 16, 16),
    ),
    "max_pool1d": (nn.MaxPool1d(kernel_size=2), (16, 64, 1024)),
    "max_pool2d": (nn.MaxPool2d(kernel_size=2), (8, 64, 64, 64)),
    "max_pool3d": (nn.MaxPool3d(kernel_size=2), (2, 32, 32, 32, 32)),
    "avg_pool1d": (nn.AvgPool1d(kernel_size=2), (16, 64, 1024)),
    "avg_pool2d": (nn.AvgPool2d(kernel_size=3, stride=2, padding=1), (8, 64, 64, 64)),
    "avg_pool3d": (nn.AvgPool3d(kernel_size=2), (2, 32, 32, 32, 32)),
    "adaptive_avg_pool1d": (nn.AdaptiveAvgPool1d(output_size=1), (16, 64, 1024)),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d(output_size=1), (8, 64, 64, 64)),
    "adaptive_avg_pool3d": (nn.AdaptiveAvgPool3d(output_size=1), (2, 32, 32, 32, 32)),
    "adaptive_max_pool1d": (nn.AdaptiveMaxPool1d(output_size=1), (16, 64, 1024)),
    "adaptive_max_pool2d": (nn.AdaptiveMaxPool2d(output_size=1), (8, 64, 64, 64)),
    "adaptive_max_pool3d": (nn.AdaptiveMaxPool3d(output_size=1), (2, 32, 32, 32, 32)),
    "batch_norm1d": (nn.BatchNorm1d(num_features=64), (16, 64, 1024)),
    "batch_norm2d": (nn.BatchNorm2d(num_features=64), (8, 64, 32, 32)),
    "batch_norm3d": (nn.BatchNorm3d(num_features=16), (2, 16, 16, 24, 24)),
    "dropout": (nn.Dropout(p=0.5), _ROWS),
    "group_norm": (nn.GroupNorm(num_groups=8, num_channels=64), (8, 64, 32, 32)),
    "last_step": (nn.LastStep(), (256, 64, 256)),
    "rnn": (nn.RNN(input_size=256, hidden_size=256), (16, 64, 256)),
    "lstm": (nn.LSTM(input_size=256, hidden_size=256), (16, 64, 256)),
    "gru": (nn.GRU(input_size=256, hidden_size=256), (16, 64, 256)),
    "causal_conv1d": (nn.CausalConv1d(channels=128), _CELLS),
    "slstm": (nn.SLSTM(embed_dim=128), _CELLS),
    "mlstm": (nn.MLSTM(embed_dim=128), _CELLS),
    "agalite": (nn.AGaLiTe(embed_dim=128), _CELLS),
    "axon": (nn.Axon(in_features=128, out_features=128, activation="silu"), _CELLS),
    "axon_linear": (nn.AxonLinear(in_features=128, out_features=128), _CELLS),
    "xl_attention": (nn.XLAttention(embed_dim=128), _CELLS),
    "pass_through": (nn.PassThrough(core=_LSTM), _CELLS),
    "pre_up": (nn.PreUp(embed_dim=128, core=nn.CausalConv1d(channels=256)), _CELLS),
    "pre_up_gated": (nn.PreUpGated(embed_dim=128, core=nn.MLSTM(embed_dim=256)), _CELLS),
    "post_up": (nn.PostUp(embed_dim=128, core=_LSTM), _CELLS),
    "post_up_gated": (nn.PostUpGated(embed_dim=128, core=_LSTM), _CELLS),
    "adapter": (nn.Adapter(embed_dim=128, core=_LSTM), _CELLS),
    "column": (nn.Column(embed_dim=128, experts=_EXPERTS), _CELLS),
    "kmeans": (nn.KMeans(num_clusters=256, in_features=128, output="features", temperature=4.0), (4096, 128)),
    "gate": (nn.Gate(in_features=512, out_features=16, top_k=2), (4096, 512)),
    "parallel": (_experts(512), (256, 512)),
    "sequential": (_BLOCK, (256, 512)),
    "residual": (
        nn.Sequential(layers=(nn.Dense(in_features=512, out_features=512, activation="tanh"), nn.Residual())),
        (512, 512),
    ),
    "short_conv": (nn.ShortConv(embed_dim=512), (4, 256, 512)),
    "mamba": (nn.Mamba(embed_dim=256, inner_features=512, dt_rank=16), (2, 128, 256)),
    "mamba2": (nn.Mamba2(embed_dim=256, num_heads=8, head_dim=64, state_size=32), (2, 128, 256)),
    "scale": (nn.Scale(factor=0.22), _ROWS),
    "discrete": (nn.Discrete(function="sign"), _ROWS),
    "clamp": (nn.Clamp(min=0.0, max=6.0), _ROWS),
    "softcap": (nn.Softcap(cap=30.0), _ROWS),
    "softmax": (nn.Softmax(), _ROWS),
    "masked_softmax": (nn.MaskedSoftmax(mask=tuple(i % 4 != 3 for i in range(1024))), _ROWS),
    "gumbel_softmax": (nn.GumbelSoftmax(temperature=0.7), _ROWS),
    "sparsemax": (nn.Sparsemax(), _ROWS),
    "entmax": (nn.Entmax(alpha=1.5), _ROWS),
    "grid_softmax": (nn.GridSoftmax(rows=16, cols=64), _ROWS),
    "hierarchical_softmax": (nn.HierarchicalSoftmax(levels=(32, 32)), (4096, 1056)),
    "adaptive_softmax": (nn.AdaptiveSoftmax(n_classes=1022, cutoffs=(254, 510)), (4096, 1024)),
    "mixture_softmax": (nn.MixtureSoftmax(components=4), (4096, 1028)),
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
