"""Train networks by the short call and by the configuration object, save, load and predict."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import volumetric
from volumetric import Coord, Grid, Network, initialise
from volumetric.builders import sequential
from volumetric.layers import LSTM, Dense
from volumetric.train import AdamW, ArrayData, Cosine, TrainConfig, train


def short(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    network = sequential(2, 1, hidden=(8,), activation="tanh")
    result = train(network, x, y, epochs=30, lr=0.05, loss="mse", optimiser="adam")
    last = result.history[-1]
    print(last.loss, result.steps)
    return result.predict(x)


def long(folder: Path, x: NDArray[np.float32], y: NDArray[np.float32]) -> float:
    layers = {Coord(0): LSTM(input_size=2, hidden_size=8), Coord(1): Dense(in_features=8, out_features=1)}
    network = Network(grid=Grid(2), layers=layers, input_shape=(2,), input_dtype="float32")
    config = TrainConfig(optimiser=AdamW(lr=0.01), schedule=Cosine(steps=30), epochs=10)
    result = train(network, initialise(network, seed=1), ArrayData(inputs=x, targets=y, batch_size=4), config)
    result.save(folder / "model")
    model = volumetric.load(str(folder / "model"))
    weight: NDArray[np.float32] = result.params["1.weight"].values()
    return float(np.abs(model.predict(x) - y).mean()) + float(weight.sum())


if __name__ == "__main__":
    inputs = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    print(short(inputs, np.array([[0], [1], [1], [0]], np.float32)).round(2))
