"""Networks with several inputs learn, and learn the same on every device."""

from __future__ import annotations

import numpy as np
import pytest

from tests.network.test_named_ends import two_ends
from volumetric.base._typing import Array
from volumetric.base.errors import ShapeError
from volumetric.network import initialise
from volumetric.network.grid import Coord, Port
from volumetric.train import SGD, ArrayData, TrainConfig, train
from volumetric.train.losses import CrossEntropy

CONFIG = TrainConfig(optimiser=SGD(lr=0.5), loss=CrossEntropy(), epochs=4)


def data(rng: np.random.Generator, *axes: int) -> tuple[dict[str, Array], Array]:
    tokens, types = rng.integers(0, 11, axes), rng.integers(0, 3, axes)
    return {"input": tokens, "types": types}, (tokens + types) % 2


@pytest.mark.parametrize("axes", [(40,), (12, 5)])
def test_devices_learn_the_same_from_several_inputs(axes: tuple[int, ...], rng: np.random.Generator) -> None:
    network = two_ends()
    inputs, targets = data(rng, *axes)
    samples = ArrayData(inputs=inputs, targets=targets, batch_size=8, seed=1)
    assert samples.describe()["crc32"].keys() == {"inputs", "inputs.types", "targets"}
    found = [train(network, initialise(network, 5), samples, CONFIG, device=name) for name in ("reference", "cpu")]
    losses = [[record.loss for record in result.history] for result in found]
    assert losses[0][-1] < losses[0][0]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for key, store in found[0].params.items():
        np.testing.assert_allclose(found[1].params[key].values(), store.values(), rtol=0, atol=1e-5)


def test_batches_may_be_made_on_the_way(rng: np.random.Generator) -> None:
    network, made = two_ends(), data(rng, 16)
    streamed = train(network, initialise(network, 5), lambda epoch: [made], CONFIG, device="cpu")
    whole = ArrayData(inputs=made[0], targets=made[1], batch_size=16, shuffle=False)
    kept = train(network, initialise(network, 5), whole, CONFIG, device="cpu")
    for key, store in kept.params.items():
        assert np.array_equal(streamed.params[key].values(), store.values())


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_inputs_that_do_not_go_together_are_refused(name: str, rng: np.random.Generator) -> None:
    network = two_ends()
    inputs, targets = data(rng, 6, 4)
    wrong = [
        (inputs["input"], "got one array|got nothing for types"),
        ({**inputs, "types": inputs["types"][:, :3]}, "the same samples and lengths"),
        ({**inputs, "types": inputs["types"][:5]}, "the same number of samples"),
        ({**inputs, "colour": inputs["types"]}, "got also colour"),
    ]
    for given, match in wrong:
        with pytest.raises(ShapeError, match=match):
            train(network, initialise(network), (given, targets), CONFIG, device=name)


@pytest.mark.parametrize("name", ["reference", "cpu"])
def test_inputs_with_a_default_may_be_left_out(name: str, rng: np.random.Generator) -> None:
    types = Port(coord=Coord(1), dtype="int32", default=0)
    network, (inputs, targets) = two_ends(inputs={"types": types}), data(rng, 6, 4)
    zeros = {**inputs, "types": np.zeros_like(inputs["types"])}
    alone, whole = (
        train(network, initialise(network, 5), (given, targets), CONFIG, device=name)
        for given in (inputs["input"], zeros)
    )
    for key, store in whole.params.items():
        assert np.array_equal(alone.params[key].values(), store.values())
