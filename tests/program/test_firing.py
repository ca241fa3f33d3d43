"""What fired in a program: told of every stream, on every device, and nothing is changed by it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace as changed

from tests.devices import DEVICES, device
from tests.examples.programs import CARRIED, TIMED, WHOLE
from tests.layers.test_vjp import arrays
from tests.oracles import oracle
from tests.oracles.program.forward import Machine
from volumetric.base.errors import ShapeError, SpecError
from volumetric.builders import chain
from volumetric.clocked import Clocked
from volumetric.layers import Dense
from volumetric.network import initialise
from volumetric.observe import Firing, Recording, fired, record
from volumetric.observe.scene import scene_of
from volumetric.program.layer.ports import In
from volumetric.program.layer.program_layer import Program
from volumetric.program.layer.timing import all_states
from volumetric.viz import save_film

NETWORK = chain([TIMED], (3,))
PARAMS = initialise(NETWORK, 1)
X = np.random.default_rng(0).standard_normal((2, 8, 3)).astype(np.float32)
RESETS = np.zeros((2, 8), np.int64)
RESETS[1, 4] = 1


@cache
def told_of_x() -> Firing:
    """What fires in these rows."""
    return fired(NETWORK, X, params=PARAMS, device="cpu", resets=RESETS)


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_streams_tell_what_fired_and_go_on_as_without(name: str) -> None:
    """Their outputs, and those of later rows, have the same bits; what fired is what the machine says."""
    plain, seen = (device(name).stream(NETWORK, PARAMS, batch=2) for _ in range(2))
    found = fired(seen, X, resets=RESETS)
    np.testing.assert_array_equal(found.outputs, plain.run(X, resets=RESETS))
    assert seen.save() == plain.save()
    p = {one.name: PARAMS[f"0.0.0.0/{one.name}"].values() for one in TIMED.params()}
    states = {key: np.zeros((2, *shape), np.float32) for key, shape in all_states(TIMED.facts).items()}
    machine = Machine(TIMED.facts, p, states)
    for t in range(8):
        machine.row(X[:, t], 1.0 - RESETS[:, t])
        np.testing.assert_array_equal(found.regions[:, t], machine.fires * (1 + np.array(machine.timing.inner)))
        np.testing.assert_array_equal(found.edges[:, t], machine.acted)
        held = machine.states["err.meter"]
        np.testing.assert_allclose(found.meters["err.prediction"][:, t], held[:, 0], rtol=0, atol=1e-5)
    assert found.region("belief").max() == 2
    np.testing.assert_array_equal(found.edge("store<belief#0"), found.region("store"))
    seen.close()
    plain.close()


@pytest.mark.thorough
def test_calls_go_on_from_each_other() -> None:
    """Also where the stream ran by itself in between."""
    with closing(device("cpu").stream(NETWORK, PARAMS, batch=2)) as stream:
        first = fired(stream, X[:, :2], resets=RESETS[:, :2])
        stream.run(X[:, 2:4], resets=RESETS[:, 2:4])
        last = fired(stream, X[:, 4:6], resets=RESETS[:, 4:6])
    for found, rows in ((first, slice(0, 2)), (last, slice(4, 6))):
        np.testing.assert_array_equal(found.outputs, np.asarray(told_of_x().outputs)[:, rows])
        np.testing.assert_array_equal(found.regions, told_of_x().regions[:, rows])


def test_rows_by_port_give_outputs_by_port() -> None:
    ports = {name: X[..., slice(*columns)] for name, columns in TIMED.ports("inputs").items()}
    made = fired(NETWORK, ports, params=PARAMS, device="cpu").outputs
    assert isinstance(made, dict)
    assert {name: y.shape for name, y in made.items()} == {"guess": (2, 8, 2), "kept": (2, 8, 1)}


@pytest.mark.parametrize("spec", [CARRIED, WHOLE], ids=["carried", "whole"])
def test_strengths_and_meters_are_those_of_numpy(spec: Program) -> None:
    p, x = arrays(spec, (2, 5, 3), 3)
    y, _ = oracle(spec).forward(p, x)
    watched = replace(spec, watched=True)
    told, _ = oracle(watched).forward(p, x)
    np.testing.assert_array_equal(told[..., : y.shape[-1]], y)
    columns = watched.ports("outputs")
    assert told.shape[-1] == columns["@meters"][1] == watched.output_shape(x.shape)[-1]
    strength = told[..., slice(*columns["@strength"])]
    assert strength.shape[-1] == len(spec.program.canvas.regions)
    assert (strength >= 0).all()
    assert strength.max() > 0


def test_edges_that_never_write_never_fire() -> None:
    program = TIMED.program
    edges = (changed(program.edges[0], weight=0.0), *program.edges[1:])
    network = changed(program, edges=edges).network()
    assert not fired(network, X, params=initialise(network), device="cpu").edges[..., 0].any()


@pytest.mark.thorough
def test_recordings_have_regions_and_edges(tmp_path: Path) -> None:
    """As strong as what regions hold; what fired is what `fired` says; streams go on as without."""
    plain, seen = (device("cpu").stream(NETWORK, PARAMS, batch=2) for _ in range(2))
    told = told_of_x()
    found = record(seen, X, resets=RESETS, row=1, every=2)
    plain.run(X, resets=RESETS)
    assert seen.save() == plain.save()
    scene = found.scene
    regions, edges = TIMED.program.canvas.regions, TIMED.program.edges
    assert (scene.kind, [node.name for node in scene.nodes]) == ("program", list(regions))
    assert scene.families == {name: region.family for name, region in regions.items()}
    names = [(scene.nodes[edge.source].name, scene.nodes[edge.target].name) for edge in scene.edges]
    assert names == [(edge.reads, edge.writes) for edge in edges]
    middles = [place.coords.mean(0) for place in TIMED.facts.places]
    lengths = [float(np.linalg.norm(middles[edge.source] - middles[edge.target])) for edge in scene.edges]
    assert [edge.length for edge in scene.edges] == pytest.approx(lengths, abs=1e-6)
    assert scene.ports["seen"].direction == "in"
    assert scene.latency == {"guess": 0, "kept": 1}
    np.testing.assert_array_equal(found.fired, told.regions[1, ::2] > 0)
    np.testing.assert_array_equal(found.edge, 255 * (told.edges[1, ::2] > 0))
    np.testing.assert_allclose(found.values(), told.strength[1, ::2], rtol=0, atol=found.scale.max() / 255)
    assert found.reset.tolist() == [t == 4 for t in range(0, 8, 2)]
    found.save(tmp_path / "run.scope")
    again = Recording.open(tmp_path / "run.scope")
    np.testing.assert_array_equal(again.edge, found.edge)
    save_film(again, tmp_path / "run.html")
    assert '"kind":"program"' in (tmp_path / "run.html").read_text()
    few = scene_of(NETWORK, edges=3)
    assert (few.left_out, len(few.edges)) == (3, 3)


def test_other_networks_show_a_program_as_one_node() -> None:
    behind = chain([TIMED, Dense(in_features=3, out_features=1)], (3,))
    assert len(scene_of(behind).nodes) == 2
    assert len(scene_of(Clocked(network=NETWORK)).nodes) == 1


def test_what_cannot_be_watched_is_refused() -> None:
    network = chain([TIMED, Dense(in_features=3, out_features=1)], (3,))
    with pytest.raises(SpecError, match="needs a network whose last layer is a program"):
        fired(network, X, params=initialise(network))
    with pytest.raises(SpecError, match="needs params"):
        fired(NETWORK, X)
    for wrong, marks in ((X[0, 0], None), ({}, None), (X, RESETS[0]), (X[..., :2], None), (X, RESETS[:, :3])):
        with pytest.raises(ShapeError):
            fired(NETWORK, wrong, params=PARAMS, device="cpu", resets=marks)
    with pytest.raises(SpecError, match="no region 'blief'"):
        told_of_x().region("blief")
    with pytest.raises(SpecError, match="port"):
        changed(TIMED.program, ports={"@regions": In("eye", 1)})
