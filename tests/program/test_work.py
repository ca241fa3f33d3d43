"""What programs cost: as counted by hand, of what fired and of nothing else."""

from __future__ import annotations

import numpy as np

from volumetric.network import initialise
from volumetric.observe import fired, work_of
from volumetric.program import Canvas, Edge, Identity, In, Out, Program, Region

D, EYE, BELIEF, STORE, SLOTS = 8, 3, 2, 2, 4
PROGRAM = Program(
    Canvas(
        frames=1,
        shape=(8,),
        width=D,
        regions={
            "eye": Region(((0, 3),), family="observation"),
            "belief": Region(((3, 5),), carrier="filter", clock="every(2)"),
            "store": Region(((5, 7),), family="memory", carrier="memory", slots=SLOTS),
            "act": Region(((7, 8),), family="action", clock="inner(every(1), 1)", identity=Identity(2, "ephemeral")),
        },
    ),
    edges=[
        Edge(reads="eye", writes="belief"),
        Edge(reads="store", writes="belief", rule="linear", when="every(4)"),
        Edge(reads="eye", writes="store", rule="copy"),
        Edge(reads="belief", writes="act", rule="pooling"),
        Edge(reads="eye", writes="belief", weight=0.0),
    ],
    ports={"x": In("eye", 5), "y": Out("act", 3)},
    heads=2,
)


def test_costs_are_those_of_the_products() -> None:
    found, map_ = work_of(PROGRAM), 2 * D * D
    assert found.ports == {"x": 2 * 5 * D, "y": 2 * D * 3}
    # Queries and results, keys and values; then weights and what they read.
    assert found.edges["belief<eye#0"] == map_ * 2 * (BELIEF + EYE) + 4 * BELIEF * EYE * D
    assert found.edges["store<eye#0"] == found.edges["belief<eye#1"] == 0
    assert found.edges["act<belief#0"] in (map_, map_ * BELIEF)
    # φ(k)ᵀ v and φ(q) times it, head by head, beside the maps.
    rest = found.edges["belief<store#0"] - map_ * 2 * (BELIEF + SLOTS)
    assert rest >= 2 * (BELIEF + SLOTS) * D * D // 2
    assert found.regions["eye"] == 0
    assert found.regions["belief"] == map_ * BELIEF * 3
    # Queries, keys, values and gates of what is written; likeness to keys; two sums.
    assert found.regions["store"] == map_ * STORE * 3 + 2 * D * STORE + 2 * STORE * SLOTS * D * 3
    assert found.regions["act"] == map_ * 2 * (2 + 1) + 4 * 2 * 1 * D


def test_what_fires_is_what_counts() -> None:
    network = PROGRAM.network()
    rows = np.random.default_rng(0).standard_normal((2, 5, 5)).astype(np.float32)
    seen = fired(network, rows, params=initialise(network, 0), device="reference")
    work = work_of(PROGRAM)
    always = sum(work.ports.values()) + work.regions["store"] + 2 * (work.regions["act"] + work.edges["act<belief#0"])
    belief, store = work.regions["belief"] + work.edges["belief<eye#0"], work.edges["belief<store#0"]
    expected = [always + belief + store, always, always + belief, always, always + belief + store]
    np.testing.assert_array_equal(work.cost_of(seen), [expected] * 2)
    assert work.most == sum(work.ports.values()) + sum(work.regions.values()) + sum(work.edges.values())
