"""What of two programs differs, and whether parameters of one fit the other."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from volumetric.program import (
    Canvas,
    Edge,
    Identity,
    In,
    Meter,
    Out,
    Program,
    Rects,
    Region,
    Semantic,
    compatible,
    diff,
    distances,
)
from volumetric.program.program_diff import parameters_of

A = Program(
    Canvas(1, (4, 4), 8, {"eye": Region(((0, 2), (0, 2)), family="observation"), "mind": Region(((2, 4), (0, 4)))}),
    [Edge(reads="eye", writes="mind"), Edge(reads="mind", writes="mind")],
    {"x": In("eye", 3), "y": Out("mind", 2)},
)


def other(*, eye: dict[str, Any] | None = None, canvas: dict[str, Any] | None = None, **fields: Any) -> Program:
    regions = {**A.canvas.regions, "eye": replace(A.canvas.regions["eye"], **(eye or {}))}
    return replace(A, **{"canvas": replace(A.canvas, **{"regions": regions, **(canvas or {})}), **fields})


def test_equal_programs() -> None:
    same = other()
    assert same == A
    assert diff(A, same) == ()
    assert compatible(A, same).verdict == "equal"
    assert str(compatible(A, same)) == "equal"


MORE = {**A.canvas.regions, "store": Region(((2, 4), (0, 4)), family="memory")}
CASES: dict[str, tuple[Program, str, list[str]]] = {
    "a region more": (other(canvas={"regions": MORE}), "extends", ["+ region store"]),
    "an edge more": (
        other(edges=(*A.edges, Edge(reads="mind", writes="eye"))),
        "extends",
        ["+ edge eye<mind#0"],
    ),
    "an edge less": (other(edges=A.edges[:1]), "conflicts", ["- edge mind<mind#0"]),
    "another clock": (other(eye={"clock": "every(2)"}), "extends", ["~ region eye: clock default → 'every(2)'"]),
    "another place": (
        other(eye={"box": ((0, 1), (0, 1), (0, 4))}),
        "extends",
        ["~ region eye: box [[0, 1], [0, 2], [0, 2]] → [[0, 1], [0, 1], [0, 4]]"],
    ),
    "another size": (
        other(eye={"box": ((0, 1), (0, 1), (0, 3))}),
        "conflicts",
        ["~ region eye: box [[0, 1], [0, 2], [0, 2]] → [[0, 1], [0, 1], [0, 3]]"],
    ),
    "slots": (other(eye={"identity": Identity()}), "conflicts", ["~ region eye: identity default → {}"]),
    "width": (other(canvas={"width": 16}), "conflicts", ["~ canvas: width 8 → 16"]),
    "a wider port": (
        other(ports={"x": In("eye", 4), "y": Out("mind", 2)}),
        "conflicts",
        ["~ port x: dim 3 → 4"],
    ),
    "ports in another order": (
        other(ports={"y": Out("mind", 2), "x": In("eye", 3)}),
        "extends",
        ["~ ports: order ['x', 'y'] → ['y', 'x']"],
    ),
    "a weight": (
        other(edges=(replace(A.edges[0], weight=0.5), A.edges[1])),
        "extends",
        ["~ edge mind<eye#0: weight default → 0.5"],
    ),
    "a gate": (
        other(edges=(replace(A.edges[0], write="gate"), A.edges[1])),
        "conflicts",
        ["~ edge mind<eye#0: write default → 'gate'"],
    ),
    "a meter": (other(meters=(Meter("eye"),)), "extends", ["+ meter eye"]),
    "sharing": (other(share="rule"), "conflicts", ["~ program: share default → 'rule'"]),
}


@pytest.mark.parametrize("case", CASES)
def test_differences(case: str) -> None:
    b, verdict, lines = CASES[case]
    found = compatible(A, b)
    assert [str(change) for change in found.changes] == lines
    assert found.verdict == verdict
    assert diff(A, b) == found.changes
    assert len(diff(b, A)) == len(lines)
    if verdict == "conflicts":
        assert str(found).splitlines()[1] == f"! {lines[0]}"
    else:
        assert not found.lost


def test_parameters_that_have_no_place_are_named() -> None:
    weightless = other(edges=(replace(A.edges[0], weight=0.0), A.edges[1]))
    found = compatible(A, weightless)
    assert (found.verdict, found.conflicts) == ("conflicts", ())
    assert set(found.lost) == {name for name in parameters_of(A) if name.startswith("edges.mind<eye#0.")}
    assert str(found).splitlines()[-1].startswith("! parameter edges.mind<eye#0.")
    hyena = other(edges=(replace(A.edges[0], rule="hyena"), A.edges[1]))
    shorter = replace(hyena, edges=(replace(hyena.edges[0], mask=Rects([(0, 2, 0, 4)])), A.edges[1]))
    assert set(compatible(hyena, shorter).lost) <= set(parameters_of(hyena))
    assert compatible(hyena, A).verdict == "conflicts"


def test_regions_are_near_in_meaning() -> None:
    def of(**fields: Any) -> Region:
        return replace(A.canvas.regions["mind"], **fields)

    vectors = {
        "east": of(semantic=Semantic(vector=(2.0, 0.0))),
        "north": of(semantic=Semantic(vector=(0.0, 1.0))),
        "odd": of(semantic=Semantic(vector=(1.0, 0.0), model="other")),
        "long": of(semantic=Semantic(vector=(1.0, 0.0, 0.0))),
        "none": of(),
        "zero": of(semantic=Semantic(vector=(0.0, 0.0))),
        "act": of(semantic=Semantic(vector=(1.0, 0.0)), family="action", carrier="filter"),
    }
    one = Program(replace(A.canvas, regions={"east": vectors["east"]}))
    found = distances(one, Program(replace(A.canvas, regions=vectors)))
    assert [pair[:2] for pair in found] == [("east", "east"), ("east", "act"), ("east", "north")]
    assert [pair[2] for pair in found] == pytest.approx([0, 0.5, 1])
    assert len(distances(one, Program(replace(A.canvas, regions=vectors)), most=0.3)) == 1
