"""Constants: what a region holds that nothing changes, and regions that the compiler makes constants of."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.devices import DEVICES, device
from tests.examples.programs import program
from tests.layers.test_vjp import arrays
from tests.oracles import oracle
from tests.oracles.memory import Memory
from tests.oracles.program import forward
from tests.oracles.program.settle import Held
from tests.program.random_programs import programs
from volumetric import Coord, Grid, Network
from volumetric.base.errors import SpecError
from volumetric.layers import Dense
from volumetric.loaders import load_exported, save_exported
from volumetric.network import initialise
from volumetric.network.weight_store import Params, WeightStore
from volumetric.program import (
    Canvas,
    Edge,
    Identity,
    In,
    Learning,
    Meter,
    Out,
    Program,
    Region,
    Signal,
    autowire,
    typed,
)
from volumetric.program import compile as compile_program
from volumetric.program.compiling import compile_network, compiled_part
from volumetric.program.compiling.region_liveness import live_in
from volumetric.program.describe import problems
from volumetric.program.layer.program_facts import Place
from volumetric.program.layer.program_layer import Program as Layer
from volumetric.program.layer.timing import all_states

DEEP = Region(((2, 3), (0, 2)))
"""A region of its own beside an eye and a belief."""


def held_at(
    spec: Layer, rows: Mapping[str, Any], p: dict[str, Any], x: Any, resets: Any, patch: pytest.MonkeyPatch
) -> Any:
    """Rows of all outputs, where all that read some regions find the same rows there, whatever they hold."""

    class Fixed(Held):
        def _now(self, place: Place, canvas: Any) -> Any:
            if place.name not in rows:
                return super()._now(place, canvas)
            return np.broadcast_to(rows[place.name], (len(canvas), *rows[place.name].shape))

    told = forward.handed_out

    def handed_out(facts: Any, p: Any, canvas: Any, states: dict[str, Any]) -> Any:
        canvas, states = canvas.copy(), dict(states)
        for name, held in rows.items():
            place = facts.place(name)
            if place.through == "memory":
                states[f"{name}.values"] = np.broadcast_to(held, (len(canvas), *held.shape))
            elif place.through == "positions":  # of a region with slots outputs read what it holds, not these
                canvas[:, place.positions] = held
        return told(facts, p, canvas, states)

    with patch.context() as patched:
        patched.setattr(forward, "Held", Fixed)
        patched.setattr(forward, "handed_out", handed_out)
        return oracle(spec).forward(p, x, memory=Memory(streams=len(x), resets=resets))[0]


@pytest.mark.thorough
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(program=programs(), data=st.data())
def test_a_compiled_program_hands_out_what_it_does_with_regions_held(program: Program, data: st.DataObject) -> None:
    """Bit for bit in float64, over random programs of which regions are to be constants; others stay exact."""
    keeps = st.sampled_from(["constant", "constant", "export", "auto"])
    regions = {name: replace(region, keep=data.draw(keeps)) for name, region in program.canvas.regions.items()}
    program = replace(program, canvas=replace(program.canvas, regions=regions))
    spec = Layer(program=program)
    p, x = arrays(spec, (2, 6, max(stop for _, stop in spec.ports("inputs").values())), 3)
    p = {name: of.astype(np.float32).astype(np.float64) for name, of in p.items()}
    resets = (np.random.default_rng(1).random((2, 6)) < 0.2).astype(np.float64)
    stores = {name: WeightStore.from_array(of) for name, of in p.items()}
    made = compiled_part(program, stores, rows=data.draw(st.sampled_from([x[0], x[1, :3]])))
    assert made.params is not None
    kept = {name: store.values().astype(np.float64) for name, store in made.params.items()}
    became = {note.name for note in made.report.notes if "it is a constant" in note.why}
    alive = {spec.facts.places[number].name for number in live_in(spec.facts).regions}
    told = {note.name for note in made.report.notes if note.action == "kept" and "its keep is" in note.why}
    assert {
        name for name, of in regions.items() if of.keep == "export" or (of.keep == "constant" and name in alive)
    } >= (told | became)
    assert not told & became
    assert made.exported.keys() == {name for name in became if regions[name].keep == "export"}
    rows = {name: kept[f"regions.{name}.rows"] for name in became & set(made.program.canvas.regions)}
    want = held_at(spec, rows, p, x, resets, pytest.MonkeyPatch())
    got = oracle(Layer(program=made.program)).forward(kept, x, memory=Memory(streams=2, resets=resets))[0]
    np.testing.assert_array_equal(got, want)
    if not told:  # what stood in the way of a constant may be gone behind the other passes
        again = compiled_part(made.program, made.params)
        assert again.program == made.program


def drawn(spec: Layer) -> Params:
    """Parameters of a network of it alone, none of which is zeros."""
    p, _ = arrays(spec, (1,), 3)
    return Params({f"0.0.0.0/{name}": WeightStore.from_array(of.astype(np.float32)) for name, of in p.items()})


KEPT = program(
    {
        "eye": Region(((0, 1), (0, 2)), family="observation"),
        "belief": Region(((1, 2), (0, 2))),
        "seed": Region(((2, 3), (0, 2)), residual=False, keep="constant"),
        "norm": Region(((3, 4), (0, 2)), residual=False, keep="constant", clock="every(3, 1)"),
        "store": Region(((4, 5), (0, 2)), family="memory", carrier="memory", slots=3, keep="export"),
    },
    (
        Edge("eye", "belief"),
        Edge("norm", "seed", rule="pooling"),
        Edge("seed", "norm", rule="pooling"),
        Edge("norm", "belief", lag=1),
        Edge("belief", "store"),
        Edge("store", "belief"),
    ),
    {"seen": In("eye", 3), "guess": Out("belief", 2), "kept": Out("store", 1)},
    (5, 2),
)
"""Two regions that come to rest by themselves, and a memory of what came in."""


@pytest.mark.thorough
def test_a_region_that_comes_to_rest_is_what_it_comes_to() -> None:
    """Its clock is waited for; the memory, which hears what comes in, stays."""
    params = drawn(KEPT)
    made = compile_program(KEPT.program, params)
    notes = {note.name: note.why for note in made.report.notes if note.of == "region"}
    assert notes["store"].startswith("its keep is 'export', but its content depends on input 'seen'")
    assert {name for name, region in made.program.canvas.regions.items() if region.carrier == "constant"} == {"norm"}
    assert notes["norm"].endswith("rows, settled")
    assert "seed" in notes  # dead, for norm does not read it any more
    assert not made.exported
    assert made.params is not None
    p = {key.partition("/")[2]: store.values().astype(np.float64) for key, store in params.items()}
    machine = forward.Machine(
        KEPT.facts, p, {name: np.zeros((1, *shape)) for name, shape in all_states(KEPT.facts).items()}
    )
    for _ in range(200):
        machine.row(np.zeros((1, 3)))
    held = machine.states["canvas"][0, KEPT.facts.place("norm").positions]
    assert np.abs(held).max() > 1e-2
    np.testing.assert_allclose(made.params["0.0.0.0/regions.norm.rows"].values(), held, rtol=0, atol=1e-6)
    assert "0.0.0.0/regions.norm.rows" in made.frozen
    assert made.report.after.parameters < made.report.before.parameters


def test_rows_say_when_a_region_is_taken() -> None:
    """By input or side by side; after some zeros; each is what a machine holds then."""
    params = drawn(KEPT)
    x = np.random.default_rng(2).standard_normal((4, 3))
    p = {key.partition("/")[2]: store.values().astype(np.float64) for key, store in params.items()}
    runs: list[dict[str, Any]] = [{"rows": x}, {"rows": {"seen": x}}, {"after": 4}]
    for run in runs:
        made = compile_program(KEPT.program, params, **run)
        machine = forward.Machine(
            KEPT.facts, p, {name: np.zeros((1, *shape)) for name, shape in all_states(KEPT.facts).items()}
        )
        for row in x if "rows" in run else np.zeros((4, 3)):
            machine.row(row[None])
        assert made.params is not None
        np.testing.assert_array_equal(made.exported["store"], machine.states["store.values"][0].astype(np.float32))
        np.testing.assert_array_equal(made.params["0.0.0.0/regions.store.rows"].values(), made.exported["store"])
        assert made.program.canvas.regions["store"].slots == 3
        assert [edge.name for edge in made.program.edges] == ["belief<eye#0", "belief<norm#0", "belief<store#0"]
        assert Program.from_json(made.program.to_json()) == made.program
        assert not problems(made.program)  # an output of a constant needs no input


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_a_compiled_program_makes_the_same_on_all_devices(name: str) -> None:
    """Its stream in two calls, with a reset, as NumPy does with regions held; gradients as NumPy has them."""
    params = drawn(KEPT)
    rng = np.random.default_rng(2)
    x, resets = rng.standard_normal((2, 7, 3)).astype(np.float32), np.zeros((2, 7))
    resets[0, 2] = resets[1, 5] = 1
    made = compile_program(KEPT.program, params, rows=x[0])
    assert made.params is not None
    p = {key.partition("/")[2]: store.values().astype(np.float64) for key, store in params.items()}
    rows = {of: made.params[f"0.0.0.0/regions.{of}.rows"].values().astype(np.float64) for of in ("norm", "store")}
    want = held_at(KEPT, rows, p, x.astype(np.float64), resets, pytest.MonkeyPatch())
    stream = device(name).stream(made.network, made.params, batch=2)
    got = [stream.run({"seen": x[:, at]}, resets=resets[:, at]) for at in (slice(0, 3), slice(3, 7))]
    for port, (first, last) in KEPT.ports("outputs").items():
        np.testing.assert_allclose(
            np.concatenate([of[port] for of in got], 1), want[..., first:last], rtol=0, atol=2e-5, err_msg=port
        )


@pytest.mark.thorough
def test_why_a_region_is_no_constant() -> None:
    """Each reason is told, and the program computes what it did."""

    def reason(spec: Program, of: str, **fields: Any) -> str:
        regions = {**spec.canvas.regions, of: replace(spec.canvas.regions[of], keep="constant", **fields)}
        asking = replace(spec, canvas=replace(spec.canvas, regions=regions))
        made = compile_program(asking, drawn(Layer(program=asking)))
        [why] = [note.why for note in made.report.notes if note.name == of and "its keep is" in note.why]
        assert made.program.canvas.regions[of].carrier == regions[of].carrier
        return why

    regions = {**program().program.canvas.regions, "deep": DEEP}
    edges = [Edge("eye", "belief"), Edge("deep", "belief"), Edge("deep", "deep", rule="pooling")]
    spec = replace(
        program(shape=(3, 2)).program,
        canvas=Canvas(1, (3, 2), 4, {name: replace(of, residual=False) for name, of in regions.items()}),
        edges=edges,
    )
    assert "input 'seen' writes to it" in reason(spec, "eye")
    assert "depends on input 'seen'; set the rows after which" in reason(spec, "belief")
    assert "other regions share its positions" in reason(spec, "deep", box=((0, 1), (1, 3), (0, 2)))
    assert "has not settled after 1,000 rows" in reason(spec, "deep", residual=True)
    seen = replace(spec, ports={**spec.ports, "see": Out("deep", 1)})
    assert "output 'see' reads its positions" in reason(seen, "deep", identity=Identity(2))
    clocked = replace(spec, meters=(Meter("deep"),), edges=(replace(edges[0], when="deep.prediction < 1"), *edges[1:]))
    assert "a clock or a condition reads its meter" in reason(clocked, "deep")
    signal = replace(spec, ports={**spec.ports, "now": Signal()})
    assert "depends on input 'now'" in reason(signal, "deep", clock="on(now)")
    asking = replace(KEPT.program, edges=KEPT.program.edges)
    assert "but no parameters were" in str(compile_program(asking).report)
    later = compile_program(asking, deploy=False)
    assert later.program == asking
    assert "it becomes a constant when the program is deployed" in str(later.report)


def test_what_changes_a_constant_is_refused() -> None:
    fixed = replace(DEEP, carrier="constant")
    regions = {**program().program.canvas.regions, "deep": fixed}
    for edges, ports, message in (
        ((Edge("eye", "deep"),), {}, "is a constant, but edge 'deep<eye#0' writes it"),
        ((), {"more": In("deep", 1)}, "is a constant, but port 'more' writes to it"),
    ):
        with pytest.raises(SpecError, match=message):
            program(regions, edges, {**program().program.ports, **ports}, (3, 2))
        asked = Program(Canvas(1, (3, 2), 4, regions), edges, {**program().program.ports, **ports}, heads=2)
        assert any(message in problem for problem in problems(asked))
    with pytest.raises(SpecError, match="another region shares its positions"):
        program({**regions, "more": DEEP}, shape=(3, 2))
    for field, value in (("clock", "every(2)"), ("learning", Learning()), ("identity", Identity(2))):
        with pytest.raises(SpecError, match=f"a constant has no {field}"):
            replace(fixed, **{field: value})
    wired = Program(Canvas(1, (3, 2), 4, regions), autowire())
    assert "deep" in {edge.reads for edge in wired.edges}
    assert "deep" not in {edge.writes for edge in wired.edges}
    fields = {"seen": typed.Field(1, 2, family="observation"), "known": typed.Field(1, 2, carrier="constant")}
    made = typed.compile(SimpleNamespace(**fields), width=4, within="dense")
    assert {edge.writes for edge in made.edges} == {"seen"}


def test_programs_inside_of_networks_have_constants(tmp_path: Path) -> None:
    """Each of them by its place; what comes in there is made by others, so only zeros can be said."""
    layers = {Coord(0): Dense(in_features=2, out_features=3), Coord(1): KEPT}
    network = Network(grid=Grid(2), layers=layers, input_shape=(2,), input_dtype="float32")
    own = {key.replace("0.0.0.0/", "1.0.0.0/"): store for key, store in drawn(KEPT).items()}
    params = Params({**initialise(network), **own})
    made = compile_network(network, params, after=3)
    alone = compile_program(KEPT.program, drawn(KEPT), after=3)
    assert list(made.exported) == [Coord(1)]
    np.testing.assert_array_equal(made.exported[Coord(1)]["store"], alone.exported["store"])
    assert f"{Coord(1)}/regions.store.rows" in made.frozen
    save_exported(tmp_path, {"store": alone.exported["store"] + 1})
    loaded = load_exported(tmp_path, made.network, made.params)
    assert not np.array_equal(loaded[f"{Coord(1)}/regions.store.rows"].values(), alone.exported["store"])
    with pytest.raises(SpecError, match="need a network of one program"):
        compile_network(network, params, rows=np.zeros((2, 3)))


def test_rows_that_are_none_of_the_program_are_refused() -> None:
    params = drawn(KEPT)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"after": 2, "rows": np.zeros((2, 3))}, "both set"),
        ({"after": 0}, "after"),
        ({"rows": np.zeros((2, 4))}, r"rows must be \[T, 3\], at least one, got \[2, 4\]"),
        ({"rows": np.zeros((0, 3))}, "at least one"),
        ({"after": 10**14}, r"after must be a whole number from 1 to 16,777,216"),
        ({"rows": [["a", "b", "c"]]}, "an array of numbers"),
        ({"rows": np.zeros((2, 3), complex)}, "an array of numbers"),
        ({"rows": [[0.0] * 3, [0.0]]}, "an array of numbers"),
        ({"rows": {"heard": np.zeros((2, 3))}}, "rows have the inputs heard"),
        ({"rows": {"seen": np.zeros((2, 2))}}, "input 'seen': expected"),
    ]
    for run, message in cases:
        with pytest.raises(SpecError, match=message):
            compile_program(KEPT.program, params, **run)
