"""Edges by figures, beside those of another package; and rules of groups."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volumetric.base.errors import SpecError
from volumetric.program import (
    Canvas,
    Edge,
    Program,
    Region,
    causal,
    chain,
    dense,
    facts_of,
    hub,
    import_canvas,
    isolated,
    localised,
)

FILE = Path(__file__).parent.parent / "fixtures" / "programs" / "topologies.json"
ORACLE = json.loads(FILE.read_text(encoding="utf-8"))
NAMES = ["a", "b", "c"]
OURS = {
    "dense": dense(["a", "b"]),
    "isolated": isolated(["a", "b"]),
    "hub": hub("a", ["b"]),
    "chain": chain(["a", "b"]),
    "causal": causal(["a", "b"]),
}


@pytest.mark.parametrize("name", ORACLE["topologies"])
def test_figures(name: str) -> None:
    """Another package's edges (who asks, who answers), or pairs of positions."""
    given, ours = ORACLE["topologies"][name], OURS[name]
    if isinstance(given[0], dict):
        assert {link["t_src"] for link in given} == {edge.lag for edge in ours} == {None}
        assert [(edge.writes, edge.reads) for edge in ours] == [(link["src"], link["dst"]) for link in given]
        return
    canvas = import_canvas(
        json.dumps({"layout": ORACLE["layout"], "regions": ORACLE["layout"]["regions"]})
    ).program.canvas
    facts = facts_of(Program(canvas, ours))
    pairs = set[tuple[int, int]]()
    for wire in facts.wires:
        asks, answers = facts.places[wire.writes].positions, facts.places[wire.reads].positions
        for part in wire.parts:
            pairs |= {(i, j) for i in asks[part.written].tolist() for j in answers[part.read].tolist()}
    assert pairs == {(i, j) for i, j in given}


def test_fields_are_of_each_edge() -> None:
    assert {edge.rule for edge in dense(NAMES, rule="linear")} == {"linear"}
    assert len(hub("a", ["b", "c"], back=False)) == 5


def test_edges_of_a_group_have_one_rule() -> None:
    regions = {name: Region(((0, 2), (i, i + 1))) for i, name in enumerate(NAMES)}
    program = Program(Canvas(1, (2, 3), 8, regions), [*dense(NAMES), Edge(reads="a", writes="b", rule="sparse")])
    local = localised(program, ["a", "b"])
    assert {(e.writes, e.reads) for e in local.edges if e.rule == "local"} == {(x, y) for x in "ab" for y in "ab"}
    assert sum(edge.rule == "local" for edge in local.edges) == 5
    assert localised(program, [], "linear") == program
    with pytest.raises(SpecError, match="unknown 'd'"):
        localised(program, ["d"])
    with pytest.raises(SpecError, match="rule"):
        localised(program, ["a"], "locla")
