"""Programs as layers: what fires when, and what becomes of it; networks, files, samples, and what is refused."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

import volumetric
from tests.devices import DEVICES, device
from tests.examples.programs import BELIEF, CARRIED, EDGES, EYE, KNOWN, PORTS, TIMED, WHOLE, program
from tests.layers.test_vjp import arrays
from tests.oracles import oracle as in_numpy
from tests.oracles.memory import Memory
from tests.oracles.program.forward import Machine
from volumetric.base.errors import ShapeError, SpecError
from volumetric.devices.cpu.graph.build_steps import build_steps
from volumetric.devices.cpu.graph.graphs import _rewrite_graph
from volumetric.graph import GraphBuilder
from volumetric.graph.interpret import interpret
from volumetric.layers.emit_scope import Scope
from volumetric.loaders import save_native
from volumetric.network import Network, initialise
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.ports import In, Out, Port, Signal
from volumetric.program.layer.program_layer import Program
from volumetric.program.layer.region import Region
from volumetric.program.layer.region_learning import Constraints
from volumetric.program.layer.timing import CANVAS, all_states, timing_of
from volumetric.run.graph import graph_of

FIXTURES = Path(__file__).parents[1] / "fixtures" / "programs"


def machine(spec: Program, streams: int = 1) -> tuple[Machine, np.ndarray]:
    """A machine in float64 at its start, and ten rows for it."""
    p, x = arrays(spec, (streams, 10, max(end for _, end in spec.ports("inputs").values())), 3)
    states = {name: np.zeros((streams, *shape)) for name, shape in all_states(spec.facts).items()}
    return Machine(spec.facts, p, states), x


@pytest.mark.thorough
@pytest.mark.parametrize("spec", [TIMED, CARRIED, WHOLE, KNOWN], ids=["timed", "carried", "whole", "known"])
def test_graphs_compute_what_numpy_does(spec: Program) -> None:
    """In float64 to 1e-9, with resets, and states too, and what is watched."""
    spec = replace(spec, watched=True)
    p, x = arrays(spec, (3, 7, 3), seed=5)
    resets = (np.random.default_rng(1).random((3, 7)) < 0.2).astype(np.float64)
    memory = Memory(streams=3, resets=resets)
    want, _ = in_numpy(spec).forward(p, x, memory=memory)
    work = GraphBuilder()
    given = {name: work.input(name, value.shape) for name, value in p.items()}
    states = {f"layer/{s.name}": work.zeros((3, *s.shape)) for s in spec.states()}
    at, marks = work.input("x", (21, 3)), work.input("resets", (3, 7))
    scope = Scope(
        work=work,
        param=lambda name, shape: given[name],
        path="layer",
        sequences=3,
        resumes=True,
        resets=marks,
        states=states,
    )
    y = scope.emit(spec, at)
    graph = work.finish([y, *states.values()])
    made = interpret(graph, [*p.values(), x.reshape(21, 3), resets], {}, np.float64)
    np.testing.assert_allclose(made[0].reshape(want.shape), want, rtol=0, atol=1e-9)
    for name, value in zip(states, made[1:], strict=True):
        np.testing.assert_allclose(value, memory.values[name.removeprefix("layer/")], rtol=0, atol=1e-9, err_msg=name)


def test_regions_fire_by_their_clocks_and_stay_as_they_are_else() -> None:
    spec = program(
        {"eye": EYE, "belief": replace_region(BELIEF, clock="every(3, 1)"), "other": Region(((2, 3), (0, 2)))},
        (*EDGES, Edge("belief", "other", when="every(2)")),
        shape=(3, 2),
    )
    running, x = machine(spec)
    belief, other = (spec.facts.place(name).positions for name in ("belief", "other"))
    for t in range(10):
        before = running.states[CANVAS]
        running.row(x[:, t])
        after = running.states[CANVAS]
        assert running.fires[0].tolist() == [True, t % 3 == 1, True]
        assert running.live[0].tolist() == [t % 3 == 1, t % 3 == 1, t % 2 == 0]
        assert (before[:, belief] != after[:, belief]).any() == (t % 3 == 1)
        assert (before[:, other] != after[:, other]).any() == (t % 2 == 0)


def test_events_are_those_of_the_meter_of_the_step_before() -> None:
    running, x = machine(TIMED)
    place, seen = TIMED.facts.place("err"), list[bool]()
    waits = 0
    for t in range(10):
        meter = float(running.states["err.meter"][0, 0])
        x[0, t, 2] = float(t in (2, 3))
        running.row(x[:, t])
        wants = (meter > 0.2 or t in (2, 3)) and not waits
        waits = 1 if wants else max(waits - 1, 0)
        seen.append(wants)
        assert running.fires[0, TIMED.facts.place("store").index] == wants, t
    assert place.meter is not None
    assert any(seen[4:])


def test_inner_steps_are_those_of_the_package() -> None:
    """Of three regions, of which two compute again."""
    oracle = json.loads((FIXTURES / "inner_steps.json").read_text())
    clocks = {
        name: None if c is None else f"inner(every({c.get('period', 1)}), {c['max_inner_steps']})"
        for name, c in oracle["clocks"].items()
    }
    regions = {name: Region(((n, n + 1), (0, 1)), clock=clock) for n, (name, clock) in enumerate(clocks.items())}
    edges = tuple(Edge(name, name, rule="pooling") for name in regions)
    spec = program(regions, edges, {"in": In("c", 1), "out": Out("a", 1)}, (3, 1))
    timing, (running, x) = timing_of(spec.facts), machine(spec)
    for t, plan in enumerate(oracle["plans"]):
        running.row(x[:, t])
        found = [
            [name for n, name in enumerate(regions) if running.fires[0, n] and timing.inner[n] >= again]
            for again in range(4)
        ]
        assert [sorted(part) for part in found if part] == [sorted(part) for part in plan]


def replace_region(region: Region, **fields: Any) -> Region:
    return changed(region, **fields)


def test_a_region_that_computes_again_is_two_steps_further() -> None:
    """A chain of two: with an inner step of the second half, what comes in arrives a row earlier."""
    regions = {f"r{n}": Region(((n, n + 1), (0, 1)), residual=False) for n in range(3)}
    edges = (Edge("r0", "r1", rule="copy", write="add"), Edge("r1", "r2", rule="copy", write="add"))
    ports = {"in": In("r0", 1), "out": Out("r2", 1)}
    plain, _ = machine(program(regions, edges, ports, (3, 1)))
    again = {**regions, "r2": changed(regions["r2"], clock="inner(every(1), 1)")}
    fast, x = machine(program(again, edges, ports, (3, 1)))
    for t in range(3):
        plain.row(x[:, t])
        fast.row(x[:, t])
        np.testing.assert_array_equal(fast.states[CANVAS][:, 2], plain.states[CANVAS][:, 1])


@pytest.mark.thorough
@pytest.mark.parametrize("size", [2, 40])
def test_what_does_not_fire_is_left_out_and_changes_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit, in many streams, of regions so small that one thread does it all, and of larger ones."""
    regions = {
        "eye": Region(((0, 1), (0, size)), family="observation"),
        "often": Region(((1, 2), (0, size)), clock="err.prediction > 0.3 || every(3, 2)"),
        "seldom": Region(((2, 3), (0, size)), clock="every(5, 4)"),
        "never": Region(((3, 4), (0, size)), clock="err.prediction > 1000"),
        "err": Region(((4, 5), (0, size)), family="residual", carrier="residual"),
        "mind": Region(((5, 6), (0, size)), carrier="filter", clock="every(4, 3)"),
        "store": Region(((6, 7), (0, size)), family="memory", carrier="memory", slots=3, clock="every(4, 1)"),
        "noise": Region(((7, 8), (0, size)), carrier="diffusive", clock="inner(every(5, 2), 1)"),
    }
    edges = (
        Edge("eye", "mind"),
        Edge("store", "mind", when="every(2)"),
        Edge("mind", "store"),
        Edge("mind", "noise"),
        Edge("eye", "often"),
        Edge("seldom", "often", write="gate"),
        Edge("often", "seldom", rule="sigmoid"),
        Edge("seldom", "never", write="replace"),
        Edge("never", "seldom", when="!every(2)"),
        Edge("eye", "err", rule="copy"),
        Edge("often", "err", rule="pooling"),
    )
    ports: dict[str, Port] = {"seen": In("eye", 2)}
    ports |= {name: Out(name, 2) for name in ("often", "seldom", "never", "mind", "noise")}
    network = program(regions, edges, ports, (8, size)).program.network()
    params = initialise(network, seed=1)
    x = np.random.default_rng(2).standard_normal((3, 11, 2)).astype(np.float32)
    left_out: list[int] = []
    found: list[Any] = []
    for plain in (False, True):
        if plain:
            monkeypatch.setattr(GraphBuilder, "predicated", lambda *_, **__: nullcontext())
        stream: Any = device("cpu").stream(network, params, batch=3)
        cuts = [x[:, :8], *(x[:, t : t + 1] for t in range(8, 11))]
        found.append([stream.run({"seen": part}) for part in cuts])
        for rows in (2, 1):
            graph = graph_of(network, rows, sequences=3, resumes=True)
            left_out.append(sum(step.name == "guard" for step in build_steps(_rewrite_graph(graph)).steps))
    assert left_out[0] == 2 * left_out[1]  # of each row the same
    assert left_out[1] >= 2 * 8 + 2 * 3  # rules of edges, which may fire in both steps of a row; carriers
    assert left_out[2:] == [0, 0]
    for one, other in zip(*found, strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.parametrize("name", DEVICES)
def test_a_program_is_a_network_with_ports(name: str) -> None:
    """It is written down, saved, run by names as a stream, and predicts samples."""
    network = program().program.network()
    assert Network.from_json(network.to_json()) == network
    params = initialise(network, seed=1)
    x = np.random.default_rng(2).standard_normal((2, 3, 2)).astype(np.float32)
    stream: Any = device(name).stream(network, params, batch=2)
    found = stream.run({"seen": x})
    want = in_numpy(program()).forward({k.partition("/")[2]: s.values() for k, s in params.items()}, x)[0]
    np.testing.assert_allclose(found["guess"], want, rtol=0, atol=1e-5)
    odd: list[tuple[Any, str]] = [
        ({"seen": x, "heard": x}, "no input 'heard' its inputs are 'seen', 'input'"),
        ({"sene": x}, "no input 'sene' its inputs are 'seen', 'input'"),
        ({"seen": x.astype(complex)}, "reads float32, got complex128"),
        ({"seen": np.full(x.shape, "x")}, "reads float32, got <U1"),
        ({"seen": x.astype(object)}, "reads float32, got object"),
    ]
    for given, message in odd:
        with pytest.raises((SpecError, ShapeError)) as caught:
            stream.run(given)
        assert message in f"{caught.value} {caught.value.hint}"


def test_samples_are_sequences_of_their_own(tmp_path: Path) -> None:
    spec = program()
    network = replace(spec.program.network(), input_shape=(3, 2))
    params = initialise(network, seed=1)
    save_native(tmp_path / "p", network, params)
    x = np.random.default_rng(2).standard_normal((5, 3, 2)).astype(np.float32)
    want = in_numpy(spec).forward({k.partition("/")[2]: s.values() for k, s in params.items()}, x)[0]
    with volumetric.load(tmp_path / "p", device="cpu") as model:
        np.testing.assert_allclose(model.predict(x), want, rtol=0, atol=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_a_signal_that_is_nan_does_not_happen(name: str) -> None:
    """As NaN is in no range: the row is as one whose signal is 0."""
    spec = with_clock("on(tick)")()
    network = spec.program.network()
    x = np.random.default_rng(2).standard_normal((1, 4, 3)).astype(np.float32)
    x[0, :, 2] = 0.5, 0.0, -2.0, 0.0
    odd = np.where((np.arange(3) == 2) & (x == 0), np.float32(np.nan), x)
    want, found = (device(name).stream(network, initialise(network, seed=1)).run(rows) for rows in (x, odd))
    np.testing.assert_array_equal(found, want)
    belief = np.asarray(want)[0]
    assert [(belief[t] != belief[t - 1]).any() for t in (1, 2, 3)] == [False, True, False]


def with_clock(clock: str) -> Any:
    return lambda: program({"eye": EYE, "belief": changed(BELIEF, clock=clock)}, ports={**PORTS, "tick": Signal()})


WRONG: dict[str, tuple[Any, str]] = {
    "text": (with_clock("every(2"), r"clock: expected \), at character 8\n  every\(2\n         \^"),
    "region": (with_clock("bilief.prediction > 1"), "there is no region 'bilief'"),
    "no meter": (with_clock("belief.prediction > 1"), "region 'belief' has no meter"),
    "signal": (with_clock("on(tock)"), "there is no signal 'tock'"),
    "port": (with_clock("on(seen)"), "there is no signal 'seen'"),
    "kind": (
        lambda: changed_edges(TIMED, when="err.size > 1"),
        "edge 'belief<eye#0': when: err.size > 1: the meter of 'err' has no kind 'size'",
    ),
    "inner condition": (lambda: changed_edges(TIMED, when="inner(every(2), 1)"), "a condition cannot have inner steps"),
    "constraint": (
        lambda: program({"eye": EYE, "belief": changed(BELIEF, constraints=Constraints(causal="acyclic"))}),
        "region 'belief': it is acyclic, but what it reads depends on it",
    ),
    "no input": (lambda: program(ports={"guess": Out("belief", 1)}), "the program has no input port"),
    "no output": (lambda: program(ports={"seen": In("eye", 1)}), "the program has no output port"),
    "no program": (lambda: Program(program="x"), "expected a Program, got str"),  # pyright: ignore[reportArgumentType]
}


def changed_edges(spec: Program, **fields: Any) -> Program:
    first, *rest = spec.program.edges
    return Program(program=changed(spec.program, edges=(changed(first, **fields), *rest)))


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises(SpecError, match=message):
        make()
