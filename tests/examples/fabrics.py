"""Small fabrics with an input shape; and the examples of the kind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.examples.entry import Examples
from volumetric.fabric.layer.cell_populations import GRU, LSTM, RNN, SLSTM, Axon, CellPopulation, InPort, OutPort
from volumetric.fabric.layer.edge_rules import Columns, ExplicitEdges, LocalRadius, SmallWorld
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_graphs import Lattice, NodePlaces
from volumetric.fabric.layer.node_sets import XBand


def small(**fields: Any) -> Fabric:
    """A lattice of twelve nodes, with the fields that are given."""
    plain: dict[str, Any] = {
        "graph": Lattice((4, 3)),
        "inputs": (InPort("a", XBand("low"), 3),),
        "outputs": (OutPort("y", XBand("high"), 2),),
        "populations": (CellPopulation("core", LSTM(4)),),
        "connectivity": (LocalRadius(1.5),),
        "public": 3,
        "message": 5,
        "head_dim": 2,
    }
    return Fabric(**{**plain, **fields})


MIXED = small(
    inputs=(InPort("a", (0, 1), 2), InPort("c", (3,), 1)),
    outputs=(OutPort("y", (9, 10), 2, "flatten"), OutPort("z", (11,), 1, "attend", 2)),
    populations=(CellPopulation("p", SLSTM(6, heads=2), (4, 5)), CellPopulation("q", Axon(6, 3), None, "all")),
    connectivity=(LocalRadius(1.5), SmallWorld(1, 0, 3)),
    heads=2,
    value_dim=3,
    query="state",
    learn_distance=True,
    inner_steps=2,
)
"""Two kinds of cells, delays, inner steps, all aggregates but the mean."""
SHARED = small(
    populations=(
        CellPopulation("g", GRU(4), (3, 4), "all"),
        CellPopulation("r", RNN(4, "relu"), (5, 6)),
        CellPopulation("l", LSTM(4), None, "tile(2,2)"),
    ),
    connectivity=(Columns((4, 3)),),
    kv_tile=(1, 1),
)
"""Three kinds of cells that share weights in their ways, and a dense neighbourhood."""
FREE = small(
    graph=NodePlaces(((0.0,), (1.0,), (2.5,), (4.0,))),
    inputs=(InPort("a", (0,), 3),),
    outputs=(OutPort("y", (3,), 2),),
    connectivity=(ExplicitEdges(((1, 0), (2, 1), (2, 2), (3, 2), (3, 1)), None, 2),),
)
"""Nodes without a lattice, a loop, and all edges with a delay."""

LITTLE = Lattice((3, 3))
FABRICS: dict[str, Examples] = {
    "fabric": Examples(
        cases={
            "fabric": (small(graph=LITTLE, populations=(CellPopulation("core", LSTM(3)),), kv_tile=(2, 2)), (4, 3)),
            "fabric-mixed": (
                replace(
                    MIXED,
                    graph=LITTLE,
                    inputs=(InPort("a", (0, 1), 2), InPort("c", (2,), 1)),
                    outputs=(OutPort("y", (6, 7), 2, "flatten"), OutPort("z", (8,), 1, "attend", 2)),
                    populations=(
                        CellPopulation("p", SLSTM(6, heads=2), (3, 5)),
                        CellPopulation("q", Axon(6, 3), None, "all"),
                    ),
                    message=4,
                    kv_tile=(2, 2),
                ),
                (2, 4, 3),
            ),
            "fabric-shared": (
                replace(
                    SHARED,
                    populations=(
                        CellPopulation("g", GRU(3), (3, 4), "all"),
                        CellPopulation("r", RNN(3, "relu"), (5, 6)),
                        CellPopulation("l", LSTM(3), None, "tile(2,2)"),
                    ),
                ),
                (3, 3),
            ),
            "fabric-free": (replace(FREE, populations=(CellPopulation("core", LSTM(3)),)), (2, 4, 3)),
        },
        sized=lambda r, a, b: (
            small(inputs=(InPort("a", XBand("low"), a),), outputs=(OutPort("y", XBand("high"), b),)),
            (r, 3, a),
        ),
    ),
}
