"""Streams that are changed while they run: each act does what it says, and a replay gives the same bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs

from tests.scope.machines_to_sculpt import KINDS, clocked_grid, open_machine, program
from volumetric import initialise, open_device
from volumetric.base.errors import CheckpointError, ShapeError, SpecError
from volumetric.clocked.clocked_stream import ClockedStream
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.layers.clock import Every
from volumetric.loaders.native_checkpoint import read_clocked, read_native
from volumetric.network import Params
from volumetric.network.grid import Coord
from volumetric.observe.recorder import ActivityFrame
from volumetric.run.streams import RowStream
from volumetric.scope.sculpting import SculptedStream, replay


def rows_of(sculpted: SculptedStream, count: int, *, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    columns = sculpted.source.columns.values()
    return {
        of.name: rng.standard_normal((sculpted.stream.batch, count, *of.shape)).astype(np.float32) for of in columns
    }


def one(outputs: np.ndarray | dict[str, np.ndarray]) -> np.ndarray:
    return np.concatenate(list(outputs.values()), -1) if isinstance(outputs, dict) else outputs


def differs(sculpted: SculptedStream, count: int = 4) -> float:
    """Return by how much the strengths of nodes differ from those of the twin after some ticks."""
    seen: list[float] = []

    def watch(frame: ActivityFrame, twin: np.ndarray | None) -> None:
        assert twin is not None
        seen.append(float(np.abs(frame.rms - twin).max()))

    sculpted.advance(count, watch)
    return seen[0]


def acts_of(kind: str) -> list[tuple[str, dict[str, object]]]:
    """All acts that a kind of network takes."""
    edge = {"fabric": (0, 4), "clocked": (0, 3), "program": (0, 1), "stack": (0, 1)}[kind]
    column = {"fabric": "eye", "clocked": "input", "program": "pixels", "stack": "input"}[kind]
    acts: list[tuple[str, dict[str, object]]] = [
        ("mask", {"nodes": [2]}),
        ("undo", {}),
        ("redo", {}),
        ("clamp", {"name": column, "values": 0.5}),
        ("save_state", {"name": "here"}),
        ("inject", {"name": column, "values": 2.0, "ticks": 3}),
        ("reset", {"nodes": [1]}),
        ("rewind", {"name": "here"}),
        ("release", {"name": column}),
        ("unmask", {"nodes": [2]}),
        ("undo", {}),
        ("reset", {}),
    ]
    if kind != "stack":
        acts[3:3] = [("cut", {"source": edge[0], "target": edge[1]}), ("cut", {"nodes": [1]})][: 1 + (kind == "fabric")]
    acts.append(
        ("connect", {"source": 0, "target": 2} if kind != "fabric" else {"source": 5, "target": 13, "delay": 3})
    )
    if kind in ("clocked", "program"):
        acts += [
            ("set_clock", {"node": 1, "clock": "every(3) || every(4, 1)"}),
            ("set_number", {"node": 1, "number": 2, "value": 5}),
        ]
    return [*acts, ("start_twin", {}), ("undo", {})]


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_gives_the_same_bits(kind):
    sculpted = SculptedStream(open_machine(kind, batch=2), "noise")
    outputs = [one(sculpted.advance(3))]
    for number, (act, arguments) in enumerate(acts_of(kind)):
        assert getattr(sculpted, act)(**arguments)
        outputs.append(one(sculpted.advance(1 + number % 4, (lambda frame, twin: None) if number % 2 else None)))
    again, repeated = replay(open_machine(kind, batch=2), sculpted.to_json(), "noise")
    assert np.array_equal(np.concatenate(outputs, 1), one(repeated))
    assert again.history.describe() == sculpted.history.describe()
    names: dict[str, object] = {}
    exec(sculpted.to_python(), names)
    _, scripted = names["replay"](open_machine(kind, batch=2), "noise")  # pyright: ignore[reportCallIssue]
    assert np.array_equal(np.concatenate(outputs, 1), np.concatenate([one(y) for y in scripted], 1))
    with pytest.raises(CheckpointError, match="another network"):
        replay(open_machine("stack" if kind != "stack" else "clocked"), sculpted.to_json(), "noise")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_gives_the_same_bits_on_a_cpu(kind):
    sculpted = SculptedStream(open_machine(kind, device="cpu"), "noise")
    outputs = [one(sculpted.advance(70))]
    for number, (act, arguments) in enumerate(acts_of(kind)):
        getattr(sculpted, act)(**arguments)
        outputs.append(one(sculpted.advance(1 + 7 * (number % 3), (lambda frame, twin: None) if number % 2 else None)))
    _, repeated = replay(open_machine(kind, device="cpu"), sculpted.to_json(), "noise")
    assert np.array_equal(np.concatenate(outputs, 1), one(repeated))


@pytest.mark.parametrize("kind", KINDS)
def test_the_stream_and_its_twin_are_untouched(kind):
    stream = open_machine(kind)
    sculpted = SculptedStream(stream, "noise")
    before, other = stream.save(), SculptedStream(open_machine(kind), "noise")
    sculpted.advance(5)
    other.advance(5)
    sculpted.start_twin()
    assert differs(sculpted) == 0
    sculpted.mask([1])
    assert differs(sculpted) > 0
    frames: list[np.ndarray] = []
    sculpted.advance(3, lambda frame, twin: frames.append(np.zeros(0) if twin is None else twin))
    other.advance(sculpted.elapsed - 5, lambda frame, twin: frames.append(frame.rms))
    assert np.array_equal(frames[0], frames[1])
    assert stream.save() == before


@pytest.mark.parametrize("kind", KINDS)
def test_every_act_is_undone(kind):
    sculpted = SculptedStream(open_machine(kind), "noise")
    sculpted.advance(4)
    machine = sculpted.places.machine
    for act, arguments in acts_of(kind):
        if act not in ("undo", "redo", "start_twin"):
            getattr(sculpted, act)(**arguments)
            sculpted.advance(1)
    while sculpted.history.done:
        assert sculpted.undo().startswith("undo “")
    assert sculpted.places.machine == machine
    assert not replace(sculpted.changes, pulses=())
    with pytest.raises(SpecError, match="nothing to undo"):
        sculpted.undo()


def test_acts_are_named():
    sculpted = SculptedStream(open_machine("fabric"), "noise")
    sculpted.advance(120)
    assert sculpted.mask(population="core") == "mask population core (4 nodes) at tick 120"
    assert sculpted.cut(0, 4) == "cut the edge from eye 0 to left 4 at tick 120"
    assert sculpted.clamp("eye", [1, None, 0.25]) == "clamp input eye to (1, ·, 0.25) at tick 120"
    assert sculpted.inject("eye", -1.5, 2) == "inject -1.5 into input eye for 2 ticks at tick 120"
    assert sculpted.history.describe()["done"][0] == "mask population core (4 nodes) at tick 120"


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_clamped_and_injected(kind):
    sculpted = SculptedStream(open_machine(kind))
    x = rows_of(sculpted, 8)
    name, value = next(iter(x.items()))
    sculpted = SculptedStream(open_machine(kind), x)
    sculpted.advance(2)
    sculpted.clamp(name, [0.25] + [None] * (value.shape[-1] - 1))
    sculpted.inject(name, [None, 3.0] + [None] * (value.shape[-1] - 2), 2)
    outputs = one(sculpted.advance(4))
    sculpted.release(name)
    outputs = np.concatenate([outputs, one(sculpted.advance(4))], 1)
    changed = np.concatenate([value, value], 1)[:, :10].copy()
    changed[:, 2:6, 0] = 0.25
    changed[:, 2:4, 1] += 3
    plain = SculptedStream(open_machine(kind), {**x, name: changed})
    assert np.array_equal(outputs, one(plain.advance(10))[:, 2:])


def test_masked_nodes_of_a_fabric_are_those_of_its_stream():
    sculpted = SculptedStream(open_machine("fabric"))
    x = rows_of(sculpted, 12)
    model = sculpted.origin.network
    [(coord, spec)] = model.layers.items()
    assert isinstance(spec, Fabric)
    dynamic = model.with_layer(coord, replace(spec, dynamic=True))
    params = initialise(dynamic)
    stream = open_device("reference").stream(dynamic, Params({**params, **sculpted.origin.params}))
    sculpted = SculptedStream(open_machine("fabric"), x)
    sculpted.advance(6)
    sculpted.mask([5, 9])
    y = [one(stream.run({k: v[:, i : i + 1] for k, v in x.items()})) for i in range(6)]
    stream.mask(spec.facts.order[[5, 9]].tolist())
    y = [one(stream.run({k: v[:, i : i + 1] for k, v in x.items()})) for i in range(6, 12)]
    np.testing.assert_array_equal(one(sculpted.advance(6)), np.concatenate(y, 1))


def test_a_fabric_without_the_edges_of_a_node_is_as_without_the_node():
    cut, masked = (SculptedStream(open_machine("fabric"), "noise") for _ in range(2))
    for sculpted in (cut, masked):
        sculpted.advance(5)
    cut.cut(nodes=[5])
    masked.mask([5])
    np.testing.assert_allclose(one(cut.advance(8)), one(masked.advance(8)), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS[:3])
def test_an_edge_that_is_cut_and_restored_changes_nothing(kind):
    sculpted = SculptedStream(open_machine(kind), "noise")
    edge = {"fabric": (0, 4), "clocked": (7, 1), "program": (0, 1)}[kind]
    sculpted.advance(9)
    sculpted.start_twin()
    sculpted.cut(*edge)
    sculpted.connect(*edge)
    assert differs(sculpted, 8) < (1e-6 if kind == "fabric" else 1e-30)
    sculpted.cut(*edge)
    assert differs(sculpted, 8) > 1e-5


def test_a_cut_link_of_a_clocked_network_is_gone():
    machine = clocked_grid()
    links = tuple(link for link in machine.network.links if link.target != Coord(0, 1, 1))
    other = replace(machine, network=replace(machine.network, links=links))
    sculpted = SculptedStream(open_machine("clocked"), "noise")
    sculpted.cut(0, 3)
    stream = open_device("reference").stream(other, initialise(machine.network))
    assert np.array_equal(one(sculpted.advance(20)), one(SculptedStream(stream, "noise").advance(20)))


def test_a_masked_layer_of_a_clocked_network_is_silent():
    sculpted = SculptedStream(open_machine("clocked"), "noise")
    sculpted.advance(10)
    sculpted.mask([3])
    frames: list[ActivityFrame] = []
    for _ in range(5):
        sculpted.advance(1, lambda frame, twin: frames.append(frame))
    assert [frame.rms[3] for frame in frames] == [0] * 5
    assert not any(frame.fired[3] for frame in frames)
    sculpted.unmask([3])
    sculpted.advance(3, lambda frame, twin: frames.append(frame))
    assert frames[-1].rms[3] > 0


def test_clocks_and_thresholds_are_set():
    sculpted = SculptedStream(open_machine("clocked"), "noise")
    sculpted.advance(4)
    sculpted.set_clock(0, "every(3)")
    sculpted.set_number(0, 0, 4)
    fired: list[bool] = []
    for _ in range(9):
        sculpted.advance(1, lambda frame, twin: fired.append(bool(frame.fired[0])))
    assert fired == [i % 4 == 0 for i in range(9)]
    stream = sculpted.stream
    assert isinstance(stream, ClockedStream)
    assert stream.clocked.clocks[Coord(0)] == Every(4)
    labels = [label for label, _ in sculpted.node_facts(6).numbers]
    assert labels == ["0.0.0.0.rms >", "period", "phase"]
    sculpted.set_number(6, 0, 0.5)
    assert "> 0.5" in str(sculpted.node_facts(6).clock)
    assert sculpted.node_facts(5).numbers == (("threshold", 0.05),)
    sculpted.set_number(5, 0, 1e6)
    frames: list[ActivityFrame] = []
    sculpted.advance(2, lambda frame, twin: frames.append(frame))
    assert frames[0].rms[5] == 0


@pytest.mark.thorough
def test_a_cut_edge_of_a_program_is_gone_and_clocks_go_on():
    declared = program()
    edges = tuple(edge for edge in declared.edges if (edge.reads, edge.writes) != ("eye", "belief"))
    network = structs.replace(declared, edges=edges).network()
    params = initialise(declared.network())
    stream = open_device("reference").stream(network, Params({key: params[key] for key in network.param_specs()}))
    sculpted = SculptedStream(open_machine("program"), "noise")
    sculpted.cut(0, 1)
    np.testing.assert_allclose(
        one(sculpted.advance(12)), one(SculptedStream(stream, "noise").advance(12)), rtol=1e-5, atol=1e-6
    )
    fired: list[bool] = []
    sculpted = SculptedStream(open_machine("program"), "noise")
    sculpted.advance(2)
    sculpted.cut(0, 1)
    for _ in range(6):
        sculpted.advance(1, lambda frame, twin: fired.append(bool(frame.fired[2])))
    assert fired == [(2 + i) % 4 == 0 for i in range(6)]  # the clock of the memory, every(4), goes on


def test_states_are_reset():
    sculpted = SculptedStream(open_machine("fabric"), "noise")
    sculpted.advance(5)
    stream = sculpted.stream
    assert isinstance(stream, RowStream)
    before = stream.state()
    sculpted.reset(population="core")
    after = stream.state()
    assert before["0.0.0.0/core.c"].any()
    assert not after["0.0.0.0/core.c"].any()
    assert not after["0.0.0.0/shown"][0, 8:].any()
    assert np.array_equal(after["0.0.0.0/shown"][0, :8], before["0.0.0.0/shown"][0, :8])
    sculpted.undo()
    assert all(np.array_equal(value, before[key]) for key, value in sculpted.stream.state().items())
    sculpted.reset()
    y = one(sculpted.advance(4))
    fresh = SculptedStream(open_machine("fabric"), {"eye": sculpted.source.rows(5, 4)["eye"]})
    assert np.array_equal(y, one(fresh.advance(4)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_rewound_stream_repeats_itself(kind):
    sculpted = SculptedStream(open_machine(kind), "noise")
    sculpted.advance(6)
    sculpted.save_state("here")
    y = one(sculpted.advance(5))
    sculpted.mask([1])
    sculpted.advance(3)
    sculpted.undo()
    assert sculpted.rewind("here") == "rewind to state here of tick 6 at tick 14"
    assert sculpted.position == 6
    assert np.array_equal(one(sculpted.advance(5)), y)


def test_a_copy_is_a_checkpoint_and_replaces_nothing(tmp_path):
    for kind in ("fabric", "clocked"):
        sculpted = SculptedStream(open_machine(kind), "noise")
        sculpted.mask([6])
        sculpted.cut(*((0, 4) if kind == "fabric" else (0, 3)))
        path = sculpted.save_copy(tmp_path / kind)
        network, params, _ = read_native(path)
        machine = read_clocked(path, network) or network
        assert machine == sculpted.places.machine
        again = open_device("reference").stream(machine, params)
        assert np.array_equal(one(sculpted.advance(6)), one(SculptedStream(again, "noise").advance(6)))
        with pytest.raises(CheckpointError, match="exists already"):
            sculpted.save_copy(path)


def test_what_is_not_possible_is_refused_by_a_sentence():
    fabric_, stack = (SculptedStream(open_machine(kind), "noise") for kind in ("fabric", "stack"))
    grid = SculptedStream(open_machine("clocked"), "noise")
    for act, sentence in (
        (lambda: stack.cut(0, 1), r"the edge from 0\.0\.0\.0 to 1\.0\.0\.0 cannot be cut: .* reads nothing else"),
        (lambda: stack.connect(3, 1), "shape|width|values|features"),
        (lambda: stack.set_clock(1, "every(2)"), "can have no clock: this network runs row by row"),
        (lambda: stack.set_number(1, 0, 2), "no clock with numbers"),
        (lambda: fabric_.cut(0, 1), "there is no edge from node 0 to node 1"),
        (lambda: fabric_.connect(0, 4), "there is an edge from node 0 to node 4 already"),
        (lambda: fabric_.connect(19, 0), "is not possible"),
        (lambda: fabric_.mask([99]), "there is no node 99"),
        (lambda: fabric_.mask([]), "no node is chosen"),
        (lambda: fabric_.mask(population="</script>"), "there is no population '</script>'"),
        (lambda: fabric_.clamp("eye", [1.0]), "has 3 columns, got 1"),
        (lambda: fabric_.clamp("eye", float("nan")), "must be a number"),
        (lambda: fabric_.inject("nose", 1), "there is no input 'nose'"),
        (lambda: fabric_.inject("eye", 1, 0), "ticks must be a whole number"),
        (lambda: fabric_.rewind("x"), "there is no saved state"),
        (fabric_.redo, "nothing to redo"),
        (lambda: grid.set_clock(1, "every(0)"), "the period must be 1"),
        (lambda: grid.set_clock(1, "nothing.rms > 1"), "there is no layer, input or output 'nothing'"),
        (lambda: grid.set_number(2, 0, 1.5), "whole number"),
    ):
        with pytest.raises((SpecError, ShapeError), match=sentence):
            act()
    for sculpted in (fabric_, stack, grid):
        assert not sculpted.changes
        assert not sculpted.history.done
        sculpted.advance(1)


def test_rows_are_checked():
    stream = open_machine("fabric")
    for rows, sentence in (
        (np.zeros((1, 4, 2), np.float32), r"input 'eye' needs rows \[1, T, 3\]"),
        (np.zeros((1, 0, 3), np.float32), "has no rows"),
        ({"nose": np.zeros((1, 4, 3))}, "there is no input 'nose'"),
        ("words", "unknown source"),
    ):
        with pytest.raises((SpecError, ShapeError), match=sentence):
            SculptedStream(stream, rows)  # pyright: ignore[reportArgumentType]
    sculpted = SculptedStream(stream, lambda t: np.full((1, 3 if t < 4 else 2), t, np.float32))
    sculpted.advance(4)
    with pytest.raises(ShapeError, match=r"at tick 4 is \(1, 2\), expected \(1, 3\)"):
        sculpted.advance(1)


def test_a_damaged_history_is_refused():
    for text in ("", "{}", "[]", '{"format": 1}', "\x00", '{"format":"volumetric.sculpting","version":1,"steps":[1]}'):
        with pytest.raises(CheckpointError):
            replay(open_machine("stack"), text)
    sculpted = SculptedStream(open_machine("stack"))
    sculpted.mask([1])
    for old, new in (('"mask"', '"advance"'), ('"nodes"', '"bad"'), ('"after": 0', '"after": 7')):
        with pytest.raises(CheckpointError):
            replay(open_machine("stack"), sculpted.to_json().replace(old, new))
