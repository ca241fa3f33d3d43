"""What regions make of what edges bring: carriers, slots, lags and meters, by their formulas and as nodes."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace as changed

from tests.devices import graphs
from tests.oracles.program.carriers import bound, denoised, filtered, noised, remembered
from tests.oracles.program.dispatch import dispatch
from tests.oracles.program.meters import reduced, shown, updated
from tests.oracles.program.settle import Held
from tests.program.dispatch_oracles import FIXTURES, load
from volumetric.base._typing import Array
from volumetric.graph import GraphBuilder, NumpyGraphs, differentiate
from volumetric.program.layer import carriers as nodes
from volumetric.program.layer.dispatch_plan import plan_of
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_dispatch import dispatch as emit
from volumetric.program.layer.edge_dispatch import weights_of
from volumetric.program.layer.edge_tasks import params_of
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts, facts_of
from volumetric.program.layer.program_params import AGE, region_params, states_of
from volumetric.program.layer.region import Canvas, Identity, Region
from volumetric.program.layer.settle import RegionStep as Emitted

D = 4
REGIONS = {
    "eye": Region(((0, 2), (0, 2)), family="observation", identity=Identity(capacity=3, births=True)),
    "belief": Region(((0, 2), (2, 4)), carrier="filter"),
    "store": Region(((2, 4), (0, 1)), family="memory", carrier="memory", slots=3),
    "error": Region(((2, 4), (1, 2)), family="residual", carrier="residual"),
    "plan": Region(((2, 4), (2, 3)), family="plan", identity=Identity(capacity=2, mode="ephemeral")),
    "noise": Region(((2, 4), (3, 4)), carrier="diffusive"),
}
EDGES = (
    Edge(reads="eye", writes="belief"),
    Edge(reads="belief", writes="store", rule="copy", write="replace"),
    Edge(reads="store", writes="belief", write="gate"),
    Edge(reads="eye", writes="error"),
    Edge(reads="belief", writes="error", lag=1),
    Edge(reads="plan", writes="belief", lag=2, fill="lerp"),
    Edge(reads="error", writes="plan", rule="pooling", lag=2, fill="drop"),
    Edge(reads="belief", writes="noise"),
)
METERS = (Meter("belief", ("prediction", "peak"), corrected=True), Meter("plan", reduce="rms"))
LEVELS = {5: (0.3, 0.7)}


def program(**fields: Any) -> Facts:
    return facts_of(
        Program(Canvas(frames=1, shape=(4, 4), width=D, regions=REGIONS), EDGES, meters=METERS, heads=2, **fields)
    )


def filled(facts: Facts, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {of.name: rng.normal(size=of.shape) for of in (*params_of(facts), *region_params(facts))}


def begun(facts: Facts, batch: int) -> dict[str, Array]:
    return {name: np.zeros((batch, *shape)) for name, shape in states_of(facts).items()}


def live_of(facts: Facts, fires: Array, present: Array) -> Array:
    return present & fires[:, [wire.writes for wire in facts.wires]]


def step(
    facts: Facts, p: dict[str, Array], states: dict[str, Array], x: Array, fires: Array
) -> tuple[Array, dict[str, Array]]:
    held = Held(facts, p, dict(states), fires)
    rows, live = held.rows(x), live_of(facts, fires, held.present())
    made = dispatch(facts, p, x, lambda number, back: rows[number, back], live)
    held.grow()
    levels = {number: tuple(np.full(len(x), of) for of in pair) for number, pair in LEVELS.items()}
    y, errors = held.settle(x, made, levels)  # pyright: ignore[reportArgumentType]  (pairs)
    held.measure(errors)
    return y, held.states


def emitted(
    work: GraphBuilder, facts: Facts, p: dict[str, int], states: dict[str, int], x: int, fires: int
) -> tuple[int, dict[str, int]]:
    batch = work.shape(x)[0]
    plan = plan_of(facts, tuple(range(len(facts.wires))))
    by_region = {place.index: work.part(fires, 1, place.index, place.index + 1) for place in facts.places}
    held = Emitted(
        work=work, facts=facts, p=p, states=dict(states), fires=by_region, predicate=lambda region: nullcontext()
    )
    rows, present = held.rows(x), held.read_flags()
    flags = [by_region[wire.writes] for wire in facts.wires]
    flags = [work.binary("mul", flag, present[i]) if i in present else flag for i, flag in enumerate(flags)]
    made = emit(work, plan, weights_of(work, plan, p), p, x, rows, work.concat(flags, 1))
    held.count_step()
    levels = {
        number: tuple(work.broadcast(work.constant(np.full((1, 1, 1), of)), (batch, 1, 1)) for of in pair)
        for number, pair in LEVELS.items()
    }
    y, errors = held.settle(x, made, levels)  # pyright: ignore[reportArgumentType]  (pairs)
    held.measure(errors)
    return y, held.states


def run(
    facts: Facts, p: dict[str, Array], xs: Array, fires: Array, device: Any, dtype: type
) -> tuple[list[Array], dict[str, Array]]:
    """Steps on a device, each by the graph of one; what comes in is added to the canvas."""
    batch, shape = xs.shape[1], xs.shape[1:]
    work = GraphBuilder()
    x, on = work.input("x", shape), work.input("fires", fires.shape[1:])
    states = begun(facts, batch)
    held = {name: work.input(name, of.shape) for name, of in states.items()}
    params = {name: work.input(name, of.shape) for name, of in p.items()}
    y, after = emitted(work, facts, params, held, x, on)
    compiled = device.compile(work.finish([y, *(after[name] for name in states)]), device.store())
    canvas, ys = np.zeros(shape), list[Array]()
    for t in range(len(xs)):
        given = [canvas + xs[t], fires[t], *states.values(), *p.values()]
        canvas, *ends = compiled.run([np.asarray(of, dtype) for of in given])
        states = dict(zip(states, ends, strict=True))
        ys.append(canvas)
    return ys, states


def rows_of(steps: int, batch: int, seed: int = 1) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(steps, batch, 16, D)), rng.random((steps, batch, len(REGIONS))) < 0.7


def check(device: Any, dtype: type, within: float) -> None:
    facts = program()
    p, (xs, fires) = filled(facts), rows_of(5, 2)
    ys, ends = run(facts, p, xs, fires, device, dtype)
    canvas, states = np.zeros(xs.shape[1:]), begun(facts, 2)
    for t in range(len(xs)):
        canvas, states = step(facts, p, states, canvas + xs[t], fires[t])
        np.testing.assert_allclose(ys[t], canvas, rtol=0, atol=within * max(1, np.abs(canvas).max()), err_msg=str(t))
    for name, value in states.items():
        np.testing.assert_allclose(ends[name], value, rtol=0, atol=within * max(1, np.abs(value).max()), err_msg=name)


def test_nodes_are_the_definition() -> None:
    check(NumpyGraphs(np.float64), np.float64, 1e-11)


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_devices(where: str) -> None:
    check(graphs(where), np.float32, 2e-5)


@pytest.mark.thorough
def test_gradients_are_differences() -> None:
    """Through a step that goes on from one before it, for parameters, the canvas and states."""
    facts, rng = program(), np.random.default_rng(2)
    p, (xs, fires) = filled(facts), rows_of(2, 2)
    canvas, states = step(facts, p, begun(facts, 2), xs[0], fires[0])
    x = canvas + xs[1]
    states |= {name: of + 0.1 * rng.normal(size=of.shape) for name, of in states.items() if name != AGE}
    g = rng.normal(size=x.shape)
    counted = {
        name: rng.normal(size=of.shape) for name, of in states.items() if name.endswith((".keys", ".values", ".slots"))
    }
    work = GraphBuilder()
    i, on = work.input("x", x.shape), work.input("fires", fires[1].shape)
    held = {name: work.input(name, of.shape) for name, of in states.items()}
    params = {name: work.input(name, of.shape) for name, of in p.items()}
    y, after = emitted(work, facts, params, held, i, on)
    seeds = {y: work.input("g", x.shape)} | {after[name]: work.input(name, of.shape) for name, of in counted.items()}
    wanted = {"x": i, **params, **{name: held[name] for name in counted}}
    found = differentiate(work, seeds, wanted.values())
    names = [name for name, at in wanted.items() if at in found]
    device = NumpyGraphs(np.float64)
    graph = work.finish([found[wanted[name]] for name in names])
    given = [x, fires[1], *states.values(), *p.values(), g, *counted.values()]
    grads = dict(
        zip(names, device.compile(graph, device.store()).run([np.asarray(of, float) for of in given]), strict=True)
    )

    def value(changed: dict[str, Array]) -> float:
        y, ends = step(
            facts,
            {name: changed.get(name, of) for name, of in p.items()},
            {name: changed.get(name, of) for name, of in states.items()},
            {"x": x, **changed}["x"],
            fires[1],
        )
        return float((y * g).sum() + sum((ends[name] * of).sum() for name, of in counted.items()))

    everything = {"x": x, **p, **{name: states[name] for name in counted}}
    for name, of in everything.items():
        way = rng.normal(size=of.shape)
        want = (value({name: of + 1e-6 * way}) - value({name: of - 1e-6 * way})) / 2e-6
        got = float((grads[name] * way).sum()) if name in grads else 0.0
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-6, err_msg=name)


def test_what_does_not_fire_stays() -> None:
    facts = program()
    p, (xs, fires) = filled(facts), rows_of(3, 2)
    canvas, states = np.zeros(xs.shape[1:]), begun(facts, 2)
    for t in range(2):
        canvas, states = step(facts, p, states, canvas + xs[t], fires[t])
    x = canvas + xs[2]
    x[0] = np.nan  # what does not fire passes it on, and makes nothing of it
    y, after = step(facts, p, states, x, np.zeros_like(fires[0]))
    np.testing.assert_array_equal(y, x)
    for name, value in after.items():
        if name != AGE and not name.endswith(".past"):
            np.testing.assert_array_equal(value, states[name], err_msg=name)


@pytest.mark.parametrize(("writes", "goes_on"), [("belief", [False, False]), ("over", [False, True])])
def test_a_denoiser_goes_on_where_it_fires_and_is_written(writes: str, goes_on: list[bool]) -> None:
    """Else it holds what it held, or what an edge to a region at the same positions has written; also as nodes."""
    regions, edges = {**REGIONS, "over": Region(REGIONS["noise"].box)}, (Edge(reads="eye", writes=writes),)
    facts, plain = (
        facts_of(Program(Canvas(1, (4, 4), D, regions | {"noise": changed(regions["noise"], carrier=carrier)}), edges))
        for carrier in ("diffusive", "deterministic")
    )
    p, (xs, _), at = filled(facts), rows_of(1, 2), facts.place("noise").positions
    fires = np.ones((1, 2, len(regions)), np.bool_)
    fires[0, 0, facts.place("noise").index] = False
    y, held = (step(of, p, begun(of, 2), xs[0], fires[0])[0] for of in (facts, plain))
    assert [bool((y[n, at] != held[n, at]).any()) for n in range(2)] == goes_on
    [by_nodes], _ = run(facts, p, xs, fires, NumpyGraphs(np.float64), np.float64)
    np.testing.assert_allclose(by_nodes, y, atol=1e-12)


def test_a_meter_of_an_error_follows_what_was_written() -> None:
    """Not what the region holds: without edges its error is 0, whatever was put in."""
    facts = facts_of(Program(Canvas(1, (4, 4), D, REGIONS), EDGES[:3], meters=METERS, heads=2))
    xs, _ = rows_of(1, 2)
    _, states = step(facts, filled(facts), begun(facts, 2), xs[0], np.ones((2, len(REGIONS)), np.bool_))
    assert xs[0][:, facts.place("error").positions].any()
    assert not states["error.meter"][:, :-1].any()
    assert states["belief.meter"][:, :-1].any()


def test_a_filter_predicts_and_corrects() -> None:
    facts = program()
    p = {name.removeprefix("regions.belief."): x for name, x in filled(facts).items() if ".belief." in name}
    rng = np.random.default_rng(3)
    x, z = rng.normal(size=(2, 1, 2, D))
    y, error = filtered(p, x, z, np.array([[True, False]]))
    for j in range(2):
        norm = (x[0, j] - x[0, j].mean()) / np.sqrt(x[0, j].var() + 1e-5)
        norm = norm * p["predict.norm.weight"] + p["predict.norm.bias"]
        predicted = x[0, j] + p["predict.weight"] @ norm
        want = z[0, j] - predicted if j == 0 else np.zeros(D)
        gain = 1 / (1 + np.exp(-(p["gain.weight"] @ np.concatenate([predicted, predicted + want]) + p["gain.bias"])))
        np.testing.assert_allclose(error[0, j], want, atol=1e-12)
        np.testing.assert_allclose(y[0, j], predicted + gain * want, atol=1e-12)


def test_a_memory_keeps_what_is_written_where_it_is_like_its_keys() -> None:
    p = {f"memory.{name}.weight": np.eye(D) for name in "qkv"}
    p |= {"memory.write.weight": np.zeros((1, D)), "memory.write.bias": np.array([50.0])}
    keys = 100 * np.eye(D)[None, :3]
    values = np.zeros((1, 3, D))
    z = np.eye(D)[None, :2]
    keys, values = remembered(p, keys, values, z, np.array([[True, True]]))
    np.testing.assert_allclose(values[0], [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0]], atol=1e-6)
    np.testing.assert_allclose(keys[0, :2], [[90.1, 0, 0, 0], [0, 90.1, 0, 0]], atol=1e-6)
    again = remembered(p, keys, values, 5 * z, np.array([[False, True]]))[1]
    np.testing.assert_allclose(again[0], [[1, 0, 0, 0], [0, 5, 0, 0], [0, 0, 0, 0]], atol=1e-6)


def test_slots_that_are_dead_are_zeros() -> None:
    facts = program()
    p = {name.removeprefix("regions.eye."): x for name, x in filled(facts).items() if ".eye." in name}
    p |= {"life.down.weight": np.zeros_like(p["life.down.weight"]), "life.down.bias": np.array([-800.0])}
    values = np.random.default_rng(3).normal(size=(1, 4, D))
    slots = p["slots"][None]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(bound(p, 2, slots, values), 0)
    p["life.down.bias"] = np.array([800.0])
    alive = bound({name: x for name, x in p.items() if "life" not in name}, 2, slots, values)
    np.testing.assert_allclose(bound(p, 2, slots, values), alive)


def test_steps_without_noise_end_at_what_is_believed() -> None:
    rng = np.random.default_rng(3)
    clean, noise = rng.normal(size=(2, 1, 3, D))
    level = np.array([0.2])
    x = noised(clean, level, noise)
    for after in (0.5, 0.9, 1.0):
        x, level = denoised(x, clean, level, np.array([after])), np.array([after])
        np.testing.assert_allclose(x, noised(clean, level, noise), atol=1e-12)
    np.testing.assert_allclose(x, clean, atol=1e-12)


@pytest.mark.parametrize("reduce", ["max_mean", "mean", "max", "rms", "l2"])
@pytest.mark.parametrize("signed", [False, True])
def test_meters(reduce: Any, signed: bool) -> None:
    meter = Meter("a", ("x", "y", "z"), reduce=reduce, decay=0.75, corrected=True, signed=signed)
    rng, device = np.random.default_rng(4), NumpyGraphs(np.float64)
    errors = rng.normal(size=(4, 2, 3, D))
    fires = np.array([[1, 1], [1, 0], [1, 1], [0, 1]]) == 1
    work = GraphBuilder()
    inputs = [work.input("held", (2, 4)), work.input("error", (2, 3, D)), work.input("fires", (2, 1))]
    after = nodes.update_meter(work, meter, *inputs)
    compiled = device.compile(work.finish([after, nodes.meter_values(work, meter, after)]), device.store())
    held, by_nodes = np.zeros((2, 4)), np.zeros((2, 4))
    for error, on in zip(errors, fires, strict=True):
        held = updated(meter, held, error, on)
        by_nodes, numbers = compiled.run([by_nodes, error, on[:, None].astype(float)])
        np.testing.assert_allclose(by_nodes, held, atol=1e-12)
        np.testing.assert_allclose(numbers, shown(meter, held), atol=1e-12)
    e = errors.reshape(4, 2, -1)
    e = e if signed else np.abs(e)
    by = {"mean": e.mean(2), "max": e.max(2), "rms": np.sqrt((e**2).mean(2)), "l2": np.sqrt((e**2).sum(2))}
    kinds = ("max", "mean", "max") if reduce == "max_mean" else (reduce,) * 3
    for b in range(2):
        times = np.flatnonzero(fires[:, b])
        weights = 0.75 ** np.arange(len(times))[::-1]
        want = [(by[kind][times, b] * weights).sum() / weights.sum() for kind in kinds]
        np.testing.assert_allclose(shown(meter, held)[b], want, rtol=1e-12)
    one = Meter("a", reduce="max_mean")
    np.testing.assert_allclose(reduced(one, errors[0])[:, 0], np.abs(errors[0]).mean((1, 2)))
    np.testing.assert_array_equal(shown(meter, np.zeros((1, 4))), 0)


def test_errors_as_another_package_has_them() -> None:
    """Of edges that read a residual region, what they bring less what they ask with; signed, over all streams."""
    of = load("residual_region")
    found = dispatch(of.facts, of.p, of.x)
    meter = Meter("error", ("prediction", "peak"), signed=True)
    held = np.zeros((1, 3))
    for wire in of.facts.wires:
        if of.facts.places[wire.reads].name == "error":
            error = found.results[wire.index] - of.x[:, of.facts.places[wire.writes].positions]
            held = updated(meter, held, error.reshape(1, -1, error.shape[-1]), np.ones(1, np.bool_))
    want = of.summaries["error"]
    np.testing.assert_allclose(shown(meter, held)[0], [want["prediction"], want["peak"]], atol=1e-12)


SUMMARIES = json.loads((FIXTURES / "meters.json").read_text())


@pytest.mark.parametrize("case", SUMMARIES)
def test_summaries_as_another_package_has_them(case: str) -> None:
    """It computes them in float32."""
    of = SUMMARIES[case]
    meter = Meter("a", tuple(of["kinds"]), reduce=of["reduce"], decay=of["decay"], signed=True)
    held = np.zeros((1, len(meter.kinds) + 1))
    for error, want in zip(of["errors"], of["summaries_after_each"], strict=True):
        held = updated(meter, held, np.array(error)[None], np.ones(1, np.bool_))
        np.testing.assert_allclose(shown(meter, held)[0], want, rtol=0, atol=2e-7)


def test_meters_of_programs_with_parity() -> None:
    """In each stream, for the edges that fire; the same as nodes."""
    of = load("residual_region")
    edges = list(of.facts.program.edges)
    canvas = of.facts.program.canvas
    meters = (Meter("error", signed=True),)
    facts = facts_of(Program(canvas, edges, meters=meters, heads=2, share="rule", parity=True, time="window"))
    live = np.array([[True, False], [True, True]])[:, : len(edges)]
    held = Held(facts, of.p, begun(facts, 2), np.ones((2, len(facts.places)), np.bool_))
    made = dispatch(facts, of.p, of.x, live=live)
    held.measure_read(made.results, of.x, live)
    work, plan = GraphBuilder(), plan_of(facts, tuple(range(len(edges))))
    x, flags = work.input("x", of.x.shape), work.input("live", live.shape)
    p = {name: work.constant(value) for name, value in of.p.items()}
    states = {name: work.zeros((2, *shape)) for name, shape in states_of(facts).items()}
    graph = Emitted(work=work, facts=facts, p=p, states=states, fires={}, predicate=lambda region: nullcontext())
    by_nodes = emit(work, plan, weights_of(work, plan, p), p, x, None, flags)
    graph.measure_read(by_nodes.results, x, {i: work.part(flags, 1, i, i + 1) for i in range(len(edges))})
    device = NumpyGraphs(np.float64)
    [found] = device.compile(work.finish([graph.states["error.meter"]]), device.store()).run([of.x, live.astype(float)])
    np.testing.assert_allclose(found, held.states["error.meter"], atol=1e-12)
    assert held.states["error.meter"].any()


def test_the_first_steps_of_a_lag() -> None:
    """An edge finds what it reads from its lag on; one that takes the nearest finds what there was first."""
    facts = program()
    p, (xs, _) = filled(facts), rows_of(4, 1)
    states, canvas = begun(facts, 1), np.zeros(xs.shape[1:])
    fires = np.ones((1, len(REGIONS)), np.bool_)
    for t in range(4):
        held = Held(facts, p, dict(states), fires)
        rows = held.rows(canvas + xs[t])
        present = held.present()[0]
        assert [bool(present[i]) for i in (4, 5, 6)] == [t >= 1, True, t >= 2]
        if t == 0:
            np.testing.assert_array_equal(rows[4, 2], rows[4, 0])
        canvas, states = step(facts, p, states, canvas + xs[t], fires)
