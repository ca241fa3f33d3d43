"""Fabrics watched: nodes where they stand, as strong as what they show, in streams of rows and of ticks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.devices import DEVICES, device
from tests.examples.fabrics import FREE, MIXED, small
from tests.layers.graphed import graphed
from tests.oracles import oracle
from tests.oracles.memory import Memory
from volumetric.builders import chain
from volumetric.cli import main
from volumetric.clocked import Clocked
from volumetric.fabric.layer.edge_rules import Columns
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_graphs import Lattice
from volumetric.layers import Dense, Embedding
from volumetric.loaders import save_native
from volumetric.network import Network, Params, initialise
from volumetric.network.grid import Coord
from volumetric.network.weight_store import WeightStore
from volumetric.observe import Recorder, Recording, record
from volumetric.observe.scene import scene_of
from volumetric.run.streams.stream_chunks import StreamChunk
from volumetric.viz import save_film
from volumetric.viz.activity_film import places_of

NETWORK = chain(
    [Embedding(num_embeddings=5, embedding_dim=3), MIXED, Dense(in_features=3, out_features=2)], (), "int32"
)
PARAMS = initialise(NETWORK, 1)
X = np.random.default_rng(0).integers(0, 5, (2, 11)).astype(np.int32)
RESETS = np.zeros((2, 11), np.int64)
RESETS[1, 6] = 1


def values_of(network: Network, params: Params, x: np.ndarray, resets: np.ndarray, row: int) -> np.ndarray:
    """What every node of the network above shows, row by row, from the layers' own NumPy code."""
    of = {
        c: {one.name: params[f"{c}/{one.name}"].values().astype(np.float64) for one in spec.params()}
        for c, spec in all_of(network)
    }
    embedding, fabric, dense = (spec for _, spec in all_of(network))
    assert isinstance(fabric, Fabric)
    at = [c for c, _ in all_of(network)]
    read = oracle(embedding).forward(of[at[0]], x)[0].astype(np.float64)
    memory, made, shown = Memory(streams=2), [], []
    for t in range(x.shape[1]):
        now = Memory(t, memory.values, streams=2, resets=resets[:, t : t + 1])
        made.append(oracle(fabric).forward(of[at[1]], read[:, t : t + 1], memory=now)[0][row, 0])
        shown.append(now.values["shown"][row])
        memory = now
    frames = []
    for t in range(x.shape[1]):
        ports = fabric.ports("inputs"), fabric.ports("outputs")
        sides = [
            [rms(values[first:last]) for name, (first, last) in side.items() for _ in range(size(fabric, name))]
            for side, values in zip(ports, (read[row, t], made[t]), strict=True)
        ]
        cells = np.sqrt((shown[t] ** 2).mean(-1)).tolist()
        ends = rms(read[row, t]), rms(graphed(dense).forward(of[at[2]], made[t][None])[0])
        frames.append([ends[0], *sides[0], *cells, *sides[1], ends[1]])
    return np.array(frames)


def all_of(network: Network) -> list[tuple[Coord, Any]]:
    return [*network.layers.items()]


def size(fabric: Fabric, name: str) -> int:
    own = fabric.facts.ports[name]
    return own.stop - own.start


def rms(x: Any) -> float:
    return float(np.sqrt(np.square(x).mean()))


@pytest.mark.thorough
@pytest.mark.parametrize("name", DEVICES)
def test_nodes_are_as_strong_as_what_they_show(name: str) -> None:
    stream, plain = (device(name).stream(NETWORK, PARAMS, batch=2) for _ in range(2))
    first = record(stream, X[:, :4], resets=RESETS[:, :4], row=1)
    then = record(stream, X[:, 4:], resets=RESETS[:, 4:], row=1)
    plain.run(X[:, :4], resets=RESETS[:, :4])
    plain.run(X[:, 4:], resets=RESETS[:, 4:])
    got, same = stream.run(X[:, :2]), plain.run(X[:, :2])
    np.testing.assert_allclose(np.asarray(got), np.asarray(same), atol=2e-6)
    wanted = values_of(NETWORK, PARAMS, X, RESETS, 1)
    found = np.concatenate([first.values(), then.values()])
    groups = np.asarray(first.scene.group_of)
    step = np.maximum(first.scale[0], then.scale[0])[groups] / 255
    assert np.all(np.abs(found - wanted) <= step * 0.51 + 1e-4)
    assert then.reset.tolist() == [t == 2 for t in range(7)]
    assert then.fired.all()


@pytest.mark.thorough
def test_every_other_row_is_that_row() -> None:
    whole = record(NETWORK, X, params=PARAMS, device="cpu", resets=RESETS)
    some = record(NETWORK, X, params=PARAMS, device="cpu", resets=RESETS, every=4)
    assert some.ticks.tolist() == [1, 5, 9]
    np.testing.assert_allclose(some.values(), whole.values()[::4], atol=float(whole.scale.max()) / 250)
    recorder = Recorder(device("cpu").stream(NETWORK, PARAMS, batch=2), every=3, most=2 * len(whole.scene.nodes))
    parts = [recorder.advance(StreamChunk(x={"input": X[:, a:b]}, count=b - a)) for a, b in ((0, 2), (2, 3), (3, 11))]
    recorder.close()
    assert [frame.t for frame in recorder.frames] == [1, 4]
    assert (recorder.tick_count, recorder.recording().meta.missed) == (11, 7)
    plain = device("cpu").stream(NETWORK, PARAMS, batch=2).run(X)
    np.testing.assert_allclose(np.concatenate([np.asarray(part) for part in parts], 1), np.asarray(plain), atol=1e-6)


def test_all_streams_together_and_rows_by_port() -> None:
    network = chain([MIXED], (3,))
    params = initialise(network, 2)
    x = np.random.default_rng(1).standard_normal((2, 5, 3)).astype(np.float32)
    apart = [record(network, x, params=params, device="cpu", row=row).values() for row in (0, 1)]
    both = record(network, {"a": x[..., :2], "c": x[..., 2:]}, params=params, device="cpu", row=None)
    mean = np.sqrt((apart[0] ** 2 + apart[1] ** 2) / 2)
    np.testing.assert_allclose(both.values(), mean, atol=float(both.scale.max()) / 100)
    recorder = Recorder(device("cpu").stream(network, params, batch=2))
    found = recorder.advance(StreamChunk(x={"a": x[..., :2], "c": x[..., 2:]}, count=5))
    assert isinstance(found, dict)
    assert {name: y.shape for name, y in found.items()} == {"y": (2, 5, 2), "z": (2, 5, 1)}


def own(params: Params, z: int) -> dict[str, np.ndarray]:
    start = f"{Coord(z)}/"
    return {key.removeprefix(start): of.values() for key, of in params.items() if key.startswith(start)}


def moved(params: Params) -> Params:
    """Those of the second layer, as of the first."""
    return Params({f"{Coord(0)}/{name}": WeightStore.from_array(value) for name, value in own(params, 1).items()})


def test_ticks_are_watched_too() -> None:
    network = chain([Dense(in_features=2, out_features=3), small()], (2,))
    params = initialise(network, 3)
    x = np.random.default_rng(2).standard_normal((1, 6, 2)).astype(np.float32)
    stream = device("cpu").stream(Clocked(network=network), params, batch=1)
    recorder = Recorder(stream)
    recorder.advance(StreamChunk(x={"input": x}, count=6))
    # What the fabric reads in a tick is what the layer before it made in the one before.
    late = np.concatenate(
        [np.zeros((1, 1, 3), np.float32), graphed(network.layers[Coord(0)]).forward(own(params, 0), x)[0]], 1
    )
    watch = Recorder(device("cpu").stream(chain([small()], (3,)), moved(params), batch=1))
    watch.advance(StreamChunk(x={"input": late[:, :6]}, count=6))
    ticks, by_row = (np.array([frame.rms for frame in of.frames]) for of in (recorder, watch))
    assert recorder.scene.kind == "fabric"
    cells = slice(4, 10)  # behind the layer and the nodes that take rows in
    np.testing.assert_allclose(ticks[:, cells], by_row[:, 3:9], atol=1e-5)
    assert (by_row[1:, 3:9] > 0).all()
    np.testing.assert_allclose(ticks[:, 0], ticks[:, 1])  # nodes of a port show how strong its row is


def test_masked_nodes_do_not_fire() -> None:
    network = chain([small(dynamic=True)], (3,))
    stream = device("cpu").stream(network, initialise(network), batch=1)
    stream.mask([4, 7])
    recorder = Recorder(stream)
    recorder.advance(StreamChunk(x={"input": np.ones((1, 3, 3), np.float32)}, count=3))
    order = recorder.scene.nodes
    asleep = [node.name for node, fired in zip(order, recorder.frames[-1].fired, strict=True) if not fired]
    assert asleep == ["core 4", "core 7"]
    assert recorder.frames[-1].rms[[i for i, node in enumerate(order) if node.name in asleep]].tolist() == [0, 0]


def test_what_is_not_finite_is_told() -> None:
    network = chain([small()], (3,))
    x = np.ones((1, 3, 3), np.float32)
    x[0, 1] = np.nan
    for name in ("reference", "cpu"):
        found = record(network, x, params=initialise(network), device=name)
        assert not found.odd[0].any()
        assert np.flatnonzero(found.odd[1]).tolist() == [0, 1, 2, 3, 4, 5]  # cells of the next column
        assert np.flatnonzero(found.odd[2]).tolist() == [3, 4, 5, 6, 7, 8, 9, 10, 11]
        assert np.isnan(found.values()[2, 3:]).all()


def test_the_scene_has_nodes_where_they_stand() -> None:
    scene = scene_of(NETWORK)
    assert scene.kind == "fabric"
    assert [node.group for node in scene.nodes] == [
        "embedding", "a", "a", "c", "p", "p", *["q"] * 4, "y", "y", "z", "dense"
    ]  # fmt: skip
    facts = MIXED.facts
    inside = scene.nodes[1:-1]
    assert [node.name.split()[1] for node in inside] == [str(id) for id in facts.order]
    assert [node.at for node in inside] == [(x, y, 1.0) for x, y in facts.coords.tolist()]
    assert scene.nodes[-1].at == (0, 0, 2)
    assert {node.role for node in inside} == {"input", "cell", "output"}
    assert scene.populations == {"embedding": 1, "a": 2, "c": 1, "p": 2, "q": 4, "y": 2, "z": 1, "dense": 1}
    assert {name: (end.node, end.direction) for name, end in scene.ports.items()} == {
        "input": (0, "in"), "output": (13, "out")
    }  # fmt: skip
    assert len(scene.edges) == len(facts.senders) + 3 + 3
    edge = next(edge for edge in scene.edges if edge.kind == "edge")
    assert (edge.source, edge.target) == (1 + facts.senders[0], 1 + facts.inputs + facts.receivers[0])
    assert {edge.delay for edge in scene.edges} == {0, 1, 3}
    assert scene.latency == {"y": 0, "z": 0}
    few = scene_of(NETWORK, edges=10)
    assert len(few.edges) <= 10
    assert len(few.edges) + few.left_out == len(scene.edges)
    alone = scene_of(chain([FREE], (3,)))
    assert {name: (end.node, end.direction) for name, end in alone.ports.items()} == {"a": (0, "in"), "y": (3, "out")}
    assert [node.at for node in alone.nodes] == [(0, 0, 0), (1, 0, 0), (2.5, 0, 0), (4, 0, 0)]


def test_layers_stand_beside_fabrics_that_are_deep() -> None:
    deep = small(graph=Lattice((3, 2, 2)), connectivity=(Columns((3, 2, 2)),), kv_tile=None)
    scene = scene_of(chain([deep, Dense(in_features=2, out_features=3), deep], (3,)))
    heights = [node.at[2] for node in scene.nodes]
    assert sorted(set(heights)) == [0, 1, 2, 3, 4]
    assert {node.group for node in scene.nodes if node.at[2] == 2} == {"dense"}
    assert {node.group for node in scene.nodes if node.at[2] > 2} == {"2.0.0.0 a", "2.0.0.0 core", "2.0.0.0 y"}
    assert len(set(places_of(scene))) == len(scene.nodes)


def test_a_large_sheet_shows_some_of_its_edges() -> None:
    sheet = small(graph=Lattice((60, 50), True))
    scene = scene_of(chain([sheet], (3,)), edges=300)
    assert len(scene.nodes) == 3000
    assert len(scene.edges) <= 300
    assert len(scene.edges) + scene.left_out == len(sheet.facts.senders)


@pytest.mark.thorough
def test_files_films_and_viewers_have_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_native(tmp_path / "m", NETWORK, PARAMS)
    np.savez(tmp_path / "rows.npz", input=X)
    at = tmp_path / "m.scope"
    rows = ["--in", str(tmp_path / "rows.npz"), "--device", "cpu"]
    assert main(["scope", str(tmp_path / "m"), *rows, "--out", str(at)]) == 0
    assert "11 ticks" in capsys.readouterr().err
    found = Recording.open(at)
    assert (found.scene.kind, found.node.shape) == ("fabric", (11, 14))
    for ending in ("gif", "html"):
        assert main(["scope", str(at), "--out", str(tmp_path / f"m.{ending}")]) == 0
    assert "p 4" in (tmp_path / "m.html").read_text()
    save_film(found, tmp_path / "again.gif")
    assert (tmp_path / "again.gif").read_bytes() == (tmp_path / "m.gif").read_bytes()
