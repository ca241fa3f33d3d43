"""Networks of the kinds that an export knows, small enough for a software adapter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tests.examples import CASES
from tests.graph.test_networks import chain
from volumetric.layers import LSTM, Conv2d, Dense, Flatten, MaxPool2d
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid


def mlp() -> Network:
    hidden = Dense(in_features=6, out_features=50, activation="relu")
    return chain(hidden, Dense(in_features=50, out_features=3), shape=(6,))


def cnn() -> Network:
    layers = (Conv2d(in_channels=1, out_channels=3, kernel_size=3), MaxPool2d(kernel_size=2), Flatten())
    return chain(*layers, Dense(in_features=27, out_features=4), shape=(1, 8, 8))


def lstm() -> Network:
    layers = (Dense(in_features=6, out_features=5), LSTM(input_size=5, hidden_size=7))
    return chain(*layers, Dense(in_features=7, out_features=3), shape=(6,))


def of_case(name: str) -> Network:
    """The network of one example of `tests/examples`."""
    spec, shape = CASES[name]
    return Network(grid=Grid(1), layers={Coord(0): spec}, input_shape=shape[1:])


NETWORKS: Mapping[str, Callable[[], Network]] = {
    "mlp": mlp,
    "cnn": cnn,
    "lstm": lstm,
    "fabric": lambda: of_case("fabric"),
    "program": lambda: of_case("program"),
    "attention": lambda: of_case("gqa-rope"),
    "whole sequences": lambda: of_case("mha-bidirectional"),
}
"""Name → network with rows of numbers."""


def rows_for(network: Network, count: int, seed: int = 0) -> Any:
    """Random rows of the input of a network."""
    return np.random.default_rng(seed).standard_normal((count, *network.input_shape)).astype(np.float32)
