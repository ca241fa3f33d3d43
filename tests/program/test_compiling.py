"""The compiler: what it leaves computes the same, and what it says of it is so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from tests.devices import device
from tests.examples.programs import CARRIED, TIMED, program
from tests.layers.test_vjp import arrays
from tests.oracles import oracle as in_numpy
from tests.oracles.memory import Memory
from tests.program.random_programs import programs
from volumetric.base.errors import CheckpointError, SpecError
from volumetric.layers.clock import Clock
from volumetric.loaders import open_model, save_native
from volumetric.network import initialise
from volumetric.program import Edge, In, Learning, Meter, Out, Program, Region, Signal, import_canvas
from volumetric.program import compile as compile_program
from volumetric.program.compiling import carry_params, compile_network
from volumetric.program.compiling.clock_folding import simplify_clock, still_in
from volumetric.program.compiling.constants import keep_of
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.program_params import all_params

FIXTURES = Path(__file__).parents[1] / "fixtures" / "programs"


def outputs(program: Program, p: dict[str, Any], x: Any, resets: Any) -> Any:
    """Rows of all outputs, from new streams, with resets."""
    return in_numpy(Layer(program=program)).forward(p, x, memory=Memory(streams=len(x), resets=resets))[0]


def notes(program: Program, **options: Any) -> set[str]:
    """What the compiler says it has done, without reasons."""
    found = compile_program(program, **options).report.notes
    return {f"{note.action} {note.of} {note.name}" for note in found}


@pytest.mark.thorough
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs())
def test_a_compiled_program_hands_out_the_same(program: Program) -> None:
    """Bit for bit in float64; parameters are those that it needs; nothing is left to take out."""
    spec = Layer(program=program)
    width = max(stop for _, stop in spec.ports("inputs").values())
    p, x = arrays(spec, (2, 6, width), 3)
    resets = (np.random.default_rng(1).random((2, 6)) < 0.2).astype(np.float64)
    for deploy in (True, False):
        made = compile_program(program, deploy=deploy)
        facts = facts_of(made.program)
        kept = carry_params(spec.facts, facts, p)
        assert {of.name: of.shape for of in all_params(facts)} == {name: value.shape for name, value in kept.items()}
        np.testing.assert_array_equal(outputs(made.program, kept, x, resets), outputs(program, p, x, resets))
        again = compile_program(made.program, deploy=deploy)
        assert again.program == made.program
        assert {note.action for note in again.report.notes} <= {"kept"}
        told = {(note.of, note.name) for note in made.report.notes if note.action == "removed"}
        assert {name for of, name in told if of == "region"} == program.canvas.regions.keys() - set(
            made.program.canvas.regions
        )
        left = {edge.name for edge in made.program.edges}
        assert {name for of, name in told if of == "edge"} == {edge.name for edge in program.edges} - left


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [TIMED, CARRIED], ids=["timed", "carried"])
def test_a_compiled_network_makes_the_same_on_a_device(spec: Layer) -> None:
    """With one of two outputs, its stream in two calls."""
    before = spec.program.network()
    name, *_ = spec.program.outputs
    params = initialise(before, seed=1)
    made = compile_program(spec.program, params, outputs=[name])
    assert made.params is not None
    assert made.report.after.parameters < made.report.before.parameters
    x = np.random.default_rng(2).standard_normal((2, 8, 3)).astype(np.float32)
    streams: list[Any] = [
        device("cpu").stream(network, of, batch=2) for network, of in ((before, params), (made.network, made.params))
    ]
    ports = {port: x[..., first:last] for port, (first, last) in spec.ports("inputs").items()}
    for rows in (slice(0, 3), slice(3, 8)):
        want, got = (stream.run({port: of[:, rows] for port, of in ports.items()})[name] for stream in streams)
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-5)


def test_dead_parts_go_and_inputs_only_if_they_may() -> None:
    regions = {name: Region(((n, n + 1), (0, 2))) for n, name in enumerate(("eye", "ear", "mind", "guess"))}
    ports = {"seen": In("eye", 2), "heard": In("ear", 3), "now": Signal(), "act": Out("mind", 1)}
    spec = program(regions, (Edge("eye", "mind"), Edge("mind", "guess"), Edge("ear", "guess")), ports, (6, 2)).program
    made = compile_program(spec)
    assert [edge.name for edge in made.program.edges] == ["mind<eye#0"]
    assert (list(made.program.canvas.regions), made.program.canvas.shape) == (["eye", "ear", "mind"], (3, 2))
    assert "= region ear: no output depends on it, but input 'heard' writes it" in str(made.report)
    assert list(compile_program(spec, drop_inputs=True).program.ports) == ["seen", "act"]
    assert {"removed port heard", "removed port now", "removed region ear"} <= notes(spec, drop_inputs=True)


def test_edges_keep_their_names() -> None:
    """Of two between the same regions the first goes; the second does not become the first."""
    edges = (Edge("eye", "belief", weight=0.0), Edge("eye", "belief", rule="sigmoid"))
    made = compile_program(program(edges=edges).program)
    assert [edge.name for edge in made.program.edges] == ["belief<eye#1"]


@pytest.mark.parametrize("fill", ["hold", "drop", "lerp"])
def test_an_edge_that_waits_for_its_lag_covers_no_other(fill: Any) -> None:
    """In its first rows a replacing edge with a lag is silent and others write, unless it takes the nearest."""
    regions = {name: Region(((n, n + 1), (0, 2))) for n, name in enumerate(("eye", "ear", "mind"))}
    ports = {"seen": In("eye", 2), "heard": In("ear", 3), "act": Out("mind", 1)}
    edges = (Edge("eye", "mind"), Edge("ear", "mind", write="replace", lag=2, fill=fill))
    spec = program(regions, edges, ports, (3, 2))
    made = compile_program(spec.program)
    assert [edge.reads for edge in made.program.edges] == (["ear"] if fill == "lerp" else ["eye", "ear"])
    p, x = arrays(spec, (2, 5, 5), 3)
    resets = np.array([[0, 0, 0, 1, 0], [0] * 5])
    kept = carry_params(spec.facts, facts_of(made.program), p)
    np.testing.assert_array_equal(outputs(made.program, kept, x, resets), outputs(spec.program, p, x, resets))


def test_regions_that_training_hides_hold_no_zeros_though_they_never_fire() -> None:
    """What is hidden has a learned vector in its place, at all regions that share its positions."""
    hidden = Region(((0, 1), (0, 2)), family="observation", clock="every(2) && !every(2)")
    regions = {"beside": Region(((0, 1), (1, 3))), "apart": Region(((1, 2), (0, 2))), "ear": Region(((1, 2), (2, 3)))}
    for learning, still in ((None, {0, 1, 2}), (Learning("ssl_prediction", {"masked_prediction": 1.0}), {2})):
        eye = replace(hidden, learning=learning)
        edges, ports = (Edge("ear", "eye"),), {"heard": In("ear", 1), "act": Out("apart", 1)}
        facts = program({"eye": eye, **regions}, edges, ports, (2, 3)).facts
        assert still_in(facts, frozenset({0})) == still


def test_what_clocks_look_at_is_alive_and_meters_that_nobody_reads_go() -> None:
    assert not any(note.action == "removed" for note in compile_program(TIMED.program).report.notes)
    quiet = replace(
        TIMED.program,
        edges=tuple(replace(edge, when=None) for edge in TIMED.program.edges),
        ports={name: port for name, port in TIMED.program.ports.items() if name != "kept"},
    )
    assert {"removed region store", "removed region err"} & notes(quiet) == set()  # store writes belief
    without = replace(quiet, edges=tuple(edge for edge in quiet.edges if edge.reads != "store"))
    assert {"removed region store", "removed region err"} <= notes(without)
    assert "removed meter belief" in notes(CARRIED.program)
    assert Meter("belief", ()) in compile_program(CARRIED.program).program.meters


def test_a_region_that_reads_only_constants_stays() -> None:
    """It begins with zeros, and again after a reset."""
    regions = {"eye": Region(((0, 1), (0, 2))), "none": Region(((1, 2), (0, 2))), "mind": Region(((2, 3), (0, 2)))}
    edges = (Edge("none", "mind"), Edge("eye", "mind"))
    spec = program(regions, edges[:1], {"seen": In("eye", 2), "act": Out("mind", 1)}, (3, 2)).program
    assert {"kept region none", "kept region mind"} <= notes(spec)


def test_an_edge_that_feeds_a_meter_is_live() -> None:
    """Meters of the package follow edges that read residual regions."""
    spec = import_canvas(_by_hand(), heads=2).program
    ports = {"seen": In("vision", 2), "act": Out("belief", 1)}
    wired = replace(spec, ports=ports)
    wired = replace(wired, edges=(*wired.edges, Edge("error", "action", write="gate")))
    names = {edge.name for edge in compile_program(wired).program.edges}
    assert "action<error#0" in names  # belief fires by the meter of error, which that edge feeds
    assert "error" in compile_program(wired).program.canvas.regions


def _by_hand() -> str:
    return json.dumps(json.loads((FIXTURES / "by_hand.json").read_text())["program"])


def test_regions_are_kept_as_the_package_keeps_them() -> None:
    """Of a program written by hand; where nothing says it the package leaves actions as they are, ours freezes."""
    oracle = json.loads((FIXTURES / "by_hand.json").read_text())
    for belief, want in oracle["compiled_with_belief_as"].items():
        regions = dict(import_canvas(_by_hand(), heads=2).program.canvas.regions)
        regions["belief"] = replace(regions["belief"], keep=belief)
        kept = {name: keep_of(region) for name, region in regions.items()}
        for which, mode in (("frozen", "freeze"), ("constant", "constant"), ("exported", "export")):
            assert sorted(name for name, of in kept.items() if of == mode and name != "action") == want[which]


def test_learning_goes_where_a_program_is_deployed_and_what_it_said_stays() -> None:
    learns = Learning("ssl_prediction", {"next_step": 1.0}, keep="runtime")
    regions = {
        "eye": Region(((0, 1), (0, 2)), family="observation", learning=learns),
        "belief": Region(((1, 2), (0, 2))),
    }
    spec = program(regions).program
    params = initialise(spec.network(), seed=1)
    made = compile_program(spec, params)
    assert made.params is not None
    assert made.program.canvas.regions["eye"] == replace(
        regions["eye"], box=((0, 1), (0, 1), (0, 2)), learning=None, keep="runtime"
    )
    assert not any("next" in key for key in made.params)
    assert made.report.after.state < made.report.before.state
    assert not made.frozen
    training = compile_program(spec, params, deploy=False)
    assert training.program == spec
    frozen = compile_program(
        replace(
            spec,
            canvas=replace(spec.canvas, regions={**spec.canvas.regions, "eye": replace(regions["eye"], learning=None)}),
        )
    )
    assert set(frozen.frozen) >= {
        "0.0.0.0/ports.seen.weight",
        "0.0.0.0/codes.region.eye",
        "0.0.0.0/codes.family.observation",
    }
    assert not any("belief" in key for key in frozen.frozen)


SIMPLER = {
    "every(1)": True,
    "every(2)": "every(2)",
    "!every(1)": False,
    "every(2) && every(1)": "every(2)",
    "every(2) || every(1)": True,
    "on(a) && !every(1)": False,
    "on(a) || err.prediction > 1": "on(a)",
    "err.prediction >= 0": True,
    "cooldown(every(1), 2)": "cooldown(every(1), 2)",
    "cooldown(err.prediction > 1, 2)": False,
    "silence(err.prediction > 1, 3)": "silence(!every(1), 3)",
    "silence(every(1), 3)": True,
    "inner(every(1), 2)": "inner(every(1), 2)",
    "inner(on(a) && every(1), 2)": "inner(on(a), 2)",
    "belief.prediction > 1": "belief.prediction > 1",
}


@pytest.mark.parametrize("text", SIMPLER)
def test_clocks_are_simplified(text: str) -> None:
    found = simplify_clock(Clock.parse(text), lambda path: path == "err.prediction")
    assert (found if isinstance(found, bool) else str(found)) == SIMPLER[text]


def test_it_is_saved_and_opened_and_programs_inside_of_networks_are_compiled(tmp_path: Path) -> None:
    from volumetric import Coord, Grid, Network
    from volumetric.layers import Dense

    layers = {
        Coord(0): Dense(in_features=2, out_features=3),
        Coord(1): CARRIED,
        Coord(2): Dense(in_features=2, out_features=1),
    }
    network = Network(grid=Grid(3), layers=layers, input_shape=(2,), input_dtype="float32")
    params = initialise(network, seed=1)
    made = compile_network(network, params)
    assert list(made.reports) == [Coord(1)]
    save_native(tmp_path / "m", made.network, made.params)
    opened = open_model(tmp_path / "m")
    assert opened.network == made.network
    with pytest.raises(SpecError, match="need a network of one program"):
        compile_network(network, params, outputs=["guess"])
    dense = Network(grid=Grid(1), layers={Coord(0): layers[Coord(0)]}, input_shape=(2,), input_dtype="float32")
    with pytest.raises(SpecError, match="no layer of the network is a program; its layers: dense"):
        compile_network(dense, initialise(dense))


def test_what_cannot_be_compiled_is_refused() -> None:
    with pytest.raises(SpecError, match="outputs must be a list of names, got 'y'"):
        compile_program(program().program, outputs="y")
    with pytest.raises(SpecError, match="there is no output 'gues'"):
        compile_program(TIMED.program, outputs=["gues"])
    with pytest.raises(SpecError, match="no output is left"):
        compile_program(TIMED.program, outputs=[])
    with pytest.raises(SpecError, match="the program has no input port"):
        compile_program(replace(TIMED.program, ports={"y": Out("eye", 1)}))
    with pytest.raises(CheckpointError, match="do not fit"):
        compile_program(TIMED.program, initialise(CARRIED.program.network()))
