"""One or more specs of every layer kind with an input shape: the table that the layer tests walk."""

from __future__ import annotations

from typing import Any, TypeAlias

from tests.layers.cell_cases import CELLS
from tests.layers.fabric_cases import FABRICS
from tests.layers.program_cases import PROGRAMS
from tests.layers.scaffold_cases import SCAFFOLDS
from tests.tiers import alike
from volumetric.graph.numeric.activations import ACTIVATIONS, Activation
from volumetric.layers import (
    GRU,
    LSTM,
    MLP,
    RNN,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    AdaptiveSoftmax,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    Clamp,
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
    PositionEmbedding,
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
)
from volumetric.layers.gate import Scoring

LLAMA3 = Rope(
    dim=8, base=50.0, scaling="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_context=16
)

_ATTENTION: dict[str, LayerSpec] = {
    "mha": MultiHeadAttention(embed_dim=12, num_heads=3),
    "mha-bidirectional": MultiHeadAttention(embed_dim=12, num_heads=3, causal=False, qkv_bias=True, out_bias=True),
    "gqa-rope": MultiHeadAttention(embed_dim=12, num_heads=4, num_kv_heads=2, head_dim=8, rope=Rope(dim=8)),
    "mqa-partial-rope": MultiHeadAttention(
        embed_dim=10, num_heads=3, num_kv_heads=1, head_dim=6, rope=Rope(dim=4, scaling="linear", factor=2.0)
    ),
    "llama3-rope": MultiHeadAttention(embed_dim=16, num_heads=2, rope=LLAMA3, qkv_bias=True),
    "qk-norm": MultiHeadAttention(embed_dim=12, num_heads=2, head_dim=8, rope=Rope(dim=8), qk_norm=True),
    "qk-norm-offset": MultiHeadAttention(embed_dim=12, num_heads=2, qk_norm=True, qk_norm_unit_offset=True),
    "qk-norm-over-all": MultiHeadAttention(
        embed_dim=12, num_heads=4, num_kv_heads=2, head_dim=4, rope=Rope(dim=4), qk_norm=True, qk_norm_over="all"
    ),
    "window": MultiHeadAttention(embed_dim=12, num_heads=2, window=2, rope=Rope(dim=6)),
    "window-bidirectional": MultiHeadAttention(embed_dim=12, num_heads=2, window=2, causal=False),
    "softcap": MultiHeadAttention(embed_dim=12, num_heads=2, softcap=0.5, scale=0.7),
    "temperature": MultiHeadAttention(embed_dim=12, num_heads=2, temperature_scale=0.7, temperature_every=2),
    "qk-norm-without-gain": MultiHeadAttention(
        embed_dim=12, num_heads=4, num_kv_heads=2, head_dim=6, rope=Rope(dim=4), qk_norm=True, qk_norm_gain=False
    ),
    "sinks": MultiHeadAttention(embed_dim=12, num_heads=4, num_kv_heads=2, sinks=True, window=3),
    "chunk": MultiHeadAttention(embed_dim=12, num_heads=2, chunk=2),
    "qk-norm-own": MultiHeadAttention(
        embed_dim=12, num_heads=4, num_kv_heads=2, qk_norm=True, qk_norm_kind="layer", qk_norm_over="each"
    ),
}

_PRENORM = Sequential(layers=(RMSNorm(num_features=6), Dense(in_features=6, out_features=6), Residual(source="input")))

Case: TypeAlias = tuple[LayerSpec, tuple[int, ...]]

_CONVOLUTIONS: dict[str, Case] = {
    "conv1d": (Conv1d(in_channels=2, out_channels=3, kernel_size=3), (2, 2, 7)),
    "conv1d-same": (
        Conv1d(in_channels=2, out_channels=2, kernel_size=4, padding="same", dilation=2, activation="tanh"),
        (1, 2, 9),
    ),
    "conv2d": (Conv2d(in_channels=2, out_channels=2, kernel_size=3, padding=1, activation="silu"), (2, 2, 3, 5)),
    "conv2d-everything": (
        Conv2d(
            in_channels=4,
            out_channels=6,
            kernel_size=(3, 2),
            stride=(2, 3),
            padding=(1, 2),
            dilation=(1, 2),
            groups=2,
            activation="gelu_tanh",
        ),
        (1, 4, 5, 7),
    ),
    "conv2d-depthwise": (
        Conv2d(in_channels=3, out_channels=6, kernel_size=2, padding="valid", groups=3, bias=False),
        (1, 3, 3, 4),
    ),
    "conv2d-pointwise": (Conv2d(in_channels=3, out_channels=2, kernel_size=1, stride=2), (2, 3, 3, 3)),
    "conv3d": (
        Conv3d(in_channels=2, out_channels=2, kernel_size=(2, 1, 3), stride=(1, 2, 1), padding=(0, 1, 1)),
        (1, 2, 3, 3, 3),
    ),
    "conv-transpose1d": (ConvTranspose1d(in_channels=2, out_channels=3, kernel_size=3, activation="tanh"), (2, 2, 4)),
    "conv-transpose1d-long-dilation": (
        ConvTranspose1d(in_channels=2, out_channels=2, kernel_size=2, dilation=3, output_padding=2, padding=1),
        (1, 2, 3),
    ),
    "conv-transpose2d-everything": (
        ConvTranspose2d(
            in_channels=4,
            out_channels=6,
            kernel_size=(3, 2),
            stride=(2, 3),
            padding=(1, 0),
            output_padding=(1, 2),
            dilation=(1, 2),
            groups=2,
            activation="silu",
        ),
        (1, 4, 2, 3),
    ),
    "conv-transpose2d-no-bias": (
        ConvTranspose2d(in_channels=1, out_channels=1, kernel_size=2, stride=3, bias=False),
        (2, 1, 2, 2),
    ),
    "conv-transpose3d": (
        ConvTranspose3d(in_channels=2, out_channels=1, kernel_size=(2, 1, 3), stride=(1, 2, 1), padding=(0, 0, 1)),
        (1, 2, 2, 2, 3),
    ),
}


def _expert(activation: Activation = "tanh") -> Dense:
    return Dense(in_features=4, out_features=3, activation=activation)


_POOLS: dict[str, Case] = {
    "max-pool1d": (MaxPool1d(kernel_size=2), (2, 3, 7)),
    "max-pool1d-everything": (
        MaxPool1d(kernel_size=3, stride=2, padding=1, dilation=2, ceil_mode=True),
        (2, 1, 8),
    ),
    "max-pool2d": (MaxPool2d(kernel_size=2), (2, 2, 5, 6)),
    "max-pool2d-overlapping": (MaxPool2d(kernel_size=(3, 2), stride=(2, 1), padding=(1, 0)), (1, 2, 6, 4)),
    "max-pool2d-ceil": (MaxPool2d(kernel_size=3, stride=2, ceil_mode=True), (1, 2, 6, 8)),
    "max-pool3d": (MaxPool3d(kernel_size=(2, 1, 2), stride=(1, 2, 2), padding=(1, 0, 1)), (1, 2, 3, 3, 4)),
    "avg-pool1d": (AvgPool1d(kernel_size=3, stride=1, padding=1), (2, 2, 5)),
    "avg-pool2d": (AvgPool2d(kernel_size=2), (2, 2, 5, 4)),
    "avg-pool2d-edges": (
        AvgPool2d(kernel_size=(3, 2), stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        (1, 2, 6, 5),
    ),
    "avg-pool2d-ceil": (AvgPool2d(kernel_size=3, stride=2, padding=1, ceil_mode=True), (1, 2, 5, 6)),
    "avg-pool3d": (AvgPool3d(kernel_size=2, stride=(2, 1, 2), padding=(0, 1, 0)), (1, 2, 4, 2, 3)),
    "global-avg1d": (AdaptiveAvgPool1d(output_size=1), (2, 3, 5)),
    "global-avg2d": (AdaptiveAvgPool2d(output_size=1), (2, 3, 4, 3)),
    "adaptive-avg2d": (AdaptiveAvgPool2d(output_size=(3, 2)), (2, 2, 5, 4)),
    "adaptive-avg3d": (AdaptiveAvgPool3d(output_size=(2, 1, 3)), (1, 2, 3, 2, 4)),
    "global-max1d": (AdaptiveMaxPool1d(output_size=1), (2, 3, 5)),
    "adaptive-max2d": (AdaptiveMaxPool2d(output_size=(3, 2)), (2, 2, 5, 4)),
    "global-max2d": (AdaptiveMaxPool2d(output_size=1), (2, 3, 3, 4)),
    "adaptive-max3d": (AdaptiveMaxPool3d(output_size=2), (1, 2, 3, 2, 4)),
    "dropout": (Dropout(p=0.4), (3, 5)),
    "dropout-images": (Dropout(p=0.2), (2, 3, 2, 2)),
    "dropout-inside": (
        Sequential(layers=(Dense(in_features=4, out_features=4), Dropout(), Residual(source="input"))),
        (3, 4),
    ),
    "dropout-filter": (
        Parallel(
            branches=(Sequential(layers=(Dropout(p=0.3), _expert())), Sequential(layers=(Dropout(p=0.3), _expert()))),
            combine="filter",
            gate=Gate(in_features=4, out_features=2),
        ),
        (5, 4),
    ),
    "flatten": (Flatten(), (2, 3, 2, 2)),
    "flatten-some": (Flatten(start_dim=-3, end_dim=2), (2, 3, 2, 2)),
    "last-step": (LastStep(), (3, 4, 2)),
    "last-step-images": (LastStep(), (2, 1, 2, 3)),
    "group-norm": (GroupNorm(num_groups=2, num_channels=6), (2, 6, 3, 2)),
    "group-norm-relu": (GroupNorm(num_groups=2, num_channels=2, activation="silu"), (2, 2, 5)),
    "batch-norm1d": (BatchNorm1d(num_features=3), (5, 3)),
    "batch-norm1d-mean": (BatchNorm1d(num_features=2, momentum=None, activation="tanh"), (3, 2, 4)),
    "batch-norm2d": (BatchNorm2d(num_features=3, eps=1e-3, momentum=0.3), (2, 3, 2, 3)),
    "batch-norm2d-plain": (BatchNorm2d(num_features=2, affine=False), (3, 2, 2, 2)),
    "batch-norm2d-untracked": (BatchNorm2d(num_features=2, track_running_stats=False), (2, 2, 2, 3)),
    "batch-norm3d": (BatchNorm3d(num_features=2), (2, 2, 2, 1, 3)),
    "batch-norm-inside": (
        Sequential(
            layers=(Conv1d(in_channels=2, out_channels=2, kernel_size=2, bias=False), BatchNorm1d(num_features=2))
        ),
        (3, 2, 4),
    ),
    "batch-norm-filter": (
        Parallel(
            branches=(
                Sequential(layers=(BatchNorm1d(num_features=4), Dense(in_features=4, out_features=3))),
                _expert(),
            ),
            combine="filter",
            gate=Gate(in_features=4, out_features=2),
        ),
        (5, 4),
    ),
    "group-norm-plain": (GroupNorm(num_groups=3, num_channels=3, affine=False), (2, 3, 5)),
    "group-norm-rows": (GroupNorm(num_groups=1, num_channels=4), (3, 4)),
}

_RECURRENT: dict[str, Case] = {
    "rnn": (RNN(input_size=3, hidden_size=4), (5, 3)),
    "rnn-relu": (RNN(input_size=3, hidden_size=4, nonlinearity="relu"), (2, 4, 3)),
    "lstm": (LSTM(input_size=3, hidden_size=2), (5, 3)),
    "lstm-reverse": (LSTM(input_size=3, hidden_size=2, reverse=True), (5, 3)),
    "gru-reverse-batch": (GRU(input_size=2, hidden_size=3, reverse=True), (2, 4, 2)),
    "lstm-both-ways": (
        Parallel(
            branches=(LSTM(input_size=3, hidden_size=2), LSTM(input_size=3, hidden_size=2, reverse=True)),
            combine="concat",
        ),
        (5, 3),
    ),
    "lstm-batch": (LSTM(input_size=2, hidden_size=3, bias=False), (3, 4, 2)),
    "gru": (GRU(input_size=3, hidden_size=2), (5, 3)),
    "gru-batch": (GRU(input_size=2, hidden_size=3, bias=False), (2, 4, 2)),
    "gru-one-step": (GRU(input_size=1, hidden_size=1), (1, 1)),
}

_SOFTMAXES: dict[str, Case] = {
    "softmax": (Softmax(temperature=0.7), (3, 5)),
    "softmax-channels": (Softmax(axis=1), (2, 3, 2, 2)),
    "masked-softmax": (MaskedSoftmax(mask=(True, False, True, True, False), temperature=2.0), (3, 5)),
    "masked-softmax-axis": (MaskedSoftmax(mask=(False, True, True), axis=-2), (2, 3, 4)),
    "masked-softmax-nothing": (MaskedSoftmax(mask=(False, False)), (3, 2)),
    "gumbel-softmax": (GumbelSoftmax(seed=5, temperature=0.8), (4, 5)),
    "gumbel-softmax-batch": (GumbelSoftmax(seed=6, axis=1), (2, 3, 4)),
    "sparsemax": (Sparsemax(), (4, 5)),
    "sparsemax-axis": (Sparsemax(temperature=0.5, axis=1), (2, 4, 3)),
    "entmax": (Entmax(), (4, 5)),
    "entmax-soft": (Entmax(alpha=1.2, temperature=0.9), (2, 3, 4)),
    "entmax-sparse": (Entmax(alpha=2.0, axis=-2), (2, 3, 4)),
    "grid-softmax": (GridSoftmax(rows=2, cols=3), (3, 6)),
    "grid-softmax-axis": (GridSoftmax(rows=2, cols=2, axis=1, temperature=2.0), (2, 4, 3)),
    "hierarchical-softmax": (HierarchicalSoftmax(levels=(2, 3, 2)), (2, 20)),
    "hierarchical-softmax-axis": (HierarchicalSoftmax(levels=(2, 2), axis=1), (2, 6, 3)),
    "adaptive-softmax": (AdaptiveSoftmax(n_classes=9, cutoffs=(2, 5)), (3, 11)),
    "adaptive-softmax-axis": (AdaptiveSoftmax(n_classes=4, cutoffs=(1,), axis=-2), (2, 5, 2)),
    "mixture-softmax": (MixtureSoftmax(components=3), (3, 15)),
    "mixture-softmax-axis": (MixtureSoftmax(components=2, axis=1), (2, 6, 2)),
}


def _experts(top_k: int | None, *branches: LayerSpec, scoring: Scoring = "softmax", **fields: Any) -> Parallel:
    gate = Gate(in_features=4, out_features=len(branches), top_k=top_k, bias=top_k is None, scoring=scoring)
    return Parallel(branches=branches, combine="filter", gate=gate, **fields)


_MIXTURES: dict[str, Case] = {
    "gate": (Gate(in_features=4, out_features=3), (3, 4)),
    "gate-top-2": (Gate(in_features=4, out_features=5, top_k=2, bias=True), (2, 3, 4)),
    "gate-of-all": (Gate(in_features=4, out_features=5, top_k=2, bias=True, scoring="softmax_all"), (2, 3, 4)),
    "gate-of-all-open": (Gate(in_features=4, out_features=3, scoring="softmax_all"), (3, 4)),
    "gate-sigmoid": (Gate(in_features=4, out_features=1, scoring="sigmoid"), (3, 4)),
    "gate-sigmoid-top-2": (Gate(in_features=4, out_features=5, top_k=2, scoring="sigmoid"), (3, 4)),
    "filter": (_experts(None, _expert(), _expert("silu"), _expert("linear")), (5, 4)),
    "filter-top-1": (_experts(1, _expert(), _expert()), (3, 4)),
    "filter-top-2": (_experts(2, _expert(), _expert(), _expert(), _expert()), (2, 3, 4)),
    "filter-of-all": (_experts(2, _expert(), _expert(), _expert(), _expert(), scoring="softmax_all"), (5, 4)),
    "filter-inputs": (_experts(2, _expert(), _expert(), _expert(), scoring="sigmoid", weigh="input"), (5, 4)),
    "filter-inputs-all": (_experts(None, _expert(), _expert(), weigh="input"), (2, 3, 4)),
    "filter-shared": (
        Parallel(
            branches=(
                _experts(1, _expert(), _expert(), scoring="softmax_all"),
                _experts(None, _expert("silu"), scoring="sigmoid"),
            ),
            combine="add",
        ),
        (5, 4),
    ),
    "filter-nested": (
        _experts(
            2,
            _experts(1, _expert(), _expert()),
            Sequential(layers=(Parallel(branches=(_expert(), _expert()), combine="avg"), Softmax())),
            LSTM(input_size=4, hidden_size=3),
        ),
        (4, 4),
    ),
    "grid-scatter": (
        Parallel(
            branches=(_expert(), _expert("silu"), _experts(1, _expert(), _expert())),
            combine="grid_scatter",
            grid=(2, 1, 2),
            positions=((1, 0, 1), (0, 0, 0), (1, 0, 0)),
        ),
        (2, 2, 4),
    ),
    "grid-scatter-in-order": (
        Parallel(branches=(_expert(), _expert()), combine="grid_scatter", grid=(1, 3, 1)),
        (3, 4),
    ),
}

CASES: dict[str, Case] = {
    **{name: (spec, (5, spec.embed_dim)) for name, spec in _ATTENTION.items() if isinstance(spec, MultiHeadAttention)},
    "mha-batch": (_ATTENTION["gqa-rope"], (2, 5, 12)),
    "mha-one-row": (_ATTENTION["gqa-rope"], (1, 12)),
    "embedding": (Embedding(num_embeddings=7, embedding_dim=5, scale=1.5), (6,)),
    "position": (PositionEmbedding(num_embeddings=9, embedding_dim=5, offset=2), (4, 5)),
    "position-batch": (PositionEmbedding(num_embeddings=9, embedding_dim=5), (3, 4, 5)),
    **{f"dense-{a}": (Dense(in_features=5, out_features=7, activation=a), (4, 5)) for a in ACTIVATIONS},
    "dense-no-bias": (Dense(in_features=1, out_features=1, bias=False), (1, 1)),
    "dense-batch": (Dense(in_features=5, out_features=3), (2, 3, 5)),
    "rms": (RMSNorm(num_features=7), (3, 7)),
    "rms-offset": (RMSNorm(num_features=7, unit_offset=True, eps=1e-5), (2, 3, 7)),
    "layer-norm": (LayerNorm(num_features=7), (3, 7)),
    "layer-norm-no-bias": (LayerNorm(num_features=7, bias=False), (2, 2, 7)),
    "short-conv": (ShortConv(embed_dim=4), (5, 4)),
    "short-conv-one-row": (ShortConv(embed_dim=3, kernel_size=4, bias=True), (1, 3)),
    "short-conv-batch": (ShortConv(embed_dim=3, kernel_size=2, bias=True), (2, 4, 3)),
    "mamba": (Mamba(embed_dim=4, inner_features=6, state_size=3, dt_rank=2), (5, 4)),
    "mamba-one-row": (Mamba(embed_dim=3, inner_features=2, kernel_size=2, bias=True, conv_bias=False), (1, 3)),
    "mamba-batch": (Mamba(embed_dim=3, inner_features=5, state_size=2, kernel_size=3), (2, 4, 3)),
    "mamba2": (Mamba2(embed_dim=4, num_heads=2, head_dim=3, state_size=4), (5, 4)),
    "mamba2-groups": (
        Mamba2(embed_dim=3, num_heads=4, head_dim=2, state_size=3, groups=2, bias=True, out_bias=True, conv_bias=False),
        (2, 3, 3),
    ),
    "mamba2-factors": (
        Mamba2(
            embed_dim=3,
            num_heads=1,
            head_dim=4,
            state_size=2,
            norm=False,
            norm_before_gate=True,
            multipliers=(0.5, 2.0, 1.5, 0.7, 1.2),
        ),
        (4, 3),
    ),
    "mamba2-norm-first": (
        Mamba2(embed_dim=3, num_heads=2, head_dim=2, state_size=2, norm_before_gate=True, dt_min=0.6, dt_max=0.8),
        (4, 3),
    ),
    "clamp": (Clamp(min=-0.5, max=0.7), (3, 5)),
    "clamp-relu": (Clamp(min=0.0), (2, 3, 4, 2)),
    "clamp-above": (Clamp(max=0.25), (4, 3)),
    **{f"discrete-{f}": (Discrete(function=f), (3, 5)) for f in ("step", "sign", "ternary")},
    "softcap-layer": (Softcap(cap=2.0), (3, 5)),
    "scale": (Scale(factor=-0.3), (2, 3, 5)),
    **{f"swiglu-{a}": (SwiGLU(in_features=5, hidden_features=7, activation=a), (3, 5)) for a in ACTIVATIONS},
    "swiglu-factor": (SwiGLU(in_features=5, hidden_features=7, gate_factor=0.4), (3, 5)),
    "swiglu-bias": (SwiGLU(in_features=5, hidden_features=3, bias=True), (2, 3, 5)),
    "swiglu-bounded": (
        SwiGLU(in_features=5, hidden_features=7, activation="quick_gelu", bias=True, limit=0.4, up_offset=1.0),
        (3, 5),
    ),
    **{f"mlp-{a}": (MLP(in_features=5, hidden_features=7, activation=a), (3, 5)) for a in ACTIVATIONS},
    "mlp-no-bias": (MLP(in_features=5, hidden_features=3, bias=False), (2, 3, 5)),
    "sequential": (Sequential(layers=(_PRENORM, _PRENORM, Residual(), Softmax())), (4, 6)),
    "sequential-named": (
        Sequential(layers=(Dense(in_features=6, out_features=6), _PRENORM, Softcap(cap=1.0), Residual(source="#0"))),
        (4, 6),
    ),
    "parallel-concat": (
        Parallel(branches=(Dense(in_features=6, out_features=2), _PRENORM, Dense(in_features=6, out_features=3))),
        (4, 6),
    ),
    "parallel-add": (Parallel(branches=(_PRENORM, Dense(in_features=6, out_features=6)), combine="add"), (2, 3, 6)),
    "parallel-avg": (Parallel(branches=(_PRENORM, _PRENORM, Softmax()), combine="avg"), (4, 6)),
    "parallel-avg-one": (Parallel(branches=(_PRENORM,), combine="avg"), (4, 6)),
    "parallel-add-one": (Parallel(branches=(_PRENORM,), combine="add"), (4, 6)),
    "parallel-nested": (
        Parallel(
            branches=(
                Parallel(branches=(_PRENORM, Softmax()), combine="add"),
                Sequential(layers=(Parallel(branches=(Softmax(), _PRENORM)), Dense(in_features=12, out_features=6))),
            ),
            combine="avg",
        ),
        (4, 6),
    ),
    **_CONVOLUTIONS,
    **_POOLS,
    **_RECURRENT,
    **CELLS,
    **SCAFFOLDS,
    **FABRICS,
    **PROGRAMS,
    **_SOFTMAXES,
    **_MIXTURES,
    "kmeans": (KMeans(num_clusters=4, in_features=3), (5, 3)),
    "kmeans-sharp-batch": (KMeans(num_clusters=3, in_features=2, temperature=0.6), (2, 3, 2)),
    "kmeans-features": (KMeans(num_clusters=4, in_features=3, temperature=0.8, output="features"), (5, 3)),
    "kmeans-features-batch": (KMeans(num_clusters=2, in_features=4, output="features"), (2, 1, 4)),
    "reshape": (Reshape(shape=(3, 4)), (2, 2, 6)),
    "reshape-flat": (Reshape(shape=(-1,)), (2, 3, 2, 2)),
    "reshape-rest": (Reshape(shape=(2, -1, 1)), (3, 6)),
    "residual": (Sequential(layers=(Dense(in_features=6, out_features=6), Residual())), (4, 6)),
}
alike({name: spec.kind for name, (spec, _) in CASES.items()})
