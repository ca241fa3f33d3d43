"""Decoding on one thread in tokens per second of processor time, beside llama.cpp: for machines that are not idle.

    python benchmarks/decode_cpu_time.py --llama-python PEER/bin/python MODEL.gguf …

Time in which other programs held the core does not count, so the figures bear neighbours that `compare_llamacpp.py`
does not; caches and memory are shared with them still. Both engines read the prompt token by token and take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

HERE = Path(__file__).parent
PROMPT = [1, 2, 3, 4, 5]


def own(path: str, count: int) -> float:
    """Tokens per processor second of this engine."""
    import numpy as np

    from volumetric.loaders import open_model
    from volumetric.runtime.batch import greedy_ids
    from volumetric.runtime.device import RunOptions
    from volumetric.runtime.lower import lower
    from volumetric.runtime.open import open_device

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


def measured(command: list[str]) -> float:
    """The figure that a process prints last."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
            ours.append(measured([sys.executable, __file__, model, "--own", "--tokens", str(args.tokens)]))
            worker = [args.llama_python, str(HERE / "llamacpp_worker.py"), "paced", model]
            theirs.append(measured([*worker, json.dumps(PROMPT), str(args.tokens)]))
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
        cells = [f"{statistics.median(x):.0f} ({min(x):.0f}–{max(x):.0f})" for x in (ours, theirs)]
        print(f"| {Path(model).name} | {' | '.join(cells)} | **{ratio:.2f}** |", flush=True)


if __name__ == "__main__":
    main()
