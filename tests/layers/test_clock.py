"""Clocks: texts and values are the same, errors point at the place, and schedules are those of another package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volumetric.base._typing import Array
from volumetric.base.errors import SpecError
from volumetric.graph.build import GraphBuilder
from volumetric.graph.interpret import interpret
from volumetric.layers.clock import And, Clock, Cooldown, Event, Every, Inner, MaxSilence, Not, On, Or
from volumetric.layers.clock_steps import GraphClockOps, NumpyClockOps, counters, step

FIXTURES = Path(__file__).parents[1] / "fixtures" / "programs"
ORACLE: dict[str, Any] = json.loads((FIXTURES / "clocks.json").read_text())
SEEN: list[float] = ORACLE["err.prediction"]


def schedule(clock: Clock) -> list[int]:
    """At which steps of the oracle's run a clock fires, of two streams: the second one sees NaN."""
    counts = [np.full(2, start, np.float32) for start in counters(clock)]
    found: list[int] = []
    for t, value in enumerate(SEEN):
        watched = np.array([value, np.nan], np.float32)
        of = NumpyClockOps(lambda _, x=watched: x, lambda name, t=t: np.full(2, ORACLE["boundaries"][t] == name))
        fires, counts = step(clock, counts, of)
        found += [t] * bool(fires[0])
    return found


def declared(fields: dict[str, Any]) -> Clock:
    """A clock of the other package; its cooldown leaves out a step less than it says."""
    source, threshold = fields["event_source"], fields["event_threshold"]
    clock: Clock = Every(max(fields["period"], 1))
    if fields["mode"] == "on_event":
        clock = Event(source, above=threshold)
    elif fields["mode"] == "boundary":
        clock = On(source)
    if fields["max_silence"]:
        clock = MaxSilence(clock, fields["max_silence"])
    return Cooldown(clock, fields["cooldown"] - 1) if fields["cooldown"] > 1 else clock


KNOWN = [name for name in ORACLE["clocks"] if name not in ("event_missing", "event_malformed")]


@pytest.mark.parametrize("name", KNOWN)
def test_schedules_are_those_of_the_package(name: str) -> None:
    assert schedule(declared(ORACLE["clocks"][name])) == ORACLE["fires_at"][name]


EXPRESSIONS = {
    "periodic": "every(3)",
    "on": "err.prediction > 0.8",
    "band": "0.3 < err.prediction < 0.9",
    "below": "err.prediction < 0.4",
    "boundary": "on(episode)",
    "or": "every(5) || err.prediction > 1.2",
    "and": "every(2) && err.prediction > 0.5",
    "not": "!every(2)",
    "nested": "every(2) && !err.prediction > 1 || on(reset)",
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_expressions_are_those_of_the_package(name: str) -> None:
    assert schedule(Clock.parse(EXPRESSIONS[name])) == ORACLE["expression_true_at"][name]


TRIGGERS = json.loads((FIXTURES / "triggers.json").read_text())


@pytest.mark.parametrize("case", [case for case in TRIGGERS["cases"] if case["trigger"]], ids=lambda c: c["trigger"])
def test_triggers_decide_as_published(case: dict[str, Any]) -> None:
    """What is missing or malformed is an error here, and does not fire there."""

    def watched(source: str) -> Array:
        what, _, kind = source.rpartition(".")
        return np.array([TRIGGERS["summaries"][what][kind]])

    try:
        clock = Clock.parse(case["trigger"])
        fires = bool(step(clock, [], NumpyClockOps(watched, watched))[0][0])
    except (SpecError, KeyError):
        fires = False
    assert fires == case["fires"]


def test_a_cooldown_leaves_out_what_it_says() -> None:
    assert schedule(Cooldown(Every(1), 3)) == list(range(0, 40, 4))
    silent = Event("err.prediction", above=100)
    assert schedule(MaxSilence(silent, 7)) == list(range(0, 40, 7))
    # silence goes on where a cooldown holds back, and a cooldown inside of it holds back no silence
    assert schedule(Cooldown(MaxSilence(silent, 6), 8)) == list(range(0, 40, 9))
    assert schedule(MaxSilence(Cooldown(silent, 8), 6)) == list(range(0, 40, 6))


names = st.sampled_from(["err", "a.b", "0.0.1.0", "arms[0].x", "a b", 'q"uote', "ü", "1", "x\\y", "every"])
bounds = st.sampled_from([("above",), ("below",), ("at_least", "at_most"), ("above", "at_most"), ("equal",)])
numbers = st.floats(allow_nan=False, allow_infinity=False)
events = st.builds(
    lambda name, sides, a, b: Event(f"{name}.rms", **dict(zip(sides, (a, b), strict=False))),
    names,
    bounds,
    numbers,
    numbers,
)
leaves = (
    st.builds(lambda n, m: Every(n, m % n), st.integers(1, 2**24), st.integers(0, 99)) | st.builds(On, names) | events
)
clocks = st.recursive(
    leaves,
    lambda inside: (
        st.builds(And, st.lists(inside, min_size=2, max_size=3).map(tuple))
        | st.builds(Or, st.lists(inside, min_size=2, max_size=3).map(tuple))
        | st.builds(Not, inside)
        | st.builds(Cooldown, inside, st.integers(1, 9))
        | st.builds(MaxSilence, inside, st.integers(1, 9))
    ),
    max_leaves=6,
)


@given(clocks, st.booleans())
def test_texts_lose_nothing(clock: Clock, inner: bool) -> None:
    whole = Inner(clock, 3) if inner else clock
    assert Clock.parse(str(whole)) == whole
    assert len(counters(whole)) == str(whole).count("every(") + str(whole).count("cooldown(") + str(whole).count(
        "silence("
    )


@pytest.mark.thorough
@given(clocks)
def test_graphs_do_what_numpy_does(clock: Clock) -> None:
    """Three steps of three streams, one of which sees NaN."""
    rng = np.random.default_rng(len(str(clock)))
    counts = [np.full((3, 1), start) for start in counters(clock)]
    work = GraphBuilder()
    inputs = [work.input(f"count {n}", (3, 1)) for n in range(len(counts))]
    number, happens = work.input("x", (3, 1)), work.input("on", (3, 1))
    fires, after = step(clock, inputs, GraphClockOps(work, lambda _: number, lambda _: happens))
    graph = work.finish([fires, *after])
    for _ in range(3):
        x, on = rng.standard_normal((3, 1)), rng.integers(0, 2, (3, 1)).astype(bool)
        x[2] = np.nan
        want, wanted = step(clock, counts, NumpyClockOps(lambda _, x=x: x, lambda _, on=on: on))
        made = interpret(graph, [*counts, x, on.astype(np.float64)], {}, np.float64)
        np.testing.assert_array_equal(made[0], want)
        for mine, other in zip(made[1:], wanted, strict=True):
            np.testing.assert_array_equal(mine, other)
        counts = wanted


WRONG = [
    ("", "expected a clock", 1),
    ("every(4", "expected )", 8),
    ("every(0)", "the period must be 1", 1),
    ("every(4, 4)", "the phase must be in 0 … 3", 1),
    ("every(1.5)", "expected a whole number", 7),
    ("every(" + "9" * 40 + ")", "the number is too large", 7),
    ("err.prediction > x", "expected a number", 18),
    ("err.prediction >", "expected a number", 17),
    ("err.prediction", "expected one of > >= < <= == !=", 15),
    ("> 0.5", "expected a clock", 1),
    ("err > 0.5", "expected a source", 1),
    ("a.b > 1 && c.d", "expected one of", 15),
    ("a.b > 1 & c.d > 1", "unexpected '&'", 9),
    ("a.b > 1e999", "the number is too large", 7),
    ("0.5 > a.b", "expected < or <=", 5),
    ("0.5 < a.b", "expected < or <= and a number", 10),
    ("ever(4)", "unknown clock 'ever'", 1),
    ("every(2) every(3)", "expected && or ||", 10),
    ("cooldown(every(2))", "expected ,", 18),
    ("!inner(every(2), 3)", "inner cannot be nested", 1),
    ('on("episode)', "the quote is not closed", 4),
    ("(" * 100, "more than 64 nested clocks", 65),
]


@pytest.mark.parametrize(("text", "what", "at"), WRONG, ids=[text[:20] for text, _, _ in WRONG])
def test_errors_point_at_the_place(text: str, what: str, at: int) -> None:
    with pytest.raises(SpecError) as caught:
        Clock.parse(text)
    first, line, mark = str(caught.value).split("\n")
    assert what in first
    assert first.endswith(f"at character {at}")
    assert text[at - 1 : at] == line[len(mark) - 1 : len(mark)].replace("…", "")


def test_what_is_no_clock_is_refused() -> None:
    tall: Clock = Every(2)
    for _ in range(63):
        tall = ~tall
    with pytest.raises(SpecError, match="more than 64"):
        Not(tall)
    for fields in ({}, {"above": 1.0, "at_least": 1.0}, {"above": float("nan")}, {"equal": 1.0, "below": 2.0}):
        with pytest.raises(SpecError, match="event"):
            Event("a.b", **fields)
    for make in (lambda: Cooldown(Every(2), 0), lambda: Every(2**24 + 1), lambda: On(""), lambda: Clock.parse(3)):  # pyright: ignore[reportArgumentType]
        with pytest.raises(SpecError):
            make()
    with pytest.raises(TypeError):
        _ = Every(2) & "every(3)"  # pyright: ignore[reportOperatorIssue]
    assert (Every(2) & Every(3)) & Every(5) == Every(2) & (Every(3) & Every(5))
