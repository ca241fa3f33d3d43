"""A cube's cells read the cells around them: at once, tick by tick, and with the weights of one."""

from __future__ import annotations

import numpy as np
import pytest

from volumetric.analysis import predict
from volumetric.base.errors import SpecError
from volumetric.builders import cube, sequential
from volumetric.clocked import Clocked
from volumetric.devices.reference_device import ReferenceDevice
from volumetric.layers import LSTM, Conv2d, Dense, Embedding, Flatten
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.train import MSE, Adam, TrainConfig, train


@pytest.mark.parametrize(("neighbours", "inner", "corner"), [(6, 6, 3), (18, 18, 6), (26, 26, 7)])
def test_a_cell_has_the_neighbours_that_touch_it(neighbours: int, inner: int, corner: int) -> None:
    network = cube(3, 3, 3, Dense(2), neighbours=neighbours)  # pyright: ignore[reportArgumentType]  (a parameter)
    reads = [link.target for link in network.links]
    assert reads.count(Coord(1, 1, 1)) == inner
    assert reads.count(Coord(0)) == reads.count(Coord(2, 2, 2)) == corner
    assert {(link.delay, link.source > link.target) for link in network.links} == {(0, False), (1, True)}
    assert list(Grid(3, 3, 3).neighbours(Coord(1, 1, 1), 26)) == [at for at in Grid(3, 3, 3) if at != Coord(1, 1, 1)]


def test_cells_of_the_past_add_up_within_a_row() -> None:
    network = cube(2, 2, 2, Dense(3, activation="tanh"), neighbours="past", inputs=2, outputs=1)
    params = initialise(network, seed=3)
    x = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)

    def layer(at: str, rows: np.ndarray) -> np.ndarray:
        return rows @ params[f"{at}/weight"].values().T + params[f"{at}/bias"].values()

    cells: dict[tuple[int, int, int], np.ndarray] = {}
    for z, y, x_ in np.ndindex(2, 2, 2):
        past = [cells[c] for c in ((z - 1, y, x_), (z, y - 1, x_), (z, y, x_ - 1)) if c in cells]
        first = not past
        at = "0.0.0.1" if first else f"{z}.{y}.{x_}.0"
        cells[z, y, x_] = np.tanh(layer(at, layer("0.0.0.0", x) if first else np.sum(past, 0)))
    expected = layer("1.1.1.1", cells[1, 1, 1])
    assert np.allclose(predict(network, params, x, device="reference"), expected, atol=1e-6)
    assert Network.from_json(network.to_json()) == network


def test_a_signal_passes_one_cell_a_tick() -> None:
    network = cube(2, 3, 2, Dense(4, bias=False))
    machine = Clocked(network=network)
    pulse = np.zeros((1, 8, 4), np.float32)
    pulse[0, 0] = 1.0
    stream = ReferenceDevice().stream(machine, initialise(network, seed=1))
    heard = np.abs(np.asarray(stream.run(pulse))).max((0, 2)) > 0
    assert heard.argmax() == 1 + 2 + 1  # the way from one corner to the other


def test_shared_cells_have_the_weights_of_the_first() -> None:
    assert set(initialise(cube(2, 2, 2, Dense(4), shared=True)).keys()) == {"0.0.0.0/weight", "0.0.0.0/bias"}


def test_a_cube_learns_xor() -> None:
    network = cube(2, 2, 1, Dense(8, activation="tanh"), neighbours="past", inputs=2, outputs=1)
    x = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
    y = np.array([[0], [1], [1], [0]], np.float32)
    config = TrainConfig(epochs=150, optimiser=Adam(lr=0.02), loss=MSE())
    result = train(network, initialise(network), (x, y), config, device="reference")
    assert np.abs(predict(network, result.params, x, device="reference") - y).max() < 0.1


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cube(2, 2, 2, Dense(4, 8)), "read what other cells return"),
        (lambda: cube(2, 2, 2, Flatten()), "no weights that tell its width"),
        (lambda: cube(2, 2, 2, Dense(4), neighbours=7), "unknown neighbours 7"),  # pyright: ignore[reportArgumentType]  (wrong)
        (lambda: cube(2, 2, 2, Dense), "expected a layer"),  # pyright: ignore[reportArgumentType]  (wrong)
        (lambda: sequential(2), "the layers are missing"),
        (lambda: sequential(2, 3, 1, hidden=4), "hidden stands between"),
        (lambda: sequential((1, 8, 8), Conv2d(1, 2, 3), 4), "is for rows of features"),
        (lambda: sequential(Flatten(), 4), "does not tell the shape"),
        (lambda: sequential(2, (3, 4)), "expected a width or a layer"),
    ],
)
def test_errors_say_what_does_not_fit(make: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()  # pyright: ignore[reportCallIssue]  (a function)


def test_sequential_takes_widths_and_layers() -> None:
    wide = sequential(2, 8, 4, 1, activation="tanh")
    assert wide == sequential(2, 1, hidden=(8, 4), activation="tanh")
    assert wide == sequential(2, Dense(2, 8, "tanh"), 4, 1, activation="tanh")
    assert wide == sequential([Dense(2, 8, "tanh"), Dense(8, 4, "tanh"), Dense(4, 1)])
    text = sequential(Embedding(50, 8), LSTM(8, 16), 50)
    assert text.input_dtype == "int32"
    assert text.shapes[text.taps["output"]][1:] == (50,)
    image = sequential((1, 8, 8), Conv2d(1, 2, 3, activation="relu"), Flatten(), 10, activation=None)
    assert image.shapes[image.taps["output"]][1:] == (10,)
