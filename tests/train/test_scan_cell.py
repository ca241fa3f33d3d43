"""A recurrent cell of one's own, written by `scan` alone: it trains on every device as the interpreter does."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tests.devices import FAST, graphs
from tests.graph.scans import minimal_gated
from tests.train.problems import chain
from tests.train.test_device_learner import follow
from volumetric.base._typing import Shape
from volumetric.layers import Dense, LayerSpec
from volumetric.layers.emit_scope import Scope, linear
from volumetric.layers.layer_spec import LAYERS, ParamSpec
from volumetric.network import initialise
from volumetric.train import Adam, Batch, LearnerOptions
from volumetric.train.device_learner import DeviceLearner


@dataclass(frozen=True, slots=True, kw_only=True)
class MinimalGated(LayerSpec):
    """Minimal gated unit on ``[B, T, size]``; `tests.graph.scans.minimal_gated` has its equations."""

    kind = "minimal_gated"
    contextual = True
    size: int

    def params(self) -> tuple[ParamSpec, ...]:
        square = (self.size, self.size)
        shapes = {"ih.weight": (2 * self.size, self.size), "ih.bias": (2 * self.size,), "gate": square, "new": square}
        return tuple(ParamSpec(name=name, shape=shape) for name, shape in shapes.items())

    def output_shape(self, *inputs: Shape) -> Shape:
        return inputs[0]

    def emit(self, scope: Scope, x: int) -> int:
        """The products with x for all steps at once, and the rest as a scan over the steps of all sequences."""
        work, p = scope.work, scope.params(self)
        from_x = work.permute(scope.as_sequences(linear(work, p, ("ih.",), x)), (1, 0, 2))
        start = work.zeros((work.shape(from_x)[1], self.size))
        [ys], _ = work.scan(minimal_gated, [from_x], [p["gate"], p["new"]], [start])
        return work.reshape(work.permute(ys, (1, 0, 2)), work.shape(x))


@pytest.fixture
def _registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LAYERS, MinimalGated.kind, MinimalGated)


@pytest.mark.thorough
@pytest.mark.usefixtures("_registered")
@pytest.mark.parametrize("name", FAST)
def test_a_cell_of_a_scan_trains_as_the_interpreter_does(name: str) -> None:
    network = chain(
        Dense(in_features=3, out_features=5, activation="tanh"),
        MinimalGated(size=5),
        Dense(in_features=5, out_features=2),
        inputs=3,
    )
    options = LearnerOptions(optimiser=Adam(), clip=1.0)
    learners = [
        DeviceLearner(network, initialise(network, seed=2), options, graphs(device)) for device in ("reference", name)
    ]
    x = np.random.default_rng(0).standard_normal((4, 7, 3)).astype(np.float32)
    follow(learners, [Batch(x, np.tanh(x[..., :2].cumsum(1)))], updates=5)
    before, after = (learners[1].step([Batch(x, np.tanh(x[..., :2].cumsum(1)))], rate=rate) for rate in (0.02, 0.0))
    assert after.tally.total < before.tally.total
