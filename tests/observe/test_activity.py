"""Recordings of activity: what is told is what layers made, streams are left as they were, files come back whole."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.devices import device
from volumetric import Clocked, Coord, Every, Grid, Link, Network, initialise
from volumetric.base.errors import ShapeError, SpecError
from volumetric.builders import chain, transformer
from volumetric.layers import LSTM, Dense
from volumetric.observe import Recorder, record
from volumetric.observe.frame_blocks import ActivityFrame
from volumetric.observe.scene import Scene, SceneNode, scene_of
from volumetric.run.streams import open_stream
from volumetric.run.streams.stream_chunks import StreamChunk

NETWORK = chain(
    [
        Dense(in_features=4, out_features=8, activation="tanh"),
        LSTM(input_size=8, hidden_size=8),
        Dense(in_features=8, out_features=3),
    ],
    (4,),
)
PARAMS = initialise(NETWORK, 1)
MACHINES = {
    "stack": NETWORK,
    "systolic": Clocked(network=NETWORK, clocks={Coord(1): Every(period=3, phase=1)}),
    "wavefront": Clocked(network=NETWORK, start="wavefront"),
}
X = np.random.default_rng(0).standard_normal((2, 12, 4)).astype(np.float32)
RESETS = np.eye(12, dtype=np.int64)[[5, 8]]


def taps(machine: Network | Clocked, row: int) -> Any:
    """What each layer makes of one stream, root mean square, by taps that do not know of recordings."""
    network = machine if isinstance(machine, Network) else machine.network
    names = {f"n{i}": coord for i, coord in enumerate(network.layers)}
    tapped = Network(
        grid=network.grid,
        layers=network.layers,
        links=network.links,
        input_shape=(4,),
        input_dtype="float32",
        outputs=names,
    )
    subject = (
        tapped if isinstance(machine, Network) else Clocked(network=tapped, clocks=machine.clocks, start=machine.start)
    )
    made: Any = open_stream(device("reference"), subject, PARAMS, batch=2).run(X, resets=RESETS)
    return np.stack([np.sqrt(np.square(made[name][row]).mean(1)) for name in names], 1)


@pytest.mark.parametrize("name", ["reference", "cpu"])
@pytest.mark.parametrize("kind", MACHINES)
def test_frames_are_what_layers_made_and_streams_stay_as_they_are(kind: str, name: str) -> None:
    machine = MACHINES[kind]
    stream, plain = (open_stream(device(name), machine, PARAMS, batch=2) for _ in range(2))
    first = record(stream, X[:, :4], resets=RESETS[:, :4], row=1)
    then = record(stream, X[:, 4:], resets=RESETS[:, 4:], row=1)
    plain.run(X[:, :4], resets=RESETS[:, :4])
    plain.run(X[:, 4:], resets=RESETS[:, 4:])
    assert stream.save() == plain.save()
    found, wanted = np.concatenate([first.values(), then.values()]), taps(machine, 1)
    step = max(of.scale.max() for of in (first, then)) / 255
    np.testing.assert_allclose(found, wanted, rtol=0, atol=float(step) * 0.51 + 1e-6)
    assert then.reset.tolist() == [i == 4 for i in range(8)]
    assert first.ticks.tolist() == [1, 2, 3, 4]
    fired = np.concatenate([first.fired, then.fired])
    assert fired[:, 0].all()
    if kind == "systolic":  # the clock begins anew with the stream
        assert np.flatnonzero(fired[:, 1]).tolist() == [1, 4, 7, 9]
    elif kind == "wavefront":
        assert np.flatnonzero(~fired[:, 2]).tolist() == [0, 1, 8, 9]
    else:
        assert fired.all()


def test_all_streams_and_every_other_row() -> None:
    found = record(NETWORK, X, params=PARAMS, device="reference", resets=RESETS, row=None, every=3, title="some")
    assert found.ticks.tolist() == [1, 4, 7, 10]
    both = np.sqrt((taps(NETWORK, 0) ** 2 + taps(NETWORK, 1) ** 2) / 2)[::3]
    np.testing.assert_allclose(found.values(), both, rtol=0, atol=float(found.scale.max()) / 500)
    assert (found.meta.title, found.meta.row, found.meta.every) == ("some", None, 3)
    assert found.node.max() == 255


def test_the_scene_has_layers_ends_and_links() -> None:
    links = (
        Link(kind="activation", source=Coord(1), target=Coord(0), combine="add", delay=2),
        Link(kind="activation", source=Coord(0), target=Coord(1, slot=1), combine="replace"),
    )
    same = Dense(in_features=4, out_features=4)
    layers = {Coord(0): same, Coord(1): same, Coord(1, slot=1): same}
    network = Network(grid=Grid(2, 1, 1, 2), layers=layers, links=links, input_shape=(4,), input_dtype="float32")
    scene = scene_of(Clocked(network=network))
    assert scene.kind == "systolic"
    assert [(node.role, node.at, node.size) for node in scene.nodes] == [
        ("input", (0, 0, 0), 4),
        ("cell", (0, 0, 1), 4),
        ("output", (0.5, 0, 1), 4),
    ]
    told = {(edge.source, edge.target, edge.kind, edge.delay) for edge in scene.edges}
    assert told == {(0, 1, "chain", 1), (1, 0, "link", 2), (0, 2, "link", 1)}
    assert scene.latency == {"output": 1}
    assert scene.populations == {"dense": 3}
    few = scene_of(network, edges=2)
    assert (few.kind, len(few.edges), few.left_out) == ("stack", 2, 1)
    assert [edge.delay for edge in scene_of(network).edges] == [2, 0, 0]
    assert scene_of(network, edges=0).left_out == 3
    wire = msgspec.json.decode(msgspec.json.encode(scene))
    assert wire["edges"][0].keys() == {"id", "from", "to", "kind", "length", "delay"}
    assert msgspec.convert(wire, Scene) == scene


def test_rows_that_look_back_are_recorded_too() -> None:
    network = transformer(17, width=16, blocks=1)
    ids = np.arange(70, dtype=np.int32)[None] % 17
    found = record(network, ids, params=initialise(network), device="reference")
    assert len(found) == 70
    assert len(found.scene.nodes) == 9
    assert found.values().min() > 0


def test_what_is_not_finite_is_told() -> None:
    x = X[:1, :6].copy()
    x[0, 2] = np.nan
    found = record(Clocked(network=NETWORK), x, params=PARAMS, device="reference")
    assert not found.odd[:2].any()
    assert found.odd[2].tolist() == [True, False, False]
    assert found.odd[-1].tolist() == [False, True, True]  # what looks back does not get over it
    assert found.meters["odd"].tolist() == found.odd.sum(1).tolist()
    assert np.isnan(found.values()[-1, 1:]).all()
    assert np.isfinite(found.scale).all()


def test_recordings_have_an_end_and_count_what_comes_later() -> None:
    stream = open_stream(device("reference"), MACHINES["systolic"], PARAMS, batch=2)
    recorder = Recorder(stream, most=6)
    recorder.advance(StreamChunk(x={"input": X[:, :2]}, count=2), per_row=2)
    recorder.advance(StreamChunk(x={}, count=3))
    found = recorder.recording(per_row=2)
    assert (len(found), found.meta.missed, found.meta.per_row, recorder.tick_count) == (2, 5, 2, 7)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"params": None}, SpecError),
        ({"row": 2}, SpecError),
        ({"every": 0}, SpecError),
        ({"edges": -1}, SpecError),
        ({"x": X[:, :, :3]}, ShapeError),
        ({"resets": RESETS * 2}, ShapeError),
    ],
)
def test_impossible_recordings_are_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        record(**{"machine": NETWORK, "x": X, "params": PARAMS, "device": "reference", **arguments})


def scene_of_two() -> Scene:
    place = (0.0, 0.0, 0.0)
    return Scene(
        kind="fabric", nodes=tuple(SceneNode(id=i, name="n", role="cell", group="g", at=place) for i in range(2))
    )


def frame(t: int) -> ActivityFrame:
    return ActivityFrame(
        t=t, rms=np.array([t, np.nan]), fired=np.array([True, False]), reset=t == 2, edge=np.array([0.5])
    )


def told(line: bytes) -> dict[str, Any]:
    return json.loads(line.removeprefix(b"data: "))


def test_ticks_for_each_row_are_of_clocked_networks() -> None:
    recorder = Recorder(open_stream(device("reference"), NETWORK, PARAMS, batch=2))
    with pytest.raises(SpecError, match="per_row needs a network that runs tick by tick"):
        recorder.advance(StreamChunk(x={"input": X[:, :2]}, count=2), per_row=2)
    recorder.advance(StreamChunk(x={"input": X[:, :2]}, count=2), per_row=1)
