"""Layers without a state that shape or bound numbers, and those of state spaces."""

from __future__ import annotations

import volumetric.layers as nn
from tests.examples.entry import Examples
from tests.learning.tasks import learn

CURVES: dict[str, Examples] = {
    "reshape": Examples(
        cases={
            "reshape": (nn.Reshape(shape=(3, 4)), (2, 2, 6)),
            "reshape-flat": (nn.Reshape(shape=(-1,)), (2, 3, 2, 2)),
            "reshape-rest": (nn.Reshape(shape=(2, -1, 1)), (3, 6)),
        },
        sized=lambda r, a, b: (nn.Reshape(shape=(a, b)), (r, a * b)),
    ),
    "scale": Examples(
        cases={"scale": (nn.Scale(factor=-0.3), (2, 3, 5))},
        sized=lambda r, a, b: (nn.Scale(factor=0.3), (r, a)),
        task=learn(rate=1.0),
        bench=(nn.Scale(factor=0.22), (4096, 1024)),
    ),
    "short_conv": Examples(
        cases={
            "short-conv": (nn.ShortConv(embed_dim=4), (5, 4)),
            "short-conv-one-row": (nn.ShortConv(embed_dim=3, kernel_size=4, bias=True), (1, 3)),
            "short-conv-batch": (nn.ShortConv(embed_dim=3, kernel_size=2, bias=True), (2, 4, 3)),
        },
        sized=lambda r, a, b: (nn.ShortConv(embed_dim=a), (r, 3, a)),
        task=learn(nn.ShortConv(embed_dim=2, kernel_size=2), row=(2,), rows=4, rate=0.5, steps=80),
        bench=(nn.ShortConv(embed_dim=512), (4, 256, 512)),
    ),
    "mamba": Examples(
        cases={
            "mamba": (nn.Mamba(embed_dim=4, inner_features=6, state_size=3, dt_rank=2), (5, 4)),
            "mamba-one-row": (
                nn.Mamba(embed_dim=3, inner_features=2, kernel_size=2, bias=True, conv_bias=False),
                (1, 3),
            ),
            "mamba-batch": (nn.Mamba(embed_dim=3, inner_features=5, state_size=2, kernel_size=3), (2, 4, 3)),
        },
        sized=lambda r, a, b: (nn.Mamba(embed_dim=a, inner_features=b, state_size=3, dt_rank=2), (r, 3, a)),
        task=learn(
            nn.Mamba(embed_dim=2, inner_features=3, state_size=2, kernel_size=2), row=(2,), rows=4, rate=0.5, steps=80
        ),
        bench=(nn.Mamba(embed_dim=256, inner_features=512, dt_rank=16), (2, 128, 256)),
    ),
    "mamba2": Examples(
        cases={
            "mamba2": (nn.Mamba2(embed_dim=4, num_heads=2, head_dim=3, state_size=4), (5, 4)),
            "mamba2-groups": (
                nn.Mamba2(
                    embed_dim=3,
                    num_heads=4,
                    head_dim=2,
                    state_size=3,
                    groups=2,
                    bias=True,
                    out_bias=True,
                    conv_bias=False,
                ),
                (2, 3, 3),
            ),
            "mamba2-factors": (
                nn.Mamba2(
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
                nn.Mamba2(
                    embed_dim=3, num_heads=2, head_dim=2, state_size=2, norm_before_gate=True, dt_min=0.6, dt_max=0.8
                ),
                (4, 3),
            ),
        },
        sized=lambda r, a, b: (
            nn.Mamba2(
                embed_dim=a, num_heads=2 * b, head_dim=3, state_size=5, groups=2, multipliers=(0.5, 2.0, 1.5, 0.7, 1.2)
            ),
            (r, 3, a),
        ),
        bench=(nn.Mamba2(embed_dim=256, num_heads=8, head_dim=64, state_size=32), (2, 128, 256)),
    ),
    "clamp": Examples(
        cases={
            "clamp": (nn.Clamp(min=-0.5, max=0.7), (3, 5)),
            "clamp-relu": (nn.Clamp(min=0.0), (2, 3, 4, 2)),
            "clamp-above": (nn.Clamp(max=0.25), (4, 3)),
        },
        sized=lambda r, a, b: (nn.Clamp(min=-0.5, max=0.7), (r, a)),
        bench=(nn.Clamp(min=0.0, max=6.0), (4096, 1024)),
    ),
    "discrete": Examples(
        cases={**{f"discrete-{f}": (nn.Discrete(function=f), (3, 5)) for f in ("step", "sign", "ternary")}},
        sized=lambda r, a, b: (nn.Discrete(function="ternary", surrogate="clip"), (r, a)),
        task=learn(
            nn.Dense(in_features=4, out_features=24),
            nn.Discrete(surrogate="clip"),
            nn.Dense(in_features=24, out_features=3),
            row=(4,),
            spread=0.2,
        ),
        bench=(nn.Discrete(function="sign"), (4096, 1024)),
    ),
    "softcap": Examples(
        cases={"softcap-layer": (nn.Softcap(cap=2.0), (3, 5))},
        sized=lambda r, a, b: (nn.Softcap(cap=2.0), (r, a)),
        bench=(nn.Softcap(cap=30.0), (4096, 1024)),
    ),
}
