"""Facts of fabrics beside all pairs of nodes, and what declarations refuse."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.fabric import (
    Blueprint,
    BySenderTile,
    DotProduct,
    Input,
    Output,
    Population,
    graph,
    lattice2d,
    lattice3d,
)
from volumetric.fabric.body import Body
from volumetric.fabric.cells import GRU, LSTM, RNN, SLSTM
from volumetric.fabric.layer.edge_rules import Rule
from volumetric.fabric.layer.node_facts import FabricFacts
from volumetric.fabric.layer.node_latency import latency

CORE = {"core": Population(cell=SLSTM(hidden=4))}


def blueprint(body: Body, **fields: object) -> Blueprint:
    names = {"inputs": tuple(body.inputs) or ("in",), "outputs": tuple(body.outputs) or ("out",)}
    return Blueprint(
        graph=body,
        inputs=dict.fromkeys(names["inputs"], Input(3)),
        outputs=dict.fromkeys(names["outputs"], Output(2)),
        **fields,  # pyright: ignore[reportArgumentType]  (fields of a blueprint)
    )


def edges(facts: FabricFacts) -> list[tuple[int, int, float, int]]:
    """(receiver, sender, distance, delay) by the ids of the declaration, as they are stored."""
    readers, ids = facts.order[facts.inputs :], facts.order
    rows = zip(facts.receivers, facts.senders, facts.distance, facts.delay, strict=True)
    return [(int(readers[r]), int(ids[s]), float(d), int(late)) for r, s, d, late in rows]


def pairs(body: Body, sizes: tuple[int, ...], *, wrap: bool) -> dict[int, list[tuple[float, int]]]:
    """All (distance, sender) that a receiver may read, nearest first."""
    places = list(product(*map(range, sizes)))
    facts = blueprint(body).facts
    kinds = np.repeat(["in", "cell", "out"], [facts.inputs, facts.cells, facts.outputs])
    kind = dict(zip(facts.order.tolist(), kinds.tolist(), strict=True))
    found: dict[int, list[tuple[float, int]]] = {}
    for r, a in enumerate(places):
        if kind[r] == "in":
            continue
        found[r] = []
        for s, b in enumerate(places):
            if r == s or kind[s] == "out" or (kind[s], kind[r]) == ("in", "out"):
                continue
            along = [abs(p - q) for p, q in zip(a, b, strict=True)]
            along = [min(d, n - d) for d, n in zip(along, sizes, strict=True)] if wrap else along
            found[r].append((sum(d * d for d in along) ** 0.5, s))
        found[r].sort()
    return found


def body_of(sizes: tuple[int, ...], rule: Rule, *, wrap: bool) -> Body:
    if len(sizes) == 2:
        width, height = sizes
        return lattice2d.Graph(width=width, height=height, wrap=wrap, connectivity=[rule], populations=CORE)
    width, height, depth = sizes
    return lattice3d.Graph(width=width, height=height, depth=depth, wrap=wrap, connectivity=[rule], populations=CORE)


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("sizes", [(5, 4), (7, 1), (4, 3, 2)])
@pytest.mark.parametrize(
    "rule", [lattice2d.LocalRadius(1.5), lattice2d.LocalRadius(2.0, 3), lattice2d.Annulus(1.0, 3.2, 4)]
)
def test_edges_are_those_of_all_pairs(sizes: tuple[int, ...], rule: Rule, wrap: bool) -> None:
    body = body_of(sizes, rule, wrap=wrap)
    near, far, count = (0.0, rule.radius, None) if isinstance(rule, lattice2d.LocalRadius) else (1.0, 3.2, 4)
    expected = [
        (r, s, d, rule.delay)
        for r, of in pairs(body, sizes, wrap=wrap).items()
        for d, s in [(d, s) for d, s in of if near < d <= far][:count]
    ]
    found = edges(blueprint(body).facts)
    assert sorted(found) == sorted(expected)
    by_receiver = [(r, [(d, s) for q, s, d, _ in found if q == r]) for r in {r for r, *_ in found}]
    assert all(own == sorted(own) for _, own in by_receiver)


def test_nodes_are_renumbered_by_what_they_are() -> None:
    body = lattice2d.Graph(
        width=6,
        height=4,
        inputs={"a": (3, 1), "b": lattice2d.YBand("low")},
        outputs={"y": lattice2d.Output(lattice2d.Corners(), aggregate="flatten")},
        populations={
            "fast": Population(cell=LSTM(hidden=4), nodes=lattice2d.Region(x=(0, 0.5)), share="tile(2,2)"),
            "slow": Population(cell=GRU(hidden=4), share="all"),
        },
    )
    with pytest.raises(SpecError, match="node 0 belongs to input 'b' and to output 'y'"):
        _ = blueprint(body).facts
    body = lattice2d.Graph(
        width=6,
        height=4,
        inputs={"a": (3, 1), "b": lattice2d.XBand("high")},
        outputs={"y": (0, 4)},
        populations=body.populations,
    )
    facts = blueprint(body, message=DotProduct(share=BySenderTile((3, 4)))).facts
    assert facts.order[: facts.inputs].tolist() == [1, 3, 20, 21, 22, 23]
    assert facts.ports == {"a": slice(0, 2), "b": slice(2, 6), "y": slice(0, 2)}
    assert facts.order[-facts.outputs :].tolist() == [0, 4]
    fast, slow = facts.populations["fast"], facts.populations["slow"]
    assert sorted(facts.order[facts.inputs :][fast].tolist()) == [2, 5, 6, 7, 8, 9, 10, 11]
    assert sorted(facts.order[facts.inputs :][slow].tolist()) == list(range(12, 20))
    assert facts.groups.tolist() == [0, 0, 1, 1, 1, 1] + [0] * 8 + [1] * 8
    assert facts.shares["slow"].tolist() == [0] * 8
    tiles = {tuple((facts.order[facts.inputs :][fast][facts.shares["fast"] == g]).tolist()) for g in range(4)}
    assert tiles == {(5,), (2, 6, 7), (8, 9), (10, 11)}
    assert not any(s in (0, 4) or r in (1, 3, 20, 21, 22, 23) for r, s, *_ in edges(facts))


def test_drawn_edges_are_distinct_and_depend_on_the_seed() -> None:
    def drawn(seed: int, count: int) -> list[tuple[int, int, float, int]]:
        rule = lattice2d.SmallWorld(count, seed)
        body = lattice2d.Graph(width=5, height=5, connectivity=[rule], populations=CORE)
        return edges(blueprint(body).facts)

    few, all_of_them = drawn(0, 3), drawn(0, 99)
    assert few == drawn(0, 3) != drawn(1, 3)
    by_receiver = {r: [s for q, s, *_ in few if q == r] for r in range(5, 25)}
    assert all(len(set(own)) == 3 and r not in own for r, own in by_receiver.items())
    assert {s for r in range(20, 25) for s in by_receiver[r]} <= set(range(5, 20))  # outputs read cells
    assert len(all_of_them) == 15 * 19 + 5 * 15


def test_columns_are_dense_within_and_have_fibres_to_others() -> None:
    body = lattice2d.Graph(
        width=8, height=4, connectivity=[lattice2d.Columns((2, 2), fibres=2, seed=3)], populations=CORE
    )
    found = edges(blueprint(body).facts)

    def tile(node: int) -> tuple[int, int]:
        return node // 4 // 2, node % 4 // 2

    for r in range(8, 24):
        own = [s for q, s, *_ in found if q == r]
        assert sorted(s for s in own if tile(s) == tile(r)) == [s for s in range(32) if tile(s) == tile(r) and s != r]
        assert len({s for s in own if tile(s) != tile(r)}) == 2


def test_explicit_edges_may_be_loops_and_the_first_rule_counts() -> None:
    body = graph.Explicit(
        coords=[(0.0,), (3.0,), (4.0,), (9.0,)],
        inputs={"in": (0,)},
        outputs={"out": (3,)},
        populations={"core": Population(cell=RNN(hidden=4))},
        edges=[(1, 0), (2, 1), (2, 2), (3, 2)],
        connectivity=[graph.LocalRadius(1.0, 2)],
    )
    assert edges(blueprint(body).facts) == [
        (1, 2, 1.0, 2),
        (1, 0, 3.0, 1),
        (2, 2, 0.0, 1),
        (2, 1, 1.0, 1),
        (3, 2, 5.0, 1),
    ]


@pytest.mark.parametrize("inner", [1, 2, 5])
def test_latency_is_that_of_the_shortest_way(inner: int) -> None:
    body = lattice2d.Graph(width=6, height=2, connectivity=[lattice2d.LocalRadius(1.0)], populations=CORE)
    assert latency(blueprint(body).facts, "in", "out", inner) == -(-4 // inner) - 1
    slow = lattice2d.Graph(width=4, height=1, connectivity=[lattice2d.LocalRadius(1.0, 3)], populations=CORE)
    # A row waits for two, is one row later where the next cell may see it, waits for two more, and for two at the end.
    assert latency(blueprint(slow).facts, "in", "out", inner) == 2 + 1 + 2 + 2
    apart = lattice2d.Graph(width=4, height=1, connectivity=[lattice2d.ExplicitEdges(((3, 2),))], populations=CORE)
    assert latency(blueprint(apart).facts, "in", "out", inner) is None


@pytest.mark.thorough
def test_many_nodes_take_memory_by_their_edges() -> None:
    body = lattice2d.Graph(width=300, height=300, wrap=True, populations=CORE)
    facts = blueprint(body).facts
    assert np.all(np.diff(facts.starts)[: facts.cells] >= 5)
    assert latency(facts, "in", "out") == 297  # around the torus an input is beside an output, which does not read it
    huge = lattice2d.Graph(width=1000, height=1000, connectivity=[lattice2d.LocalRadius(3.0)], populations=CORE)
    with pytest.raises(SpecError, match=r"edges would take 0.7 GiB"):
        _ = blueprint(huge).facts


def test_tiles_are_refused_by_the_pairs_that_they_have() -> None:
    """Few enough of a tile of 300 nodes, where their cube would be too many."""
    tiled = lattice2d.Graph(width=30, height=10, connectivity=[lattice2d.Columns((30, 10))], populations=CORE)
    assert len(blueprint(tiled).facts.starts) > 1
    wide = lattice2d.Graph(width=400, height=10, connectivity=[lattice2d.Columns((400, 10))], populations=CORE)
    with pytest.raises(SpecError, match="16,000,000 edges would take"):
        _ = blueprint(wide).facts


def refusals() -> dict[str, tuple[object, str]]:
    def plain(**fields: object) -> object:
        return lambda: blueprint(lattice2d.Graph(**{"width": 4, "height": 4, "populations": CORE, **fields})).facts  # pyright: ignore[reportArgumentType]  (fields of a graph)

    two = {"a": Population(cell=SLSTM(hidden=4)), "b": Population(cell=SLSTM(hidden=8))}
    return {
        "side": (plain(width=0), "a side must be a whole number of at least 1, got 0"),
        "band": (plain(inputs={"in": lattice2d.XBand("low", 9)}), "a band of 9 does not fit an axis of 4"),
        "axis": (plain(inputs={"in": lattice3d.ZBand()}), "there is no axis z here"),
        "node": (plain(inputs={"in": (16,)}), "there is no node 16"),
        "twice": (plain(inputs={"in": (1, 1)}), "has a duplicate node"),
        "empty": (plain(inputs={"in": ()}), "has no nodes"),
        "both": (plain(populations={**CORE, "b": Population(cell=SLSTM(hidden=4))}), "both have no `nodes`"),
        "left": (
            plain(populations={"a": Population(cell=SLSTM(hidden=4), nodes=(5,))}),
            "belong to no population and no port",
        ),
        "widths": (plain(populations=two), "hidden widths: a: 4, b: 8"),
        "radius": (lambda: lattice2d.LocalRadius(0.0), "radius must be a finite number above 0"),
        "heads": (lambda: SLSTM(hidden=6, heads=4), "4 heads do not divide a width of 6"),
        "delay": (lambda: lattice2d.LocalRadius(1.0, 0), "delay must be a whole number of at least 1"),
        "into input": (
            plain(connectivity=[lattice2d.ExplicitEdges(((0, 5),))]),
            "the edge from node 5 to node 0 is not possible",
        ),
        "region": (lambda: lattice2d.Region(x=(0.5, 0.5)), "from 0.5 to 0.5"),
        "tile": (plain(connectivity=[lattice2d.Columns((2,))]), "a tile of"),
    }


@pytest.mark.parametrize("name", list(refusals()))
def test_what_cannot_be_is_refused_by_name(name: str) -> None:
    make, message = refusals()[name]
    with pytest.raises(SpecError, match=message):
        make()  # pyright: ignore[reportCallIssue]  (a function)


def test_unknown_ports_and_shares_are_refused() -> None:
    body = lattice2d.Graph(width=4, height=4, inputs={"eye": (0,)}, populations=CORE)
    with pytest.raises(SpecError, match="input 'ear' has no nodes"):
        _ = Blueprint(graph=body, inputs={"ear": Input(2)}, outputs={"out": Output(1)}).declared
    shared = {"core": Population(cell=SLSTM(hidden=4), share="tile(a)")}
    with pytest.raises(SpecError, match=r"unknown share 'tile\(a\)'"):
        _ = blueprint(lattice2d.Graph(width=4, height=4, populations=shared)).declared
