"""Steps whose numbers are not finite: in what is given, on the way, or after the update."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tests.arrays import array
from tests.train.problems import chain, perceptron, waves
from volumetric.layers import Dense
from volumetric.network import Network
from volumetric.train import Batch, Momentum

FAULTS = ("input", "target", "overflow", "gradient", "update")


@dataclass(frozen=True, kw_only=True)
class FaultyStep:
    """A step of training with a fault, and where a learner must say that it is."""

    batch: Batch
    where: str
    network: Network
    optimiser: Momentum
    rate: float


def faulty_step(fault: str) -> FaultyStep:
    """Return the step with one of `FAULTS`."""
    data = waves()
    x, y = data.features.copy(), array(data.targets).copy()
    step = FaultyStep(
        batch=Batch(x, y), where="the mse loss", network=perceptron(4, 6, 1), optimiser=Momentum(), rate=0.1
    )
    last = Dense(in_features=4, out_features=1)
    if fault == "input":
        x[3, 1] = np.nan
        return replace(step, where="the input of the network")
    if fault == "target":
        y[0] = np.inf
        return step
    if fault == "overflow":
        network = chain(Dense(in_features=4, out_features=4, activation="relu2"), last, inputs=4)
        huge = Batch(np.full_like(x, 1e25), y)
        return replace(step, network=network, batch=huge, where="the output of dense at 0.0.0.0")
    if fault == "gradient":
        where = "the gradient of 0.0.0.0/weight (dense at 0.0.0.0)"
        return replace(step, network=chain(last, inputs=4), batch=Batch(x * 1e19, y * 0), where=where)
    where = "parameter 0.0.0.0/weight after the update"
    return replace(step, optimiser=Momentum(weight_decay=1e3), rate=3e38, where=where)
