"""What watching costs a stream: rows a second alone, and with a page connected that gets 30 frames a second.

Run as ``python -m benchmarks scope_watch``. Alone and watched take turns, by processor time (of all threads, the
server's too), which other work on the machine disturbs less, and by time on the wall. Printed are the ratio of lower
quartiles, which are of undisturbed turns, and the median and quartiles of the ratios of neighbours. The page is another
process that reads the events of a `LiveServer`, as a browser does.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from volumetric import Clocked, Every, fabric, initialise, open_device
from volumetric.builders import chain
from volumetric.fabric import Blueprint, Input, Output, Population, lattice2d
from volumetric.fabric.cells import SLSTM
from volumetric.layers import LSTM, Dense
from volumetric.observe import Recorder
from volumetric.run.streams import open_stream
from volumetric.run.streams.stream_chunks import StreamChunk
from volumetric.scope import ScopeDocument, Viewer
from volumetric.scope.live_frames import LiveFrames
from volumetric.scope.scene_tables import scene_view

ROWS = 64
READER = "import sys, urllib.request\nfor _ in urllib.request.urlopen(sys.argv[1]): pass"


class Source:
    """A stream that nobody changes."""

    def connect(self, send: Any) -> None:
        self.send = send

    def act(self, view: str, action: Any) -> Any:
        return {}

    def close(self) -> None:
        pass


def subjects() -> dict[str, tuple[Any, Any, int]]:
    """Return machine, weights and width of the input of each subject."""
    sheet = lattice2d.Graph(width=64, height=63, populations={"core": Population(cell=SLSTM(hidden=8))})
    model = fabric.compile(Blueprint(graph=sheet, inputs={"in": Input(4)}, outputs={"out": Output(2)}))
    layers = [Dense(in_features=64, out_features=256, activation="tanh")]
    layers += [LSTM(input_size=256, hidden_size=256) for _ in range(10)]
    grid = chain([*layers, Dense(in_features=256, out_features=8)], (64,))
    clocks = {coord: Every(period=1 + i % 3) for i, coord in enumerate(grid.layers)}
    return {
        "fabric of 4,032 nodes": (model.network, model.params, 4),
        "clocked grid of 12 layers": (Clocked(network=grid, clocks=clocks), initialise(grid), 64),
    }


def measure(machine: Any, params: Any, width: int, device: str, turns: int, seconds: float, rate: float) -> None:
    """Print the ratios of one subject."""
    x = np.random.default_rng(0).standard_normal((1, ROWS, width)).astype(np.float32)
    chunk = StreamChunk(x={"input": x}, count=ROWS)
    plain, watched = (open_stream(open_device(device), machine, params, batch=1) for _ in range(2))
    recorder = Recorder(watched, most=0, rate=rate)
    frames, source, told = LiveFrames(recorder.scene), Source(), []
    document = ScopeDocument(title="watched", source="a benchmark", views=(scene_view(recorder.scene),))
    server = Viewer(document, source).serve()
    reader = subprocess.Popen([sys.executable, "-c", READER, server.address.replace("/?", "/events?")])
    try:
        server.wait_for_viewers(30)

        def tell(frame: Any) -> None:
            told.append(frame.t)
            source.send(frames.message(frame))

        recorder.tell = tell

        def cost(advance: Any) -> tuple[float, float, int]:
            """Return seconds a row, of the processor and on the wall, and the rows."""
            wall, processor, rows = time.perf_counter(), time.process_time(), 0
            while time.perf_counter() - wall < seconds:
                advance(chunk)
                rows += ROWS
            return (time.process_time() - processor) / rows, (time.perf_counter() - wall) / rows, rows

        ways = {"alone": plain.advance, "watched": recorder.advance}
        for advance in ways.values():
            cost(advance)
        told.clear()
        pairs, watched_seconds = [], 0.0
        for turn in range(turns):
            found = {name: cost(ways[name]) for name in (sorted(ways) if turn % 2 else sorted(ways, reverse=True))}
            pairs.append((found["alone"], found["watched"]))
            watched_seconds += found["watched"][1] * found["watched"][2]
        rows = 1 / statistics.median(alone[1] for alone, _ in pairs)
        print(f"  alone {rows:,.0f} rows/s; watched at {len(told) / watched_seconds:.1f} frames/s")
        for i, name in enumerate(("processor", "wall")):
            costs = [100 * (seen[i] / alone[i] - 1) for alone, seen in pairs]
            low, middle, high = statistics.quantiles(costs, n=4)
            quiet = [statistics.quantiles([one[i] for one in way], n=4)[0] for way in zip(*pairs, strict=True)]
            print(f"  {name:9} of the lower quartiles {100 * (quiet[1] / quiet[0] - 1):+.1f} %; of pairs", end=" ")
            print(f"{middle:+.1f} % (quartiles {low:+.1f} … {high:+.1f} %)", flush=True)
    finally:
        reader.kill()
        reader.wait()
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=12, help="pairs of runs, alone and watched")
    parser.add_argument("--seconds", type=float, default=1.5, help="of each run")
    parser.add_argument("--rate", type=float, default=30, help="frames a second")
    options = parser.parse_args()
    for name, (machine, params, width) in subjects().items():
        print(f"{name}, {options.device}", flush=True)
        measure(machine, params, width, options.device, options.turns, options.seconds, options.rate)


if __name__ == "__main__":
    main()
