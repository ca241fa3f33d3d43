"""Search for the fastest tuning of each matrix-vector product on this GPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from volumetric.devices.gpu.call_schedule import CONTROL_BYTES, SequenceSpan, control_words
from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.kernels import matmul
from volumetric.devices.gpu.kernels.dispatch import CallRows, ceil_div
from volumetric.devices.gpu.kernels.matmul import MatmulShape, MatvecTuning, neighbour_tunings, tune_matvec
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.devices.gpu.profile import passes_seconds

_COLD_BYTES = 128 << 20
"""Copies of a matrix are used in turn until this many bytes are read, so that none is in a cache."""
_MOST_COPIES = 32
_MOST_CUTS = 40
_REPEATS = 12
_BETTER = 0.985
"""A tuning replaces another one if it needs less than this share of its time: smaller gains are noise."""


def search_tunings(
    context: OpenGpu, shape: MatmulShape, units: int, start: MatvecTuning, *, cold_bytes: int = _COLD_BYTES
) -> dict[MatvecTuning, float]:
    """Search from `start` through ever faster neighbours; returns the seconds of each tuning tried.

    Raises
    ------
    DeviceError : no memory for a copy of the matrix
    UnsupportedError : the GPU has no timestamps
    """
    product = TimedProduct(context, shape, units, cold_bytes)
    times = {start: math.inf}
    best = start
    try:
        while len(times) < _MOST_CUTS:
            around = [tuning for tuning in neighbour_tunings(shape, best, context.caps) if tuning not in times]
            if not around:
                break
            tried = [best, *around]
            seconds = passes_seconds(context, [product.calls(tuning) for tuning in tried], CallRows(1), _REPEATS)
            # The best so far runs again in each round: times are relative to it, as clocks differ between rounds.
            each = seconds[0] / product.copies if math.isinf(times[best]) else times[best]
            times |= {tuning: each * value / seconds[0] for tuning, value in zip(tried, seconds, strict=True)}
            fastest = min(around, key=lambda tuning: times[tuning])
            if times[fastest] > _BETTER * times[best]:
                break
            best = fastest
    finally:
        product.close()
    return times


def tune_products(context: OpenGpu, products: Iterable[tuple[MatmulShape, int]]) -> None:
    """Search for each product and store the winners.

    Raises
    ------
    DeviceError : no memory for a copy of a matrix
    UnsupportedError : the GPU has no timestamps
    """
    for shape, units in products:
        start = tune_matvec(shape, units, context.caps)
        times = search_tunings(context, shape, units, start)
        best = min(times, key=lambda tuning: times[tuning])
        if best != start and times[best] <= _BETTER * times[start]:
            context.tunings.remember(shape, units, best)
    context.tunings.save()


class TimedProduct:
    """A matrix product of up to `rows` rows of x over several copies of a matrix of zeros."""

    def __init__(self, context: OpenGpu, shape: MatmulShape, units: int, cold_bytes: int, *, rows: int = 1) -> None:
        self._context, self._shape, self._units = context, shape, units
        outputs = shape.parts * units
        nbytes = outputs * shape.format.row_bytes(shape.k)
        self.copies: int = max(2, min(_MOST_COPIES, cold_bytes // nbytes + 1))
        self._weights = [context.buffer(nbytes, "weights") for _ in range(self.copies)]
        width = 4 * ceil_div(shape.n, 4)
        sizes = {"x": 16 * rows * ceil_div(shape.k, 4), "y": 4 * rows * width}
        sizes |= {"scales": outputs * shape.format.scale_bytes(shape.k)}
        sizes |= {"residual": 4 * rows * width} if shape.residual else {}
        sizes |= {"bias": 4 * width * shape.parts} if shape.bias else {}
        sizes |= {"norm_params": 32 * ceil_div(shape.k, 4)} if shape.norm_weight or shape.norm_bias else {}
        self._shared = {name: context.buffer(size, name) for name, size in sizes.items()}
        self._control = context.buffer(CONTROL_BYTES, "control", uniform=True)

    def describe(self, rows: int) -> CallRows:
        """Set the control block for calls of so many rows."""
        described = CallRows(rows, rows)
        self._context.write(self._control, control_words([SequenceSpan(0, 0, 1)] * rows, described, 1))
        return described

    def calls(self, tuning: MatvecTuning) -> list[BoundDispatch]:
        """The product with each copy in turn."""
        dispatch = matmul.matvec(self._shape, self._context.caps, first=0, units=self._units, tuning=tuning)
        control = {"ctl": self._control} if tuning.batch > 1 else {}
        return [self._context.bind(dispatch, {**self._shared, **control, "weights": w}) for w in self._weights]

    def close(self) -> None:
        """Free the copies."""
        buffers: list[Any] = [*self._weights, *self._shared.values(), self._control]
        for buffer in buffers:
            self._context.free(buffer)
