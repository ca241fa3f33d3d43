"""Layers that choose among or hold other layers."""

from __future__ import annotations

from typing import Any

import volumetric.layers as nn
from tests.examples.entry import Example, Examples
from tests.learning.tasks import learn
from volumetric.graph.numeric.activations import Activation
from volumetric.layers.gate import Scoring


def _dense(inputs: int, outputs: int, activation: Activation = "linear") -> nn.Dense:
    return nn.Dense(in_features=inputs, out_features=outputs, activation=activation)


def _expert(activation: Activation = "tanh") -> nn.Dense:
    return _dense(4, 3, activation)


_PRENORM = nn.Sequential(layers=(nn.RMSNorm(num_features=6), _dense(6, 6), nn.Residual(source="input")))


def _experts(top_k: int | None, *branches: nn.LayerSpec, scoring: Scoring = "softmax", **fields: Any) -> nn.Parallel:
    gate = nn.Gate(in_features=4, out_features=len(branches), top_k=top_k, bias=top_k is None, scoring=scoring)
    return nn.Parallel(branches=branches, combine="filter", gate=gate, **fields)


def _parallel(rows: int, a: int, b: int) -> Example:
    experts = tuple(_dense(a, b, name) for name in ("tanh", "silu", "linear"))
    gate = nn.Gate(in_features=a, out_features=3, top_k=2)
    return nn.Parallel(branches=experts, combine="filter", gate=gate), (rows, a)


_BLOCK = nn.Sequential(
    layers=(
        nn.LayerNorm(num_features=512),
        nn.MLP(in_features=512, hidden_features=2048, activation="gelu"),
        nn.Residual(source="input"),
    )
)


CONTAINERS: dict[str, Examples] = {
    "kmeans": Examples(
        cases={
            "kmeans": (nn.KMeans(num_clusters=4, in_features=3), (5, 3)),
            "kmeans-sharp-batch": (nn.KMeans(num_clusters=3, in_features=2, temperature=0.6), (2, 3, 2)),
            "kmeans-features": (nn.KMeans(num_clusters=4, in_features=3, temperature=0.8, output="features"), (5, 3)),
            "kmeans-features-batch": (nn.KMeans(num_clusters=2, in_features=4, output="features"), (2, 1, 4)),
        },
        sized=lambda r, a, b: (nn.KMeans(num_clusters=b, in_features=a, output="features", temperature=2.0), (r, a)),
        bench=(nn.KMeans(num_clusters=256, in_features=128, output="features", temperature=4.0), (4096, 128)),
    ),
    "gate": Examples(
        cases={
            "gate": (nn.Gate(in_features=4, out_features=3), (3, 4)),
            "gate-top-2": (nn.Gate(in_features=4, out_features=5, top_k=2, bias=True), (2, 3, 4)),
            "gate-of-all": (
                nn.Gate(in_features=4, out_features=5, top_k=2, bias=True, scoring="softmax_all"),
                (2, 3, 4),
            ),
            "gate-of-all-open": (nn.Gate(in_features=4, out_features=3, scoring="softmax_all"), (3, 4)),
            "gate-sigmoid": (nn.Gate(in_features=4, out_features=1, scoring="sigmoid"), (3, 4)),
            "gate-sigmoid-top-2": (nn.Gate(in_features=4, out_features=5, top_k=2, scoring="sigmoid"), (3, 4)),
        },
        sized=lambda r, a, b: (nn.Gate(in_features=a, out_features=b, bias=True, top_k=min(b, 2)), (r, a)),
        task=learn(rate=3.0),
        bench=(nn.Gate(in_features=512, out_features=16, top_k=2), (4096, 512)),
    ),
    "parallel": Examples(
        cases={
            "parallel-concat": (nn.Parallel(branches=(_dense(6, 2), _PRENORM, _dense(6, 3))), (4, 6)),
            "parallel-add": (nn.Parallel(branches=(_PRENORM, _dense(6, 6)), combine="add"), (2, 3, 6)),
            "parallel-avg": (nn.Parallel(branches=(_PRENORM, _PRENORM, nn.Softmax()), combine="avg"), (4, 6)),
            "parallel-avg-one": (nn.Parallel(branches=(_PRENORM,), combine="avg"), (4, 6)),
            "parallel-add-one": (nn.Parallel(branches=(_PRENORM,), combine="add"), (4, 6)),
            "parallel-nested": (
                nn.Parallel(
                    branches=(
                        nn.Parallel(branches=(_PRENORM, nn.Softmax()), combine="add"),
                        nn.Sequential(layers=(nn.Parallel(branches=(nn.Softmax(), _PRENORM)), _dense(12, 6))),
                    ),
                    combine="avg",
                ),
                (4, 6),
            ),
            "dropout-filter": (
                nn.Parallel(
                    branches=(
                        nn.Sequential(layers=(nn.Dropout(p=0.3), _expert())),
                        nn.Sequential(layers=(nn.Dropout(p=0.3), _expert())),
                    ),
                    combine="filter",
                    gate=nn.Gate(in_features=4, out_features=2),
                ),
                (5, 4),
            ),
            "batch-norm-filter": (
                nn.Parallel(
                    branches=(nn.Sequential(layers=(nn.BatchNorm1d(num_features=4), _dense(4, 3))), _expert()),
                    combine="filter",
                    gate=nn.Gate(in_features=4, out_features=2),
                ),
                (5, 4),
            ),
            "lstm-both-ways": (
                nn.Parallel(
                    branches=(nn.LSTM(input_size=3, hidden_size=2), nn.LSTM(input_size=3, hidden_size=2, reverse=True)),
                    combine="concat",
                ),
                (5, 3),
            ),
            "filter": (_experts(None, _expert(), _expert("silu"), _expert("linear")), (5, 4)),
            "filter-top-1": (_experts(1, _expert(), _expert()), (3, 4)),
            "filter-top-2": (_experts(2, _expert(), _expert(), _expert(), _expert()), (2, 3, 4)),
            "filter-of-all": (_experts(2, _expert(), _expert(), _expert(), _expert(), scoring="softmax_all"), (5, 4)),
            "filter-inputs": (_experts(2, _expert(), _expert(), _expert(), scoring="sigmoid", weigh="input"), (5, 4)),
            "filter-inputs-all": (_experts(None, _expert(), _expert(), weigh="input"), (2, 3, 4)),
            "filter-shared": (
                nn.Parallel(
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
                    nn.Sequential(layers=(nn.Parallel(branches=(_expert(), _expert()), combine="avg"), nn.Softmax())),
                    nn.LSTM(input_size=4, hidden_size=3),
                ),
                (4, 4),
            ),
            "grid-scatter": (
                nn.Parallel(
                    branches=(_expert(), _expert("silu"), _experts(1, _expert(), _expert())),
                    combine="grid_scatter",
                    grid=(2, 1, 2),
                    positions=((1, 0, 1), (0, 0, 0), (1, 0, 0)),
                ),
                (2, 2, 4),
            ),
            "grid-scatter-in-order": (
                nn.Parallel(branches=(_expert(), _expert()), combine="grid_scatter", grid=(1, 3, 1)),
                (3, 4),
            ),
        },
        sized=_parallel,
        task=learn(rate=2.0),
        bench=(
            nn.Parallel(
                branches=(_dense(512, 512, "silu"),) * 4,
                combine="filter",
                gate=nn.Gate(in_features=512, out_features=4, top_k=2),
            ),
            (256, 512),
        ),
    ),
    "sequential": Examples(
        cases={
            "sequential": (nn.Sequential(layers=(_PRENORM, _PRENORM, nn.Residual(), nn.Softmax())), (4, 6)),
            "dropout-inside": (nn.Sequential(layers=(_dense(4, 4), nn.Dropout(), nn.Residual(source="input"))), (3, 4)),
            "batch-norm-inside": (
                nn.Sequential(
                    layers=(
                        nn.Conv1d(in_channels=2, out_channels=2, kernel_size=2, bias=False),
                        nn.BatchNorm1d(num_features=2),
                    )
                ),
                (3, 2, 4),
            ),
        },
        sized=lambda r, a, b: (nn.Sequential(layers=(_dense(a, b), nn.LayerNorm(num_features=b))), (r, a)),
        bench=(_BLOCK, (256, 512)),
    ),
    "residual": Examples(
        cases={
            "sequential-named": (
                nn.Sequential(layers=(_dense(6, 6), _PRENORM, nn.Softcap(cap=1.0), nn.Residual(source="#0"))),
                (4, 6),
            ),
            "residual": (nn.Sequential(layers=(_dense(6, 6), nn.Residual())), (4, 6)),
        },
        sized=lambda r, a, b: (nn.Sequential(layers=(_dense(a, a), nn.Residual())), (r, a)),
        bench=(nn.Sequential(layers=(_dense(512, 512, "tanh"), nn.Residual())), (512, 512)),
    ),
}
