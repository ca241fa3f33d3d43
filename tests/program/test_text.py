"""Programs ↔ JSON: any that can be made, and texts that are none."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from volumetric.base.errors import CheckpointError, SpecError
from volumetric.layers.clock import Cooldown, Every, On
from volumetric.program import (
    Bits,
    Canvas,
    Constraints,
    Edge,
    Full,
    Identity,
    In,
    Learning,
    Level,
    Meter,
    Out,
    Program,
    Rects,
    Region,
    Semantic,
    Signal,
    Tile,
    autowire,
    read_program,
    save_program,
)
from volumetric.program.layer import text
from volumetric.program.layer.name_checks import CARRIERS, FAMILIES, KEEPS, LOSSES, MODES, OPERATORS, RULES

NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,6}[a-z\]]", fullmatch=True)
WORDS = st.sampled_from([*FAMILIES, "dream"])
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
NUMBERS = st.floats(0, 1e300, allow_subnormal=True)
FRAMES, SIDES = 3, (2, 4)


def maybe(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | of


@st.composite
def boxes(draw: st.DrawFn) -> tuple[tuple[int, int], ...]:
    ends = [draw(st.tuples(st.integers(0, side - 1), st.integers(1, side))) for side in (FRAMES, *SIDES)]
    return tuple((low, max(high, low + 1)) for low, high in ends)


CLOCKS = [None, "every(4)", "on(end) || every(2)", Cooldown(Every(3), 2) & ~On("end")]


@st.composite
def regions(draw: st.DrawFn) -> Region:
    carrier = draw(st.sampled_from(CARRIERS))
    moves = carrier != "constant"  # which has neither a clock, losses nor slots of an identity
    losses = maybe(st.dictionaries(st.sampled_from(LOSSES), NUMBERS, max_size=2))
    held = (
        st.sampled_from([None, "translation", "rotation", "permutation"]),
        st.sampled_from([None, "capacity", "energy"]),
        st.sampled_from([None, "acyclic", "forward_only"]),
        st.sampled_from([None, "non_decreasing", "non_increasing"]),
    )
    vectors = maybe(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=3))
    return Region(
        draw(boxes()),
        family=draw(WORDS),
        carrier=carrier,
        tags=tuple(draw(st.lists(TEXTS, max_size=2))),
        period=draw(st.integers(1, 2**24)),
        clock=draw(st.sampled_from(CLOCKS)) if moves else None,
        rule=draw(maybe(st.sampled_from(RULES))),
        residual=draw(maybe(st.booleans())),
        slots=draw(maybe(st.integers(1, 9))) if carrier in ("memory", "constant") else None,
        learning=draw(maybe(st.builds(Learning, st.sampled_from(MODES), losses, st.sampled_from(KEEPS))))
        if moves
        else None,
        keep=draw(st.sampled_from(KEEPS)),
        identity=draw(
            maybe(st.builds(Identity, st.integers(1, 99), st.sampled_from(["persistent", "ephemeral"]), st.booleans()))
        )
        if moves
        else None,
        constraints=draw(maybe(st.builds(Constraints, *held))),
        loss_weight=draw(NUMBERS),
        output=draw(st.booleans()),
        semantic=draw(maybe(st.builds(Semantic, maybe(TEXTS), vectors, maybe(TEXTS)))),
    )


def masks() -> st.SearchStrategy[Any]:
    ranges = st.tuples(st.integers(0, 3), st.integers(4, 9), st.integers(0, 3), st.integers(4, 9))
    bits = st.integers(1, 4).flatmap(lambda n: st.lists(st.text("01", min_size=n, max_size=n), min_size=1, max_size=3))
    return st.one_of(
        st.builds(Full),
        st.lists(st.integers(1, 5), min_size=1, max_size=2).map(lambda sides: Tile(tuple(sides))),
        st.lists(ranges, max_size=2).map(Rects),
        bits.map(Bits),
    )


@st.composite
def programs(draw: st.DrawFn) -> Program:
    names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    canvas = Canvas(FRAMES, SIDES, 8, {name: draw(regions()) for name in names}, current=draw(st.integers(0, FRAMES)))
    region = st.sampled_from(names)
    options = st.dictionaries(st.sampled_from("abc"), st.integers(-9, 9) | st.floats(-1e9, 1e9) | TEXTS, max_size=2)
    edge = st.builds(
        Edge,
        region,
        region,
        rule=maybe(st.sampled_from(RULES)),
        operator=st.sampled_from(OPERATORS),
        write=st.sampled_from([None, "add", "replace", "gate"]),
        weight=NUMBERS,
        when=st.sampled_from([None, "a.b > 1", "on(end)"]),
        mask=maybe(masks()),
        lag=maybe(st.integers(-9, 9)),
        fill=st.sampled_from(["drop", "hold", "lerp"]),
        order=st.integers(1, 16),
        heads=st.sampled_from([None, 1, 2, 8]),
        options=options,
    )
    edges = draw(st.lists(edge, max_size=3))
    port = st.one_of(
        st.builds(In, region, st.integers(1, 9), st.sampled_from(["replace", "add"])),
        st.builds(Out, region, st.integers(1, 9), st.sampled_from(["mean", "flatten"])),
        st.builds(Signal),
        *(st.just(Level(name)) for name in names if canvas.regions[name].carrier == "diffusive"),
    )
    meter = st.builds(
        Meter,
        region,
        st.lists(st.sampled_from(["prediction", "peak"]), min_size=1, max_size=2, unique=True),
        st.sampled_from(["max_mean", "mean", "max", "rms", "l2"]),
        st.floats(0, 1, exclude_max=True),
        st.booleans(),
        st.booleans(),
    )
    return Program(
        canvas,
        [*edges, *draw(st.sampled_from([[], autowire(), autowire(loops=False)]))],
        draw(st.dictionaries(NAMES, port, max_size=3)),
        meters=draw(st.lists(meter, max_size=2, unique_by=lambda one: one.region)),
        time=draw(st.sampled_from([None, "window"])),
        heads=draw(st.sampled_from([1, 2, 4, 8])),
        share=draw(st.sampled_from(["edge", "rule"])),
        parity=draw(st.booleans()),
        metadata=draw(st.dictionaries(TEXTS, TEXTS, max_size=2)),
    )


@pytest.mark.thorough
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs())
def test_json_loses_nothing(program: Program) -> None:
    written = program.to_json()
    again = Program.from_json(written)
    assert again == program
    assert again.to_json() == written
    assert hash(again) == hash(program)
    json.loads(written, parse_constant=pytest.fail)


PROGRAM = Program(
    Canvas(1, (8, 8), 64, {"eye": Region(((0, 4), (0, 4)), family="observation"), "act": Region(((4, 8), (0, 8)))}),
    [Edge(reads="eye", writes="act", mask=Tile((2, 2)))],
    {"pixels": In("eye", 192), "motor": Out("act", 6)},
)


def changed(old: str, new: str) -> str:
    written = PROGRAM.to_json()
    assert old in written
    return written.replace(old, new, 1)


HOSTILE: dict[str, tuple[str, str]] = {
    "nothing": ("", r"not valid JSON"),
    "cut short": (PROGRAM.to_json()[:200], r"not valid JSON.* it is truncated"),
    "a list": ("[]", r"expected an object, got a list"),
    "deep": ("[" * 100_000, r"not valid JSON \(nested too deep\)"),
    "deep inside": (
        changed('"frames": 1', f'"frames": {"[" * 900 + "]" * 900}'),
        r"\.frames: Expected `int`",
    ),
    "format": (changed("volumetric.program", "volumetric.network"), r"format is 'volumetric.network'"),
    "version": (changed('"version": 1', '"version": 7'), r"version 7 is unknown a newer volumetric wrote it"),
    "version of text": (changed('"version": 1', '"version": "1"'), r"version '1' is unknown"),
    "key": (changed('"edges"', '"edgs"'), r"\$: unknown key 'edgs'.*did you mean 'edges'"),
    "key of a region": (
        changed('"family"', '"famly"'),
        r"\.regions\.eye: unknown key.*did you mean 'family'",
    ),
    "key of an edge": (changed('"mask"', '"mesk"'), r"\$\.edges\[0\]: unknown key.*did you mean 'mask'"),
    "key of a mask": (changed('"shape": [2', '"shap": [2'), r"\$\.edges\[0\]\.mask: unknown key.*did you mean 'shape'"),
    "kind of a mask": (changed('"tile"', '"tiles"'), r"\$\.edges\[0\]\.mask: unknown kind.*did you mean 'tile'"),
    "key twice": (changed('"frames": 1', '"frames": 1, "frames": 1'), r"duplicate key 'frames'"),
    "missing": (changed('"reads": "eye", ', ""), r"\$\.edges\[0\]: 'reads' is missing"),
    "NaN": (changed('"width": 64', '"width": NaN'), r"NaN is not a JSON number"),
    "infinity": (changed('"width": 64', '"width": 64, "current": 1e999'), r"\$\.canvas\.current: Expected `int`"),
    "width of text": (changed('"width": 64', '"width": "64"'), r"\$\.canvas\.width: Expected `int`, got `str`"),
    "width of nothing": (changed('"width": 64', '"width": null'), r"\$\.canvas\.width: Expected `int`, got `null`"),
    "width of a truth": (changed('"width": 64', '"width": true'), r"\$\.canvas\.width: Expected `int`, got `bool`"),
    "width too large": (changed('"width": 64', f'"width": {10**40}'), r"\$\.canvas"),
    "width of thousands of digits": (changed('"width": 64', '"width": ' + "9" * 5000), r"not valid JSON|\$\.canvas"),
    "regions": (changed('"regions": {', '"regions": 3, "metadata": {'), r"\$\.canvas: unknown key|\$\.canvas\.regions"),
    "region of text": (
        changed('{"box": [[0, 1], [0, 4], [0, 4]], "family": "observation"}', '"eye"'),
        r"regions\.eye: exp",
    ),
    "box": (changed("[0, 4]", "[0, 99]"), r"its box from 0 to 99 exceeds the 8"),
    "box of text": (changed("[0, 4]", '"04"'), r"\$\.canvas\.regions\.eye\.box\[1\]: Expected `array`"),
    "unknown region": (changed('"region": "eye"', '"region": "eyes"'), r"no region 'eyes'.*did you mean 'eye'"),
    "surrogate": (changed('"eye": {', r'"\ud800": {'), r"surrogate|cannot be called"),
    "huge canvas": (changed("[8, 8]", "[4000000, 4000000]"), r"16,000,000,000,000 positions would take .* GiB"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_texts_that_are_no_program(case: str) -> None:
    given_text, message = HOSTILE[case]
    for one in (given_text, given_text.encode("utf-8", "surrogatepass")):
        with pytest.raises(SpecError) as caught:
            Program.from_json(one)
        assert re.search(message, f"{caught.value} {caught.value.hint}"), (str(caught.value), caught.value.hint)


def test_bytes_that_are_no_text() -> None:
    with pytest.raises(SpecError, match="not valid JSON"):
        Program.from_json(b"\xff\xfe\x00")


def test_too_many_edges_are_refused_with_what_they_would_take(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = '{"reads":"eye","writes":"act"},' * 100_001
    written = changed('"edges": [', f'"edges": [{many}')
    with pytest.raises(SpecError, match=r"100,002 edges would take 6\.2 GiB for the weights of attention of width 64"):
        Program.from_json(written)
    monkeypatch.setattr(text, "MOST_BYTES", 100_000)
    with pytest.raises(SpecError, match=r"edges would take"):
        Program.from_json(written)
    with pytest.raises(SpecError, match=r"the text has .* MiB"):
        Program.from_json(" " * 100_001)
    path = tmp_path / "a.program.json"
    path.write_text(written)
    monkeypatch.setattr("volumetric.program.files.MOST_BYTES", 1000)  # so that pieces cut through words
    with pytest.raises(SpecError, match=r"100,002 edges would take"):
        read_program(path)
    path.write_text(" " * 5000)
    with pytest.raises(SpecError, match="longer than"):
        read_program(path)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "a.program.json"
    save_program(path, PROGRAM)
    assert read_program(path) == PROGRAM
    assert read_program(str(path)) == PROGRAM
    assert [one.name for one in tmp_path.iterdir()] == ["a.program.json"]
    path.write_text("{}")
    with pytest.raises(SpecError, match=rf"{re.escape(str(path))}: program: format"):
        read_program(path)
    with pytest.raises(CheckpointError, match="No such file"):
        read_program(tmp_path / "none.json")
    with pytest.raises(CheckpointError):
        read_program(tmp_path)
    with pytest.raises(CheckpointError, match="cannot write"):
        save_program(tmp_path / "none" / "a.json", PROGRAM)
