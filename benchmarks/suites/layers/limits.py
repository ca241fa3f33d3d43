"""What a machine can do at best, measured: the denominators of the layer benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.timing import bursts, each, enough
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


def _product(device: GraphDevice, side: int) -> GraphProgram:
    work, store = GraphBuilder(), device.store()
    for key in ("a", "b"):
        store.write(key, np.full((1, side, side), 0.5, np.float32))
    c = work.gemm(work.stored_tensor("a", (1, side, side)), work.stored_tensor("b", (1, side, side)), trans_b=True)
    return device.compile(work.finish([work.slice(c, (0, 0, 0), (1, 1, 1))]), store)


def _copy(device: GraphDevice, numbers: int) -> GraphProgram:
    work, store = GraphBuilder(), device.store()
    store.write("a", np.ones(numbers, np.float32))
    y = work.unary(work.stored_tensor("a", (numbers,)), "neg")
    return device.compile(work.finish([work.slice(y, (0,), (1,))]), store)


def _best(burst: Callable[[int], float]) -> float:
    count = enough(burst, _BURST_SECONDS)
    return min(burst(count) for _ in range(_REPEATS))
