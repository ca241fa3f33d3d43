"""What it costs that nodes of a fabric can be masked, and what masking and taking out some of them takes.

    .venv/bin/python -m benchmarks fabric_masks --side 16 --hidden 32 --batch 8 --threads 1

Prints, all in turn in one run, milliseconds of processor time of a row (median, least and most) in calls of one row
and of 64: of a fabric whose nodes cannot be masked, of one whose nodes can be, of that with a quarter of its cells
masked, and of the one without these. Then how long it takes to mask them, and to take them out, and run a row each.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import replace

import numpy as np

from benchmarks.arguments import argument_parser
from volumetric import fabric
from volumetric.devices import open_device
from volumetric.fabric import Blueprint, Input, Interface, Output, Population, lattice2d
from volumetric.fabric.cells import SLSTM
from volumetric.run.streams.row_stream import RowStream

WIDTH = 16
"""Of rows that come in, and of those that come out."""


def blueprint(side: int, hidden: int) -> Blueprint:
    """A torus of sLSTM cells that read their eight neighbours."""
    core = {"core": Population(cell=SLSTM(hidden=hidden))}
    return Blueprint(
        graph=lattice2d.Graph(width=side, height=side, wrap=True, populations=core),
        inputs={"rows": Input(WIDTH)},
        outputs={"made": Output(WIDTH)},
        interface=Interface(public=hidden, message=hidden),
    )


def taken(streams: dict[str, RowStream], rows: int, repeats: int) -> dict[str, list[float]]:
    """Milliseconds of processor time of a row, for all streams in turn."""
    found: dict[str, list[float]] = {name: [] for name in streams}
    for turn in range(repeats + 1):
        for name, stream in streams.items():
            x = np.random.default_rng(turn).standard_normal((stream.batch, rows, WIDTH)).astype(np.float32)
            calls = max(1, 16 // rows)
            began = time.process_time()
            for _ in range(calls):
                stream.run(x)
            if turn:  # the first compiles
                found[name].append(1e3 * (time.process_time() - began) / calls / rows)
    return found


def main() -> None:
    parser = argument_parser(__doc__)
    for name, value in (("side", 16), ("hidden", 32), ("batch", 8), ("threads", 1), ("repeats", 15)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    device = open_device("cpu", threads=asked.threads)
    declared = blueprint(asked.side, asked.hidden)
    fixed, whole = fabric.compile(declared), fabric.compile(replace(declared, dynamic=True))
    cells = np.arange(asked.side, asked.side * (asked.side - 1))
    gone = np.random.default_rng(0).permutation(cells)[: len(cells) // 4].tolist()
    smaller = fabric.remove(whole.network, whole.params, gone)
    streams: dict[str, RowStream] = {
        name: device.stream(network, params, batch=asked.batch)  # pyright: ignore[reportAttributeAccessIssue]  (the CPU)
        for name, (network, params) in {
            "cannot be masked": (fixed.network, fixed.params),
            "can be masked": (whole.network, whole.params),
            "a quarter is masked": (whole.network, fabric.mask(whole.network, whole.params, gone)),
            "a quarter is not there": smaller,
        }.items()
    }
    print(f"{asked.side}x{asked.side}, {asked.hidden} wide, {asked.batch} streams, {asked.threads} threads")
    for rows in (1, 64):
        for name, times in taken(streams, rows, asked.repeats).items():
            spread = f"{statistics.median(times):.3f} ({min(times):.3f} … {max(times):.3f})"
            print(f"calls of {rows:2}  {name:24}{spread} ms a row")
    stream, x = streams["can be masked"], np.zeros((asked.batch, 1, WIDTH), np.float32)
    found: dict[str, list[float]] = {"mask": [], "unmask": [], "take out": []}
    for what in list(found) * asked.repeats:
        began = time.process_time()
        if what == "take out":
            stream.migrate(*fabric.remove(whole.network, whole.params, gone)).run(x)
        else:
            getattr(stream, what)(gone)
            stream.run(x)
        found[what].append(1e3 * (time.process_time() - began))
    for what, times in found.items():
        spread = f"{statistics.median(times):.1f} ({min(times):.1f} … {max(times):.1f})"
        print(f"{what} {len(gone)} nodes, and run a row: {spread} ms")


if __name__ == "__main__":
    main()
