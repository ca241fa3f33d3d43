"""Nothing is done in Python for single layers or ticks once a machine runs, or learns."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from volumetric import Clocked, initialise, open_device
from volumetric.builders.sequential import chain
from volumetric.layers import Dense
from volumetric.network import Network
from volumetric.train import SGD, Batch, LearnerOptions, Systolic, open_learner


def layers(count: int) -> Network:
    return chain([Dense(in_features=5, out_features=5, activation="tanh") for _ in range(count)], (5,))


def calls(run: Callable[[], object]) -> int:
    """Python functions that are entered, and C functions that are called, by the last of three runs."""
    for _ in range(2):
        run()
    count = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(None)
    return count


def running(network: Network, ticks: int) -> Callable[[], object]:
    device: Any = open_device("cpu", threads=1)
    stream = device.stream(Clocked(network=network), initialise(network), batch=2)
    rows = np.ones((2, ticks, 5), np.float32)
    return lambda: stream.run(rows)


def learning(network: Network, ticks: int) -> Callable[[], object]:
    mode = Systolic(window=ticks, delay=0)
    options = LearnerOptions(mode=mode, clocked=Clocked(network=network), optimiser=SGD(lr=1e-3))
    learner = open_learner(open_device("cpu", threads=1))(network, initialise(network), options)
    rows = np.ones((2, ticks, 5), np.float32)
    return lambda: learner.step([Batch(rows, rows)], rate=1e-3)


@pytest.mark.parametrize("what", [running, learning])
def test_calls_do_not_depend_on_layers_and_ticks(what: Callable[[Network, int], Callable[[], object]]) -> None:
    few = calls(what(layers(3), 4))
    assert calls(what(layers(30), 4)) == few
    assert calls(what(layers(3), 16)) == few


def test_a_run_has_as_many_steps_for_any_number_of_layers() -> None:
    found = []
    for count in (3, 30):
        network = layers(count)
        device: Any = open_device("cpu")
        stream = device.stream(Clocked(network=network), initialise(network))
        stream.run(np.ones((1, 8, 5), np.float32))
        [program] = stream._programs
        found.append(len(program.graph.nodes))  # pyright: ignore[reportAttributeAccessIssue]
    assert found[0] == found[1]
