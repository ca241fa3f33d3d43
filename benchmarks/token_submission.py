"""What a token costs the host on a GPU: microseconds of its parts, for each dispatch, and tokens per second.

    python -m benchmarks token_submission [--device 0] [--models smollm2] [--dtypes float16] [--json found.json]

Of the commands of a token of one sequence, median (5th to 95th percentile), in microseconds of a dispatch:

- encode: all that is done ahead, on one thread;
- begin: what the calling thread does of it, while another one does the rest;
- send: the submission, behind one that is still running;
- token: from one token to the next in a decoding loop, with everything overlapped as in use.

``VOLUMETRIC_WEBGPU`` chooses the implementation. The model ``narrow`` has as many dispatches as SmolLM2 and small
products, so that the host is the limit on most GPUs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser, positive_int
from benchmarks.known_shapes import MODELS, Model, network, params
from benchmarks.timing import summary
from volumetric.devices.gpu import GpuDevice
from volumetric.devices.gpu.call_schedule import SequenceSpan
from volumetric.devices.gpu.executable import GpuExecutable
from volumetric.devices.gpu.gpu_commands import Command, CopyCommand
from volumetric.dtypes import Scheme
from volumetric.run import RunOptions, lower
from volumetric.run.call_batch import greedy_ids

CONTEXT = 1024
SHAPES = {
    **MODELS,
    "narrow": Model(width=64, hidden=128, blocks=30, heads=4, kv_heads=2, vocabulary=512, tied=True),
}


def compiled(device: GpuDevice, model: str, dtype: str) -> GpuExecutable:
    """Return a model of random weights on the device."""
    plan = lower(network(SHAPES[model]))
    weights = params(dict(plan.params), Scheme.parse(dtype))
    return device.compile(plan, weights, RunOptions(context=CONTEXT, compute="float32"))


def host_costs(executable: GpuExecutable, runs: int) -> Iterator[tuple[str, list[float]]]:
    """Yield the name of each part and its microseconds of a dispatch, sorted."""
    recordings = executable.recordings
    executor, context = recordings.executor, recordings.context
    token = recordings.next_tokens(recordings.count([SequenceSpan(0, 0, 1)]))
    target = context.buffer(16, "tokens", read=True)
    commands: list[Command] = [token, CopyCommand(recordings.tokens, 0, target, 0, 4)]
    times: dict[str, list[float]] = {"encode": [], "begin": [], "send": []}

    def timed(part: str, call: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        value = call()
        times[part].append(1e6 * (time.perf_counter() - start) / len(token.prepared))
        return value

    for _ in range(runs):
        executor.discard(timed("encode", lambda: executor.record(commands)))
        first, behind = executor.begin(commands), timed("begin", lambda: executor.begin(commands))
        time.sleep(2e-3)  # until the other thread is done
        executor.send(first)
        number = timed("send", lambda behind=behind: executor.send(behind))
        executor.read(target, 4, number)
    context.free(target)
    yield from ((part, sorted(values[len(values) // 10 :])) for part, values in times.items())
    yield "token", [second / len(token.prepared) for second in token_times(executable, runs)]


def token_times(executable: GpuExecutable, runs: int) -> list[float]:
    """Microseconds from one token to the next, sorted."""
    state: Any = executable.new_state()
    stream = greedy_ids(executable, state, 1)
    list(islice(stream, 20))
    marks = [time.perf_counter() for _ in islice(stream, runs)]
    stream.close()
    return sorted(1e6 * np.diff(marks))


def main() -> None:
    """Measure, and print a line for each part."""
    parser = argument_parser(__doc__)
    parser.add_argument("--device", help="index or part of the name of the adapter")
    parser.add_argument("--models", default="smollm2", help=", ".join(SHAPES))
    parser.add_argument("--dtypes", default="float16")
    parser.add_argument("--runs", type=positive_int, default=400)
    parser.add_argument("--json", type=Path, help="also write everything measured to this file")
    args = parser.parse_args()
    device = GpuDevice(args.device)
    print(f"{device.info.description}, {device.context.webgpu.version}", flush=True)
    rows: dict[str, dict[str, float]] = {}
    for model in args.models.split(","):
        for dtype in args.dtypes.split(","):
            executable = compiled(device, model, dtype)
            for part, values in host_costs(executable, args.runs):
                row = rows[f"{model} {dtype} {part}"] = summary(values)
                print(f"{model} {dtype} {part:<7} {row['median']:>8} us ({row['low']}–{row['high']})", flush=True)
            times = token_times(executable, args.runs)
            print(f"{model} {dtype}: {1e6 / times[len(times) // 2]:.0f} tok/s", flush=True)
            executable.close()
    if args.json is not None:
        args.json.write_text(json.dumps({"device": device.info.description, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
