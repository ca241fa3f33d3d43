"""Scaffolds around a core, and columns of experts."""

from __future__ import annotations

import volumetric.layers as nn
from tests.examples.entry import Example, Examples
from tests.learning.tasks import learn


def lstm(width: int) -> nn.LSTM:
    return nn.LSTM(input_size=width, hidden_size=width)


def conv(width: int) -> nn.CausalConv1d:
    return nn.CausalConv1d(channels=width, kernel_size=2)


def past(width: int) -> nn.PassThrough:
    return nn.PassThrough(core=conv(width))


def _column(rows: int, a: int, b: int) -> Example:
    width = a % 9 + 1
    experts = nn.Scale(factor=0.5), nn.Clamp(min=-0.5, max=0.5), nn.PassThrough(core=nn.CausalConv1d(channels=width))
    return nn.Column(embed_dim=width, experts=experts, key_dim=b % 9 + 1, top_k=2 + b % 2, prune=b % 3 == 0), (
        rows,
        3,
        width,
    )


SIZE = (8, 256, 128)

SCAFFOLDS: dict[str, Examples] = {
    "pass_through": Examples(
        cases={"pass-through": (nn.PassThrough(core=nn.Axon(in_features=3, out_features=2)), (4, 3))},
        sized=lambda r, a, b: (nn.PassThrough(core=nn.LSTM(input_size=a, hidden_size=b)), (r, 3, a)),
        task=learn(nn.PassThrough(core=nn.RNN(input_size=3, hidden_size=4)), row=(3,), rows=5),
        bench=(nn.PassThrough(core=lstm(128)), SIZE),
    ),
    "pre_up": Examples(
        cases={
            "pre-up": (nn.PreUp(embed_dim=3, core=lstm(6)), (4, 3)),
            "pre-up-batch": (nn.PreUp(embed_dim=4, factor=1.0, core=nn.MLSTM(embed_dim=4, num_heads=1)), (2, 3, 4)),
        },
        sized=lambda r, a, b: (nn.PreUp(embed_dim=a, core=nn.Scale(factor=0.5)), (r, a)),
        task=learn(rate=0.6),
        bench=(nn.PreUp(embed_dim=128, core=nn.CausalConv1d(channels=256)), SIZE),
    ),
    "pre_up_gated": Examples(
        cases={"pre-up-gated": (nn.PreUpGated(embed_dim=3, factor=1.5, activate_input=False, core=lstm(4)), (4, 3))},
        sized=lambda r, a, b: (
            nn.PreUpGated(embed_dim=a % 9 + 1, factor=1.5, core=nn.Scale(factor=0.5)),
            (r, a % 9 + 1),
        ),
        task=learn(rate=1.0),
        bench=(nn.PreUpGated(embed_dim=128, core=nn.MLSTM(embed_dim=256)), SIZE),
    ),
    "post_up": Examples(
        cases={"post-up": (nn.PostUp(embed_dim=3, core=lstm(3)), (4, 3))},
        sized=lambda r, a, b: (nn.PostUp(embed_dim=a, factor=b / a, core=nn.Scale(factor=0.5)), (r, a)),
        bench=(nn.PostUp(embed_dim=128, core=lstm(128)), SIZE),
    ),
    "post_up_gated": Examples(
        cases={
            "post-up-gated": (
                nn.PostUpGated(embed_dim=4, factor=0.8, core=nn.SLSTM(embed_dim=4, num_heads=1, kernel_size=2)),
                (2, 3, 4),
            )
        },
        sized=lambda r, a, b: (nn.PostUpGated(embed_dim=a % 9 + 1, core=nn.Scale(factor=0.5)), (r, a % 9 + 1)),
        task=learn(rate=2.0),
        bench=(nn.PostUpGated(embed_dim=128, core=lstm(128)), SIZE),
    ),
    "adapter": Examples(
        cases={
            "adapter": (nn.Adapter(embed_dim=3, bottleneck=2, core=nn.PostUp(embed_dim=3, core=lstm(3))), (4, 3)),
            "adapter-channels": (
                nn.Adapter(
                    embed_dim=2,
                    bottleneck=4,
                    activation="silu",
                    per_channel=True,
                    core=nn.Dense(in_features=3, out_features=2),
                ),
                (3, 3),
            ),
        },
        sized=lambda r, a, b: (
            nn.Adapter(embed_dim=a, bottleneck=b, per_channel=b % 2 == 0, core=nn.Scale(factor=0.5)),
            (r, a),
        ),
        bench=(nn.Adapter(embed_dim=128, core=lstm(128)), SIZE),
    ),
    "column": Examples(
        cases={
            "column": (nn.Column(embed_dim=3, experts=(nn.PostUp(embed_dim=3, core=lstm(3)), past(3))), (4, 3)),
            "column-one": (nn.Column(embed_dim=2, experts=(past(2),)), (4, 2)),
            "column-top": (
                nn.Column(
                    embed_dim=4,
                    experts=(lstm(4), past(4), nn.Dense(in_features=4, out_features=4)),
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
                nn.Column(
                    embed_dim=3, experts=(past(3), lstm(3), past(3)), top_k=2, scale="full", refine=0.0, prune=True
                ),
                (3, 3),
            ),
        },
        sized=_column,
        task=learn(rate=0.6),
        bench=(
            nn.Column(embed_dim=128, experts=(nn.PostUp(embed_dim=128, core=lstm(128)), nn.CausalConv1d(channels=128))),
            SIZE,
        ),
    ),
}
