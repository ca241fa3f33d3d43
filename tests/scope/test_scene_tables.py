"""Scenes as arrays for pages: names, coordinates, boxes, channels, and views of networks and genomes."""

from __future__ import annotations

import gzip

import msgspec
import numpy as np
import pytest

from benchmarks.scope_frames import lattice_scene
from tests.examples.fabrics import small
from tests.examples.programs import TIMED
from volumetric import Clocked, Coord, Grid, Network, initialise
from volumetric.base.errors import ShapeError, SpecError
from volumetric.builders import sequential
from volumetric.evolution.genes import CONNECTION, NODE, GenomeInterface
from volumetric.evolution.genome import Genome
from volumetric.observe.scene import Scene, scene_of
from volumetric.scope import ScopeDocument
from volumetric.scope.genome_scene import connection_weights, genome_scene, node_biases
from volumetric.scope.network_view import network_view
from volumetric.scope.page import scope_page
from volumetric.scope.scene_tables import class_channel, number_channel, packed_names, scene_tables, scene_view

NETWORK = sequential(4, 2, hidden=(8, 8))
GENOME = Genome(
    interface=GenomeInterface(inputs=2, outputs=1),
    nodes=np.array([(2, 1, 0, 0.5), (7, 2, 0, -1.0), (9, 3, 0, 0.0)], NODE),
    connections=np.array(
        [
            (0, 0, 7, 2.0, True),
            (1, 1, 7, -1.0, True),
            (2, 7, 9, 0.5, True),
            (3, 9, 2, 1.5, True),
            (4, 1, 2, 9.0, False),
        ],
        CONNECTION,
    ),
)


def unpacked(names):
    if isinstance(names, list):
        return names
    return [
        names["texts"][text] + (str(number) if number >= 0 else "")
        for text, number in zip(names["text"].tolist(), names["number"].tolist(), strict=True)
    ]


@pytest.mark.parametrize("count", [3, 5000])
def test_names_come_back_as_they_were(count):
    odd = ["", "7", "core 007", "core 0", "a" * 40, "x 12345678901", "two\nlines 3", "٣"]
    names = odd + [f"core {i}" for i in range(count)]
    packed = packed_names(names)
    assert isinstance(packed, list) == (count < 100)
    assert unpacked(packed) == names
    assert packed_names(different := [f"{i} dense" for i in range(5000)]) == different


def test_layers_have_coordinates_and_regions_boxes():
    tables = scene_tables(scene_of(NETWORK))
    assert tables["coord"].tolist() == [[c.z, c.y, c.x, c.slot] for c in NETWORK.layers]
    assert "extent" not in tables
    program = scene_tables(
        scene_of(Network(grid=Grid(1), layers={Coord(0): TIMED}, input_shape=(3,), input_dtype="float32"))
    )
    assert "coord" not in program
    boxes = {place.name: place.region.box for place in TIMED.facts.places}
    for name, at, extent in zip(program["names"], program["at"].tolist(), program["extent"].tolist(), strict=True):
        rows, columns = boxes[name][-2:] if len(boxes[name]) > 2 else boxes[name]
        assert extent[0] == columns[1] - columns[0]
        assert at[0] - extent[0] / 2 == columns[0] - 0.5
        assert extent[1] in (1.0, rows[1] - rows[0])


def test_scenes_without_the_new_fields_are_readable_and_new_ones_come_back():
    old = b'{"kind":"stack","nodes":[{"id":0,"name":"a","role":"cell","group":"g","at":[0,1,2],"size":3}]}'
    node = msgspec.json.decode(old, type=Scene).nodes[0]
    assert (node.coord, node.extent, node.size) == (None, None, 3)
    for machine in (NETWORK, Clocked(network=NETWORK)):
        scene = scene_of(machine)
        assert msgspec.json.decode(msgspec.json.encode(scene), type=Scene) == scene


def test_a_network_shows_dtypes_and_weights_of_its_layers():
    params = initialise(NETWORK)
    channels = network_view(NETWORK, params).data["scene"]["channels"]
    assert channels["dtype"]["names"] == ["float32"]
    assert channels["parameters"]["values"].tolist() == [40, 72, 18]
    assert channels["bits"]["values"].tolist() == [32, 32, 32]
    first = [store.values() for key, store in params.items() if key.startswith("0.0.0.0/")]
    rms = np.sqrt(np.mean(np.concatenate([of.ravel() for of in first]) ** 2))
    assert channels["weights"]["values"][0] == pytest.approx(rms, rel=1e-5)
    assert "channels" not in network_view(Clocked(network=NETWORK)).data["scene"]
    clocked = network_view(Clocked(network=NETWORK, clocks={"1.0.0.0": "every(2)"}), params).data["scene"]["channels"]
    assert list(clocked) == ["clock", "dtype", "parameters", "bits", "weights"]
    clocks = clocked["clock"]
    assert [clocks["names"][i] for i in clocks["classes"]] == ["every tick", "every(2)", "every tick"]
    assert network_view(TIMED.program).data["scene"]["kind"] == "program"
    with pytest.raises(SpecError, match="shows networks, programs and genomes, got int"):
        network_view(3)  # type: ignore[arg-type]


def test_a_genome_is_in_layers_from_inputs_to_outputs():
    scene = genome_scene(GENOME, inputs=("left", "right"), outputs=("both",))
    places = {node.name: node.at for node in scene.nodes}
    assert list(places) == ["left", "right", "both", "node 7", "node 9"]
    assert places["left"][0] == places["right"][0] < places["node 7"][0] < places["node 9"][0] < places["both"][0]
    assert len(set(places.values())) == 5
    assert [(edge.source, edge.target) for edge in scene.edges] == [(0, 3), (1, 3), (3, 4), (4, 2)]
    assert connection_weights(GENOME).tolist() == [2.0, -1.0, 0.5, 1.5]
    assert node_biases(GENOME).tolist() == [0.0, 0.0, 0.5, -1.0, 0.0]
    view = network_view(GENOME)
    assert view.data["scene"]["edges"]["weight"].tolist() == [2.0, -1.0, 0.5, 1.5]
    with pytest.raises(SpecError, match="3 names for 2 inputs"):
        genome_scene(GENOME, inputs=("a", "b", "c"))


def test_channels_have_a_value_for_each_node():
    scene = scene_of(NETWORK)
    view = scene_view(
        scene, channels={"g": number_channel(np.ones(3), "gradient"), "c": class_channel(["a", "b", "a"], "c")}
    )
    assert view.data["scene"]["channels"]["c"]["classes"].tolist() == [0, 1, 0]
    with pytest.raises(ShapeError, match="'g' has 2 values for 3 nodes"):
        scene_view(scene, channels={"g": number_channel(np.ones(2), "gradient")})
    with pytest.raises(ShapeError, match="edge_weights"):
        scene_view(scene, edge_weights=np.ones(7))


def test_a_page_of_4000_nodes_is_small():
    view = scene_view(lattice_scene(4000, 12000))
    page = scope_page(ScopeDocument(title="large", source="test", views=(view,)))
    assert len(gzip.compress(page.encode(), 6)) <= 600_000


def test_large_scenes_lose_nothing():
    scene = lattice_scene(3000, 9000)
    tables = scene_tables(scene)
    assert unpacked(tables["names"]) == [node.name for node in scene.nodes]
    assert tables["edges"]["source"].tolist() == [edge.source for edge in scene.edges]
    fabric = Network(grid=Grid(1), layers={Coord(0): small()}, input_shape=(3,), input_dtype="float32")
    shown = scene_tables(scene_of(fabric))
    assert set(map(tuple, shown["coord"].tolist())) == {(0, 0, 0, 0)}


def test_scenes_beyond_what_a_page_shows_are_refused(monkeypatch):
    scene = scene_of(NETWORK)
    monkeypatch.setattr("volumetric.scope.scene_tables.NODES", 2)
    with pytest.raises(SpecError, match="a page shows up to 2 nodes, this scene has 3"):
        scene_tables(scene)
