"""Cells of stacks with an input shape; part of the table of `cases`."""

from __future__ import annotations

from volumetric.layers import MLSTM, SLSTM, AGaLiTe, Axon, AxonLinear, CausalConv1d, LayerSpec, XLAttention

CELLS: dict[str, tuple[LayerSpec, tuple[int, ...]]] = {
    "causal-conv1d": (CausalConv1d(channels=4), (5, 4)),
    "causal-conv1d-mixing": (CausalConv1d(channels=3, kernel_size=2, mixing=True, bias=False), (2, 4, 3)),
    "causal-conv1d-one-row": (CausalConv1d(channels=2, kernel_size=1, mixing=True), (1, 2)),
    "slstm": (SLSTM(embed_dim=6, num_heads=2, kernel_size=3), (5, 6)),
    "slstm-batch": (SLSTM(embed_dim=4, num_heads=1, kernel_size=0), (2, 4, 4)),
    "slstm-one-row": (SLSTM(embed_dim=8, num_heads=2, kernel_size=1), (1, 8)),
    "mlstm-conv": (MLSTM(embed_dim=6, num_heads=2, kernel_size=3), (5, 6)),
    "mlstm-batch": (MLSTM(embed_dim=4, num_heads=1, kernel_size=1, chunk_size=2), (2, 5, 4)),
    "agalite": (AGaLiTe(embed_dim=6, num_heads=2, eta=2), (5, 6)),
    "agalite-batch": (AGaLiTe(embed_dim=4, num_heads=1, eta=1, r=3, eps=0.1), (2, 4, 4)),
    "axon": (Axon(in_features=3, out_features=4, hidden_features=5, activation="silu"), (5, 3)),
    "axon-batch": (Axon(in_features=4, out_features=2, mix="srht", activation="tanh"), (2, 4, 4)),
    "xl": (XLAttention(embed_dim=6, num_heads=2, memory=2), (5, 6)),
    "xl-batch": (XLAttention(embed_dim=3, num_heads=1, head_dim=2, memory=9, bias=False), (2, 4, 3)),
    "slstm-axon": (SLSTM(embed_dim=6, num_heads=2, kernel_size=2, projection="axon"), (4, 6)),
    "mlstm-axon": (MLSTM(embed_dim=4, num_heads=2, kernel_size=2, chunk_size=2, projection="axon"), (2, 3, 4)),
    "xl-axon": (XLAttention(embed_dim=3, num_heads=2, head_dim=2, memory=2, projection="axon"), (4, 3)),
    "axon-linear": (AxonLinear(in_features=3, out_features=2, activation="silu", traces=True), (4, 3)),
    "axon-linear-batch": (AxonLinear(in_features=2, out_features=3, bias=False, mix="none"), (2, 3, 2)),
    "axon-plain": (Axon(in_features=3, out_features=3, mix="none", traces=True), (1, 3)),
}
