"""Equal weights lie in a learner's store as one tensor, and nobody sees it: as if each had a buffer of its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.clocked.machines import machine, rows, weights
from tests.devices import device
from volumetric import Clocked, Coord, Link, initialise
from volumetric.builders.sequential import chain
from volumetric.graph.numpy_graphs import NumpyGraphs
from volumetric.graph.parameter_stacks import ParameterStack, ParameterStacks
from volumetric.layers import Dense
from volumetric.network import Network
from volumetric.train import MSE, AdamW, Batch, LearnerOptions, Systolic
from volumetric.train.device_learner import DeviceLearner
from volumetric.train.trained_arrays import TrainedArrays

RNG = np.random.default_rng(0)


class Apart(DeviceLearner):
    """Keeps every weight in a buffer of its own."""

    def _stacked(self, arrays: TrainedArrays) -> ParameterStacks:
        return ParameterStacks()


def layers(count: int) -> Network:
    return chain([Dense(in_features=5, out_features=5, activation="tanh") for _ in range(count)], (5,))


def both(clocked: Clocked, graphs: Any, **more: Any) -> tuple[DeviceLearner, DeviceLearner]:
    options = LearnerOptions(
        **{"mode": Systolic(delay=3), "clocked": clocked, "optimiser": AdamW(lr=1e-2), "loss": MSE(), **more}
    )
    params = initialise(clocked.network, seed=1)
    return DeviceLearner(clocked.network, params, options, graphs), Apart(clocked.network, params, options, graphs)


def check_equal(one: DeviceLearner, other: DeviceLearner) -> None:
    """All that is seen of two learners has the same bits."""
    for found, want in (
        (one.state.masters, other.state.masters),
        *zip(one.state.slots.values(), other.state.slots.values(), strict=True),
    ):
        assert list(found) == list(want)
        for key, w in want.items():
            np.testing.assert_array_equal(found[key], w, err_msg=key)
    for key, store in other.params().items():
        assert one.params()[key].scheme == store.scheme
        np.testing.assert_array_equal(one.params()[key].values(), store.values(), err_msg=key)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("more", "stacks"),
    [
        ({}, 2),
        ({"dtype": "int4:g32"}, 2),
        ({"dtype": {"*/weight": "bfloat16", "1.*/bias": "float16"}}, 4),  # biases of 0, of 1 alone, of 2 … 5
        ({"frozen": ("3.*",), "decay_vectors": True}, 6),  # of 0 … 2, of 3, of 4 and 5
    ],
)
def test_updates_have_the_bits_of_weights_apart(more: dict[str, Any], stacks: int) -> None:
    clocked = Clocked(network=layers(6))
    one, other = both(clocked, device("cpu").graphs(), **more)
    x = RNG.standard_normal((2, 8, 5)).astype(np.float32)
    for _ in range(2):
        one.step([Batch(x, x)], rate=0.1)
        other.step([Batch(x, x)], rate=0.1)
    check_equal(one, other)
    assert sum(key.startswith("stack/") for key in one.arrays.store.keys()) == stacks  # noqa: SIM118 - a store is no mapping
    again, _ = both(clocked, device("cpu").graphs(), **more)
    again.restore(one.state)
    for learner in (again, one):
        learner.step([Batch(x, x)], rate=0.1)
    check_equal(again, one)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", [6, 16, 29])
def test_any_machine_learns_as_with_weights_apart(seed: int) -> None:
    """Links, clocks, shared weights, outputs of which one has no targets; clipped, as sums have another order."""
    clocked = machine(seed)
    network = clocked.network
    heads = {"tap": next(iter(network.layers))} | dict(network.outputs)
    clocked = replace(clocked, network=replace(network, outputs=heads))
    names, params = list(clocked.network.taps), weights(clocked)
    options = LearnerOptions(
        mode=Systolic(delay=4),
        clocked=clocked,
        optimiser=AdamW(lr=1e-2),
        loss={name: MSE() for name in names},
        clip=1e-2,
    )
    made = [kind(clocked.network, params, options, NumpyGraphs(np.float64)) for kind in (DeviceLearner, Apart)]
    x = rows(clocked, 2, 4)
    for asked in (names, names[:1], names[1:]):
        shapes = {name: clocked.network.shapes[clocked.network.taps[name]][1:] for name in asked}
        y = {name: RNG.standard_normal((2, 4, *shape)) for name, shape in shapes.items()}
        told = [one.step([Batch(x, y)], rate=0.1) for one in made]
        assert told[0].gradient_norm == pytest.approx(told[1].gradient_norm, rel=1e-9)
    for key, w in made[1].state.masters.items():
        np.testing.assert_allclose(made[0].state.masters[key], w, rtol=0, atol=1e-9, err_msg=key)


def test_shared_weights_are_apart() -> None:
    links = (Link(kind="shared", source=Coord(1), target=Coord(3), param="weight", source_param="weight"),)
    one, other = both(Clocked(network=replace(layers(5), links=links)), device("cpu").graphs())
    x = RNG.standard_normal((2, 8, 5)).astype(np.float32)
    for learner in (one, other):
        learner.step([Batch(x, x)], rate=0.1)
    check_equal(one, other)
    stacked = {key: stack.keys for key, stack in one.arrays.stacks.by_buffer.items()}
    assert "1.0.0.0/weight" not in {key for keys in stacked.values() for key in keys}
    assert ("0.0.0.0/weight",) in stacked.values()


@pytest.mark.thorough
def test_an_update_has_as_many_dispatches_for_any_number_of_layers() -> None:
    counts: list[int] = []
    x = np.ones((2, 6, 5), np.float32)
    for count in (3, 40):
        one, _ = both(Clocked(network=layers(count)), device("gpu").graphs(), mode=Systolic(delay=0), clip=1.0)
        assert one.step([Batch(x, x)], rate=0.1).fault is None
        [program] = one.arrays.programs
        counts.append(len(program.calls))  # pyright: ignore[reportAttributeAccessIssue]
    assert counts[0] == counts[1]


def test_a_stack_is_its_members() -> None:
    stack = ParameterStack(("a", "b"), (3, 2))
    members = {key: RNG.standard_normal((3, 2)).astype(np.float32) for key in stack.keys}
    whole = stack.join(members.__getitem__)
    assert whole.shape == stack.shape == (2, 2, 3)
    for key, value in stack.split_members(whole).items():
        np.testing.assert_array_equal(value, members[key])
        assert value.flags.owndata
        assert value.flags.c_contiguous
    stacks = ParameterStacks((stack,))
    assert list(stacks.runs(["x", "a", "b", "y"])) == ["x", stack, "y"]
    assert stacks.shapes({"x": (1,), "a": (3, 2), "b": (3, 2)}) == {"x": (1,), stack.key: (2, 2, 3)}
