"""What small calls cost on a GPU: submissions, round trips, updates of a small network, beside PyTorch with CUDA.

    python -m benchmarks small_calls [--device 0] [--runs 2000] [--json measured.json]

Microseconds, median (5th to 95th percentile):

- queued: a dense layer of 256 by 16 rows that are on the GPU, 200 calls without a wait between them, each;
- run: the same layer by rows of the host, with its output read back;
- network: a row through a network of one such layer, as `Executable.run` does it;
- update: of a dense 16 → 32 → 4 network by 8 rows of the host, with AdamW; the loss is read back;
- updates: each of 16 updates in one submission, of samples on the GPU; the losses are read back at the end;
- encode, send, read: the parts of a run of one dispatch in the executor, the GPU being idle.

PyTorch does the same eagerly, and as CUDA graphs that are captured once. On a software adapter `send` and `read` also
hold the work of the kernels.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from benchmarks.arguments import argument_parser, positive_int
from benchmarks.gpu_graph_ops import torch_with_cuda
from benchmarks.timing import summary
from volumetric.builders import chain
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.gpu_commands import CopyCommand, PassCommand
from volumetric.devices.gpu.graph import GpuGraphs
from volumetric.graph import GraphBuilder
from volumetric.layers import Dense
from volumetric.network import initialise
from volumetric.run import SequenceRows, lower
from volumetric.train.data import ArrayData
from volumetric.train.device_learner import learner_on
from volumetric.train.learner import LearnerOptions
from volumetric.train.optim import AdamW
from volumetric.train.picked_batch import picked_batches

QUEUED = 200
TOGETHER = 16
WIDTH, ROWS = 256, 16
SAMPLES = 8
NETWORK = chain(
    [Dense(in_features=16, out_features=32, activation="tanh"), Dense(in_features=32, out_features=4)], (16,)
)

Measured: TypeAlias = "tuple[str, Callable[[], Any], int]"
"""What is measured, how, and how many of it a call does; 0 if the call returns the times."""


def timed(call: Callable[[], object], runs: int, each: int = 1) -> list[float]:
    """Microseconds of single calls, sorted, after a warm-up; `each` is what a call does."""
    until = time.perf_counter() + 0.5
    while time.perf_counter() < until:
        call()
    times: list[float] = []
    for _ in range(max(runs // each, 15)):
        start = time.perf_counter()
        call()
        times.append(1e6 * (time.perf_counter() - start) / each)
    return sorted(times)


def ours(device: GpuDevice) -> Iterator[Measured]:
    """Yield what is measured on a GPU."""
    graphs = device.graphs()
    x = np.ones((1, ROWS, WIDTH), np.float32)
    weight = np.full((1, WIDTH, WIDTH), 1e-3, np.float32)

    store = graphs.store()
    store.write("w", weight)
    store.write("x", x)
    work = GraphBuilder()
    stored = graphs.compile(
        work.finish([work.gemm(work.stored_tensor("x", x.shape), work.stored_tensor("w", weight.shape))]), store
    )

    def queued() -> None:
        for _ in range(QUEUED - 1):
            stored.submit([])
        stored.run([])

    yield "queued", queued, QUEUED

    work = GraphBuilder()
    program = graphs.compile(
        work.finish([work.gemm(work.input("x", x.shape), work.stored_tensor("w", weight.shape))]), store
    )
    yield "run", lambda: program.run([x]), 1
    yield network(device)
    yield from updates(device)
    yield from parts(graphs)


def network(device: GpuDevice) -> Measured:
    """A row through a network of one layer."""
    layer = chain([Dense(in_features=WIDTH, out_features=WIDTH)], (WIDTH,))
    executable = device.compile(lower(layer), initialise(layer, seed=0))
    state, row = executable.new_state(), np.ones((1, WIDTH), np.float32)

    def one_row() -> None:
        if state.position == executable.options.context:
            state.reset()
        executable.run([SequenceRows(state, row)])

    return "network", one_row, 1


def updates(device: GpuDevice) -> Iterator[Measured]:
    """An update, and several in one submission."""
    draw = np.random.default_rng(0)
    count = TOGETHER * SAMPLES
    data = ArrayData(
        inputs=draw.standard_normal((count, 16), np.float32),
        targets=draw.standard_normal((count, 4), np.float32),
        batch_size=SAMPLES,
    )
    learner = learner_on(device)(NETWORK, initialise(NETWORK, seed=1), LearnerOptions(optimiser=AdamW()))
    picks = list(picked_batches(data, 0))
    batch = picks[0].batch()
    yield "update", lambda: learner.step([batch], rate=1e-3), 1
    steps = getattr(learner, "steps")  # noqa: B009 - a `DeviceLearner`, which the type of the factory does not say
    yield "updates", lambda: steps(picks, rates=[1e-3] * TOGETHER), TOGETHER


def parts(graphs: GpuGraphs) -> Iterator[Measured]:
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
    for name, values in times.items():
        settled = sorted(values[100:])
        yield name, lambda settled=settled: settled, 0


def theirs() -> dict[tuple[str, str], tuple[Callable[[], object], int]]:
    """The same in torch, eagerly and as CUDA graphs; empty without a torch that sees a card."""
    torch = torch_with_cuda()
    if torch is None:
        return {}
    host = torch.ones((ROWS, WIDTH)).pin_memory()
    there, weight = host.cuda(), torch.full((WIDTH, WIDTH), 1e-3).cuda()

    def captured(call: Callable[[], Any]) -> tuple[Any, Any]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = call()
        return graph, result

    with torch.no_grad():
        layer, output = captured(lambda: there @ weight)

    def repeated(call: Callable[[], object]) -> Callable[[], None]:
        def queued() -> None:
            for _ in range(QUEUED):
                call()
            torch.cuda.synchronize()

        return queued

    def fetched(rows: Any) -> Any:
        result = rows.cuda() @ weight
        return result.cpu()

    def run_captured() -> None:
        there.copy_(host, non_blocking=True)
        layer.replay()
        output.cpu()

    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 4)).cuda()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    x, y = torch.randn(TOGETHER, SAMPLES, 16), torch.randn(TOGETHER, SAMPLES, 4)
    inputs, targets = x.cuda(), y.cuda()

    def step(rows: Any, answers: Any) -> Any:
        optimiser.zero_grad(set_to_none=True)
        loss = torch.nn.functional.mse_loss(model(rows), answers)
        loss.backward()
        optimiser.step()
        return loss.detach()

    def several() -> Any:
        return torch.stack([step(rows, answers) for rows, answers in zip(inputs, targets, strict=True)])

    one, loss = captured(lambda: step(inputs[0], targets[0]))
    all_of_them, losses = captured(several)

    def update_captured() -> None:
        inputs[0].copy_(x[0])
        targets[0].copy_(y[0])
        one.replay()
        loss.item()

    def updates_captured() -> None:
        all_of_them.replay()
        losses.tolist()

    return {
        ("queued", "torch"): (repeated(lambda: there @ weight), QUEUED),
        ("queued", "torch graph"): (repeated(layer.replay), QUEUED),
        ("run", "torch"): (lambda: fetched(host), 1),
        ("run", "torch graph"): (run_captured, 1),
        ("network", "torch"): (lambda: fetched(host[:1]), 1),
        ("update", "torch"): (lambda: step(x[0].cuda(), y[0].cuda()).item(), 1),
        ("update", "torch graph"): (update_captured, 1),
        ("updates", "torch"): (lambda: several().tolist(), TOGETHER),
        ("updates", "torch graph"): (updates_captured, TOGETHER),
    }


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--device", help="index or part of the name of the adapter")
    parser.add_argument("--runs", type=positive_int, default=2000)
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    args = parser.parse_args()
    device = GpuDevice(args.device)
    print(f"{device.info.description}, {device.info.details['webgpu']}", flush=True)
    peers = theirs()
    rows: dict[str, dict[str, Any]] = {}
    for name, call, each in ours(device):
        rows[name] = {"us": summary(timed(call, args.runs, each) if each else call())}
        for (what, who), (peer, count) in peers.items():
            if what == name:
                rows[name][who] = summary(timed(peer, args.runs, count))
        line = f"{name:<8}" + "".join(
            f"  {who} {row['median']:>8} us ({row['low']}–{row['high']})" for who, row in rows[name].items()
        )
        print(line, flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps({"device": device.info.description, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
