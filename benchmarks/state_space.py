"""State-space models with random weights on the CPU, beside transformers: prompts and decoding, in turn.

    python -m benchmarks state_space [--shape mamba-130m] [--dtype float32,int8:g32,int4:g32] [--threads 2]
        [--rows 256] [--tokens 32] [--rounds 5] [--torch-python PYTHON] [--cpu-time]

With `--cpu-time --threads 1` seconds are the processor's, of which other work on the machine takes none. The bound of
decoding is memory: weights, and states twice, at the speed that a probe finds in the same round. Prints the median of
the rounds and their range, and the share of that bound by the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.memory_probe import read_bandwidth
from benchmarks.workers import Worker
from volumetric.devices.named_devices import open_device
from volumetric.dtypes import Scheme
from volumetric.loaders import archs
from volumetric.loaders.hf_config import Config
from volumetric.loaders.target_schemes import convert_params, target_schemes
from volumetric.network import initialise
from volumetric.run import RunOptions, lower

SHAPES: dict[str, dict[str, Any]] = {
    "mamba-130m": {"model_type": "mamba", "hidden_size": 768, "num_hidden_layers": 24, "vocab_size": 50280},
    "mamba2-130m": {
        "model_type": "mamba2",
        "hidden_size": 768,
        "num_hidden_layers": 24,
        "vocab_size": 50288,
        "num_heads": 24,
        "n_groups": 1,
        "tie_word_embeddings": True,
    },
}


def opened(python: Path, values: dict[str, Any], given: argparse.Namespace) -> Worker:
    """Return a process with transformers and the model."""
    sizes = [str(n) for n in (given.rows, given.tokens, given.threads)]
    worker = Worker(python, "state_space_worker.py", json.dumps(values), *sizes, name="transformers")
    print(worker.answer()["about"])
    return worker


def shown(seconds: list[float]) -> str:
    """Rows a second: median, and range."""
    rates = sorted(1 / each for each in seconds)
    return f"{statistics.median(rates):8.1f} /s ({rates[0]:.1f} to {rates[-1]:.1f})"


def main() -> None:
    """Measure each dtype in turn with the peer."""
    parser = argument_parser(__doc__)
    parser.add_argument("--shape", choices=SHAPES, default="mamba-130m")
    parser.add_argument("--dtype", default="float32,int8:g32,int4:g32")
    parser.add_argument("--torch-python", type=Path)
    parser.add_argument("--cpu-time", action="store_true")
    for name, default in (("threads", 2), ("rows", 256), ("tokens", 32), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    clock = time.process_time if given.cpu_time else time.perf_counter
    values = SHAPES[given.shape]
    network = archs.build(Config(values, given.shape)).network
    plan, params = lower(network), initialise(network, 1)
    device = open_device("cpu", threads=given.threads)
    peer = opened(given.torch_python, values, given) if given.torch_python else None
    ids = np.arange(given.rows, dtype=np.int32) % values["vocab_size"]
    states = sum(4 * spec.size for spec in plan.states.values())
    for dtype in given.dtype.split(","):
        held = convert_params(params, target_schemes(network, Scheme.parse(dtype)))
        run = device.compile(plan, held, RunOptions(context=4096))
        found: dict[str, list[float]] = {"prompt": [], "decode": [], "peer prompt": [], "peer decode": [], "share": []}
        for i in range(given.rounds + 1):
            bandwidth = 1e9 * read_bandwidth(given.threads)
            state = run.new_state()
            start = clock()
            run.forward(state, ids)
            prompt = (clock() - start) / given.rows
            made = run.greedy([state], [5])
            next(made)
            start = clock()
            for _ in range(given.tokens):
                next(made)
            decode = (clock() - start) / given.tokens
            made.close()
            others: dict[str, float] = {}
            if peer is not None:
                for what in ("prompt", "decode"):
                    others[f"peer {what}"] = float(peer.ask({"do": what})["cpu" if given.cpu_time else "seconds"])
            if i == 0:
                continue  # the round that compiles
            bound = (run.memory.weights + 2 * states) / bandwidth
            measured = {"prompt": prompt, "decode": decode, "share": bound / decode, **others}
            for name, value in measured.items():
                found[name].append(value)
        print(f"{given.shape} {dtype}, {given.threads} threads")
        for name, seconds in found.items():
            if name == "share":
                if given.cpu_time:  # the probe's clock is that on the wall
                    continue
                print(f"  share of the memory's bound in decoding: {statistics.median(seconds):.2f}")
            elif seconds:
                print(f"  {name:12} {shown(seconds)}")


if __name__ == "__main__":
    main()
