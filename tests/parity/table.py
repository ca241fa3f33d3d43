"""What the parity suite covers: layer kind × role × numeric type × device, and the shapes of the sweep.

`covered` is the table itself; `docs/support.md` is generated from it, so a cell there is a test here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, TypeAlias

from tests.layers.cases import CASES
from tests.layers.fabric_cases import small
from tests.layers.program_cases import program
from volumetric.dtypes import DTYPES, DType, Scheme
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
    Flatten,
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
    Reshape,
    Residual,
    RMSNorm,
    Rope,
    Scale,
    Sequential,
    ShortConv,
    Softcap,
    Softmax,
    Sparsemax,
    SwiGLU,
    XLAttention,
)
from volumetric.layers.fabric.declared import InPort, OutPort
from volumetric.layers.fabric.places import XBand
from volumetric.layers.program.edge import Edge
from volumetric.layers.program.ports import In, Out
from volumetric.runtime.cpu.graph.device import CpuGraphs
from volumetric.runtime.gpu.graph import GpuGraphs

GRAPHS: Final = {"cpu": CpuGraphs, "gpu": GpuGraphs}
"""What compiles graphs on each fast device."""

Role = Literal["forward", "vjp"]
ROLES: Final[tuple[Role, ...]] = ("forward", "vjp")
Example: TypeAlias = tuple[LayerSpec, tuple[int, ...]]
"""A layer, and the shape of its input."""

TOLERANCE: Final = 1e-5
"""Largest difference from the float64 reference over the largest value. Weights of every type are the same float32
numbers on all devices, so one figure serves all types; what differs is the order of float32 sums."""

READERS: Final = (
    *("dense", "embedding", "position_embedding", "rms_norm", "multi_head_attention", "lstm"),
    *("conv2d", "causal_conv1d"),
)
"""Kinds that meet every type: one for each way in which weights are read. Those of scaffolds and containers are dense
layers inside, and where weights are decoded for an operation of its own, one type is as good as another."""
APART: Final = 7
SIZES: Final = ((1, 1, 1), (17, 7, 13), (31, 16, 15), (33, 17, 31), (1, 63, 65), (65, 33, 64))
"""Rows and two widths: 1, primes, one less and more than the sides of tiles; batches of 1, 17, 31, 33."""


def wide(dtype: DType) -> bool:
    """Whether GPUs, which have no 64-bit numbers, refuse a type."""
    return dtype.bits > 32


def covered(kind: str, role: Role, dtype: DType, device: str) -> bool:
    """Whether a cell of the table runs. What does not is refused, and that is tested too."""
    return not (device == "gpu" and wide(dtype) and weighted(kind))


def training(dtype: DType, device: str) -> str:
    """How a device gives the forward pass of quantisation-aware training its weights, as the device itself says."""
    return GRAPHS[device].rounds(Scheme.default(dtype)) or "none"


def weighted(kind: str) -> bool:
    """Whether layers of a kind have weights of their own, so that their numeric type matters."""
    return bool(EXAMPLES[kind](3, 4, 5)[0].params())


def cells() -> Iterator[tuple[str, DType]]:
    """Every layer kind with every type of its weights; kinds without weights once, in float32."""
    for kind in EXAMPLES:
        for dtype in DTYPES:
            if weighted(kind) or dtype.name == "float32":
                yield kind, dtype


def met(kind: str, dtype: DType) -> bool:
    """Whether a test runs a kind in a type: the others of `READERS`' ways have three types each, together all."""
    if kind in READERS or not weighted(kind):
        return True
    return list(DTYPES).index(dtype) % APART == list(EXAMPLES).index(kind) % APART


def _attention(rows: int, a: int, b: int) -> Example:
    width = 2 * (b % 8 + 1)
    return MultiHeadAttention(
        embed_dim=a, num_heads=2, num_kv_heads=1, head_dim=width, rope=Rope(dim=width), qk_norm=True, qkv_bias=True
    ), (rows, a)


def _parallel(rows: int, a: int, b: int) -> Example:
    experts = tuple(Dense(in_features=a, out_features=b, activation=name) for name in ("tanh", "silu", "linear"))
    gate = Gate(in_features=a, out_features=3, top_k=2)
    return Parallel(branches=experts, combine="filter", gate=gate), (rows, a)


def _column(rows: int, a: int, b: int) -> Example:
    width = a % 9 + 1
    experts = Scale(factor=0.5), Clamp(min=-0.5, max=0.5), PassThrough(core=CausalConv1d(channels=width))
    return Column(embed_dim=width, experts=experts, key_dim=b % 9 + 1, top_k=2 + b % 2, prune=b % 3 == 0), (
        rows,
        3,
        width,
    )


def _mask(width: int) -> tuple[bool, ...]:
    return tuple(i % 3 != 1 for i in range(width))


EXAMPLES: Final[dict[str, Callable[[int, int, int], Example]]] = {
    "dense": lambda r, a, b: (Dense(in_features=a, out_features=b, activation="gelu"), (r, a)),
    "embedding": lambda r, a, b: (Embedding(num_embeddings=b, embedding_dim=a), (r,)),
    "position_embedding": lambda r, a, b: (
        PositionEmbedding(num_embeddings=r + 2, embedding_dim=a, offset=2),
        (r, a),
    ),
    "rms_norm": lambda r, a, b: (RMSNorm(num_features=b), (r, b)),
    "layer_norm": lambda r, a, b: (LayerNorm(num_features=b), (r, b)),
    "multi_head_attention": _attention,
    "swiglu": lambda r, a, b: (SwiGLU(in_features=a, hidden_features=b), (r, a)),
    "mlp": lambda r, a, b: (MLP(in_features=a, hidden_features=b), (r, a)),
    "conv1d": lambda r, a, b: (
        Conv1d(in_channels=a % 6 + 1, out_channels=b % 7 + 1, kernel_size=3, padding=1),
        (r, a % 6 + 1, b),
    ),
    "conv2d": lambda r, a, b: (
        Conv2d(in_channels=2 * (a % 3 + 1), out_channels=4, kernel_size=(3, 2), stride=(2, 1), padding=1, groups=2),
        (r, 2 * (a % 3 + 1), b % 9 + 1, a % 7 + 1),
    ),
    "conv3d": lambda r, a, b: (
        Conv3d(in_channels=a % 2 + 1, out_channels=b % 3 + 1, kernel_size=2, padding=1, dilation=(1, 2, 1)),
        (r, a % 2 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
    ),
    "conv_transpose1d": lambda r, a, b: (
        ConvTranspose1d(in_channels=a % 6 + 1, out_channels=b % 7 + 1, kernel_size=3, stride=2, output_padding=1),
        (r, a % 6 + 1, b),
    ),
    "conv_transpose2d": lambda r, a, b: (
        ConvTranspose2d(
            in_channels=2 * (a % 3 + 1), out_channels=4, kernel_size=(3, 2), stride=(2, 1), padding=(1, 0), groups=2
        ),
        (r, 2 * (a % 3 + 1), b % 9 + 1, a % 7 + 1),
    ),
    "conv_transpose3d": lambda r, a, b: (
        ConvTranspose3d(in_channels=a % 2 + 1, out_channels=b % 3 + 1, kernel_size=2, dilation=(1, 2, 1)),
        (r, a % 2 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
    ),
    "max_pool1d": lambda r, a, b: (
        MaxPool1d(kernel_size=3, stride=2, padding=1, ceil_mode=True),
        (r, a % 6 + 1, b),
    ),
    "max_pool2d": lambda r, a, b: (MaxPool2d(kernel_size=(3, 2), padding=1), (r, a % 3 + 1, b % 9 + 3, a % 7 + 2)),
    "max_pool3d": lambda r, a, b: (
        MaxPool3d(kernel_size=2, stride=(1, 2, 1), dilation=(1, 2, 1), padding=1),
        (r, a % 2 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
    ),
    "avg_pool1d": lambda r, a, b: (
        AvgPool1d(kernel_size=3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        (r, a % 6 + 1, b),
    ),
    "avg_pool2d": lambda r, a, b: (AvgPool2d(kernel_size=(3, 2), padding=1), (r, a % 3 + 1, b % 9 + 3, a % 7 + 2)),
    "avg_pool3d": lambda r, a, b: (
        AvgPool3d(kernel_size=2, stride=(1, 2, 1), padding=1),
        (r, a % 2 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
    ),
    "adaptive_avg_pool1d": lambda r, a, b: (AdaptiveAvgPool1d(output_size=1), (r, a % 6 + 1, b)),
    "adaptive_avg_pool2d": lambda r, a, b: (
        AdaptiveAvgPool2d(output_size=(3, 2)),
        (r, a % 3 + 1, b % 9 + 3, a % 7 + 2),
    ),
    "adaptive_avg_pool3d": lambda r, a, b: (
        AdaptiveAvgPool3d(output_size=(2, 1, 3)),
        (r, a % 2 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
    ),
    "adaptive_max_pool1d": lambda r, a, b: (AdaptiveMaxPool1d(output_size=1), (r, a % 6 + 1, b)),
    "adaptive_max_pool2d": lambda r, a, b: (
        AdaptiveMaxPool2d(output_size=(3, 2)),
        (r, a % 3 + 1, b % 9 + 3, a % 7 + 2),
    ),
    "adaptive_max_pool3d": lambda r, a, b: (
        AdaptiveMaxPool3d(output_size=(2, 1, 3)),
        (r, a % 2 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
    ),
    "group_norm": lambda r, a, b: (GroupNorm(num_groups=a, num_channels=2 * a), (r, 2 * a, b)),
    "batch_norm1d": lambda r, a, b: (BatchNorm1d(num_features=a), (r, a, b) if a % 2 else (r, a)),
    "batch_norm2d": lambda r, a, b: (
        BatchNorm2d(num_features=a % 6 + 1, activation="relu"),
        (r, a % 6 + 1, b % 9 + 1, a % 7 + 1),
    ),
    "batch_norm3d": lambda r, a, b: (
        BatchNorm3d(num_features=a % 3 + 1, eps=1e-3),
        (r, a % 3 + 1, b % 4 + 1, a % 3 + 1, b % 5 + 1),
    ),
    "dropout": lambda r, a, b: (Dropout(p=0.3), (r, a, b)),
    "flatten": lambda r, a, b: (Flatten(), (r, a, b)),
    "last_step": lambda r, a, b: (LastStep(), (r, a, b)),
    "rnn": lambda r, a, b: (RNN(input_size=a, hidden_size=b), (r, 3, a)),
    "lstm": lambda r, a, b: (LSTM(input_size=a, hidden_size=b), (r, 3, a)),
    "gru": lambda r, a, b: (GRU(input_size=a, hidden_size=b), (r, 3, a)),
    "causal_conv1d": lambda r, a, b: (CausalConv1d(channels=a, mixing=b % 2 == 0), (r, 3, a)),
    "slstm": lambda r, a, b: (SLSTM(embed_dim=2 * (a % 9 + 1), num_heads=2), (r, 3, 2 * (a % 9 + 1))),
    "mlstm": lambda r, a, b: (
        MLSTM(embed_dim=3 * (a % 9 + 1), num_heads=1 if b % 2 else 3, chunk_size=2),
        (r, 3, 3 * (a % 9 + 1)),
    ),
    "agalite": lambda r, a, b: (AGaLiTe(embed_dim=a, num_heads=1 if a % 2 else 2, eta=b % 4 + 1), (r, 3, a)),
    "axon": lambda r, a, b: (Axon(in_features=a, out_features=b, activation="silu"), (r, 3, a)),
    "axon_linear": lambda r, a, b: (AxonLinear(in_features=a, out_features=b), (r, 3, a)),
    "xl_attention": lambda r, a, b: (
        XLAttention(embed_dim=a, num_heads=2, head_dim=b % 8 + 1, memory=2),
        (r, 3, a),
    ),
    "pass_through": lambda r, a, b: (PassThrough(core=LSTM(input_size=a, hidden_size=b)), (r, 3, a)),
    "pre_up": lambda r, a, b: (PreUp(embed_dim=a, core=Scale(factor=0.5)), (r, a)),
    "pre_up_gated": lambda r, a, b: (
        PreUpGated(embed_dim=a % 9 + 1, factor=1.5, core=Scale(factor=0.5)),
        (r, a % 9 + 1),
    ),
    "post_up": lambda r, a, b: (PostUp(embed_dim=a, factor=b / a, core=Scale(factor=0.5)), (r, a)),
    "post_up_gated": lambda r, a, b: (PostUpGated(embed_dim=a % 9 + 1, core=Scale(factor=0.5)), (r, a % 9 + 1)),
    "adapter": lambda r, a, b: (
        Adapter(embed_dim=a, bottleneck=b, per_channel=b % 2 == 0, core=Scale(factor=0.5)),
        (r, a),
    ),
    "column": _column,
    "fabric": lambda r, a, b: (
        small(inputs=(InPort("a", XBand("low"), a),), outputs=(OutPort("y", XBand("high"), b),)),
        (r, 3, a),
    ),
    "program": lambda r, a, b: (
        program(
            edges=(Edge("eye", "belief", rule="pooling"),), ports={"seen": In("eye", a), "guess": Out("belief", b)}
        ),
        (min(r, 3), a),
    ),
    "kmeans": lambda r, a, b: (KMeans(num_clusters=b, in_features=a, output="features", temperature=2.0), (r, a)),
    "gate": lambda r, a, b: (Gate(in_features=a, out_features=b, bias=True, top_k=min(b, 2)), (r, a)),
    "parallel": _parallel,
    "sequential": lambda r, a, b: (
        Sequential(layers=(Dense(in_features=a, out_features=b), LayerNorm(num_features=b))),
        (r, a),
    ),
    "residual": lambda r, a, b: (Sequential(layers=(Dense(in_features=a, out_features=a), Residual())), (r, a)),
    "reshape": lambda r, a, b: (Reshape(shape=(a, b)), (r, a * b)),
    "scale": lambda r, a, b: (Scale(factor=0.3), (r, a)),
    "short_conv": lambda r, a, b: (ShortConv(embed_dim=a), (r, 3, a)),
    "mamba": lambda r, a, b: (Mamba(embed_dim=a, inner_features=b, state_size=3, dt_rank=2), (r, 3, a)),
    "mamba2": lambda r, a, b: (
        Mamba2(embed_dim=a, num_heads=2 * b, head_dim=3, state_size=5, groups=2, multipliers=(0.5, 2.0, 1.5, 0.7, 1.2)),
        (r, 3, a),
    ),
    "clamp": lambda r, a, b: (Clamp(min=-0.5, max=0.7), (r, a)),
    "discrete": lambda r, a, b: (Discrete(function="ternary", surrogate="clip"), (r, a)),
    "softcap": lambda r, a, b: (Softcap(cap=2.0), (r, a)),
    "softmax": lambda r, a, b: (Softmax(temperature=0.7), (r, b)),
    "masked_softmax": lambda r, a, b: (MaskedSoftmax(mask=_mask(b)), (r, b)),
    "gumbel_softmax": lambda r, a, b: (GumbelSoftmax(seed=7), (r, b)),
    "sparsemax": lambda r, a, b: (Sparsemax(), (r, b)),
    "entmax": lambda r, a, b: (Entmax(alpha=1.3), (r, b)),
    "grid_softmax": lambda r, a, b: (GridSoftmax(rows=a, cols=b), (r, a * b)),
    "hierarchical_softmax": lambda r, a, b: (HierarchicalSoftmax(levels=(a, b)), (r, a + a * b)),
    "adaptive_softmax": lambda r, a, b: (AdaptiveSoftmax(n_classes=a + b, cutoffs=(a,)), (r, a + 1 + b)),
    "mixture_softmax": lambda r, a, b: (MixtureSoftmax(components=a), (r, a + a * b)),
}
"""Layer kind → an example for rows and two widths."""


def sweep() -> dict[str, Example]:
    """Every example in two sizes, which with those of its neighbours are all, and the cases of `tests.layers.cases`."""
    found = {
        f"{kind}-{r}x{a}x{b}": make(r, a, b)
        for n, (kind, make) in enumerate(EXAMPLES.items())
        for i, (r, a, b) in enumerate(SIZES)
        if (i + n) % 3 == 0
    }
    return {**found, **{f"case {name}": example for name, example in CASES.items()}}
