"""Paths from inputs to outputs: who is cut off by an edge that replaces is told, and autowire cuts nobody off."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from tests.layers.graphed import graphed
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.program import Canvas, Edge, In, Out, Program, Region, autowire
from volumetric.program.describe import problems, unseen_inputs
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.reachability import latency
from volumetric.train import TrainConfig, train
from volumetric.viz.program_sheet import region_text

REGIONS = {
    "eye": Region(((0, 1), (0, 2)), family="observation"),
    "belief": Region(((0, 1), (2, 4))),
    "plan": Region(((1, 2), (2, 4))),
    "act": Region(((1, 2), (0, 2)), family="action"),
}
PORTS = {"pixels": In("eye", 3), "motor": Out("act", 2)}
WIRED = Program(Canvas(1, (2, 4), 8, REGIONS), autowire(), PORTS)
CUTTING = Edge(reads="act", writes="belief", operator="intervene")


def cut(**fields: Any) -> Program:
    """The program in which all that the states get is replaced."""
    edges = (replace(CUTTING, **fields), replace(CUTTING, writes="plan", **fields))
    kept = tuple(edge for edge in WIRED.edges if edge.operator != "intervene")
    return replace(WIRED, edges=(*kept, *edges))


def network(program: Program) -> Network:
    spec = Layer(program=program)
    return Network(grid=Grid(1), layers={Coord(0): spec}, input_shape=(3,), input_dtype="float32")


def influence(program: Program) -> float:
    """How much the last outputs change with the first rows."""
    spec = Layer(program=program)
    params = initialise(network(program))
    arrays = {key.partition("/")[2]: store.values() for key, store in params.items()}
    x = np.random.default_rng(0).standard_normal((6, 3)).astype(np.float32)
    other = x.copy()
    other[0] += 1
    return float(np.abs(graphed(spec).forward(arrays, x)[0] - graphed(spec).forward(arrays, other)[0]).max())


def test_autowire_leaves_every_way_open() -> None:
    assert problems(WIRED) == []
    assert latency(facts_of(WIRED), "motor") == 1  # eye → belief in one step, belief → act in the next
    assert influence(WIRED) > 1e-4
    assert unseen_inputs(WIRED) == []


def test_several_states_share_what_they_act_on() -> None:
    regions = {**REGIONS, "belief": Region(((0, 1), (2, 4)), clock="every(2)")}
    program = replace(WIRED, canvas=replace(WIRED.canvas, regions=regions))
    assert {edge.write for edge in WIRED.edges if edge.writes == "act" and edge.reads != "act"} == {"add"}
    assert problems(program) == []
    alone = Program(Canvas(1, (2, 4), 8, {n: r for n, r in REGIONS.items() if n != "plan"}), autowire(), PORTS)
    assert [edge.write for edge in alone.edges if edge.operator == "act"] == [None]  # it replaces, and cuts nobody off


def test_an_output_that_is_cut_off_is_told_with_the_edge_that_does_it() -> None:
    [problem] = problems(cut())
    assert problem == (
        "output 'motor' depends on no input over any path: edge 'belief<act#0' replaces all writes to 'belief', "
        "edge 'plan<act#0' replaces all writes to 'plan'"
    )
    assert influence(cut()) == 0
    assert "motor → (depends on no input)" in region_text(cut(), "act")
    assert "motor →" in region_text(WIRED, "act")


@pytest.mark.parametrize("fields", [{"when": "every(2)"}, {"lag": 1}, {"write": "add"}, {"weight": 0.0}])
def test_an_edge_that_does_not_always_replace_cuts_nobody_off(fields: dict[str, Any]) -> None:
    assert problems(cut(**fields)) == []


def test_what_comes_in_where_it_is_replaced_is_read_before() -> None:
    ports = {"pixels": In("belief", 3), "motor": Out("act", 2), "mind": Out("belief", 2)}
    edges = (Edge(reads="belief", writes="act"), Edge(reads="eye", writes="belief", write="replace"))
    program = replace(WIRED, edges=edges, ports=ports)
    assert latency(facts_of(program), "motor") == 0
    assert problems(program) == [
        "output 'mind' depends on no input over any path"  # it is handed out after the step, when it was replaced
    ]


@pytest.mark.parametrize(("fill", "cut_off"), [("hold", False), ("drop", False), ("lerp", True)])
def test_what_comes_in_gets_through_before_a_lagged_edge_replaces_it(fill: Any, cut_off: bool) -> None:
    """In its first steps an edge with a lag writes nothing, unless it takes the nearest there is."""
    edges = (Edge(reads="eye", writes="belief", write="replace", lag=2, fill=fill),)
    program = replace(WIRED, edges=edges, ports={"pixels": In("belief", 3), "mind": Out("belief", 2)})
    assert (latency(facts_of(program), "mind") is None) == cut_off
    assert bool(problems(program)) == cut_off


def test_an_input_that_nobody_looks_at_is_told() -> None:
    ports = {**PORTS, "notes": In("plan", 2)}
    edges = tuple(edge for edge in WIRED.edges if edge.reads != "plan")
    assert unseen_inputs(replace(WIRED, edges=edges, ports=ports)) == ["notes"]


def test_training_warns_of_an_output_that_is_cut_off(caplog: pytest.LogCaptureFixture) -> None:
    x = np.zeros((2, 3, 3), np.float32)
    data, config = ({"pixels": x}, {"motor": x[..., :2]}), TrainConfig()
    for program, told in ((cut(), True), (WIRED, False)):
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            train(network(program), initialise(network(program)), data, config, device="reference")
        assert ("output 'motor' depends on no input" in caplog.text) == told
