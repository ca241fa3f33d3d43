"""How much a prompt in pieces slows the sequences that decode beside it.

    python -m benchmarks decode_beside_prompt MODEL [--device cpu] [--sequences 8] [--piece 128] [--rounds 20]

Three calls in turn, round after round: a token of each sequence, a piece of a prompt, and both in one call. If a call
cost nothing but arithmetic, both together would take as long as one after the other, less what reading the weights once
saves.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from benchmarks.arguments import argument_parser
from benchmarks.timing import spread
from volumetric.devices.named_devices import open_device
from volumetric.loaders import open_model
from volumetric.run.device import Executable, RunOptions, SequenceRows
from volumetric.run.lower import lower


def milliseconds(executable: Executable, pieces: list[SequenceRows]) -> float:
    """Time of one call, after which the states are as before."""
    held = [piece.state.position for piece in pieces]
    began = time.perf_counter()
    executable.run(pieces)
    seconds = time.perf_counter() - began
    for piece, position in zip(pieces, held, strict=True):
        piece.state.trim(position)
    return 1e3 * seconds


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("model")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--piece", type=int, default=128)
    parser.add_argument("--depth", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    loaded = open_model(args.model)
    options = RunOptions(context=args.depth + args.piece, threads=args.threads)
    executable = open_device(args.device).compile(lower(loaded.network), loaded.params, options)
    rng = np.random.default_rng(0)

    def ids(count: int) -> np.ndarray:
        return rng.integers(0, 1000, count).astype(np.int32)

    states = [executable.new_state() for _ in range(args.sequences)]
    prompt = executable.new_state()
    executable.run([SequenceRows(state, ids(args.depth), "none") for state in (*states, prompt)])
    decoding = [SequenceRows(state, ids(1)) for state in states]
    piece = [SequenceRows(prompt, ids(args.piece), "none")]
    cases = {"decode": decoding, "piece": piece, "both": [*decoding, *piece]}
    times: dict[str, list[float]] = {name: [] for name in cases}
    for turn in range(args.rounds + 2):
        for name, pieces in cases.items():
            took = milliseconds(executable, pieces)
            if turn >= 2:  # the first rounds compile, and let the threads settle
                times[name].append(took)
    names = {
        "decode": f"{args.sequences} tokens",
        "piece": f"{args.piece} rows of a prompt",
        "both": "both in one call",
    }
    print("| call | ms (least–most) |\n| --- | ---: |")
    for name, found in times.items():
        print(f"| {names[name]} | {spread(found, '.2f')} |")
    apart = [a + b for a, b in zip(times["decode"], times["piece"], strict=True)]
    ratio = statistics.median(c / s for c, s in zip(times["both"], apart, strict=True))
    print(f"\nBoth in one call take {ratio:.2f} of the two one after the other.")


if __name__ == "__main__":
    main()
