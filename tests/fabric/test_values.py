"""What fabrics are declared of: which of two edges counts, and that any list will do, or is refused by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from volumetric import fabric, initialise, layers, open_device
from volumetric.base.errors import SpecError, VolumetricError
from volumetric.builders.sequential import chain
from volumetric.fabric import Blueprint, BySenderTile, DotProduct, Input, Output, Population, graph, lattice2d
from volumetric.fabric.body import Body
from volumetric.fabric.cells import GRU, LSTM, RNN, SLSTM, Axon
from volumetric.fabric.compile import layer_of
from volumetric.fabric.layer.cell_populations import CellPopulation as Cells
from volumetric.fabric.layer.cell_populations import InPort, OutPort
from volumetric.fabric.layer.edge_rules import Rule
from volumetric.fabric.layer.node_graphs import Lattice, NodePlaces
from volumetric.layers import LayerSpec
from volumetric.layers.head_norm import warn_of_narrow_heads
from volumetric.loaders import open_model, save_native
from volumetric.program.layer.edge import Edge
from volumetric.program.layer.edge_masks import Bits, Rects, Tile
from volumetric.program.layer.meter import Meter
from volumetric.program.layer.ports import In, Level, Out
from volumetric.program.layer.program_declaration import Program
from volumetric.program.layer.region import Canvas, Identity, Region
from volumetric.program.layer.region_learning import Constraints, Learning, Semantic

CORE = {"core": Population(cell=GRU(hidden=2))}
# Any list is taken where the fields, once they are checked, are tuples, as their types say.
ExplicitEdges: Any = lattice2d.ExplicitEdges
Nodes: Any = Population
Graph: Any = lattice2d.Graph


def row(*connectivity: Rule) -> Blueprint:
    """Four nodes in a row."""
    body = lattice2d.Graph(width=4, height=1, connectivity=connectivity, populations=CORE)
    return Blueprint(graph=body, inputs={"in": Input(1)}, outputs={"out": Output(1)})


def edges(blueprint: Blueprint) -> dict[tuple[int, int], tuple[float, int]]:
    """(receiver, sender) → distance and delay."""
    facts = blueprint.facts
    pairs = zip(facts.order[facts.inputs :][facts.receivers].tolist(), facts.order[facts.senders].tolist(), strict=True)
    return dict(zip(pairs, zip(facts.distance.tolist(), facts.delay.tolist(), strict=True), strict=True))


@pytest.mark.parametrize("own", [{"distance": 0.25, "delay": 3}, {}, {"distance": None, "delay": 2}])
def test_explicit_edges_count_wherever_they_stand(own: dict[str, Any]) -> None:
    near, drawn = lattice2d.LocalRadius(1.0, delay=5), lattice2d.SmallWorld(2, seed=1, delay=4)
    explicit = ExplicitEdges([(1, 0), (2, 2)], **own)
    alone = edges(row(explicit))
    assert set(alone) == {(1, 0), (2, 2)}
    for rules in permutations([near, drawn, explicit]):
        found, others = edges(row(*rules)), edges(row(*(rule for rule in rules if rule is not explicit)))
        assert found == others | alone
    assert edges(row(near, drawn))[1, 0] == (1.0, 5)
    assert edges(row(drawn, near))[1, 0] == (1.0, 4)


def test_explicit_edges_that_contradict_each_other_are_refused() -> None:
    one = ExplicitEdges([(2, 1), (1, 0)])
    assert edges(row(one, ExplicitEdges([(1, 0), (1, 0)]))) == edges(row(one))
    for other in ({"delay": 2}, {"distance": 2.0}):
        with pytest.raises(SpecError, match="duplicate explicit edge from node 0 to node 1"):
            _ = row(one, ExplicitEdges([(1, 0)], **other)).facts


def test_any_list_is_the_tuple_that_it_holds(tmp_path: Any) -> None:
    def made(ids: Any, pairs: Any, sides: Any) -> Blueprint:
        body = lattice2d.Graph(
            width=4,
            height=2,
            inputs={"a": ids([0, 1])},
            outputs={"y": lattice2d.Output(ids([6, 7]), "flatten")},
            connectivity=[lattice2d.Columns(sides([2, 1])), lattice2d.ExplicitEdges(pairs([[2, 0], [3, 2], [6, 2]]))],
            populations={**CORE, "other": Population(cell=LSTM(hidden=2), nodes=ids([3, 4]))},
        )
        message = DotProduct(share=BySenderTile(sides([2, 1])))
        ports = {"inputs": {"a": Input(1)}, "outputs": {"y": Output(1)}}
        return Blueprint(graph=body, message=message, without=ids([5]), **ports)

    def tuples(x: Any) -> Any:
        return tuple(map(tuples, x)) if isinstance(x, list) else x

    whole = made(tuples, tuples, tuples)
    for blueprint in (made(list, list, list), made(np.array, np.array, np.array), made(np.uint8, np.int32, list)):
        assert blueprint == whole
        assert hash(layer_of(blueprint)) == hash(layer_of(whole))
    model = fabric.compile(made(np.array, np.array, np.array))
    save_native(tmp_path / "model", model.network, model.params)
    assert open_model(tmp_path / "model").network == fabric.compile(whole).network
    ranged = Graph(width=4, height=1, inputs={"a": range(2)}, populations=CORE)
    assert ranged.inputs == {"a": (0, 1)}
    ends: dict[str, Any] = {"inputs": {"a": [0]}, "outputs": {"y": [2]}, "populations": CORE}
    places, joins = np.array([[0.0], [1.0], [2.5]]), np.array([[1, 0], [2, 1]])
    one = graph.Explicit(coords=places, edges=joins, **ends)  # pyright: ignore[reportArgumentType]  (arrays will do)
    assert one == graph.Explicit(coords=[(0.0,), (1.0,), (2.5,)], edges=[(1, 0), (2, 1)], **ends)


REGION = Region(((0, 1), (0, 2)))
CANVAS = Canvas(1, (4,), 8, {"a": REGION})
VALUES = (
    *(
        lattice2d.LocalRadius(1.0),
        lattice2d.Annulus(0.0, 2.0, 3),
        lattice2d.SmallWorld(1),
        lattice2d.Columns((2, 2), 1),
    ),
    *(lattice2d.ExplicitEdges(((1, 0),), 1.0, 2), Lattice((3, 3)), NodePlaces(((0.0, 1.0),))),
    *(lattice2d.XBand(), lattice2d.Region(), lattice2d.Corners(), SLSTM(4), Axon(4), LSTM(4), GRU(4), RNN(4)),
    *(Cells("p", GRU(4), (1,)), InPort("a", (0,), 1), OutPort("y", (2,), 1), Input(1), Output(1), BySenderTile((2, 2))),
    *(DotProduct(), lattice2d.Output((1,)), Population(cell=GRU(4), nodes=(1,)), row(lattice2d.LocalRadius(1.0))),
    *(row(lattice2d.LocalRadius(1.0)).graph, layer_of(row(lattice2d.LocalRadius(1.0)))),
    *(
        CANVAS,
        REGION,
        Edge("a", "a"),
        Identity(),
        Learning(),
        Constraints(),
        Semantic(),
        Tile((2,)),
        Bits(("10", "01")),
    ),
    *(
        Bits(("10", "01")),
        Rects(((0, 1, 0, 1),)),
        Meter("a"),
        In("a", 1),
        Out("a", 1),
        Level("a"),
        Program(CANVAS, (Edge("a", "a"),)),
    ),
)
ODD = (
    *(
        None,
        True,
        -1,
        0,
        3,
        2.5,
        float("nan"),
        float("inf"),
        10**400,
        2**63,
        "",
        "x",
        "\ud800",
        b"x",
        [],
        (),
        {},
        set(),
    ),
    *(
        [1, 2],
        [(0, 1), (0, 2)],
        [[1, 2], [3]],
        [["a"]],
        [None],
        [1.5],
        [True],
        [2**63],
        {"a": 1},
        {"a": REGION},
        {1, 2},
    ),
    *(np.array([1, 2]), np.array([[1, 0]]), np.array(2), np.zeros((0, 2)), np.float32(1), np.int64(2), range(3)),
    *(object(), iter([1]), REGION, lattice2d.XBand(), GRU(3), lattice2d.LocalRadius(1.0), [lattice2d.LocalRadius(1.0)]),
)


def changes(value: Any) -> Iterator[tuple[str, Any]]:
    names = getattr(value, "__struct_fields__", None) or [f.name for f in dataclasses.fields(value) if f.init]
    return ((name, odd) for name in names for odd in ODD)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__qualname__)
def test_odd_fields_are_taken_or_refused_by_name(value: Any) -> None:
    """And what is taken does not change afterwards: it has a hash, but for what holds parts by name."""
    replace = structs.replace if hasattr(value, "__struct_fields__") else dataclasses.replace
    for name, odd in changes(value):
        try:
            made = replace(value, **{name: odd})
        except VolumetricError:
            continue
        if not isinstance(made, Body | Blueprint):
            hash(made)


def test_cells_of_one_number_a_head_are_warned_about_and_reach_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """They show 0 whatever they read, so that no output depends on what would come through them."""
    warn_of_narrow_heads.cache_clear()
    narrow, wide = Population(cell=SLSTM(hidden=2, heads=2)), Nodes(cell=SLSTM(hidden=2), nodes=[1])
    assert [record.getMessage() for record in caplog.records] == [
        "SLSTM: the norm of 2 heads of one element each is always 0: use fewer heads"
    ]
    ends: dict[str, Any] = {"inputs": {"in": [0, 3]}, "outputs": {"out": [2, 5]}}
    ports: dict[str, Any] = {"inputs": {"in": Input(1)}, "outputs": {"out": Output(1)}}
    body = lattice2d.Graph(width=2, height=3, populations={"narrow": narrow}, **ends)
    with pytest.raises(SpecError, match="'out' can depend on no input") as refused:
        fabric.compile(Blueprint(graph=body, **ports))
    assert "fewer heads" in str(refused.value.hint)
    body = lattice2d.Graph(width=2, height=3, populations={"narrow": narrow, "wide": wide}, **ends)
    assert fabric.compile(Blueprint(graph=body, **ports)).latency == {"out": {"in": 0}}


@pytest.mark.parametrize("spec", [layers.SLSTM(embed_dim=2, num_heads=2), layers.MLSTM(embed_dim=2, num_heads=2)])
def test_layers_of_one_number_a_head_are_warned_about(spec: LayerSpec, caplog: pytest.LogCaptureFixture) -> None:
    warn_of_narrow_heads.cache_clear()
    network = chain([dataclasses.replace(spec)], (2,))  # pyright: ignore[reportArgumentType]  (every spec is a dataclass)
    assert [record.getMessage().split()[:5] for record in caplog.records] == [
        [f"{spec.kind}:", *["the", "norm", "of", "2"]]
    ]
    device: Any = open_device("reference")
    stream = device.stream(network, initialise(network))
    assert not stream.run(np.ones((1, 3, 2), np.float32)).any()
