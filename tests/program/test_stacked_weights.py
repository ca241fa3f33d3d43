"""Weights of edges that are read side by side lie and learn as one where the device can do with parts of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.devices import device
from tests.examples.programs import CARRIED, TIMED, program
from tests.program.test_guards_in_training import batches, surprised
from volumetric.graph import NumpyGraphs
from volumetric.graph.parameter_stacks import ParameterStacks, stack_key
from volumetric.network import Network, initialise
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import In, Out
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.region import Region
from volumetric.program.layer.region_learning import Learning
from volumetric.train import MSE, AdamW, Backprop, Batch, LearnerOptions
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.lora import LowRank
from volumetric.train.trained_arrays import TrainedArrays


class Parted(NumpyGraphs):
    """The reference device, as one that computes what fires at different times together."""

    parted = True


EACH = NumpyGraphs(np.float64)
"""Has a buffer for each weight, and a node for each meter."""


class Apart(DeviceLearner):
    """Has a buffer for each weight."""

    def _stacked(self, arrays: TrainedArrays) -> ParameterStacks:
        return ParameterStacks()


def ring(count: int, *, metered: bool = False) -> Network:
    """Regions of two positions, each of which reads the two before it; with meters some fire by that of another."""
    regions = {
        f"r{n}": Region(
            ((n, n + 1), (0, 2)),
            clock=f"r{n - 1}.prediction > 0.2" if metered and n % 3 else None,
            learning=Learning("ssl_prediction", {"next_step": 1.0}) if metered and n == 1 else None,
        )
        for n in range(count)
    }
    edges = tuple(Edge(f"r{(n - back) % count}", f"r{n}") for n in range(count) for back in (1, 2))
    meters = tuple(Meter(f"r{n}", decay=0.3) for n in range(count)) if metered else ()
    ports = {"in": In("r0", 3), "out": Out("r1", 2)}
    return program(regions, edges, ports, (count, 2), meters=meters).program.network()


def learners(network: Network, **more: Any) -> list[DeviceLearner]:
    options = LearnerOptions(mode=Backprop(carry=True), loss=MSE(), optimiser=AdamW(lr=0.01), **more)
    params = initialise(network, seed=1)
    return [kind(network, params, options, Parted(np.float64)) for kind in (DeviceLearner, Apart)]


def stacked(of: DeviceLearner) -> dict[str, tuple[str, ...]]:
    return {key: stack.keys for key, stack in of.arrays.stacks.by_buffer.items()}


def check_equal(one: DeviceLearner, other: DeviceLearner) -> None:
    for found, want in (
        (one.state.masters, other.state.masters),
        *((one.state.slots[slot], of) for slot, of in other.state.slots.items()),
    ):
        assert list(found) == list(want)
        for key, value in want.items():
            np.testing.assert_allclose(found[key], value, rtol=0, atol=1e-9, err_msg=key)
    for key, store in other.params().items():
        assert one.params()[key].scheme == store.scheme


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("more", "stacks"),
    [
        ({}, 8),
        ({"dtype": "int4:g32"}, 8),
        ({"dtype": {"*/edges.r0*": "bfloat16"}}, 0),
        ({"frozen": ("*/edges.*.q.weight",), "decay_vectors": True, "clip": 1e-3}, 8),
        ({"frozen": ("*/edges.r0*",)}, 0),
        ({"overlay": LowRank(rank=1, targets=("*q.weight",))}, 0),
    ],
)
def test_they_learn_what_they_do_apart(more: dict[str, Any], stacks: int) -> None:
    network = ring(4)
    one, other = learners(network, **more)
    assert len(stacked(one)) == stacks
    assert all(len(keys) == 8 for keys in stacked(one).values())
    assert sum(key.startswith("stack/") for key in one.arrays.store.keys()) == stacks  # noqa: SIM118 - a store is no mapping
    windows = batches(network, 3)
    for of in (one, other):
        told = [of.step([window], rate=0.1) for window in windows]
        assert not any(report.fault for report in told)
        of.step(windows, rate=0.1)  # sums of two
    check_equal(one, other)
    again, _ = learners(network, **more)
    again.restore(one.state)
    for of in (again, one):
        of.step([windows[0]], rate=0.1)
    check_equal(again, one)


@pytest.mark.thorough
@pytest.mark.parametrize("layer", [surprised(), TIMED, CARRIED], ids=["surprised", "timed", "carried"])
def test_programs_of_all_kinds_learn_alike(layer: Layer) -> None:
    network = layer.program.network()
    one, other = learners(network)
    for window in batches(network, 4):
        reports = [of.step([window], rate=0.1) for of in (one, other)]
        assert reports[0].gradient_norm == pytest.approx(reports[1].gradient_norm, rel=1e-9)
    check_equal(one, other)


@pytest.mark.thorough
def test_meters_that_are_alike_are_followed_together_in_training_too() -> None:
    network = ring(7, metered=True)
    options = LearnerOptions(mode=Backprop(carry=True), loss=MSE(), optimiser=AdamW(lr=0.01))
    made = [DeviceLearner(network, initialise(network, seed=1), options, of) for of in (Parted(np.float64), EACH)]
    for window in batches(network, 5, count=3, streams=2):
        assert {of.step([window], rate=0.1).fault for of in made} == {None}
    check_equal(*made)
    for key, value in made[1].state.carried.items():
        np.testing.assert_allclose(made[0].state.carried[key], value, rtol=0, atol=1e-9, err_msg=key)


@pytest.mark.thorough
@pytest.mark.parametrize(("metered", "each"), [(False, 0), (True, 4)])
def test_an_update_has_few_dispatches_for_any_number_of_edges(metered: bool, each: int) -> None:
    """Of regions with meters, what streams keep of each is read and left by itself."""
    counts: list[int] = []
    for count in (6, 24):
        network = ring(count, metered=metered)
        of = DeviceLearner(
            network,
            initialise(network, seed=1),
            LearnerOptions(mode=Backprop(carry=True), loss=MSE(), optimiser=AdamW(lr=0.01)),
            device("gpu").graphs(),
        )
        spec = next(iter(network.layers.values()))
        x = np.ones((1, 3, 3), np.float32)
        assert of.step([Batch(x, np.zeros(spec.output_shape(x.shape), np.float32))], rate=0.1).fault is None
        [made] = of.arrays.programs
        counts.append(len(made.calls))  # pyright: ignore[reportAttributeAccessIssue]
    assert counts[1] - counts[0] <= each * 18


def test_what_is_not_finite_is_found_among_stacked_weights() -> None:
    network = ring(4)
    for of in learners(network):
        [window] = batches(network, 3, count=1)
        window.features[0, 1] = np.nan
        before = of.state.masters
        assert of.step([window], rate=0.1).fault == "the input of the network"
        for key, value in of.state.masters.items():
            np.testing.assert_array_equal(value, before[key], err_msg=key)


def test_stacks_of_many_have_short_names() -> None:
    keys = [f"0.0.0.0/edges.r{n}.q.weight" for n in range(4000)]
    assert len(stack_key(keys)) < 100
    assert len({stack_key(keys), stack_key(keys[:-1]), stack_key(keys[::-1]), stack_key(keys[:2])}) == 4
