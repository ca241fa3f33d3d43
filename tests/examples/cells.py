"""Recurrent layers, and the cells of stacks."""

from __future__ import annotations

import volumetric.layers as nn
from tests.examples.entry import Examples
from tests.learning.tasks import learn

SIZE = (8, 256, 128)

CELLS: dict[str, Examples] = {
    "rnn": Examples(
        cases={
            "rnn": (nn.RNN(input_size=3, hidden_size=4), (5, 3)),
            "rnn-relu": (nn.RNN(input_size=3, hidden_size=4, nonlinearity="relu"), (2, 4, 3)),
        },
        sized=lambda r, a, b: (nn.RNN(input_size=a, hidden_size=b), (r, 3, a)),
        bench=(nn.RNN(input_size=256, hidden_size=256), (16, 64, 256)),
    ),
    "lstm": Examples(
        cases={
            "lstm": (nn.LSTM(input_size=3, hidden_size=2), (5, 3)),
            "lstm-reverse": (nn.LSTM(input_size=3, hidden_size=2, reverse=True), (5, 3)),
            "lstm-batch": (nn.LSTM(input_size=2, hidden_size=3, bias=False), (3, 4, 2)),
        },
        sized=lambda r, a, b: (nn.LSTM(input_size=a, hidden_size=b), (r, 3, a)),
        task=learn(rate=5.0),
        bench=(nn.LSTM(input_size=256, hidden_size=256), (16, 64, 256)),
    ),
    "gru": Examples(
        cases={
            "gru-reverse-batch": (nn.GRU(input_size=2, hidden_size=3, reverse=True), (2, 4, 2)),
            "gru": (nn.GRU(input_size=3, hidden_size=2), (5, 3)),
            "gru-batch": (nn.GRU(input_size=2, hidden_size=3, bias=False), (2, 4, 2)),
            "gru-one-step": (nn.GRU(input_size=1, hidden_size=1), (1, 1)),
        },
        sized=lambda r, a, b: (nn.GRU(input_size=a, hidden_size=b), (r, 3, a)),
        task=learn(rate=3.0),
        bench=(nn.GRU(input_size=256, hidden_size=256), (16, 64, 256)),
    ),
    "causal_conv1d": Examples(
        cases={
            "causal-conv1d": (nn.CausalConv1d(channels=4), (5, 4)),
            "causal-conv1d-mixing": (nn.CausalConv1d(channels=3, kernel_size=2, mixing=True, bias=False), (2, 4, 3)),
            "causal-conv1d-one-row": (nn.CausalConv1d(channels=2, kernel_size=1, mixing=True), (1, 2)),
        },
        sized=lambda r, a, b: (nn.CausalConv1d(channels=a, mixing=b % 2 == 0), (r, 3, a)),
        bench=(nn.CausalConv1d(channels=128), SIZE),
    ),
    "slstm": Examples(
        cases={
            "slstm": (nn.SLSTM(embed_dim=6, num_heads=2, kernel_size=3), (5, 6)),
            "slstm-batch": (nn.SLSTM(embed_dim=4, num_heads=1, kernel_size=0), (2, 4, 4)),
            "slstm-one-row": (nn.SLSTM(embed_dim=8, num_heads=2, kernel_size=1), (1, 8)),
            "slstm-axon": (nn.SLSTM(embed_dim=6, num_heads=2, kernel_size=2, projection="axon"), (4, 6)),
        },
        sized=lambda r, a, b: (nn.SLSTM(embed_dim=2 * (a % 9 + 1), num_heads=2), (r, 3, 2 * (a % 9 + 1))),
        task=learn(nn.SLSTM(embed_dim=4, num_heads=1, kernel_size=2), row=(4,), rows=4, rate=0.05, spread=0.2),
        bench=(nn.SLSTM(embed_dim=128), SIZE),
    ),
    "mlstm": Examples(
        cases={
            "mlstm-conv": (nn.MLSTM(embed_dim=6, num_heads=2, kernel_size=3), (5, 6)),
            "mlstm-batch": (nn.MLSTM(embed_dim=4, num_heads=1, kernel_size=1, chunk_size=2), (2, 5, 4)),
            "mlstm-axon": (
                nn.MLSTM(embed_dim=4, num_heads=2, kernel_size=2, chunk_size=2, projection="axon"),
                (2, 3, 4),
            ),
        },
        sized=lambda r, a, b: (
            nn.MLSTM(embed_dim=3 * (a % 9 + 1), num_heads=1 if b % 2 else 3, chunk_size=2),
            (r, 3, 3 * (a % 9 + 1)),
        ),
        task=learn(nn.MLSTM(embed_dim=4, num_heads=1, kernel_size=2), row=(4,), rows=4, rate=0.1),
        bench=(nn.MLSTM(embed_dim=128), SIZE),
    ),
    "agalite": Examples(
        cases={
            "agalite": (nn.AGaLiTe(embed_dim=6, num_heads=2, eta=2), (5, 6)),
            "agalite-batch": (nn.AGaLiTe(embed_dim=4, num_heads=1, eta=1, r=3, eps=0.1), (2, 4, 4)),
        },
        sized=lambda r, a, b: (nn.AGaLiTe(embed_dim=a, num_heads=1 if a % 2 else 2, eta=b % 4 + 1), (r, 3, a)),
        task=learn(
            nn.AGaLiTe(embed_dim=4, num_heads=1, eta=2, eps=0.1), row=(4,), rows=4, rate=0.5, steps=120, spread=0.2
        ),
        bench=(nn.AGaLiTe(embed_dim=128), SIZE),
    ),
    "axon": Examples(
        cases={
            "axon": (nn.Axon(in_features=3, out_features=4, hidden_features=5, activation="silu"), (5, 3)),
            "axon-batch": (nn.Axon(in_features=4, out_features=2, mix="srht", activation="tanh"), (2, 4, 4)),
            "axon-plain": (nn.Axon(in_features=3, out_features=3, mix="none", traces=True), (1, 3)),
        },
        sized=lambda r, a, b: (nn.Axon(in_features=a, out_features=b, activation="silu"), (r, 3, a)),
        bench=(nn.Axon(in_features=128, out_features=128, activation="silu"), SIZE),
    ),
    "axon_linear": Examples(
        cases={
            "axon-linear": (nn.AxonLinear(in_features=3, out_features=2, activation="silu", traces=True), (4, 3)),
            "axon-linear-batch": (nn.AxonLinear(in_features=2, out_features=3, bias=False, mix="none"), (2, 3, 2)),
        },
        sized=lambda r, a, b: (nn.AxonLinear(in_features=a, out_features=b), (r, 3, a)),
        bench=(nn.AxonLinear(in_features=128, out_features=128), SIZE),
    ),
    "xl_attention": Examples(
        cases={
            "xl": (nn.XLAttention(embed_dim=6, num_heads=2, memory=2), (5, 6)),
            "xl-batch": (nn.XLAttention(embed_dim=3, num_heads=1, head_dim=2, memory=9, bias=False), (2, 4, 3)),
            "xl-axon": (nn.XLAttention(embed_dim=3, num_heads=2, head_dim=2, memory=2, projection="axon"), (4, 3)),
        },
        sized=lambda r, a, b: (nn.XLAttention(embed_dim=a, num_heads=2, head_dim=b % 8 + 1, memory=2), (r, 3, a)),
        bench=(nn.XLAttention(embed_dim=128), SIZE),
    ),
}
