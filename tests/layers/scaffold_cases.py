"""Scaffolds and columns with an input shape; part of the table of `cases`."""

from __future__ import annotations

from volumetric.layers import (
    LSTM,
    MLSTM,
    SLSTM,
    Adapter,
    Axon,
    CausalConv1d,
    Column,
    Dense,
    LayerSpec,
    PassThrough,
    PostUp,
    PostUpGated,
    PreUp,
    PreUpGated,
)


def lstm(width: int) -> LSTM:
    return LSTM(input_size=width, hidden_size=width)


def conv(width: int) -> PassThrough:
    return PassThrough(core=CausalConv1d(channels=width, kernel_size=2))


SCAFFOLDS: dict[str, tuple[LayerSpec, tuple[int, ...]]] = {
    "pass-through": (PassThrough(core=Axon(in_features=3, out_features=2)), (4, 3)),
    "pre-up": (PreUp(embed_dim=3, core=lstm(6)), (4, 3)),
    "pre-up-batch": (PreUp(embed_dim=4, factor=1.0, core=MLSTM(embed_dim=4, num_heads=1)), (2, 3, 4)),
    "pre-up-gated": (PreUpGated(embed_dim=3, factor=1.5, activate_input=False, core=lstm(4)), (4, 3)),
    "post-up": (PostUp(embed_dim=3, core=lstm(3)), (4, 3)),
    "post-up-gated": (
        PostUpGated(embed_dim=4, factor=0.8, core=SLSTM(embed_dim=4, num_heads=1, kernel_size=2)),
        (2, 3, 4),
    ),
    "adapter": (Adapter(embed_dim=3, bottleneck=2, core=PostUp(embed_dim=3, core=lstm(3))), (4, 3)),
    "adapter-channels": (
        Adapter(
            embed_dim=2, bottleneck=4, activation="silu", per_channel=True, core=Dense(in_features=3, out_features=2)
        ),
        (3, 3),
    ),
    "column": (Column(embed_dim=3, experts=(PostUp(embed_dim=3, core=lstm(3)), conv(3))), (4, 3)),
    "column-one": (Column(embed_dim=2, experts=(conv(2),)), (4, 2)),
    "column-top": (
        Column(
            embed_dim=4,
            experts=(lstm(4), conv(4), Dense(in_features=4, out_features=4)),
            key_dim=5,
            temperature=0.7,
            top_k=2,
            refine=0.5,
            refine_dim=3,
            refine_temperature=1.3,
        ),
        (2, 3, 4),
    ),
    "column-pruned": (
        Column(embed_dim=3, experts=(conv(3), lstm(3), conv(3)), top_k=2, scale="full", refine=0.0, prune=True),
        (3, 3),
    ),
}
