"""What Python costs around a token of the CPU, on a network so small that computing it hardly counts.

    python -m benchmarks token_overhead [--threads N] [--rounds N]

Four loops over the same network take turns: `Executable.greedy`, which feeds several tokens in one native call, and
calls of `Executable.run` with NumPy's arg max between; for one sequence and for eight. Microseconds of the calling
thread's processor time for each token of each sequence, so that neighbours on the machine count little: median of the
rounds, and the fastest and the slowest of them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from benchmarks.arguments import argument_parser
from volumetric.devices.named_devices import open_device
from volumetric.layers import Dense, Embedding, LayerSpec, MultiHeadAttention, RMSNorm, SwiGLU
from volumetric.network import Network, initialise
from volumetric.network.grid import Coord, Grid
from volumetric.run import RunOptions, lower
from volumetric.run.device import SequenceRows

WIDTH, VOCABULARY, TOKENS = 32, 96, 640


def network() -> Network:
    """One block between an embedding and a head."""
    layers: list[LayerSpec] = [
        Embedding(num_embeddings=VOCABULARY, embedding_dim=WIDTH),
        RMSNorm(num_features=WIDTH),
        MultiHeadAttention(embed_dim=WIDTH, num_heads=2),
        SwiGLU(in_features=WIDTH, hidden_features=WIDTH),
        Dense(in_features=WIDTH, out_features=VOCABULARY, bias=False),
    ]
    return Network(grid=Grid(len(layers)), layers={Coord(z): layer for z, layer in enumerate(layers)})


def greedy(executable: Any, sequences: int) -> None:
    """Decode by the device's own loop."""
    states = [executable.new_state() for _ in range(sequences)]
    for _ in islice(executable.greedy(states, [1] * sequences), TOKENS):
        pass


def calls(executable: Any, sequences: int) -> None:
    """Decode call by call."""
    states, tokens = [executable.new_state() for _ in range(sequences)], [1] * sequences
    for _ in range(TOKENS):
        pieces = [SequenceRows(state, np.array([token], np.int32)) for state, token in zip(states, tokens, strict=True)]
        tokens = [int(row[0].argmax()) for row in executable.run(pieces)]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    plan = lower(network())
    options = RunOptions(context=TOKENS + 8, threads=args.threads)
    executable = open_device("cpu").compile(plan, initialise(network(), 1), options)
    loops: list[tuple[str, Callable[[Any, int], None], int]] = [
        ("greedy, one sequence", greedy, 1),
        ("run and arg max, one sequence", calls, 1),
        ("greedy, eight sequences", greedy, 8),
        ("run and arg max, eight sequences", calls, 8),
    ]
    times: dict[str, list[float]] = {name: [] for name, _, _ in loops}
    for turn in range(args.rounds + 1):
        for name, loop, sequences in loops:
            began = time.thread_time()
            loop(executable, sequences)
            if turn:  # the first one compiles
                times[name].append((time.thread_time() - began) / TOKENS / sequences * 1e6)
    for name, found in times.items():
        print(f"{name:34} {statistics.median(found):7.1f} µs a token ({min(found):.1f} … {max(found):.1f})")


if __name__ == "__main__":
    main()
