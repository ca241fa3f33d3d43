"""Files that another package reads, and what of a program they cannot hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from volumetric.program import (
    Canvas,
    Edge,
    Identity,
    In,
    Learning,
    Meter,
    Program,
    Region,
    Semantic,
    Tile,
    export_canvas,
    import_canvas,
)

FIXTURES = Path(__file__).parent.parent / "fixtures" / "programs"
HAND = json.loads((FIXTURES / "by_hand.json").read_text(encoding="utf-8"))["program"]
WIRED = json.loads((FIXTURES / "auto_wired.json").read_text(encoding="utf-8"))["programs"]
FILES = {"by hand": HAND, **{name: of["program"] for name, of in WIRED.items()}}


@pytest.mark.parametrize("name", FILES)
def test_what_was_imported_is_exported(name: str) -> None:
    program = import_canvas(json.dumps(FILES[name]), heads=2).program
    text, lost = export_canvas(program)
    assert import_canvas(text, heads=2).program == program
    told = {line.split(":")[0] for line in lost if "only by rule" not in line}
    assert not told
    exported = json.loads(text)
    assert exported["layout"] == FILES[name]["layout"]
    assert exported["regions"] == FILES[name]["regions"]


@pytest.mark.parametrize(
    ("clock", "fields"),
    [
        ("every(1)", {}),
        ("every(4)", {"period": 4}),
        ("on(end)", {"mode": "boundary", "event_source": "end"}),
        ("a.prediction > 0.5", {"mode": "on_event", "event_source": "a.prediction", "event_threshold": 0.5}),
        ("cooldown(silence(every(3), 7), 4)", {"period": 3, "cooldown": 5, "max_silence": 7}),
        ("inner(every(2), 3)", {"period": 2, "domain": "internal", "max_inner_steps": 3}),
        ("!every(1)", {"mode": "on_event"}),
        ("every(4, 1)", None),
        ("a.prediction >= 0.5", None),
        ("0 < a.prediction < 1", None),
        ("every(2) || on(end)", None),
        ("silence(cooldown(every(3), 4), 7)", None),
    ],
)
def test_clocks(clock: str, fields: dict[str, Any] | None) -> None:
    program = Program(Canvas(1, (4,), 8, {"a": Region(((0, 1), (0, 4)), family="x", clock=clock)}), parity=True)
    text, lost = export_canvas(program)
    found = json.loads(text)["region_programs"]["a"].get("clock")
    assert found == fields
    assert any("clock" in line for line in lost) == (fields is None)


def test_what_is_lost_is_told() -> None:
    regions = {
        "a": Region(
            ((0, 1), (0, 2)), identity=Identity(births=True), semantic=Semantic("x", (1.0,), "m"), output=False
        ),
        "b": Region(
            ((0, 1), (2, 4)), carrier="memory", slots=3, learning=Learning(losses={"task": 2.0}), residual=False
        ),
        "c": Region(((0, 1), (2, 4)), family="x", keep="runtime"),
    }
    edges = [
        Edge(reads="c", writes="b", mask=Tile((2,)), options={"k": 1}, heads=2),
        Edge(reads="c", writes="a", operator="write", write="add", rule="cross", when="on(end)"),
        Edge(reads="a", writes="c", when="a.x > 1 && a.y <= 2"),
        Edge(reads="b", writes="c", rule="linear", when="!every(1)"),
        Edge(reads="a", writes="a", lag=1, fill="drop"),
    ]
    program = Program(Canvas(1, (4,), 8, regions), edges, {"x": In("a", 3)}, meters=[Meter("a")])
    text, lost = export_canvas(program)
    for part in (
        "parity",
        "runs windows",
        "port 'x'",
        "meter of region 'a'",
        "region 'a': residual additions",
        "3 slots",
        "weights of losses",
        "region 'c': its keep",
        "edge 'b<c#0': its mask",
        "edge 'b<c#0': options",
        "edge 'b<c#0': heads",
        "operator 'write' has",
        "condition 'on(end)'",
        "fill 'drop'",
    ):
        assert any(part in line for line in lost), part
    data = json.loads(text)
    assert data["connection_programs"]["c|a"]["trigger"] == "a.x > 1.0 && a.y <= 2.0"
    assert data["connection_programs"]["c|b"]["trigger"] == "never"
    assert data["topology"][3] == {"src": "c", "dst": "b", "fn": "linear_attention"}
    again = import_canvas(text).program
    assert again.canvas.regions["a"].semantic == Semantic("x", (1.0,), "m")
    assert again.canvas.regions["a"].identity == Identity(births=True)
    twins = replace(program, edges=(Edge(reads="a", writes="c"), Edge(reads="a", writes="c", when="a.x > 1")))
    assert any("condition 'a.x > 1'" in line for line in export_canvas(twins).lost)


def test_a_rule_is_written_where_an_edge_has_one_of_its_own() -> None:
    regions = {"a": Region(((0, 1), (0, 2))), "b": Region(((0, 1), (2, 4)), rule="linear")}
    edges = [Edge("a", "a"), Edge("a", "b"), Edge("b", "a", rule="linear"), Edge("b", "b", rule="cross")]
    text, _ = export_canvas(Program(Canvas(1, (4,), 8, regions), edges))
    rules = {(edge["src"], edge["dst"]): edge.get("fn") for edge in json.loads(text)["topology"]}
    assert rules == {
        ("a", "a"): None,
        ("b", "a"): None,
        ("a", "b"): "linear_attention",
        ("b", "b"): "cross_attention",
    }
