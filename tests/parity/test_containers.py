"""What containers do with their layers' outputs, told by formulas rather than by the layers' own code."""

from __future__ import annotations

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.parity.run import agree_one
from tests.train.problems import chain
from volumetric.layers import Dense, LayerSpec, Parallel, Reshape, Residual, Sequential
from volumetric.network import Network, initialise
from volumetric.network.weight_store import Params
from volumetric.run import RunOptions, lower

X = np.random.default_rng(5).standard_normal((3, 4)).astype(np.float32)


def dense() -> Dense:
    return Dense(in_features=4, out_features=4)


def weights(params: Params, count: int) -> list[np.ndarray]:
    """Matrices of the container's first `count` layers with parameters, in order (their biases start as 0)."""
    found = [store.values().astype(np.float64) for key, store in sorted(params.items()) if key.endswith("weight")]
    assert len(found) == count
    return found


def run(name: str, network: Network, params: Params) -> np.ndarray:
    executable = device(name).compile(lower(network), params, RunOptions())
    return executable.forward(executable.new_state(), X, last_only=False)


def paths(spec: LayerSpec) -> list[Network]:
    """A network that runs fused, and one that runs as graphs."""
    return [chain(spec, inputs=4), chain(spec, Reshape(shape=(2, -1)), Reshape(shape=(-1,)), inputs=4)]


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_joins_of_any_number_of_branches(count: int, name: str) -> None:
    for combine in ("add", "avg", "concat"):
        for network in paths(Parallel(branches=(dense(),) * count, combine=combine)):
            params = initialise(network, seed=2)
            outputs = [X @ w.T for w in weights(params, count)]
            want = np.concatenate(outputs, -1) if combine == "concat" else np.sum(outputs, axis=0)
            agree_one(run(name, network, params), want / (count if combine == "avg" else 1), f"{combine} of {count}")


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize(
    ("place", "source", "adds"),
    [(1, None, 0), (1, "input", 0), (1, "#0", 1), (2, None, 1), (2, "input", 0), (2, "#0", 1), (2, "#1", 2)],
)
def test_a_residual_adds_what_its_source_names(place: int, source: str | None, adds: int, name: str) -> None:
    """Value 0 is the container's input, value i + 1 the output of its layer i."""
    layers = (*(dense() for _ in range(place)), Residual(source=source))
    for network in paths(Sequential(layers=layers)):
        params = initialise(network, seed=3)
        values = [X.astype(np.float64)]
        for w in weights(params, place):
            values.append(values[-1] @ w.T)
        agree_one(run(name, network, params), values[-1] + values[adds], f"{source} at {place}")
