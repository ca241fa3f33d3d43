"""Facts of programs beside the definitions, position by position."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from volumetric.base.errors import SpecError
from volumetric.program.describe import problems
from volumetric.program.layer.constraint_checks import check_constraints, violations
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_masks import Bits, Rects, Tile
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import In, Level, Out, Signal
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.program_params import all_params
from volumetric.program.layer.reachability import latency
from volumetric.program.layer.region import Canvas, Identity, Region
from volumetric.program.layer.region_learning import Constraints
from volumetric.program.layer.timing import timing_of

WHOLE = ((0, 2), (0, 2))


def chain(*edges: Edge, regions: dict[str, Region] | None = None, **fields: Any) -> Program:
    named = regions or {name: Region(WHOLE) for name in "abcd"}
    return Program(Canvas(frames=1, shape=(2, 2), width=8, regions=named), edges, **fields)


def test_positions_are_numbered_row_by_row() -> None:
    box = ((1, 3), (0, 2), (3, 5), (1, 2))
    canvas = Canvas(frames=4, shape=(3, 5, 2), width=8, regions={"a": Region(box), "b": Region(((0, 1),) * 3)})
    a, b = facts_of(Program(canvas)).places
    found = [
        ((t * 3 + i) * 5 + j) * 2 + k for t in range(1, 3) for i in range(2) for j in range(3, 5) for k in range(1, 2)
    ]
    assert a.positions.tolist() == found
    assert b.positions.tolist() == [0, 30, 60, 90]
    assert b.coords.tolist() == [[t, 0, 0, 0] for t in range(4)]
    with pytest.raises(ValueError, match="read-only"):
        a.positions[0] = 1


def test_codes_are_sinusoids_by_axis() -> None:
    canvas = Canvas(frames=2, shape=(3,), width=7, regions={"a": Region(((0, 3),))})
    codes = facts_of(Program(canvas)).codes
    assert codes.shape == (6, 7)
    for t in range(2):
        for x in range(3):
            of_t = [np.sin(t), np.cos(t), np.sin(t * 10000 ** (-2 / 3))]
            of_x = [np.sin(x), np.cos(x), np.sin(x * 10000 ** (-2 / 4)), np.cos(x * 10000 ** (-2 / 4))]
            np.testing.assert_allclose(codes[t * 3 + x], [*of_t, *of_x], atol=1e-15)


def test_rules_and_ways_of_writing_are_those_given_then_those_of_operators_then_of_regions() -> None:
    regions = {"a": Region(WHOLE), "b": Region(WHOLE, rule="linear")}

    def acts(**fields: Any) -> tuple[str, str]:
        program = chain(Edge(reads="a", **{"writes": "b", **fields}), regions=regions)
        wire = facts_of(program).wires[0]
        return wire.rule, wire.write

    assert acts() == ("linear", "add")
    assert acts(writes="a") == ("cross", "add")
    assert acts(operator="retrieve") == ("cross", "add")
    assert acts(operator="write") == acts(operator="act") == ("copy", "replace")
    assert acts(operator="act", write="add", rule="sparse") == ("sparse", "add")
    assert acts(operator="compress") == ("pooling", "add")
    assert acts(operator="intervene") == ("linear", "replace")
    assert acts(operator="intervene", writes="a") == ("cross", "replace")
    assert acts(rule="cross") == ("cross", "add")


def test_what_carriers_and_slots_show_and_who_is_metered() -> None:
    regions = {
        "plain": Region(WHOLE),
        "store": Region(WHOLE, carrier="memory", slots=3),
        "whole": Region(WHOLE, carrier="memory"),
        "things": Region(WHOLE, identity=Identity(capacity=5)),
        "err": Region(WHOLE, carrier="residual"),
        "filter": Region(WHOLE, carrier="filter"),
    }
    places = facts_of(chain(regions=regions, meters=[Meter("filter", decay=0.5), Meter("plain")])).places
    assert [(p.rows, p.through) for p in places[:4]] == [(4, "positions"), (3, "memory"), (4, "memory"), (5, "slots")]
    assert [p.meter for p in places] == [
        Meter("plain"),
        None,
        None,
        None,
        Meter("err"),
        Meter("filter", decay=0.5),
    ]
    as_package = facts_of(chain(regions=regions, parity=True)).places
    assert {p.carrier for p in as_package} == {"deterministic"}
    assert not any(p.meter for p in as_package)
    assert as_package[1].through == "positions"


def test_ports_lie_side_by_side() -> None:
    regions = {"a": Region(WHOLE), "mind": Region(WHOLE, carrier="diffusive")}
    ports = {"y": Out("a", 2), "x": In("a", 3), "end": Signal(), "level": Level("mind"), "z": Out("mind", 4)}
    facts = facts_of(chain(regions=regions, ports=ports))
    assert facts.inputs == {"x": slice(0, 3), "end": slice(3, 4), "level": slice(4, 5)}
    assert facts.outputs == {"y": slice(0, 2), "z": slice(2, 6)}


def test_writers_keep_the_order_of_edges() -> None:
    edges = [Edge(reads=a, writes=b) for a, b in ("ab", "ca", "bb", "aa")]
    facts = facts_of(chain(*edges))
    assert facts.writers == ((1, 3), (0, 2), (), ())
    assert facts.wires[2].shape == (4, 4)


def test_a_mask_leaves_positions_without_keys_unwritten() -> None:
    mask = Bits(np.array([[1, 0, 0, 0], [0, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0]]))
    wire = facts_of(chain(Edge(reads="a", writes="b", mask=mask))).wires[0]
    assert wire.mask is not None
    assert wire.shares.tolist() == [1, 0, 1, 0]
    far = {"a": Region(((0, 2), (0, 2))), "b": Region(((0, 2), (1, 2)))}
    wire = facts_of(chain(Edge(reads="b", writes="a", mask=Tile((1, 1))), regions=far)).wires[0]
    assert wire.shares.tolist() == [0, 1, 0, 1]


FRAMES = 6


@pytest.mark.parametrize("fill", ["drop", "hold", "lerp"])
@pytest.mark.parametrize(("lag", "order", "periods"), [(0, 1, (1, 4)), (2, 2, (1, 4)), (1, 1, (4, 1)), (-1, 3, (2, 3))])
def test_frames_of_an_edge_with_a_lag(
    fill: Literal["drop", "hold", "lerp"], lag: int, order: int, periods: tuple[int, int]
) -> None:
    regions = {
        "fast": Region(((0, FRAMES), (0, 1)), period=periods[0]),
        "slow": Region(((1, 4), (1, 2)), period=periods[1]),
    }
    canvas = Canvas(frames=FRAMES, shape=(2,), width=8, regions=regions)
    wire = facts_of(Program(canvas, [Edge(reads="slow", writes="fast", lag=lag, fill=fill, order=order)])).wires[0]
    share = np.zeros(wire.shape)
    for part in wire.parts:
        share[np.ix_(part.written, part.read)] += part.share
    expected = np.zeros(wire.shape)
    times = [frame * periods[1] for frame in range(1, 4)]
    for frame in range(FRAMES):
        wanted = (frame - lag) * periods[0]
        exact = [i for i, time in enumerate(times) if time == wanted]
        past = [i for i, time in enumerate(times) if time < wanted]
        future = [i for i, time in enumerate(times) if time > wanted]
        if exact:
            expected[frame, exact] = 1
        elif fill == "hold" and past:
            expected[frame, past[-1]] = 1
        elif fill == "lerp" and order == 1:
            if past and future:
                behind, ahead = wanted - times[past[-1]], times[future[0]] - wanted
                expected[frame, past[-1]] = ahead / (behind + ahead)
                expected[frame, future[0]] = behind / (behind + ahead)
            else:
                expected[frame, (past[-1:] or future[:1])[0]] = 1
        elif fill == "lerp":
            near = sorted(range(3), key=lambda i: (abs(times[i] - wanted), i))[: order + 1]
            weights = np.array([abs(times[i] - wanted) ** -float(order) for i in near])
            expected[frame, near] = weights / weights.sum()
    np.testing.assert_allclose(share, expected, atol=1e-15)
    np.testing.assert_allclose(wire.shares, expected.sum(1), atol=1e-12)


def test_a_stream_reads_a_ring_and_no_frames() -> None:
    facts = facts_of(chain(Edge(reads="a", writes="b", lag=3), Edge(reads="b", writes="a")))
    assert len(facts.wires[0].parts) == 1


def test_latency_counts_edges_and_lags() -> None:
    ports = {"x": In("a", 1), "here": Out("a", 1), "next": Out("b", 1), "far": Out("c", 1), "never": Out("d", 1)}
    edges = (
        Edge(reads="a", writes="b"),
        Edge(reads="b", writes="c", lag=4),
        Edge(reads="c", writes="a"),
        Edge(reads="a", writes="d", weight=0),
        Edge(reads="a", writes="d", rule="none"),
    )
    facts = facts_of(chain(*edges, ports=ports))
    assert {name: latency(facts, name) for name in ("here", "next", "far", "never")} == {
        "here": 0,
        "next": 0,
        "far": 5,
        "never": None,
    }


HELD: dict[str, tuple[dict[str, Any], dict[str, Any], str | None]] = {
    "replaced": ({"conservation": "energy"}, {"write": "replace"}, "replaces its content"),
    "added to": ({"conservation": "energy"}, {"write": "add"}, None),
    "in order": ({"equivariance": "permutation"}, {"rule": "rwkv"}, "has rule 'rwkv'"),
    "as a set": ({"equivariance": "permutation"}, {"rule": "cosine"}, None),
    "masked": ({"equivariance": "translation"}, {"mask": Rects([(0, 1, 0, 1)])}, "has a mask"),
    "copied": ({"equivariance": "translation"}, {"rule": "copy"}, None),
    "in a ring": ({"causal": "acyclic"}, {}, "what it reads depends on it"),
    "in a line": ({"causal": "acyclic"}, {"reads": "c"}, None),
    "filtered": ({"monotone": "non_increasing"}, {}, "it is non-increasing, but its carrier is 'filter'"),
    "from before": ({"causal": "forward_only"}, {}, "begins at frame 0, before its own, 1"),
}


@pytest.mark.parametrize("case", HELD)
def test_constraints_are_held(case: str) -> None:
    held, fields, message = HELD[case]
    carrier = "filter" if "monotone" in held else "deterministic"
    regions = {
        "a": Region(((0, 1), (0, 2))),
        "b": Region(((1, 2), (0, 2)), constraints=Constraints(**held), carrier=carrier),
        "c": Region(((1, 2), (0, 2))),
    }
    edges = [Edge(**{"reads": "a", "writes": "b", **fields}), Edge(reads="b", writes="a")]
    facts = facts_of(Program(Canvas(frames=2, shape=(2,), width=8, regions=regions), edges))
    found = violations(facts)
    if message is None:
        assert not found
        check_constraints(facts)
        return
    assert len(found) == 1
    assert message in found[0]
    with pytest.raises(SpecError, match="region 'b'"):
        check_constraints(facts)


@pytest.mark.parametrize(
    ("clock", "message", "hint"),
    [
        ("err.prediction > 0.5 && every(2)", None, ""),
        ("on(end) || a.peak < 1", None, ""),
        ("!silence(er.prediction > 0.5, 3)", "there is no region 'er'", "did you mean 'err'"),
        ("b.prediction > 0.5", "region 'b' has no meter", "Meter('b', "),
        ("err.prdiction > 0.5", "the meter of 'err' has no kind 'prdiction'", "did you mean 'prediction'"),
        ("cooldown(on(ende), 2)", "there is no signal 'ende'", "did you mean 'end'"),
        ("on(x)", "there is no signal 'x'", "there are end"),
    ],
)
def test_clocks_speak_of_what_is_there(clock: str, message: str | None, hint: str) -> None:
    regions = {"a": Region(WHOLE), "b": Region(WHOLE), "err": Region(WHOLE, carrier="residual")}
    rest: dict[str, Any] = {"meters": [Meter("a", ("peak",))], "ports": {"end": Signal(), "x": In("a", 1)}}
    by_edge = chain(Edge(reads="a", writes="b", when=clock), regions=regions, **rest)
    by_region = chain(regions={**regions, "c": Region(WHOLE, clock=clock)}, **rest)
    for program, what in ((by_edge, "edge 'b<a#0': when: "), (by_region, "region 'c': clock: ")):
        if message is None:
            timing_of(facts_of(program))
            continue
        with pytest.raises(SpecError, match=what + ".*" + message) as caught:
            timing_of(facts_of(program))
        assert hint in str(caught.value.hint)


def test_refuses_what_does_not_fit() -> None:
    regions = {"a": Region(WHOLE), "things": Region(WHOLE, identity=Identity(capacity=5))}
    with pytest.raises(SpecError, match=r"a mask needs positions, .* 5 rows of slots"):
        facts_of(chain(Edge(reads="things", writes="a", mask=Tile((1,))), regions=regions))
    with pytest.raises(SpecError, match=r"a lag needs positions"):
        facts_of(chain(Edge(reads="things", writes="a", lag=1), regions=regions, time="window"))
    facts_of(chain(Edge(reads="things", writes="a", lag=1), regions=regions))
    canvas = Canvas(frames=1, shape=(2**15,), width=8, regions={"a": Region(((0, 2**15),))})
    with pytest.raises(SpecError, match=r"a mask for 32,768 × 32,768 pairs would take 1.0 GiB"):
        facts_of(Program(canvas, [Edge(reads="a", writes="a", mask=Tile((4,)), rule="linear")]))
    with pytest.raises(SpecError, match=r"scores of rule 'cross' for 32,768 × 32,768 pairs would take 16.0 GiB"):
        facts_of(Program(canvas, [Edge(reads="a", writes="a")]))
    assert len(facts_of(Program(canvas, [Edge(reads="a", writes="a", rule="linear")])).wires) == 1
    with pytest.raises(SpecError, match=r"a lag of 65,536 keeps 64.0 GiB of each stream"):
        facts_of(Program(canvas, [Edge(reads="a", writes="a", rule="linear", lag=2**16)]))
    half = Region(((0, 2**14),))
    masked = [Edge(reads="a", writes="a", mask=Tile((4,)))] * 9
    with pytest.raises(SpecError, match=r"masks of all edges would take 2.2 GiB"):
        facts_of(Program(Canvas(1, (2**15,), 8, {"a": half}), masked))
    many = {f"r{i}": Region(((0, 2**22),)) for i in range(17)}
    with pytest.raises(SpecError, match=r"71,303,168 positions together, which would take 1.6 GiB"):
        facts_of(Program(Canvas(1, (2**22,), 8, many)))
    wide = chain(
        Edge(reads="a", writes="a", rule="perceiver", options={"latents": 10**9}), regions={"a": Region(WHOLE)}
    )
    with pytest.raises(
        SpecError, match=r"parameters would take .* GiB, 'edges.*latents' alone .* GiB; at most 16 GiB are"
    ):
        all_params(facts_of(wide))
    assert any("parameters would take" in problem for problem in problems(wide))
