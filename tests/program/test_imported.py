"""Files of canvas-engineering: what they come to, and what is said of what they cannot mean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from volumetric.base.errors import SpecError
from volumetric.program import (
    Constraints,
    Edge,
    Identity,
    In,
    Learning,
    Meter,
    Out,
    Program,
    Region,
    Semantic,
    Signal,
    import_canvas,
)
from volumetric.program.layer.constraint_checks import violations
from volumetric.program.layer.program_facts import facts_of
from volumetric.program.layer.program_layer import Program as Layer

FIXTURES = Path(__file__).parent.parent / "fixtures" / "programs"


def oracle(name: str) -> dict[str, Any]:
    return json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8"))


def small(**parts: Any) -> dict[str, Any]:
    regions = {
        "a": {"bounds": [0, 6, 0, 1]},
        "b": {"bounds": [0, 6, 1, 2]},
        "e": {"bounds": [0, 6, 2, 3], "carrier": "residual"},
    }
    layout = {"T": 6, "spatial_shape": [4], "d_model": 8}
    return {
        "layout": layout,
        "regions": regions,
        "topology": [{"src": "a", "dst": "b"}],
        "program_version": "2.0.0",
        **parts,
    }


def imported(data: dict[str, Any], **options: Any) -> Program:
    return import_canvas(json.dumps(data), **options).program


def test_a_program_written_by_hand() -> None:
    of = oracle("by_hand")
    program = imported(of["program"])
    box = ((0, 4), (2, 4), (0, 2))
    assert program.canvas.regions["belief"] == Region(
        box, carrier="filter", tags=("belief",), clock="silence(error.prediction > 0.25, 8)", residual=False
    )
    assert program.canvas.regions["memory"].identity == Identity(capacity=5)
    assert program.canvas.regions["memory"].clock == "every(4)"
    assert program.canvas.regions["memory"].keep == "export"
    assert program.canvas.regions["error"].learning == Learning("calibration", ["calibration"], "constant")  # pyright: ignore[reportArgumentType]  (a list is read)
    assert program.canvas.regions["action"].clock == "cooldown(every(1), 1)"
    assert program.canvas.regions["action"].constraints == Constraints(causal="forward_only")
    assert program.meters == (Meter("error", signed=True),)
    assert (program.time, program.share, program.parity) == ("window", "rule", True)
    edges = {edge.name: edge for edge in program.edges}
    assert edges["belief<error#0"] == Edge(
        reads="error",
        writes="belief",
        rule="gated",
        operator="correct",
        write="gate",
        when="error.prediction > 0.25",
        name="belief<error#0",
    )
    assert edges["belief<belief#0"].lag == 1
    assert [edges[f"{name}#0"].write for name in ("memory<belief", "action<belief")] == ["replace", "replace"]
    [violation] = violations(facts_of(program))
    assert "forward-only" in violation
    assert violation.startswith("region 'action'")
    assert len(of["constraint_violations"]) == 1
    assert Program.from_json(program.to_json()) == program


@pytest.mark.parametrize("policy", oracle("auto_wired")["programs"])
def test_programs_that_the_package_wired(policy: str) -> None:
    given = oracle("auto_wired")["programs"][policy]["program"]
    program = imported(given, operators=False)
    facts = facts_of(program)
    assert len(facts.wires) == len(given["topology"])
    for wire, link in zip(facts.wires, given["topology"], strict=True):
        spec = given["regions"][link["src"]]
        assert (wire.edge.writes, wire.edge.reads) == (link["src"], link["dst"])
        assert wire.edge.operator == link.get("operator", "attend")
        assert (
            wire.rule
            == {"cross_attention": "cross", "linear_attention": "linear"}[spec.get("default_attn", "cross_attention")]
        )
        assert wire.write == "add"
        assert wire.edge.lag == (None if "t_src" not in link else link["t_src"] - link["t_dst"])
    for name, spec in given["regions"].items():
        region = program.canvas.regions[name]
        assert [end for side in region.box for end in side] == spec["bounds"]
        assert region.period == spec.get("period", 1)
        assert region.semantic == Semantic(spec["semantic_type"])
        assert region.family == given["region_programs"].get(name, {}).get("family", "state")
    documented = imported(given)
    assert {edge.write for edge in documented.edges if edge.operator in ("act", "write", "intervene")} <= {"replace"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("periodic_1", None),
        ("periodic_4", "every(4)"),
        ("periodic_0", None),
        ("periodic_3_cooldown_5", "cooldown(every(3), 4)"),
        ("cooldown_1", None),
        ("cooldown_3", "cooldown(every(1), 2)"),
        ("event", "err.prediction > 0.8"),
        ("event_missing", None),  # 0 > -1
        ("event_malformed", "!every(1)"),
        ("boundary", "on(episode)"),
        ("boundary_cooldown", "cooldown(on(episode), 1)"),
        ("unknown_mode", None),
        ("silence_7_period_100", "silence(every(100), 7)"),
    ],
)
def test_clocks_become_text(name: str, text: str | None) -> None:
    regions = {"a": {"bounds": [0, 1, 0, 1]}, "err": {"bounds": [0, 1, 1, 2], "carrier": "residual"}}
    data = small(
        regions=regions,
        topology=[{"src": "a", "dst": "err"}],
        region_programs={"a": {"clock": oracle("clocks")["clocks"][name]}},
    )
    program = imported(data)
    assert program.canvas.regions["a"].clock == text
    assert program.ports == ({"episode": Signal()} if name.startswith("boundary") else {})


def test_triggers_become_conditions() -> None:
    def condition(trigger: str | None) -> str | None:
        return imported(small(connection_programs={"a|b": {"trigger": trigger}})).edges[0].when

    assert condition(None) is condition("") is None
    assert condition("e.prediction > 0.25 && e.peak<=1e3") == "e.prediction > 0.25 && e.peak <= 1000"
    for never in ("e.prediction", "e.prediction >", "> 0.5", "e.prediction > x", "other.prediction > -1", "b.x > nan"):
        assert condition(never) == "!every(1)"
    kinds = imported(small(connection_programs={"a|b": {"trigger": "e.peak > 1"}})).meters[0].kinds
    assert kinds == ("peak",)


@pytest.mark.parametrize("fill", ["drop", "hold", "interpolate"])
@pytest.mark.parametrize(
    ("t_src", "t_dst", "periods"),
    [
        (0, 0, (1, 4)),
        (0, -1, (1, 1)),
        (1, 0, (1, 2)),
        (None, -2, (1, 2)),
        (2, None, (1, 1)),
        (-1, None, (1, 1)),
        (-2, 1, (2, 1)),
    ],
)
def test_frames_are_those_of_the_package(
    fill: str, t_src: int | None, t_dst: int | None, periods: tuple[int, int]
) -> None:
    """Weights of all pairs by its definition: for each reference frame, those who ask and those who answer."""
    regions = {
        "a": {"bounds": [0, 6, 0, 2], "period": periods[0]},
        "b": {"bounds": [1, 4, 1, 2], "period": periods[1]},
    }
    link = {"src": "a", "dst": "b", "t_src": t_src, "t_dst": t_dst, "weight": 0.5, "temporal_fill": fill}
    facts = facts_of(imported(small(regions=regions, topology=[link])))
    found = np.zeros((12, 3))
    for wire in facts.wires:
        assert wire.shape == found.shape
        for part in wire.parts:
            block = np.ix_(part.written, part.read)
            found[block] += wire.weight * part.share * (True if wire.mask is None else wire.mask[block])
    times = [frame * periods[1] for frame in (1, 2, 3)]
    expected = np.zeros((6, 3))
    for ref in range(6):
        asks = range(6) if t_src is None else [ref + t_src] if 0 <= ref + t_src < 6 else []
        target = (ref + (t_dst or 0)) * (1 if t_src is None else periods[0])
        past = [i for i in range(3) if times[i] < target]
        future = [i for i in range(3) if times[i] > target]
        if t_dst is None:
            weights = dict.fromkeys(range(3), 1.0)
        elif target in times:
            weights = {times.index(target): 1.0}
        elif fill == "hold" and past:
            weights = {past[-1]: 1.0}
        elif fill == "interpolate" and past and future:
            span = times[future[0]] - times[past[-1]]
            weights = {past[-1]: (times[future[0]] - target) / span, future[0]: (target - times[past[-1]]) / span}
        elif fill == "interpolate":
            weights = {(past[-1:] or future[:1])[0]: 1.0}
        else:
            weights = {}
        for frame in asks:
            for i, weight in weights.items():
                expected[frame, i] += 0.5 * weight
    np.testing.assert_allclose(found, np.repeat(expected, 2, 0), atol=1e-15)


def test_old_layouts_and_what_is_not_known() -> None:
    data = small(layout={"T": 6, "H": 2, "W": 2, "d_model": 8, "t_current": 3, "odd": 1})
    data["regions"] = {
        "my region!": {
            "bounds": [0, 6, 0, 1, 0, 1],
            "is_output": False,
            "loss_weight": 2,
            "semantic_embedding": [1, 0],
        },
        "b": {"bounds": [0, 6, 1, 2, 0, 2]},
    }
    data["topology"] = [{"src": "my region!", "dst": "b"}]
    data["region_programs"] = {
        "gone": {},
        "b": {
            "family": "day dream",
            "learning": {"mode": "magic", "losses": ["task", "hope"], "compile_mode": "distill"},
            "identity": {"mode": "tracklet", "birth_death": True, "binding_fn": "copy"},
        },
    }
    data["metadata"] = {"by": "me", "runs": 3}
    program, notes = import_canvas(json.dumps(data))
    assert (program.canvas.shape, program.canvas.current) == ((2, 2), 3)
    region = program.canvas.regions["my_region_"]
    assert (region.output, region.loss_weight) == (False, 2.0)
    assert region.semantic == Semantic(None, (1.0, 0.0), "openai/text-embedding-3-small")
    b = program.canvas.regions["b"]
    assert (b.family, b.learning, b.identity) == (
        "day_dream",
        Learning("none", {"task": 1.0}, "runtime"),
        Identity(births=True),
    )
    assert program.metadata == {"by": "me", "runs": "3"}
    said = "\n".join(notes)
    for part in (
        "'odd' is unknown",
        "'my region!' is called",
        "'gone'",
        "day dream",
        "magic",
        "hope",
        "distill",
        "tracklet",
        "copy",
    ):
        assert part in said


def test_bad_files_are_errors_that_name_the_place() -> None:
    bad: dict[str, Any] = {
        "not a file of canvas": {"regions": {}},
        r"\$.layout.d_model: Expected `int`": small(layout={"T": 1, "spatial_shape": [4], "d_model": "8"}),
        r"\$.layout: Canvas: shape has no sides": small(layout={"T": 1, "d_model": 8}),
        r"\$.regions.a.bounds: got 3 numbers": small(regions={"a": {"bounds": [0, 1, 0]}}),
        r"\$.regions.a: .* carrier: unknown 'magic'": small(
            regions={"a": {"bounds": [0, 1, 0, 1], "carrier": "magic"}}
        ),
        r"\$.topology\[0\]: there is no region 'c'": small(topology=[{"src": "a", "dst": "c"}]),
        r"\$.topology\[0\]: 'dst' is missing": small(topology=[{"src": "a"}]),
        r"\$.topology\[0\]: .* rule: unknown 'attn'": small(topology=[{"src": "a", "dst": "b", "fn": "attn"}]),
        r"\$.topology\[0\]: .* weight must be": small(topology=[{"src": "a", "dst": "b", "weight": -1}]),
        r"\$.regions.a: the package has no carrier 'constant'": small(
            regions={"a": {"bounds": [0, 1, 0, 1], "carrier": "constant"}, "b": {"bounds": [0, 1, 1, 2]}}
        ),
        r"unknown temporal_fill 'x'": small(topology=[{"src": "a", "dst": "b", "temporal_fill": "x"}]),
    }
    for message, data in bad.items():
        with pytest.raises(SpecError, match=message):
            imported(data)
    with pytest.raises(SpecError, match="NaN is not a JSON number"):
        import_canvas('{"layout": NaN}')
    many = json.dumps(small(topology=[{"src": "a", "dst": "b"}] * 100_001))
    with pytest.raises(SpecError, match=r"100,001 edges would take 0\.1 GiB"):
        import_canvas(many)
    with pytest.raises(SpecError) as caught:
        Program.from_json(json.dumps(small()))
    assert "import` reads those of canvas-engineering" in str(caught.value.hint)


def test_an_imported_program_is_a_layer() -> None:
    """Also where its regions name losses, and constraints are broken: the package does nothing about either."""
    program = imported(oracle("by_hand")["program"], heads=2)
    assert program.canvas.regions["error"].learning is not None
    layer = Layer(program=replace(program, ports={"x": In("vision", 3), "y": Out("belief", 2)}))
    names = {param.name.rpartition(".")[0] for param in layer.params()}
    assert {"rules.cross.q", "ports.x", "ports.y"} <= names
    assert not any(name.startswith("edges.") and name.endswith(".q") for name in names)
