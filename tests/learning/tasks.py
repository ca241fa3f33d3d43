"""A small thing to learn for every layer kind: to do what a teacher of the same build does.

Student and teacher differ in all their parameters. Inputs are fixed, every update sees all of them, and the update is
the plain ``w ← w − rate · g``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tests.layers.fabric_cases import small
from tests.layers.program_cases import program
from volumetric.grid import Coord, Grid
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
from volumetric.network import Network, initialise
from volumetric.runtime import RunOptions, lower
from volumetric.runtime.reference import ReferenceDevice
from volumetric.train import Batch
from volumetric.weights import Params, WeightStore

SAMPLES = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What to learn.

    Attributes
    ----------
    layers : one after the other
    row : shape of a row of input; None for token ids
    rows : rows of a sample, where rows see each other; None: a sample is a row
    rate, steps : of gradient descent
    spread : standard deviation of the teacher's difference from the student
    """

    layers: tuple[LayerSpec, ...]
    row: tuple[int, ...] | None
    rows: int | None = None
    rate: float = 0.3
    steps: int = 48
    spread: float = 0.4

    @property
    def network(self) -> Network:
        return Network(
            grid=Grid(len(self.layers)),
            layers={Coord(z): spec for z, spec in enumerate(self.layers)},
            input_shape=() if self.row is None else self.row,
            input_dtype="int32" if self.row is None else "float32",
        )

    def student(self) -> Params:
        return initialise(self.network, seed=1)

    def teacher(self) -> Params:
        rng = np.random.default_rng(2)
        moved = {k: s.values() + self.spread * rng.standard_normal(s.shape) for k, s in self.student().items()}
        return Params({key: WeightStore.from_array(w.astype(np.float32)) for key, w in moved.items()})

    def batch(self) -> Batch:
        """Inputs and the teacher's answers."""
        rng = np.random.default_rng(3)
        lead = (SAMPLES,) if self.rows is None else (SAMPLES, self.rows)
        if self.row is None:
            x = rng.integers(0, 7, lead).astype(np.int32)
        else:
            x = rng.standard_normal((*lead, *self.row)).astype(np.float32)
        plan = lower(self.network)
        teacher = ReferenceDevice().compile(plan, self.teacher(), RunOptions())
        samples = [x] if self.rows is None else list(x)
        answers = [teacher.forward(teacher.new_state(), sample, last_only=False) for sample in samples]
        return Batch(x, answers[0] if self.rows is None else np.stack(answers))


def _before(layer: LayerSpec, width: int) -> tuple[LayerSpec, ...]:
    """A layer without parameters learns nothing itself: what is before it learns through its gradient."""
    return (Dense(in_features=4, out_features=width), layer)


def _behind_conv(layer: LayerSpec, conv: LayerSpec, row: tuple[int, ...]) -> Task:
    """A layer on images, behind a convolution that learns through its gradient."""
    return Task(layers=(conv, layer), row=row)


_CONVS: tuple[tuple[LayerSpec, tuple[int, ...]], ...] = (
    (Conv1d(in_channels=1, out_channels=2, kernel_size=2), (1, 7)),
    (Conv2d(in_channels=1, out_channels=2, kernel_size=2), (1, 5, 6)),
    (Conv3d(in_channels=1, out_channels=2, kernel_size=2), (1, 4, 3, 4)),
)


def _conv(width: int) -> CausalConv1d:
    return CausalConv1d(channels=width, kernel_size=2)


def _expert(activation: str = "tanh") -> Dense:
    return Dense(in_features=4, out_features=3, activation=activation)  # pyright: ignore[reportArgumentType]


TASKS: dict[str, Task] = {
    "dense": Task(layers=(Dense(in_features=4, out_features=3),), row=(4,)),
    "embedding": Task(layers=(Embedding(num_embeddings=7, embedding_dim=4),), row=None, rate=1.0),
    "position_embedding": Task(
        layers=(Dense(in_features=4, out_features=4), PositionEmbedding(num_embeddings=6, embedding_dim=4)),
        row=(4,),
        rows=5,
    ),
    "rms_norm": Task(layers=(RMSNorm(num_features=5),), row=(5,)),
    "layer_norm": Task(layers=(LayerNorm(num_features=5),), row=(5,)),
    "multi_head_attention": Task(
        layers=(MultiHeadAttention(embed_dim=8, num_heads=2, num_kv_heads=1, rope=Rope(dim=4), qk_norm=True),),
        row=(8,),
        rows=5,
        rate=0.5,
    ),
    "swiglu": Task(layers=(SwiGLU(in_features=4, hidden_features=6),), row=(4,)),
    "mlp": Task(layers=(MLP(in_features=4, hidden_features=6),), row=(4,)),
    "conv1d": Task(layers=(Conv1d(in_channels=2, out_channels=3, kernel_size=3, padding=1),), row=(2, 7)),
    "conv2d": Task(
        layers=(Conv2d(in_channels=2, out_channels=4, kernel_size=3, stride=2, groups=2, activation="tanh"),),
        row=(2, 6, 5),
    ),
    "conv3d": Task(layers=(Conv3d(in_channels=1, out_channels=2, kernel_size=2, dilation=2),), row=(1, 4, 4, 5)),
    "conv_transpose1d": Task(
        layers=(ConvTranspose1d(in_channels=2, out_channels=2, kernel_size=3, stride=2, output_padding=1),), row=(2, 4)
    ),
    "conv_transpose2d": Task(
        layers=(ConvTranspose2d(in_channels=2, out_channels=2, kernel_size=2, stride=2, activation="silu"),),
        row=(2, 3, 3),
        rate=1.0,
    ),
    "conv_transpose3d": Task(layers=(ConvTranspose3d(in_channels=1, out_channels=2, kernel_size=2),), row=(1, 2, 3, 2)),
    **{
        layer.kind: _behind_conv(layer, *conv)
        for layers, conv in zip(
            (
                (
                    MaxPool1d(kernel_size=2),
                    AvgPool1d(kernel_size=2),
                    AdaptiveMaxPool1d(output_size=2),
                    AdaptiveAvgPool1d(output_size=4),
                ),
                (
                    MaxPool2d(kernel_size=2),
                    AvgPool2d(kernel_size=2),
                    AdaptiveMaxPool2d(output_size=2),
                    AdaptiveAvgPool2d(output_size=3),
                ),
                (
                    MaxPool3d(kernel_size=2, stride=1),
                    AvgPool3d(kernel_size=2),
                    AdaptiveMaxPool3d(output_size=2),
                    AdaptiveAvgPool3d(output_size=2),
                ),
            ),
            _CONVS,
            strict=True,
        )
        for layer in layers
    },
    "group_norm": Task(layers=(GroupNorm(num_groups=2, num_channels=4),), row=(4, 3)),
    "batch_norm1d": Task(layers=(BatchNorm1d(num_features=4),), row=(4,)),
    "batch_norm2d": Task(layers=(BatchNorm2d(num_features=2),), row=(2, 3, 2)),
    "batch_norm3d": Task(layers=(BatchNorm3d(num_features=2, affine=True),), row=(2, 2, 1, 2)),
    "dropout": Task(layers=_before(Dropout(p=0.02), 3), row=(4,)),
    "flatten": Task(layers=(Conv1d(in_channels=2, out_channels=2, kernel_size=2), Flatten()), row=(2, 4)),
    "last_step": Task(layers=(Dense(in_features=3, out_features=4), LastStep()), row=(5, 3)),
    "rnn": Task(layers=(RNN(input_size=3, hidden_size=4),), row=(3,), rows=5),
    "lstm": Task(layers=(LSTM(input_size=3, hidden_size=4),), row=(3,), rows=5, rate=5.0),
    "gru": Task(layers=(GRU(input_size=3, hidden_size=4),), row=(5, 3), rate=3.0),
    "causal_conv1d": Task(layers=(CausalConv1d(channels=3, kernel_size=2),), row=(3,), rows=4),
    "slstm": Task(layers=(SLSTM(embed_dim=4, num_heads=1, kernel_size=2),), row=(4,), rows=4, rate=0.05, spread=0.2),
    "mlstm": Task(layers=(MLSTM(embed_dim=4, num_heads=1, kernel_size=2),), row=(4,), rows=4, rate=0.1),
    "agalite": Task(
        layers=(AGaLiTe(embed_dim=4, num_heads=1, eta=2, eps=0.1),), row=(4,), rows=4, rate=0.5, steps=120, spread=0.2
    ),
    "axon": Task(
        layers=(Axon(in_features=3, out_features=2, activation="tanh"),), row=(3,), rows=4, rate=0.6, spread=0.2
    ),
    "axon_linear": Task(layers=(AxonLinear(in_features=3, out_features=2),), row=(3,), rows=4, rate=0.2),
    "xl_attention": Task(layers=(XLAttention(embed_dim=4, num_heads=2, memory=2),), row=(4,), rows=4, rate=0.5),
    "pass_through": Task(layers=(PassThrough(core=RNN(input_size=3, hidden_size=4)),), row=(3,), rows=5),
    "pre_up": Task(layers=(PreUp(embed_dim=3, core=Dense(in_features=6, out_features=6)),), row=(3,)),
    "pre_up_gated": Task(layers=(PreUpGated(embed_dim=3, factor=1.0, core=_conv(3)),), row=(3,), rows=4, rate=1.0),
    "post_up": Task(layers=(PostUp(embed_dim=3, core=_conv(3)),), row=(3,), rows=4),
    "post_up_gated": Task(layers=(PostUpGated(embed_dim=3, core=_conv(3)),), row=(3,), rows=4, rate=1.0),
    "adapter": Task(layers=(Adapter(embed_dim=3, bottleneck=2, core=_conv(3)),), row=(3,), rows=4),
    "column": Task(
        layers=(Column(embed_dim=3, experts=(_conv(3), Dense(in_features=3, out_features=3))),), row=(3,), rows=4
    ),
    "fabric": Task(layers=(small(),), row=(3,), rows=4, rate=0.5),
    "program": Task(layers=(program(),), row=(2,), rows=4, rate=0.3),
    "kmeans": Task(layers=(KMeans(num_clusters=3, in_features=3, output="features"),), row=(3,)),
    "gate": Task(layers=(Gate(in_features=4, out_features=3, bias=True),), row=(4,), rate=3.0),
    "parallel": Task(
        layers=(
            Parallel(
                branches=(_expert(), _expert("silu"), _expert("linear")),
                combine="filter",
                gate=Gate(in_features=4, out_features=3, top_k=2),
            ),
        ),
        row=(4,),
        rate=2.0,
    ),
    "sequential": Task(
        layers=(Sequential(layers=(MLP(in_features=4, hidden_features=5), Residual(), LayerNorm(num_features=4))),),
        row=(4,),
    ),
    "residual": Task(layers=(Dense(in_features=4, out_features=4, activation="tanh"), Residual()), row=(4,), rate=0.6),
    "reshape": Task(
        layers=(Dense(in_features=4, out_features=6), Reshape(shape=(2, 3)), Reshape(shape=(-1,))),
        row=(4,),
    ),
    "scale": Task(layers=_before(Scale(factor=1.5), 3), row=(4,), rate=0.3),
    "short_conv": Task(layers=(ShortConv(embed_dim=2, kernel_size=2),), row=(2,), rows=4, rate=0.5, steps=80),
    "mamba": Task(
        layers=(Mamba(embed_dim=2, inner_features=3, state_size=2, kernel_size=2),),
        row=(2,),
        rows=4,
        rate=0.5,
        steps=80,
    ),
    "mamba2": Task(
        layers=(Mamba2(embed_dim=2, num_heads=2, head_dim=2, state_size=2, kernel_size=2),),
        row=(2,),
        rows=4,
        rate=0.5,
        steps=80,
    ),
    "clamp": Task(layers=_before(Clamp(min=-2.0, max=2.0), 3), row=(4,), rate=0.6),
    "discrete": Task(
        layers=(
            Dense(in_features=4, out_features=24),
            Discrete(surrogate="clip"),
            Dense(in_features=24, out_features=3),
        ),
        row=(4,),
        spread=0.2,
    ),
    "softcap": Task(layers=_before(Softcap(cap=2.0), 3), row=(4,), rate=0.6),
    "softmax": Task(layers=_before(Softmax(temperature=0.7), 5), row=(4,), rate=5.0),
    "masked_softmax": Task(layers=_before(MaskedSoftmax(mask=(True, False, True, True, True)), 5), row=(4,), rate=5.0),
    "gumbel_softmax": Task(layers=_before(GumbelSoftmax(seed=5), 5), row=(4,), rows=5, rate=8.0),
    "sparsemax": Task(layers=_before(Sparsemax(temperature=2.0), 5), row=(4,), rate=3.0),
    "entmax": Task(layers=_before(Entmax(alpha=1.4), 5), row=(4,), rate=3.0),
    "grid_softmax": Task(layers=_before(GridSoftmax(rows=2, cols=3), 6), row=(4,), rate=5.0),
    "hierarchical_softmax": Task(layers=_before(HierarchicalSoftmax(levels=(2, 3)), 8), row=(4,), rate=10.0),
    "adaptive_softmax": Task(layers=_before(AdaptiveSoftmax(n_classes=6, cutoffs=(2,)), 7), row=(4,), rate=10.0),
    "mixture_softmax": Task(layers=_before(MixtureSoftmax(components=2), 8), row=(4,), rate=10.0),
}
"""Layer kind → what it learns."""
