"""A clocked machine, a fabric and a program: streams, resets, saved states."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from volumetric import Clock, Clocked, Coord, Every, Network, fabric, initialise, open_device
from volumetric.builders import sequential
from volumetric.fabric import Blueprint, BySenderTile, DotProduct, Input, Interface, Output, Population, lattice2d
from volumetric.fabric.cells import SLSTM
from volumetric.program import Canvas, Edge, In, Out, Program, Region, autowire, read_program, save_program


def clocked() -> NDArray[np.float32]:
    network: Network = sequential(4, 2, hidden=(8,))
    clocks: dict[Coord, Clock] = {next(iter(network.grid)): Every(2)}
    machine = Clocked(network=network, clocks=clocks)
    stream = open_device("reference").stream(machine, initialise(network, seed=1), batch=2)
    outputs = stream.run(np.zeros((2, 5, 4), np.float32))
    print(len(stream.save()))
    if isinstance(outputs, np.ndarray):
        return outputs
    return next(iter(outputs.values()))


def fabric_model() -> dict[str, object]:
    graph = lattice2d.Graph(
        width=4,
        height=4,
        inputs={"vision": lattice2d.XBand("low")},
        outputs={"action": lattice2d.Output(lattice2d.XBand("high"), aggregate="mean")},
        connectivity=[lattice2d.LocalRadius(1.5)],
        populations={"fast": Population(cell=SLSTM(hidden=8), nodes=lattice2d.Region(x=(0, 1)))},
    )
    blueprint = Blueprint(
        graph=graph,
        inputs={"vision": Input(3)},
        outputs={"action": Output(4)},
        interface=Interface(public=8, message=8),
        message=DotProduct(head_dim=4, heads=2, share=BySenderTile((2, 2))),
    )
    model = fabric.compile(blueprint)
    return model.facts()


def program(path: str) -> Program:
    canvas = Canvas(
        frames=1,
        shape=(4, 4),
        width=16,
        regions={
            "eye": Region(((0, 2), (0, 4)), family="observation"),
            "act": Region(((2, 4), (0, 4)), family="action", clock=Every(2)),
        },
    )
    written = Program(
        canvas,
        edges=[Edge(reads="eye", writes="act"), *autowire()],
        ports={"pixels": In("eye", 8), "motor": Out("act", 2)},
    )
    save_program(path, written)
    return read_program(path)
