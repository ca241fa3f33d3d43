"""What a machine can do at best, measured: the denominators of the layer benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from volumetric.graph import GraphBuilder, GraphDevice, GraphProgram

_NUMBERS = 1 << 25  # 128 MiB: beyond any last-level cache, within the least binding that GPUs offer
_REPEATS = 15  # many, because the best is wanted and neighbours come and go
_BURST_SECONDS = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Best rates seen.

    Attributes
    ----------
    flops : float32 operations a second of a large matrix product: the better of NumPy's BLAS and our own on a CPU, our
        own on a GPU
    bandwidth : bytes a second, read and written, of copying an array that no cache holds
    """

    flops: float
    bandwidth: float


def measure_limits(device: GraphDevice, *, side: int, host: bool) -> Limits:
    """Measure a device.

    Parameters
    ----------
    side : of the matrices of the product, large enough to fill the device
    host : it computes where NumPy does, with as many threads
    """
    flops = 2.0 * side**3 / _best(bursts(_product(device, side)))
    if host:
        a, b = (np.ones((side, side), np.float32) for _ in range(2))
        flops = max(flops, 2.0 * side**3 / _best(each(lambda: a @ b)))
    return Limits(flops=flops, bandwidth=8.0 * _NUMBERS / _best(bursts(_copy(device, _NUMBERS))))


_WARM_RUNS, _WARM_SECONDS = 16, 0.5
_WARM_MOST = 2.0
"""Seconds of warm-up after which few runs are enough: such a run is in parts, which are measured one by one."""


def bursts(program: GraphProgram) -> Callable[[int], float]:
    """Return what runs a program so many times and gives the seconds of one run; only the last run is waited for."""
    submit = getattr(program, "submit", None) or program.run

    def burst(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count - 1):
            submit([])
        program.run([])
        return (time.perf_counter() - start) / count

    return burst


def enough(burst: Callable[[int], float], seconds: float) -> int:
    """Return how many runs take about so long, after a warm-up in which devices choose how they run a program.

    The CPU device puts its number of threads to the proof within the first dozen runs.
    """
    start, spent = time.perf_counter(), 0.0
    for number in range(1, _WARM_RUNS + 1):
        burst(1)
        spent = time.perf_counter() - start
        if spent > _WARM_MOST or (2 * number > _WARM_RUNS and spent > _WARM_SECONDS):
            break
    each = burst(2 if spent < _WARM_MOST else 1)
    return max(1, min(1000, int(seconds / max(each, 1e-6))))


def _product(device: GraphDevice, side: int) -> GraphProgram:
    work, store = GraphBuilder(), device.store()
    for key in ("a", "b"):
        store.put(key, np.full((1, side, side), 0.5, np.float32))
    c = work.gemm(work.stored("a", (1, side, side)), work.stored("b", (1, side, side)), trans_b=True)
    return device.compile(work.finish([work.slice(c, (0, 0, 0), (1, 1, 1))]), store)


def _copy(device: GraphDevice, numbers: int) -> GraphProgram:
    work, store = GraphBuilder(), device.store()
    store.put("a", np.ones(numbers, np.float32))
    y = work.unary(work.stored("a", (numbers,)), "neg")
    return device.compile(work.finish([work.slice(y, (0,), (1,))]), store)


def each(run: Callable[[], object]) -> Callable[[int], float]:
    """Return what makes some runs and tells the seconds of one."""

    def burst(count: int) -> float:
        start = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - start) / count

    return burst


def _best(burst: Callable[[int], float]) -> float:
    count = enough(burst, _BURST_SECONDS)
    return min(burst(count) for _ in range(_REPEATS))
