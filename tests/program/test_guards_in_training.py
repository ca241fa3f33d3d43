"""Training computes nothing of what does not fire, forward and back, to the same bits."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from tests.examples.programs import CARRIED, TIMED, program
from tests.program.test_guards import clocked
from volumetric.devices.cpu.graph.cpu_program import CpuProgram
from volumetric.devices.cpu.graph.graphs import CpuGraphs
from volumetric.graph import GraphBuilder
from volumetric.network import Network, initialise
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import In, Out, Signal
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.recipes import learning_of
from volumetric.program.layer.region import Region
from volumetric.train import MSE, SGD, Backprop, Batch, LearnerOptions
from volumetric.train.device_learner import DeviceLearner

OPTIONS = LearnerOptions(mode=Backprop(carry=True), loss=MSE(), optimiser=SGD(lr=0.1))


def surprised() -> Layer:
    """A signal, an error and a count wake regions of all kinds of carriers, and edges that read them."""
    regions = {
        "eye": Region(((0, 1), (0, 4)), family="observation"),
        "belief": Region(((1, 2), (0, 4)), family="state", carrier="filter", learning=learning_of("state")),
        "sign": Region(((2, 3), (0, 1)), clock="on(now)"),
        "store": Region(((2, 3), (1, 2)), family="memory", carrier="memory", slots=2, clock="on(now)"),
        "err": Region(((2, 3), (2, 3)), family="residual", carrier="residual", clock="every(2)"),
        "act": Region(((3, 4), (0, 4)), family="action", clock="inner(every(3), 1)"),
    }
    edges = (
        Edge("eye", "err", operator="emit_residual", rule="copy"),
        Edge("belief", "err", operator="emit_residual"),
        Edge("eye", "belief", operator="observe", when="silence(err.prediction > 0.4, 3)"),
        Edge("sign", "belief", when="on(now)", write="gate"),
        Edge("store", "belief", operator="retrieve", when="on(now)"),
        Edge("sign", "store", operator="write"),
        Edge("belief", "act", rule="mamba"),
        Edge("act", "sign", write="replace"),
    )
    ports = {"in": In("eye", 2), "now": Signal(), "out": Out("act", 2, pool="flatten"), "kept": Out("belief", 1)}
    return program(regions, edges, ports, (4, 4), meters=(Meter("err", decay=0.3),))


def learner(network: Network, threads: int = 1) -> DeviceLearner:
    return DeviceLearner(network, initialise(network, seed=1), OPTIONS, CpuGraphs(threads, always=True))


def batches(network: Network, rows: int, count: int = 2, streams: int = 1) -> list[Batch]:
    """Windows in whose last column, a signal where there is one, some rows are 0 in all streams."""
    draw, spec = np.random.default_rng(3), next(iter(network.layers.values()))
    assert isinstance(spec, Layer)
    wide, made = max(of.stop for of in spec.facts.inputs.values()), list[Batch]()
    for _ in range(count):
        x = draw.standard_normal((streams, rows, wide)).astype(np.float32)
        x[:, ::2, -1] = 0
        made.append(Batch(x, np.zeros(spec.output_shape(x.shape), np.float32)))
    return made


def learned(of: DeviceLearner, windows: list[Batch], *, spoiled: bool = False) -> dict[str, np.ndarray]:
    """What weights become; where it is to be spoiled, NaN stands in all memory that a run has not written."""
    for window in windows:
        if spoiled:
            store: Any = of.arrays.store
            store.scratch.arena[...] = 0xFF
        of.step([window], rate=0.1)
    return {key: store.values() for key, store in of.params().items()}


def guards_of(of: DeviceLearner) -> int:
    [made] = of.arrays.programs
    assert isinstance(made, CpuProgram)
    return sum(step.name == "guard" for step in made._table.draft.steps)


def assert_same(found: dict[str, np.ndarray], want: dict[str, np.ndarray]) -> None:
    for key, value in want.items():
        np.testing.assert_array_equal(found[key], value, err_msg=key)


def both(network: Network, rows: int, monkeypatch: pytest.MonkeyPatch, streams: int = 1) -> tuple[DeviceLearner, int]:
    """Learn with guards and without; returns the first, and how many guards it has."""
    windows, guarded = batches(network, rows, streams=streams), learner(network)
    found = learned(guarded, windows, spoiled=True)
    with monkeypatch.context() as patch:
        patch.setattr(GraphBuilder, "predicated", lambda *_, **__: nullcontext())
        plain = learner(network)
        assert_same(found, learned(plain, windows))
    assert guards_of(plain) == 0
    return guarded, guards_of(guarded)


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [TIMED, CARRIED, surprised()], ids=["timed", "carried", "surprised"])
def test_what_does_not_fire_is_not_computed_in_training(spec: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    _, count = both(spec.program.network(), 4, monkeypatch, streams=2)
    assert count >= 4 * 4  # of each row, forward and back


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["linear", "sparse", "mixture", "mamba"])
def test_gradients_of_all_rules_are_left_out(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    both(clocked(rule), 2, monkeypatch)


def test_what_always_fires_has_no_guards() -> None:
    network = program().program.network()
    always = learner(network)
    learned(always, batches(network, 3))
    assert guards_of(always) == 0


@pytest.mark.thorough
def test_threads_agree_on_what_is_left_out() -> None:
    """Again and again, over rows of which some fire."""
    network = TIMED.program.network()
    windows = batches(network, 8) * 2
    assert_same(learned(learner(network, 2), windows), learned(learner(network), windows))
