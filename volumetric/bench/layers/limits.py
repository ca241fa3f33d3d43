"""What a machine can do at best, measured: the denominators of the layer benchmark."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from volumetric.runtime.graph import GraphBuilder, GraphDevice

_SIDE = 2048
_NUMBERS = 1 << 26  # 256 MB, beyond any last-level cache


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


def measure_limits(device: GraphDevice, *, host: bool) -> Limits:
    """Measure a device; `host` says that it computes where NumPy does."""
    side, numbers = (_SIDE, _NUMBERS) if host else (2 * _SIDE, _NUMBERS)
    flops = 2.0 * side**3 / _best(_product(device, side))
    if host:
        a, b = (np.ones((side, side), np.float32) for _ in range(2))
        flops = max(flops, 2.0 * side**3 / _best(lambda: a @ b))
    return Limits(flops=flops, bandwidth=8.0 * numbers / _best(_copy(device, numbers)))


def _product(device: GraphDevice, side: int) -> Callable[[], object]:
    work, store = GraphBuilder(), device.store()
    for key in ("a", "b"):
        store.put(key, np.full((1, side, side), 0.5, np.float32))
    c = work.gemm(work.stored("a", (1, side, side)), work.stored("b", (1, side, side)), trans_b=True)
    program = device.compile(work.finish([work.slice(c, (0, 0, 0), (1, 1, 1))]), store)
    return lambda: program.run([])


def _copy(device: GraphDevice, numbers: int) -> Callable[[], object]:
    work, store = GraphBuilder(), device.store()
    store.put("a", np.ones(numbers, np.float32))
    y = work.unary(work.stored("a", (numbers,)), "neg")
    program = device.compile(work.finish([work.slice(y, (0,), (1,))]), store)
    return lambda: program.run([])


def _best(run: Callable[[], object], repeats: int = 5) -> float:
    run()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)
