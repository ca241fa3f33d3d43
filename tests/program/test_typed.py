"""Programs of types, beside those that another package makes of them."""

# ruff: noqa: RUF009  (fields do not change)

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from volumetric.base.errors import SpecError
from volumetric.program import In, Semantic, typed
from volumetric.program.layer.program_declaration import operator_of
from volumetric.program.typed import Field, pack_boxes, shape_for

PACKAGE = json.loads((Path(__file__).parent.parent / "fixtures" / "programs" / "auto_wired.json").read_text())[
    "programs"
]


@dataclass
class Arm:
    joints: Field = Field(1, 4, family="observation")
    plan: Field = Field(2, 2, tags=("belief",))
    motor: Field = Field(1, 3, family="action", loss_weight=2.0)


@dataclass
class Robot:
    camera: Field = Field(4, 4, family="observation", rule="linear")
    map: Field = Field(2, 4, family="memory", carrier="memory", period=4)
    surprise: Field = Field(1, 2, family="residual", carrier="residual")
    belief: Field = Field(3, 3, carrier="filter")
    arms: list[Arm] = field(default_factory=lambda: [Arm(), Arm()])
    name: str = "robot"


@pytest.mark.parametrize("policy", PACKAGE)
def test_regions_and_pairs_are_those_of_the_package(policy: str) -> None:
    """All but the pairs for which families have no operator; ``src`` asks, so it is written."""
    package = PACKAGE[policy]["program"]
    within, temporal = policy.replace("causal_chain", "chain").split()
    program = typed.compile(
        Robot(),
        frames=2,
        shape=package["layout"]["spatial_shape"],
        width=8,
        within=within,  # pyright: ignore[reportArgumentType]  (one of the words)
        temporal=temporal,  # pyright: ignore[reportArgumentType]  (one of the words)
    )
    regions = program.canvas.regions
    assert list(regions) == list(package["regions"])
    for name, spec in package["regions"].items():
        assert [end for side in regions[name].box for end in side] == spec["bounds"]
        assert regions[name].semantic == Semantic(spec["semantic_type"])
        assert (regions[name].period, regions[name].loss_weight) == (spec.get("period", 1), spec.get("loss_weight", 1))
        assert regions[name].carrier == spec.get("carrier", "deterministic")
    families = {name: region.family for name, region in regions.items()}
    expected = []
    for link in package["topology"]:
        operator = operator_of(families[link["dst"]], families[link["src"]])
        if operator is not None:
            lag = None if "t_src" not in link else link["t_src"] - link["t_dst"]
            expected.append((link["src"], link["dst"], operator, lag))
    assert [(edge.writes, edge.reads, edge.operator, edge.lag) for edge in program.edges] == expected


def pairs(root: Any, **options: Any) -> set[tuple[str, str]]:
    return {(edge.writes, edge.reads) for edge in typed.compile(root, **options).edges}


def test_lists() -> None:
    hands = SimpleNamespace(hands=[SimpleNamespace(grip=Field(), touch=Field()) for _ in range(4)])
    between: dict[str, set[tuple[str, str]]] = {}
    ways: tuple[Literal["isolated", "dense", "matched", "ring"], ...] = ("isolated", "dense", "matched", "ring")
    for way in ways:
        between[way] = {(a[:8], b[:8]) for a, b in pairs(hands, arrays=way) if a[:8] != b[:8]}
    assert between["isolated"] == set()
    assert len(between["dense"]) == len(between["matched"]) == 12
    assert len(between["ring"]) == 8
    matched = {pair for pair in pairs(hands, arrays="matched") if pair[0][:8] != pair[1][:8]}
    assert ("hands[0].grip", "hands[3].grip") in matched
    assert not any("." not in a or a.split(".")[1] != b.split(".")[1] for a, b in matched)
    assert list(typed.compile(SimpleNamespace(xs=[Field(), 3, Field(2, 2)])).canvas.regions) == ["xs[0]", "xs[2]"]


def test_coarse_regions() -> None:
    class Fast:
        __coarse__ = Field(2, 2, family="observation", frames=1)

        def __init__(self) -> None:
            self.a, self.b = Field(1, 3, period=2), Field(1, 1, period=8)

    @dataclass
    class Whole:
        own: Field
        plain: Fast
        given: Fast = field(metadata={"coarse": Field(1, 2)})

    regions = typed.compile(Whole(Field(), Fast(), Fast()), frames=3).canvas.regions
    assert list(regions) == ["own", "plain", "plain.a", "plain.b", "given", "given.a", "given.b"]
    assert [high - low for low, high in regions["plain"].box] == [1, 2, 2]
    assert [high - low for low, high in regions["given"].box] == [3, 1, 2]
    assert (regions["plain"].family, regions["plain"].period) == ("observation", round((3 * 2 + 8) / 4))
    assert regions["plain"].semantic == Semantic("coarse: plain")


def test_objects_of_all_kinds() -> None:
    class Model:
        model_fields: ClassVar = {"eye": None, "note": None}

        def __init__(self) -> None:
            self.eye, self.note, self.hidden = Field(2, 2, family="observation"), "x", Field()

    holder = SimpleNamespace(model=Model(), empty=SimpleNamespace(n=3), _private=Field(), array=np.zeros(3))
    holder.model.note = holder  # back to where it came from
    program = typed.compile(holder, ports={"x": In("model.eye", 3)}, width=16)
    assert list(program.canvas.regions) == ["model", "model.eye"]
    assert program.ports == {"x": In("model.eye", 3)}
    assert program.canvas.width == 16


def test_fields_of_one_name_side_by_side() -> None:
    pair = SimpleNamespace(one=SimpleNamespace(a=Field(), b=Field()), two=SimpleNamespace(a=Field(), b=Field()))
    program = typed.compile(pair, shape=(1, 6), interleaved=True)
    places = {name: region.box[2][0] for name, region in program.canvas.regions.items()}
    assert abs(places["one.a"] - places["two.a"]) == abs(places["one.b"] - places["two.b"]) == 1
    assert list(program.canvas.regions) == ["one", "one.a", "one.b", "two", "two.a", "two.b"]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4).flatmap(lambda axes: st.lists(st.tuples(*[st.integers(1, 5)] * axes), min_size=1, max_size=9)))
def test_boxes_never_overlap(boxes: list[tuple[int, ...]]) -> None:
    sides = {f"r{i}": of for i, of in enumerate(boxes)}
    shape = shape_for(sides)
    taken = np.zeros(shape, int)
    for name, box in pack_boxes(sides, shape).items():
        assert tuple(high - low for low, high in box) == sides[name]
        taken[tuple(slice(low, high) for low, high in box)] += 1
    assert taken.max() == 1
    assert taken.sum() == sum(int(np.prod(of)) for of in boxes)


def test_refuses() -> None:
    with pytest.raises(SpecError, match="there is no Field"):
        typed.compile(SimpleNamespace(a=3))
    with pytest.raises(SpecError, match=r"fields need a canvas of 4×4, this one is 3×4"):
        typed.compile(SimpleNamespace(a=Field(2, 4), b=Field(2, 4)), shape=(3, 4))
    with pytest.raises(SpecError, match=r"field 'a' is 2×4, the canvas 4×3: axis 1"):
        typed.compile(SimpleNamespace(a=Field(2, 4)), shape=(4, 3))
    with pytest.raises(SpecError, match="has 3 axes, the canvas 2"):
        typed.compile(SimpleNamespace(a=Field(shape=(1, 1, 1))), shape=(4, 3))
    with pytest.raises(SpecError, match="within: unknown 'dens'"):
        typed.compile(Robot(), within="dens")  # pyright: ignore[reportArgumentType]  (what is refused)
    for message, make in {
        "h and w, or shape": lambda: Field(2, shape=(2,)),
        "a side must be": lambda: Field(0),
        "unknown 'famly'": lambda: Field(famly="state"),
        "unknown 'box'": lambda: Field(box=((0, 1),)),
        "carrier: unknown": lambda: Field(carrier="x"),
        "frames must be": lambda: Field(frames=0),
    }.items():
        with pytest.raises(SpecError, match=message):
            make()
    deep = SimpleNamespace(a=Field())
    for _ in range(70):
        deep = SimpleNamespace(b=deep)
    with pytest.raises(SpecError, match="more than 64 levels"):
        typed.compile(deep)
