"""Dispatch: as another package has it, by its definition position by position, on devices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.program.dispatch_oracles import CASES, load
from volumetric._typing import Array
from volumetric.layers.program.attention.gated import CLOSED
from volumetric.layers.program.canvas import Canvas
from volumetric.layers.program.declared import Program
from volumetric.layers.program.dispatch import dispatch
from volumetric.layers.program.edge import Edge
from volumetric.layers.program.facts import Facts, facts_of
from volumetric.layers.program.masks import Rects
from volumetric.layers.program.region import Region
from volumetric.layers.program.tasks import params_of, tasks_of

EXACT = 1e-9
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
                    sums[int(task.predicts)] += w * a
                    weights[int(task.predicts)] += w
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


@pytest.mark.parametrize("case", CASES)
def test_another_package(case: str) -> None:
    of = load(case)
    np.testing.assert_allclose(dispatch(of.facts, of.p, of.x, live=of.live).canvas, of.y, rtol=0, atol=EXACT)


def test_the_definition() -> None:
    facts, rng = made(*MANY), np.random.default_rng(1)
    p, x = filled(facts), rng.normal(size=(3, 16, 4))
    for live in (np.ones((3, len(MANY)), np.bool_), rng.random((3, len(MANY))) < 0.5):
        found = dispatch(facts, p, x, live=live)
        np.testing.assert_allclose(found.canvas, by_hand(facts, p, x, live), rtol=0, atol=1e-12)
        np.testing.assert_array_equal(found.canvas[~found.written], x[~found.written])


def test_nothing_fires() -> None:
    facts, x = made(*MANY), np.random.default_rng(1).normal(size=(2, 16, 4))
    found = dispatch(facts, filled(facts), x, live=np.zeros((2, len(MANY)), np.bool_))
    np.testing.assert_array_equal(found.canvas, x)
    assert not found.written.any()
    assert not found.results


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
    np.testing.assert_array_equal(found[1], dispatch(facts, p, x).canvas[1])
    assert np.isnan(found[0]).any()
