"""Small things to learn, that several tests share."""

from __future__ import annotations

import numpy as np

from volumetric.layers import Dense, LayerSpec
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid
from volumetric.train import ArrayData

XOR = (
    np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32),
    np.array([[0], [1], [1], [0]], np.float32),
)


def chain(*layers: LayerSpec, inputs: int) -> Network:
    """Layers one after the other on feature rows."""
    return Network(
        grid=Grid(len(layers)),
        layers={Coord(z): spec for z, spec in enumerate(layers)},
        input_shape=(inputs,),
        input_dtype="float32",
    )


def perceptron(inputs: int, hidden: int, outputs: int) -> Network:
    """One hidden layer of tanh."""
    return chain(
        Dense(in_features=inputs, out_features=hidden, activation="tanh"),
        Dense(in_features=hidden, out_features=outputs),
        inputs=inputs,
    )


def waves(samples: int = 64, batch_size: int = 16, seed: int = 0) -> ArrayData:
    """A smooth function of four features to regress."""
    x = np.random.default_rng(3).uniform(-1, 1, (samples, 4)).astype(np.float32)
    y = np.sin(2 * x[:, :1]) + x[:, 1:2] * x[:, 2:3] - 0.5 * x[:, 3:]
    return ArrayData(inputs=x, targets=y.astype(np.float32), batch_size=batch_size, seed=seed)
