"""Dispatch: as another package has it, by its definition position by position, on devices."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.devices import graphs
from tests.oracles.program.dispatch import dispatch
from tests.program.dispatch_oracles import CASES, FIXTURES, Case, load
from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph import GraphBuilder, NumpyGraphs, differentiate
from volumetric.program.layer.attention.head_rules import CLOSED
from volumetric.program.layer.dispatch_plan import ALWAYS, plan_of
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_dispatch import dispatch as emit
from volumetric.program.layer.edge_dispatch import weights_of
from volumetric.program.layer.edge_masks import Rects, Tile
from volumetric.program.layer.edge_tasks import params_of, tasks_of
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import Facts, facts_of
from volumetric.program.layer.region import Canvas, Region

EXACT = 1e-9
FORWARD, BACKWARD = 2e-5, 2e-4
REGIONS = {
    "eye": Region(((0, 1), (0, 2), (0, 2)), family="observation"),
    "belief": Region(((0, 1), (0, 2), (2, 4))),
    "over": Region(((0, 1), (1, 3), (1, 4)), family="plan"),
    "error": Region(((0, 1), (2, 4), (0, 1)), family="residual", carrier="residual"),
}


def made(*edges: Edge, **fields: object) -> Facts:
    canvas = Canvas(frames=1, shape=(4, 4), width=4, regions=REGIONS)
    return facts_of(Program(canvas, edges, heads=2, **fields))  # pyright: ignore[reportArgumentType]  (fields of Program)


MANY = (
    Edge(reads="eye", writes="belief"),
    Edge(reads="over", writes="belief", rule="linear", weight=0.5),
    Edge(reads="eye", writes="over", rule="pooling", weight=2.0),
    Edge(reads="belief", writes="over", write="gate"),
    Edge(reads="eye", writes="over", rule="copy", write="replace", mask=Rects(((1, 3, 0, 2),))),
    Edge(reads="eye", writes="error", rule="copy"),
    Edge(reads="belief", writes="error", weight=3.0),
    Edge(reads="over", writes="eye", write="gate"),
    Edge(reads="belief", writes="eye", rule="none"),
    Edge(reads="belief", writes="belief", rule="local", options={"window": 1}),
    Edge(reads="belief", writes="eye", weight=0.0),
)


def filled(facts: Facts, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {of.name: rng.normal(size=of.shape) for of in params_of(facts)}


def by_hand(facts: Facts, p: dict[str, Array], x: Array, live: Array) -> Array:
    """The definition, for one position of one stream after the other."""
    y = x.copy()
    whole = dispatch(facts, p, x).results
    for b in range(len(x)):
        for i in range(x.shape[1]):
            sums, weights, gates, last = np.zeros((2, 4)), np.zeros(2), np.zeros(4), None
            for task in tasks_of(facts):
                at = np.flatnonzero(task.place.positions == i)
                if not len(at) or not task.shares[at[0]] or not live[b, task.wire.index]:
                    continue
                a, w = whole[task.wire.index][b, at[0]], task.wire.weight
                if task.wire.write == "gate":
                    gates = gates + a / (1 + np.exp(-p[f"edges.{task.wire.name}.open"]))
                elif task.wire.write == "replace":
                    last = a
                else:
                    sums[int(task.is_prediction)] += w * a
                    weights[int(task.is_prediction)] += w
            keeps = any(  # of all edges that may write here, whether they fire or not
                task.place.region.family in ("state", "memory") and i in task.place.positions[task.shares > 0]
                for task in tasks_of(facts)
                if task.wire.write == "add"
            )
            if weights.any():
                means = [total / weight if weight else total for total, weight in zip(sums, weights, strict=True)]
                y[b, i] = means[0] - means[1] + (x[b, i] if keeps and weights[0] else 0)
            y[b, i] = y[b, i] + gates if last is None else last
    return y


def computed(
    facts: Facts, p: dict[str, Array], x: Array, live: Array | None, device: Any, dtype: type, g: Array | None = None
) -> dict[str, Array]:
    """What a device computes, and gradients of the sum of ``canvas · g``."""
    columns = tuple(range(len(facts.wires))) if live is not None else None
    work, plan = GraphBuilder(), plan_of(facts, columns)
    canvas = work.input("x", x.shape)
    flags = None if live is None else work.input("live", live.shape)
    held = {name: work.input(name, of.shape) for name, of in p.items()}
    learns = g is not None
    weights = weights_of(work, plan, held, learns=learns)
    found = emit(work, plan, weights, held, canvas, live=flags, learns=learns)
    outputs = {"canvas": found.canvas, "written": found.written}
    inputs = [x, *([] if live is None else [live]), *p.values()]
    if g is not None:
        back = differentiate(work, {found.canvas: work.input("g", x.shape)}, [canvas, *held.values()])
        outputs |= {name: back[i] for name, i in {"x": canvas, **held}.items() if i in back}
        inputs.append(g)
    graph = work.finish(list(outputs.values()))
    made = device.compile(graph, device.store()).run([np.asarray(of, dtype) for of in inputs])
    return dict(zip(outputs, made, strict=True))


def check(of: Case, found: dict[str, Array], forward: float, backward: float) -> None:
    np.testing.assert_allclose(found["canvas"], of.y, rtol=0, atol=forward * np.abs(of.y).max())
    scale = max((np.abs(g).max() for g in of.grads.values()), default=1)
    for name, g in of.grads.items():
        got = found.get(name, np.zeros_like(g))
        np.testing.assert_allclose(got / scale, g / scale, rtol=0, atol=backward, err_msg=name)


@pytest.mark.parametrize("case", CASES)
def test_another_package(case: str) -> None:
    of = load(case)
    np.testing.assert_allclose(dispatch(of.facts, of.p, of.x, live=of.live).canvas, of.y, rtol=0, atol=EXACT)
    live = None if of.live.all() else of.live
    found = computed(of.facts, of.p, of.x, live, NumpyGraphs(np.float64), np.float64, of.cotangent)
    check(of, found, EXACT, EXACT)


@pytest.mark.thorough
@pytest.mark.parametrize("where", ["cpu", "gpu"])
@pytest.mark.parametrize("case", ["active", "modes_one_each", "temporal_interpolate2"])
def test_devices(case: str, where: str) -> None:
    of = load(case)
    live = None if of.live.all() else of.live
    check(of, computed(of.facts, of.p, of.x, live, graphs(where), np.float32, of.cotangent), FORWARD, BACKWARD)


def test_the_definition() -> None:
    facts, rng = made(*MANY), np.random.default_rng(1)
    p, x = filled(facts), rng.normal(size=(3, 16, 4))
    for live in (np.ones((3, len(MANY)), np.bool_), rng.random((3, len(MANY))) < 0.5):
        found = dispatch(facts, p, x, live=live)
        np.testing.assert_allclose(found.canvas, by_hand(facts, p, x, live), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(found.canvas[~found.written], x[~found.written])


@pytest.mark.parametrize("share", ["edge", "rule"])
def test_nodes_are_the_definition(share: str) -> None:
    facts, rng = made(*MANY, share=share), np.random.default_rng(1)
    p, x = filled(facts), rng.normal(size=(3, 16, 4))
    device = NumpyGraphs(np.float64)
    for live in (None, rng.random((3, len(MANY))) < 0.5):
        want, found = dispatch(facts, p, x, live=live), computed(facts, p, x, live, device, np.float64)
        np.testing.assert_allclose(found["canvas"], want.canvas, rtol=0, atol=1e-12)
        np.testing.assert_array_equal(found["written"][..., 0], want.written)


def test_gradients_are_differences() -> None:
    """Where edges fire in some streams, for all that there is."""
    facts, rng = made(*MANY[:7]), np.random.default_rng(2)
    p, x = filled(facts), rng.normal(size=(2, 16, 4))
    live, g = rng.random((2, len(facts.wires))) < 0.7, rng.normal(size=x.shape)
    found = computed(facts, p, x, live, NumpyGraphs(np.float64), np.float64, g)
    for name, value in {**p, "x": x}.items():
        way = rng.normal(size=value.shape)

        def moved(step: float, name: str = name, value: Array = value, way: Array = way) -> float:
            other = value + step * way
            y = dispatch(facts, p | {name: other}, other if name == "x" else x, live=live).canvas
            return float((y * g).sum())

        want = (moved(1e-5) - moved(-1e-5)) / 2e-5
        got = float((found[name] * way).sum()) if name in found else 0.0
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-8, err_msg=name)


def test_edges_alike_are_one_product() -> None:
    """Of equal rules and sizes that fire together; parameters of each are its own."""
    names = [f"r{i}" for i in range(12)]
    regions = {name: Region(((0, 1), (i, i + 1), (0, 3))) for i, name in enumerate(names)}
    edges = [Edge(reads=names[i - 1], writes=names[i], rule="cross" if i % 3 else "pooling") for i in range(12)]
    facts = facts_of(Program(Canvas(frames=1, shape=(12, 3), width=4, regions=regions), edges))
    whole = plan_of(facts)
    assert sorted(len(group.tasks) for group in whole.groups) == [4, 8]
    assert [len(targets) for targets in whole.targets] == [12]
    halves = plan_of(facts, tuple([0] * 6 + [ALWAYS] * 6))
    assert sorted(len(group.tasks) for group in halves.groups) == [2, 2, 4, 4]
    p, x = filled(facts), np.random.default_rng(3).normal(size=(2, 36, 4))
    found = computed(facts, p, x, None, NumpyGraphs(np.float64), np.float64)
    np.testing.assert_allclose(found["canvas"], dispatch(facts, p, x).canvas, rtol=0, atol=1e-12)


def test_rows_of_others_are_read_where_they_are_told() -> None:
    """Regions as they were, and rows that are no positions."""
    regions = {name: REGIONS[name] for name in ("eye", "belief")}
    regions["store"] = Region(((0, 1), (2, 4), (2, 4)), family="memory", carrier="memory", slots=3)
    edges = Edge(reads="eye", writes="belief", lag=2), Edge(reads="store", writes="eye")
    facts = facts_of(Program(Canvas(frames=1, shape=(4, 4), width=4, regions=regions), edges, heads=2))
    rng = np.random.default_rng(3)
    p, x = filled(facts), rng.normal(size=(2, 16, 4))
    rows = {(0, 2): rng.normal(size=(2, 4, 4)), (2, 0): rng.normal(size=(2, 3, 4))}
    want = dispatch(facts, p, x, lambda number, back: rows[number, back]).canvas
    work, plan = GraphBuilder(), plan_of(facts)
    given = {source: work.input("rows", of.shape) for source, of in rows.items()}
    canvas = work.input("x", x.shape)
    held = {name: work.constant(of) for name, of in p.items()}
    weights = weights_of(work, plan, held)
    graph = work.finish([emit(work, plan, weights, held, canvas, given).canvas])
    device = NumpyGraphs(np.float64)
    [found] = device.compile(graph, device.store()).run([*rows.values(), x])
    np.testing.assert_allclose(found, want, rtol=0, atol=1e-12)
    for told in (None, {}):
        with pytest.raises(SpecError, match="rows of region 'eye', 2 steps back, are missing"):
            emit(work, plan, weights, held, canvas, told) if told is not None else dispatch(facts, p, x)


def test_masks_of_tiles() -> None:
    """As another package has them, but for what that cuts off: it reads no position of a tile beyond the region that is
    written, and where a tile has nothing to read, it reads everything."""
    of = json.loads((FIXTURES / "masks.json").read_text())
    assert set(of["masks"]) >= {"full", "tile_2x2", "tile_3x1"}
    parted = 0
    for name, blocks in of["masks"].items():
        mask = None if not name.startswith("tile") else Tile(tuple(map(int, name.removeprefix("tile_").split("x"))))
        canvas = Canvas(
            frames=2,
            shape=(4, 6),
            width=4,
            regions={
                region: Region(tuple(zip(box["bounds"][::2], box["bounds"][1::2], strict=True)))
                for region, box in of["layout"]["regions"].items()
            },
        )
        facts = facts_of(Program(canvas, [Edge(reads="b", writes="a", mask=mask)]))
        [wire] = facts.wires
        at, read = (facts.place(region).positions.tolist() for region in "ab")
        seen = np.ones((len(at), len(read)), np.bool_) if wire.mask is None else wire.mask
        for asks, told in blocks:
            want = set() if mask is not None and len(told) == len(read) else set(told)
            parted += not want
            for i in asks:
                found = {read[j] for j in np.flatnonzero(seen[at.index(i)])}
                assert (found if mask is None else found & set(at)) == want
    assert parted


def test_nothing_fires() -> None:
    facts, x = made(*MANY), np.random.default_rng(1).normal(size=(2, 16, 4))
    live = np.zeros((2, len(MANY)), np.bool_)
    found = dispatch(facts, filled(facts), x, live=live)
    np.testing.assert_array_equal(found.canvas, x)
    assert not found.written.any()
    assert not found.results
    by_nodes = computed(facts, filled(facts), x, live, NumpyGraphs(np.float64), np.float64)
    np.testing.assert_array_equal(by_nodes["canvas"], x)


def test_a_position_with_gates_alone_keeps_what_it_held() -> None:
    """But for programs that do as another package does."""
    facts = made(Edge(reads="over", writes="eye", write="gate"))
    p, x = filled(facts), np.random.default_rng(1).normal(size=(1, 16, 4))
    p["edges.eye<over#0.open"] = np.array([-1e3])
    np.testing.assert_array_equal(dispatch(facts, p, x).canvas, x)
    assert {of.name: of.bounds for of in params_of(facts)}["edges.eye<over#0.open"] == (CLOSED, CLOSED)


def test_edges_of_a_rule_share_parameters_where_they_are_to() -> None:
    own = {of.name.rpartition(".q.")[0] for of in params_of(made(*MANY[:2], MANY[3])) if ".q." in of.name}
    assert own == {"edges.belief<eye#0", "edges.belief<over#0", "edges.over<belief#0"}
    one = {of.name.rpartition(".q.")[0] for of in params_of(made(*MANY[:2], MANY[3], share="rule")) if ".q." in of.name}
    assert one == {"rules.cross", "rules.linear"}


def test_what_is_not_a_number_stays_in_its_stream_and_heals() -> None:
    facts, rng = made(*MANY), np.random.default_rng(1)
    p, x = filled(facts), rng.normal(size=(2, 16, 4))
    bad = x.copy()
    bad[0] = np.nan
    with np.errstate(invalid="ignore"):
        found = dispatch(facts, p, bad).canvas
        by_nodes = computed(facts, p, bad, None, NumpyGraphs(np.float64), np.float64)["canvas"]
    np.testing.assert_array_equal(found[1], dispatch(facts, p, x).canvas[1])
    assert np.isnan(found[0]).any()
    np.testing.assert_allclose(by_nodes, found, rtol=0, atol=1e-12)
