"""Decoding on one thread in tokens per second of processor time, beside llama.cpp: for machines that are not idle.

    python -m benchmarks decode_cpu_time --llama-python PEER/bin/python MODEL.gguf …

Time in which other programs held the core does not count, so the figures bear neighbours that `compare_llamacpp.py`
does not; caches and memory are shared with them still. Both engines read the prompt token by token and take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from itertools import islice
from pathlib import Path

from benchmarks.arguments import argument_parser
from benchmarks.timing import spread
from benchmarks.workers import run_once

PROMPT = [1, 2, 3, 4, 5]


def own(path: str, count: int) -> float:
    """Tokens per processor second of this engine."""
    import numpy as np

    from volumetric.devices.named_devices import open_device
    from volumetric.loaders import open_model
    from volumetric.run.call_batch import greedy_ids
    from volumetric.run.device import RunOptions
    from volumetric.run.lower import lower

    loaded = open_model(path)
    options = RunOptions(context=512, threads=1)
    executable = open_device("cpu").compile(lower(loaded.network), loaded.params, options)
    state, best = executable.new_state(), 0
    for token in PROMPT:
        best = int(executable.forward(state, np.array([token], np.int32)).argmax())
    list(islice(greedy_ids(executable, state, best), 4))
    start = time.process_time()
    list(islice(greedy_ids(executable, state, best), count))
    return count / (time.process_time() - start)


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--llama-python", help="Python interpreter that has llama-cpp-python")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--own", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.own:
        print(own(args.models[0], args.tokens))
        return
    if args.llama_python is None:
        parser.error("--llama-python is required")
    print("| file | volumetric | llama.cpp | ratio |\n| --- | --- | --- | --- |")
    for model in args.models:
        ours, theirs = [], []
        for _ in range(args.rounds):
            own_run = "decode_cpu_time.py", model, "--own", "--tokens", str(args.tokens)
            ours.append(float(run_once(sys.executable, *own_run)))
            paced = "llamacpp_worker.py", "paced", model, json.dumps(PROMPT), str(args.tokens)
            theirs.append(float(run_once(args.llama_python, *paced)))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        cells = [spread(x) for x in (ours, theirs)]
        print(f"| {Path(model).name} | {' | '.join(cells)} | **{ratio:.2f}** |", flush=True)


if __name__ == "__main__":
    main()
