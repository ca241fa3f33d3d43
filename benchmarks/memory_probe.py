"""How fast this machine reads main memory now: the ceiling of every decode measurement.

Decoding one token reads all weights once, so tokens/s × bytes/token cannot exceed this figure. Virtual machines change
it within minutes, hence the probe belongs next to each measurement.

    python -m benchmarks memory_probe [--threads N]
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from benchmarks.arguments import argument_parser

PROBE_BYTES = 512 << 20  # far beyond any last-level cache


def read_bandwidth(threads: int, *, repeats: int = 5) -> float:
    """Measure GB/s (10⁹ bytes) of `threads` threads that read disjoint parts of one large array; the best of `repeats`.

    The reduction is float32 `max`, which NumPy runs with wide vectors and without the interpreter lock; one addition
    chain, as in `sum`, would be bound by its latency instead.
    """
    data = np.ones(PROBE_BYTES // 4, np.float32)
    parts = np.array_split(data, threads)
    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(repeats):
            start = time.perf_counter()
            list(pool.map(np.max, parts))
            best = max(best, data.nbytes / (time.perf_counter() - start) / 1e9)
    return best


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    threads = parser.parse_args().threads
    print(f"{read_bandwidth(threads):.1f} GB/s with {threads} thread(s)")


if __name__ == "__main__":
    main()
