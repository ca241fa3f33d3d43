"""Batches and prompts with matrix registers (AMX) and without, in tokens per second of one thread's processor time.

    python -m benchmarks matrix_registers MODEL …

The two take turns in processes of their own, for machines that are not idle; caches and memory are shared with what
else runs. Medians of the rounds, with the least and the greatest.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from contextlib import closing
from pathlib import Path

from benchmarks.arguments import argument_parser
from benchmarks.timing import spread
from benchmarks.workers import run_once

BATCHES = (4, 8, 16, 32)
PROMPT = 512


def measure(path: str, steps: int) -> dict[str, float]:
    """Tokens per processor second of each call, the best of a few."""
    import numpy as np

    from volumetric.devices.named_devices import open_device
    from volumetric.loaders import open_model
    from volumetric.run.device import RunOptions
    from volumetric.run.lower import lower

    loaded = open_model(path)
    options = RunOptions(context=2 * PROMPT, threads=1)
    executable = open_device("cpu").compile(lower(loaded.network), loaded.params, options)
    found: dict[str, float] = {}
    for count in BATCHES:
        states = [executable.new_state() for _ in range(count)]
        with closing(executable.greedy(states, [7] * count)) as tokens:
            for _ in range(8):
                next(tokens)
            seconds = []
            for _ in range(steps):
                start = time.thread_time()
                for _ in range(8):
                    next(tokens)
                seconds.append(time.thread_time() - start)
        found[f"{count} sequences"] = 8 * count / min(seconds)
    ids, seconds = (np.arange(PROMPT) * 37 % 1000).astype(np.int32), []
    for _ in range(4):
        state, start = executable.new_state(), time.thread_time()
        executable.forward(state, ids)
        seconds.append(time.thread_time() - start)
    found[f"a prompt of {PROMPT}"] = PROMPT / min(seconds)
    return found


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--steps", type=int, default=8, help="rounds of eight tokens of each sequence")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--own", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.own:
        print(json.dumps(measure(args.models[0], args.steps)))
        return
    print("| file | call | with | without | ratio |\n| --- | --- | ---: | ---: | ---: |")
    for model in args.models:
        rounds: dict[str, list[dict[str, float]]] = {"1": [], "0": []}
        for _ in range(args.rounds):
            for switch, found in rounds.items():
                own = "matrix_registers.py", model, "--own", "--steps", str(args.steps)
                found.append(json.loads(run_once(sys.executable, *own, environment={"VOLUMETRIC_AMX": switch})))
        for call in rounds["1"][0]:
            sides = [[some[call] for some in found] for found in rounds.values()]
            ratio = statistics.median(a / b for a, b in zip(*sides, strict=True))
            cells = [spread(x) for x in sides]
            print(f"| {Path(model).name} | {call} | {' | '.join(cells)} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
