"""Streams of the kinds of networks that can be sculpted: a fabric, a clocked grid, a program, and a stack of layers."""

from __future__ import annotations

from functools import cache

import pytest

from volumetric import fabric, initialise, open_device
from volumetric.clocked import Clocked
from volumetric.fabric import Blueprint, Input, Interface, Output, Population, cells, lattice2d
from volumetric.layers import GRU, Dense, Discrete, LayerSpec
from volumetric.layers.clock import Event, Every
from volumetric.network import Network
from volumetric.network.grid import Coord, Grid, Link
from volumetric.observe.recorder import AnyStream
from volumetric.program import Canvas, Edge, In, Out, Program, Region, autowire

KINDS = (
    "fabric",
    "clocked",
    pytest.param("program", marks=pytest.mark.thorough),
    pytest.param("stack", marks=pytest.mark.thorough),
)
"""Kinds of networks, for tests of each."""


@cache
def fabric_model() -> fabric.Model:
    graph = lattice2d.Graph(
        width=5,
        height=4,
        inputs={"eye": lattice2d.XBand("low")},
        outputs={"hand": lattice2d.Output(lattice2d.XBand("high"))},
        connectivity=[lattice2d.LocalRadius(1.5), lattice2d.SmallWorld(1, seed=1, delay=3)],
        populations={
            "left": Population(cell=cells.GRU(hidden=6), nodes=lattice2d.Region(x=(0, 0.5))),
            "core": Population(cell=cells.LSTM(hidden=6)),
        },
    )
    blueprint = Blueprint(
        graph=graph, inputs={"eye": Input(3)}, outputs={"hand": Output(2)}, interface=Interface(public=6, message=6)
    )
    return fabric.compile(blueprint)


@cache
def clocked_grid() -> Clocked:
    """A grid of 2 × 2 × 2 recurrent layers with loops, delays, clocks and a threshold."""
    layers: dict[Coord, LayerSpec] = {
        Coord(z, y, x): GRU(input_size=4, hidden_size=4) for z in range(2) for y in range(2) for x in range(2)
    }
    layers[Coord(1, 0, 1)] = Discrete(function="ternary", threshold=0.05)
    links = [
        Link((0, 0, 0), (0, 1, 1), combine="add", delay=3),
        Link((1, 1, 1), (0, 0, 1), combine="add", delay=1),
        Link((0, 0, 1), (1, 1, 0), combine="add", delay=2),
    ]
    network = Network(layers=layers, grid=Grid(2, 2, 2), links=links, input_shape=(4,))
    clocks = {Coord(0, 1, 0): Every(3), Coord(1, 1, 0): Event("0.0.0.0.rms", above=0.1) | Every(5)}
    return Clocked(network=network, clocks=clocks)


@cache
def program() -> Program:
    canvas = Canvas(
        frames=1,
        shape=(4, 4),
        width=8,
        regions={
            "eye": Region(((0, 2), (0, 2)), family="observation"),
            "belief": Region(((0, 2), (2, 4)), carrier="filter"),
            "store": Region(((2, 4), (0, 2)), family="memory", carrier="memory", clock=Every(4)),
            "act": Region(((2, 4), (2, 4)), family="action"),
        },
    )
    edges = [Edge(reads="act", writes="belief"), *autowire(), Edge(reads="store", writes="belief", when="every(2)")]
    return Program(canvas, edges=edges, ports={"pixels": In("eye", 6), "motor": Out("act", 2)}, heads=2)


def open_machine(kind: str, *, batch: int = 1, device: str = "reference") -> AnyStream:
    """Open a stream of one of `KINDS`."""
    if kind == "fabric":
        model = fabric_model()
        return open_device(device).stream(model.network, model.params, batch=batch)
    if kind == "clocked":
        machine = clocked_grid()
        return open_device(device).stream(machine, initialise(machine.network), batch=batch)
    if kind == "program":
        network = program().network()
        return open_device(device).stream(network, initialise(network), batch=batch)
    layers = [
        Dense(in_features=3, out_features=5),
        GRU(input_size=5, hidden_size=5),
        Dense(in_features=5, out_features=5),
    ]
    network = Network(layers=[*layers, Dense(in_features=5, out_features=2)], input_shape=(3,))
    return open_device(device).stream(network, initialise(network), batch=batch)
