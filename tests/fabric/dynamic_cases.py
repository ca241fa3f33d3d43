"""Fabrics of which nodes are masked, and what they are without these nodes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests.examples.fabrics import FREE, SHARED, small
from tests.examples.fabrics import MIXED as OTHER
from tests.layers.test_vjp import arrays
from volumetric.fabric.layer.cell_populations import LSTM, RNN, SLSTM, Axon, CellPopulation, InPort, OutPort
from volumetric.fabric.layer.edge_rules import Columns
from volumetric.fabric.layer.fabric_layer import Fabric
from volumetric.fabric.layer.node_entries import param_entries, state_entries
from volumetric.fabric.layer.node_graphs import Lattice
from volumetric.fabric.layer.node_sets import XBand
from volumetric.layers.node_layer import NodeEntries, places_of

Arrays = dict[str, np.ndarray]

TWELVE = {"graph": Lattice((4, 3)), "kv_tile": None}
PLAIN = small(**TWELVE, populations=(CellPopulation("core", LSTM(4)),))
MIXED = replace(
    OTHER,
    **TWELVE,
    inputs=(InPort("a", (0, 1), 2), InPort("c", (3,), 1)),
    outputs=(OutPort("y", (9, 10), 2, "flatten"), OutPort("z", (11,), 1, "attend", 2)),
    populations=(CellPopulation("p", SLSTM(6, heads=2), (4, 5)), CellPopulation("q", Axon(6, 3), None, "all")),
)
"""Two kinds of cells, delays, inner steps, all aggregates but the mean; and nodes enough to lose some."""
DENSE = small(
    graph=Lattice((8, 6)),
    kv_tile=None,
    connectivity=(Columns((5, 6)),),
    populations=(CellPopulation("core", RNN(4)),),
    outputs=(OutPort("y", XBand("high"), 2, "attend"),),
    heads=2,
    learn_distance=True,
)
"""24 cells that read each other: messages between them are products of matrices."""
CASES: dict[str, tuple[Fabric, tuple[int, ...]]] = {
    "plain": (replace(PLAIN, dynamic=True), (1, 4, 6, 10)),
    "mixed": (replace(MIXED, dynamic=True), (0, 4, 7, 9)),
    "shared": (replace(SHARED, dynamic=True), (0, 3, 5, 8, 11)),
    "free": (replace(FREE, dynamic=True), (1,)),
    "dense": (replace(DENSE, dynamic=True), (2, 7, 8, 9, 30, 44, 45)),
}
"""Name → a fabric and the nodes that go."""


def given(spec: Fabric, rows: int = 5) -> tuple[Arrays, np.ndarray]:
    """Parameters with which all nodes live, and rows of two streams."""
    p, x = arrays(spec, (2, rows, sum(port.dim for port in spec.inputs)), seed=3)
    return {**p, "living": np.ones(len(spec.facts.order))}, x


def masked(spec: Fabric, p: Arrays, gone: tuple[int, ...]) -> Arrays:
    """The parameters with nodes masked."""
    living = np.ones(len(spec.facts.order))
    living[places_of(spec, gone)] = 0
    return {**p, "living": living}


def cut(spec: Fabric, gone: tuple[int, ...]) -> Fabric:
    """A fabric that never had these nodes."""
    return replace(spec, without=gone, dynamic=False)


def left(spec: Fabric, values: Arrays, gone: tuple[int, ...]) -> Arrays:
    """What is left of parameters, or of their gradients, without nodes."""
    return _followed(values, param_entries(spec), param_entries(cut(spec, gone)), cut(spec, gone).params())


def states_left(spec: Fabric, values: Arrays, gone: tuple[int, ...]) -> Arrays:
    """What is left of states, ``[streams, …]``."""
    return _by_stream(values, spec, cut(spec, gone))


def states_put_back(spec: Fabric, values: Arrays, gone: tuple[int, ...]) -> Arrays:
    """States of the whole fabric, of which those of nodes that were gone are zeros."""
    return _by_stream(values, cut(spec, gone), spec)


def _by_stream(values: Arrays, before: Fabric, after: Fabric) -> Arrays:
    rows = [
        _followed(dict(zip(values, row, strict=True)), state_entries(before), state_entries(after), after.states())
        for row in zip(*values.values(), strict=True)
    ]
    return {name: np.stack([row[name] for row in rows]) for name in values}


def _followed(values: Arrays, before: dict[str, NodeEntries], after: dict[str, NodeEntries], specs: tuple) -> Arrays:
    return {
        of.name: after[of.name].carry_over(values[of.name], before[of.name], np.zeros(of.shape))
        if of.name in after
        else values[of.name]
        for of in specs
    }
