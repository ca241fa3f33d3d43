"""What a run of a small program costs the host on a GPU, beside PyTorch where it is installed with CUDA.

    python -m benchmarks gpu_submission [--device 0] [--runs 2000] [--json found.json]

Microseconds, median (5th to 95th percentile) of single calls:

- run: one dispatch with an input and an output, waited for, as inference does; torch: to the card, relu, back;
- queued: the same dispatch over data on the GPU, 200 runs without a wait between them, mean of each; torch: relu;
- train: an update of a dense 16 → 32 → 4 network by 8 rows, the loss read back; torch: the same with AdamW;
- encode, send, read: the parts of a run in the executor, the GPU being idle.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser
from volumetric import Coord, Grid, Network, initialise
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.gpu_commands import CopyCommand, PassCommand
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.graph import GraphBuilder
from volumetric.layers import Dense
from volumetric.train.data import Batch
from volumetric.train.device_learner import learner_on
from volumetric.train.learner import LearnerOptions
from volumetric.train.optim import AdamW

QUEUED = 200
WIDTH = 1024


def timed(call: Callable[[], object], runs: int, each: int = 1) -> list[float]:
    """Microseconds of single calls, sorted, after a warm-up; `each` is what a call does."""
    until = time.perf_counter() + 0.5
    while time.perf_counter() < until:
        call()
    found = []
    for _ in range(max(runs // each, 15)):
        start = time.perf_counter()
        call()
        found.append(1e6 * (time.perf_counter() - start) / each)
    return sorted(found)


def ours(device: GpuDevice) -> Iterator[tuple[str, Callable[[], object], int]]:
    graphs = device.graphs()
    x = np.ones((1, WIDTH), np.float32)

    work = GraphBuilder()
    program = graphs.compile(work.finish([work.unary(work.input("x", x.shape), "relu")]), graphs.store())
    yield "run", lambda: program.run([x]), 1

    store = graphs.store()
    store.write("x", x)
    work = GraphBuilder()
    y = work.unary(work.stored("x", x.shape), "relu")
    stored = graphs.compile(work.finish([y]), store)

    def queued() -> None:
        for _ in range(QUEUED - 1):
            stored.submit([])
        stored.run([])

    yield "queued", queued, QUEUED

    learner = learner_on(device)(network(), initialise(network(), seed=1), LearnerOptions(optimiser=AdamW()))
    draw = np.random.default_rng(0)
    batch = Batch(draw.standard_normal((8, 16), np.float32), draw.standard_normal((8, 4), np.float32))
    yield "train", lambda: learner.step([batch], rate=1e-3), 1
    yield from parts(graphs)


def parts(graphs: GpuGraphs) -> Iterator[tuple[str, Callable[[], object], int]]:
    """The parts of a run of one dispatch, each when the GPU is idle."""
    executor, context = graphs.context.new_executor(), graphs.context
    work = GraphBuilder()
    program = graphs.compile(work.finish([work.unary(work.input("x", (1, WIDTH)), "relu")]), graphs.store())
    source, target = context.buffer(64, "source"), context.buffer(64, "target", read=True)
    commands = [PassCommand(executor.prepare(program.calls)), CopyCommand(source, 0, target, 0, 64)]
    times: dict[str, list[float]] = {"encode": [], "send": [], "read": []}

    def once() -> None:
        marks = [time.perf_counter()]
        begun = executor.begin(commands)
        marks.append(time.perf_counter())
        number = executor.send(begun)
        marks.append(time.perf_counter())
        while time.perf_counter() < marks[-1] + 2e-4:  # until the GPU is done: `read` is the host's part alone
            pass
        marks.append(time.perf_counter())
        executor.read(target, 64, number)
        marks.append(time.perf_counter())
        spans = np.diff(marks)
        for name, span in zip(times, spans[[0, 1, 3]], strict=True):
            times[name].append(1e6 * span)

    for _ in range(1000):
        once()
    for name, found in times.items():
        kept = sorted(found[100:])
        yield name, lambda kept=kept: kept, 0


def network() -> Network:
    layers = {
        Coord(0): Dense(in_features=16, out_features=32, activation="tanh"),
        Coord(1): Dense(in_features=32, out_features=4),
    }
    return Network(grid=Grid(2), layers=layers, input_shape=(16,), input_dtype="float32")


def theirs() -> dict[str, tuple[Callable[[], object], int]]:
    """The same in torch; empty without a torch that sees a card."""
    try:
        import torch
    except ImportError:
        return {}
    if not torch.cuda.is_available():
        return {}
    host = torch.ones((1, WIDTH))
    there = host.cuda()

    def queued() -> None:
        for _ in range(QUEUED):
            torch.relu(there)
        torch.cuda.synchronize()

    made = [torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)]
    model = torch.nn.Sequential(*made).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, y = torch.randn(8, 16), torch.randn(8, 4)

    def train() -> None:
        optimiser.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x.cuda()), y.cuda())
        loss.backward()
        optimiser.step()
        loss.item()

    return {"run": (lambda: torch.relu(host.cuda()).cpu(), 1), "queued": (queued, QUEUED), "train": (train, 1)}


def summary(found: list[float]) -> dict[str, float]:
    low, middle, high = (round(found[int(len(found) * part)], 1) for part in (0.05, 0.5, 0.95))
    return {"median": middle, "low": low, "high": high}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--device", help="index or part of the name of the adapter")
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    args = parser.parse_args()
    device = GpuDevice(args.device)
    print(device.info.description, flush=True)
    peers = theirs()
    rows: dict[str, dict[str, Any]] = {}
    for name, call, each in ours(device):
        found: list[float] = timed(call, args.runs, each) if each else call()  # type: ignore[assignment]
        rows[name] = {"us": summary(found)}
        if name in peers:
            rows[name]["torch"] = summary(timed(peers[name][0], args.runs, peers[name][1]))
        line = f"{name:<8}" + "".join(
            f"  {who} {row['median']:>8} us ({row['low']}–{row['high']})" for who, row in rows[name].items()
        )
        print(line, flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps({"device": device.info.description, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
