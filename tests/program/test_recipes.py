"""Losses of regions: by their formulas, as nodes, and with gradients where there are to be some."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, graphs
from tests.oracles import oracle
from tests.oracles.program.recipes import Seen, masked, penalty
from tests.oracles.training import Training
from tests.train.test_device_learner import follow, pair
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.builders import chain
from volumetric.graph import GraphBuilder, NumpyGraphs, differentiate
from volumetric.program.layer import penalties as nodes
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.ports import In, Out
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts, facts_of
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.program_params import region_params, states_of
from volumetric.program.layer.recipes import learning_of, recipe_of, recipe_params, recipe_states
from volumetric.program.layer.region import Canvas, Region
from volumetric.program.layer.region_learning import Learning
from volumetric.program.layer.settle import RegionStep
from volumetric.train import SGD, Batch

D, B = 4, 3
REGIONS = {
    "eye": Region(((0, 1), (0, 3)), family="observation", learning=learning_of("observation")),
    "belief": Region(((1, 2), (0, 3)), carrier="filter", learning=learning_of("state")),
    "store": Region(
        ((2, 3), (0, 3)),
        family="memory",
        carrier="memory",
        slots=2,
        learning=Learning("retrieval", {"retrieval_accuracy": 0.5, "write_utility": 2.0}),
    ),
    "error": Region(((0, 3), (3, 4)), family="residual", carrier="residual", learning=learning_of("residual")),
    "act": Region(((3, 4), (0, 4)), family="action", learning=learning_of("action")),
}


def program() -> Facts:
    return facts_of(Program(Canvas(frames=1, shape=(4, 4), width=D, regions=REGIONS)))


def filled(facts: Facts) -> dict[str, Array]:
    rng = np.random.default_rng(0)
    return {of.name: rng.normal(size=of.shape) for of in (*region_params(facts), *recipe_params(facts))}


def given(facts: Facts, seed: int = 1) -> tuple[Seen, dict[str, Array], dict[str, Array]]:
    """A step, and states before and behind it."""
    rng = np.random.default_rng(seed)
    canvases = rng.normal(size=(4, B, 16, D))
    errors = {number: rng.normal(size=(B, 3, D)) for number in (1, 3)}
    fires = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 0, 0], [0, 1, 1, 1, 1]]) == 1
    step = Seen(
        whole=canvases[0],
        before=canvases[1],
        brought=canvases[2],
        after=canvases[3],
        written=rng.random((B, 16)) < 0.6,
        errors=errors,
        fires=fires,
        hidden={0: np.array([[1, 0, 1], [0, 0, 0], [1, 1, 1]]) == 1},
    )
    shapes = states_of(facts) | recipe_states(facts)
    before, after = ({name: rng.normal(size=(B, *shape)) for name, shape in shapes.items()} for _ in range(2))
    before["eye.begun"] = np.array([[1.0], [0.0], [1.0]])
    return step, before, after


def emitted(facts: Facts, p: dict[str, Array], device: Any, dtype: type) -> tuple[dict[str, Array], dict[str, Array]]:
    """The losses of the step as a device computes them, and gradients of their sum by everything."""
    step, before, after = given(facts)
    work = GraphBuilder()
    canvases = {name: work.input(name, (B, 16, D)) for name in ("whole", "before", "brought", "after")}
    written, fires = work.input("written", (B, 16, 1)), work.input("fires", step.fires.shape)
    errors = {number: work.input("error", of.shape) for number, of in step.errors.items()}
    hidden = work.input("hidden", (B, 3, 1))
    sides = [{name: work.input(name, of.shape) for name, of in states.items()} for states in (before, after)]
    params = {name: work.input(name, of.shape) for name, of in p.items()}
    held = RegionStep(
        work=work,
        facts=facts,
        p=params,
        states=dict(sides[1]),
        fires={place.index: work.part(fires, 1, place.index, place.index + 1) for place in facts.places},
        predicate=lambda region: nullcontext(),
    )
    seen = nodes.StepValues(**canvases, written=written, errors=errors, hidden={0: hidden})
    total = nodes.emit_penalty(held, seen, sides[0])
    assert total is not None
    wanted = {**canvases, **params, "error 1": errors[1], "error 3": errors[3]}
    found = differentiate(work, {total: work.broadcast(work.constant(np.ones((1, 1))), (B, 1))}, wanted.values())
    outputs = {"total": total, "seen": held.states["eye.seen"], "begun": held.states["eye.begun"]}
    slopes = {name: found[i] for name, i in wanted.items() if i in found}
    graph = work.finish([*outputs.values(), *slopes.values()])
    inputs = [step.whole, step.before, step.brought, step.after, step.written[..., None], step.fires]
    inputs += [*step.errors.values(), step.hidden[0][..., None], *before.values(), *after.values(), *p.values()]
    made = device.compile(graph, device.store()).run([np.asarray(of, dtype) for of in inputs])
    return dict(zip(outputs, made, strict=False)), dict(zip(slopes, made[len(outputs) :], strict=True))


def test_formulas() -> None:
    """Each loss of the stream where all fire, feature by feature."""
    facts = program()
    p, (step, before, after) = filled(facts), given(program())
    total = penalty(facts, p, step, before, dict(after))[0]

    def norm(x: Array, name: str) -> Array:
        return (x - x.mean()) / np.sqrt(x.var() + 1e-5) * p[f"{name}.weight"] + p[f"{name}.bias"]

    def gelu(x: Array) -> Array:
        from math import erf

        return x * np.array([(1 + erf(v / 2**0.5)) / 2 for v in x])

    want = 0.0
    r = "regions.eye.next."
    for j in range(3):
        x = before["eye.seen"][0, j]
        h = gelu(p[r + "up.weight"] @ norm(x, r + "norm") + p[r + "up.bias"])
        y = p[r + "down.weight"] @ h + p[r + "down.bias"]
        want += ((y - step.whole[0, j]) ** 2).mean() / 3
    for j in (0, 2):
        want += ((step.after[0, j] - step.whole[0, j]) ** 2).mean() / 2
    for place, at in ((facts.place("belief"), (4, 5, 6)), (facts.place("error"), (3, 7, 11))):
        for k, j in enumerate(at):
            x, e = step.before[0, j], step.errors[place.index][0, k]
            if place.name == "belief":
                x = x + p["regions.belief.predict.weight"] @ norm(x, "regions.belief.predict.norm")
                want += ((x - step.after[0, j]) ** 2).mean() / 3
            else:
                want += np.abs(e).mean() / 3
            v = np.log1p(np.exp(p[f"regions.{place.name}.calibration.weight"] @ x)) + 1e-4
            want += ((e**2 / v + np.log(v)) / 2).mean() / 3 if step.written[0, j] else 0
    m = "regions.store.memory."
    rows = [j for j in (8, 9, 10) if step.written[0, j]]
    wrote = [p[m + "v.weight"] @ step.brought[0, j] for j in rows]
    among = [*wrote, *before["store.values"][0]]
    for k, j in enumerate(rows):
        z = step.brought[0, j]
        score = np.exp((p[m + "keys"] + after["store.keys"][0]) @ (p[m + "q.weight"] @ z) / 2)
        got = score / score.sum() @ after["store.values"][0]
        logits = np.array([got @ c / np.linalg.norm(got) / np.linalg.norm(c) for c in among]) / 0.1
        want += 0.5 * (np.log(np.exp(logits).sum()) - logits[k]) / len(rows)
        want += 2 / (1 + np.exp(-(p[m + "write.weight"] @ z + p[m + "write.bias"])[0])) / len(rows)
    np.testing.assert_allclose(total, want, rtol=1e-12)


def test_nodes_are_the_formulas() -> None:
    facts = program()
    p, (step, before, after) = filled(facts), given(program())
    states = dict(after)
    want = penalty(facts, p, step, before, states)
    found, grads = emitted(facts, p, NumpyGraphs(np.float64), np.float64)
    np.testing.assert_allclose(found["total"][:, 0], want, rtol=1e-12)
    np.testing.assert_array_equal(found["seen"], states["eye.seen"])
    np.testing.assert_array_equal(found["begun"], states["eye.begun"])
    assert "whole" not in grads  # what is aimed at
    rng = np.random.default_rng(5)
    values = {**p, "before": step.before, "brought": step.brought, "error 1": step.errors[1], "error 3": step.errors[3]}
    for name, value in values.items():
        way = rng.normal(size=value.shape)

        def moved(size: float, name: str = name, value: Array = value, way: Array = way) -> float:
            other = {**values, name: value + size * way}
            seen = Seen(
                whole=step.whole,
                before=other["before"],
                brought=other["brought"],
                after=step.after,
                written=step.written,
                errors={1: other["error 1"], 3: other["error 3"]},
                fires=step.fires,
                hidden=step.hidden,
            )
            return float(penalty(facts, {of: other[of] for of in p}, seen, before, dict(after)).sum())

        want = (moved(1e-6) - moved(-1e-6)) / 2e-6
        got = float((grads[name] * way).sum()) if name in grads else 0.0
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7, err_msg=name)


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["cpu", "gpu"])
def test_devices(where: str) -> None:
    facts = program()
    p = filled(facts)
    want, slopes = emitted(facts, p, NumpyGraphs(np.float64), np.float64)
    found, grads = emitted(facts, p, graphs(where), np.float32)
    np.testing.assert_allclose(found["total"], want["total"], rtol=2e-5)
    scale = max(np.abs(g).max() for g in slopes.values())
    for name, g in slopes.items():
        np.testing.assert_allclose(grads[name] / scale, g / scale, rtol=0, atol=2e-4, err_msg=name)


def test_hidden_positions_have_a_learned_vector() -> None:
    facts = program()
    p, (step, _, _) = filled(facts), given(program())
    found = masked(facts, p, step.whole, step.hidden)
    work = GraphBuilder()
    x, where = work.input("x", step.whole.shape), work.input("hidden", (B, 3, 1))
    params = {name: work.constant(of) for name, of in p.items()}
    held = RegionStep(work=work, facts=facts, p=params, states={}, fires={}, predicate=lambda region: nullcontext())
    graph = work.finish([nodes.mask_regions(held, x, {0: where})])
    device = NumpyGraphs(np.float64)
    [by_nodes] = device.compile(graph, device.store()).run([step.whole, step.hidden[0][..., None].astype(float)])
    np.testing.assert_array_equal(found, by_nodes)
    np.testing.assert_array_equal(found[2, :3], np.tile(p["regions.eye.mask"], (3, 1)))
    np.testing.assert_array_equal(found[1], step.whole[1])


def test_what_families_learn_by() -> None:
    found = {place.name: recipe_of(place) for place in program().places}
    assert found == {
        "eye": {"next_step": 1, "masked_prediction": 1},
        "belief": {"predictive_consistency": 1, "calibration": 1},
        "store": {"retrieval_accuracy": 0.5, "write_utility": 2},
        "error": {"calibration": 1, "sparsity": 1},
        "act": {},
    }
    assert learning_of("weather").mode == "none"
    plain = facts_of(Program(Canvas(frames=1, shape=(2,), width=4, regions={"a": Region(((0, 2),))})))
    assert not recipe_of(plain.places[0])
    assert not recipe_params(plain)


def test_losses_that_a_region_cannot_have() -> None:
    region = Region(((0, 2),), learning=learning_of("state"))
    facts = facts_of(Program(Canvas(frames=1, shape=(2,), width=4, regions={"a": region})))
    with pytest.raises(SpecError, match="region 'a': predictive_consistency needs a carrier 'filter'"):
        recipe_params(facts)


LEARNING = Program(
    Canvas(
        frames=1,
        shape=(3, 3),
        width=D,
        regions={
            "eye": Region(((0, 1), (0, 3)), family="observation", learning=learning_of("observation")),
            "belief": Region(((1, 3), (0, 3)), carrier="filter"),
        },
    ),
    [
        Edge(reads="eye", writes="belief"),
        Edge(reads="belief", writes="eye", write="gate", when="belief.prediction > 0"),
    ],
    {"seen": In("eye", 2), "guess": Out("belief", 3)},
    heads=2,
)


@pytest.mark.thorough
def test_a_layer_adds_them_while_it_trains() -> None:
    """What its VJP hands back are differences of output and losses together, but by what makes what is aimed at."""
    spec, rng = Layer(program=LEARNING), np.random.default_rng(6)
    p = {of.name: rng.normal(size=of.shape) for of in spec.params()}
    x, gy = rng.normal(size=(2, 5, 2)), rng.normal(size=(2, 5, 3))

    def value(p: dict[str, Array]) -> float:
        training = Training(path="layer", noise=(3, 4), first=1)
        y, _ = oracle(spec).train_forward(p, x, training=training)
        return float((y * gy).sum() + training.penalties["layer"])

    training = Training(path="layer", noise=(3, 4), first=1)
    y, saved = oracle(spec).train_forward(p, x, training=training)
    assert training.penalties["layer"] > 0
    plain, _ = oracle(spec).forward(p, x)
    assert np.abs(y - plain).max() > 1e-3  # positions were hidden
    grads = oracle(spec).vjp(p, saved, gy).params
    for name, of in p.items():
        if name.startswith(("ports.seen", "codes")):
            continue
        way = rng.normal(size=of.shape)
        want = (value(p | {name: of + 1e-5 * way}) - value(p | {name: of - 1e-5 * way})) / 2e-5
        np.testing.assert_allclose((grads[name] * way).sum(), want, rtol=1e-5, atol=1e-6, err_msg=name)
    assert any(grads[name].any() for name in grads if ".next." in name)
    assert grads["regions.eye.mask"].any()


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_updates_are_those_of_the_reference(name: str) -> None:
    network = chain([Layer(program=LEARNING)], (3, 2))
    rng = np.random.default_rng(7)
    shapes = (2, 3, 2), (2, 3, 3)
    inputs, targets = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    batch = Batch(inputs, targets)
    learners = pair(name, network, optimiser=SGD(), seed=5)
    before = learners[0].state.masters
    follow(learners, [batch], updates=2)
    after = learners[0].state.masters
    moved = {key.rpartition("/")[2] for key, of in after.items() if np.abs(of - before[key]).max() > 1e-6}
    assert moved >= {"regions.eye.mask", "regions.eye.next.up.weight", "regions.eye.next.down.bias"}
