"""Programs before they are compiled and after: how large they are, and rows a second.

    python -m benchmarks program_compile [--streams 8] [--rows 64] [--rounds 15]

An agent's program as it is trained: what it sees, two beliefs that are filters, a memory, an error and an action,
joined by their families; two regions with outputs of their own ask the beliefs for what comes next, and regions learn
by losses of their families. It is compiled with all outputs, with that of the action alone, and so with the memory as a
constant, taken after the rows of a stream: its outputs are others then. On one thread; streams of the four run in turn,
each a call of some rows, and times are of the processor.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from typing import Any

import numpy as np
from msgspec.structs import replace

from benchmarks.arguments import argument_parser
from volumetric import initialise, open_device
from volumetric.program import Canvas, Edge, In, Out, Program, Region, autowire, learning_of
from volumetric.program import compile as compile_program

HELD = "and its memory a constant"


def agent() -> Program:
    """16 positions a region, 64 wide."""
    boxes = {
        name: ((row, row + 4), (column, column + 4))
        for name, row, column in (
            ("eye", 0, 0),
            ("near", 0, 4),
            ("far", 0, 8),
            ("store", 4, 0),
            ("error", 4, 4),
            ("act", 4, 8),
            ("next_eye", 8, 0),
            ("next_act", 8, 4),
        )
    }

    def region(name: str, family: str, **fields: Any) -> Region:
        return Region(boxes[name], family=family, **fields)

    regions = {
        "eye": region("eye", "observation", learning=learning_of("observation")),
        "near": region("near", "state", carrier="filter", learning=learning_of("state")),
        "far": region("far", "state", carrier="filter", learning=learning_of("state"), clock="every(4)"),
        "store": region("store", "memory", carrier="memory", slots=8, learning=learning_of("memory")),
        "error": region("error", "residual", carrier="residual", learning=learning_of("residual")),
        "act": region("act", "action"),
        "next_eye": region("next_eye", "guess"),
        "next_act": region("next_act", "guess"),
    }
    edges = [
        *autowire(),
        Edge("act", "near"),  # in place of what autowire does, which replaces
        Edge("act", "far"),
        *(Edge(reads, writes) for writes in ("next_eye", "next_act") for reads in ("near", "far")),
    ]
    ports = {
        "pixels": In("eye", 48),
        "motor": Out("act", 4),
        "guessed": Out("next_eye", 48),
        "planned": Out("next_act", 4),
    }
    return Program(Canvas(1, (12, 12), 64, regions), edges, ports)


def held(program: Program) -> Program:
    """The program whose memory is to be a constant."""
    regions = dict(program.canvas.regions)
    regions["store"] = replace(regions["store"], keep="constant")
    return replace(program, canvas=replace(program.canvas, regions=regions))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    program = agent()
    params = initialise(program.network(), seed=1)
    kinds: dict[str, tuple[Program, Any, Any]] = {"as trained": (program, params, None)}
    for name, outputs in (("compiled", None), ("compiled for motor", ["motor"])):
        made = compile_program(program, params, outputs=outputs)
        kinds[name] = made.program, made.params, made.report
    x = np.random.default_rng(2).standard_normal((args.streams, args.rows, 48)).astype(np.float32)
    made = compile_program(held(program), params, outputs=["motor"], rows=x[0])
    kinds[HELD] = made.program, made.params, made.report
    device: Any = open_device("cpu", threads=1)
    streams: dict[str, Any] = {n: device.stream(p.network(), w, batch=args.streams) for n, (p, w, _) in kinds.items()}
    motor = {name: stream.run({"pixels": x})["motor"] for name, stream in streams.items()}
    times: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(args.rounds):
        for name, stream in streams.items():
            start = time.process_time()
            stream.run({"pixels": x})
            times[name].append(time.process_time() - start)
    print("| | regions | edges | parameters | numbers of a stream | rows/s | × | apart |\n" + "| --- " * 8 + "|")
    first = statistics.median(times["as trained"])
    before = dataclasses.asdict(kinds["compiled"][2].before)
    for name, (_, _, report) in kinds.items():
        size = before if report is None else dataclasses.asdict(report.after)
        middle, rows = statistics.median(times[name]), args.streams * args.rows
        spread = f"{rows / max(times[name]):,.0f} … {rows / min(times[name]):,.0f}"
        far = float(np.abs(motor[name] - motor["as trained"]).max() / np.abs(motor["as trained"]).max())
        apart = "" if name == HELD else f"{far:.1g}"
        counts = " | ".join(f"{size[of]:,}" for of in ("regions", "edges", "parameters", "state"))
        print(f"| {name} | {counts} | {rows / middle:,.0f} ({spread}) | {first / middle:.2f} | {apart} |")


if __name__ == "__main__":
    main()
