"""Search for the fastest tile of each product on matrix units of this GPU, for few, some and many rows.

One set of tiles reaches between 41 and 74 % of the best on four GPUs (llama.cpp, pull request 22241): the defaults are
those of the GPU they were measured on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from volumetric.devices.gpu.autotune import TimedProduct, tune_products
from volumetric.devices.gpu.gpu_context import BoundDispatch
from volumetric.devices.gpu.kernels import matrix_tiles
from volumetric.devices.gpu.kernels.matmul import MatmulShape
from volumetric.devices.gpu.kernels.matrix_tiles import MatrixCut, candidates, choose_cut
from volumetric.devices.gpu.open_gpu import OpenGpu
from volumetric.devices.gpu.profile import passes_seconds

_COLD_BYTES = 128 << 20
_REPEATS = 8
_NOISE_WORDS = 4 << 20
_BETTER = 0.97
"""A cut replaces the default if it needs less than this share of its time: smaller gains are noise."""


def search_cuts(
    context: OpenGpu, shape: MatmulShape, units: int, rows: int, *, cold_bytes: int = _COLD_BYTES
) -> dict[MatrixCut, float]:
    """Time all candidates for `rows` rows, the default first; returns the seconds of a product with each.

    Raises
    ------
    DeviceError : no memory for a copy of the matrix
    UnsupportedError : the GPU has no timestamps
    """
    own = replace(shape, n=units)
    cuts = list(dict.fromkeys([choose_cut(own, rows, context.caps), *candidates(own, rows, context.caps)]))
    product = TimedMatrixProduct(context, shape, units, cold_bytes, rows=rows)
    try:
        described = product.describe(rows)
        passes = [product.matrix_calls(cut, rows) for cut in cuts]
        seconds = passes_seconds(context, passes, described._replace(singles=0), _REPEATS)
        return {cut: value / product.copies for cut, value in zip(cuts, seconds, strict=True)}
    finally:
        product.close()


def tune_every_product(context: OpenGpu, products: list[tuple[MatmulShape, int]], *, halves: bool) -> None:
    """Search for tunings of products of a row; with `halves` also of many, on matrix units."""
    tune_products(context, products)
    if halves and context.caps.matrix_units:
        tune_matrix_products(context, products)


def tune_matrix_products(context: OpenGpu, products: Iterable[tuple[MatmulShape, int]]) -> None:
    """Search for each product, and store the winners; raises as `search_cuts`."""
    for shape, units in products:
        if not matrix_tiles.takes(shape.format):
            continue
        for rows in matrix_tiles.TUNED_ROWS:
            if not matrix_tiles.gains(shape, rows, context.caps):
                continue
            times = search_cuts(context, shape, units, rows)
            default = next(iter(times))
            best = min(times, key=lambda cut: times[cut])
            if times[best] <= _BETTER * times[default]:
                context.tunings.remember_cut(shape, units, rows, best)
    context.tunings.save()


class TimedMatrixProduct(TimedProduct):
    """A product on matrix units over several copies of a random matrix; the rows are halves already.

    Zeros would mislead: they draw less power, and on an H200 the best tiles of nearly empty matrices were up to 1.5
    times slower than others within a model.
    """

    def __init__(self, context: OpenGpu, shape: MatmulShape, units: int, cold_bytes: int, *, rows: int) -> None:
        super().__init__(context, shape, units, cold_bytes, rows=rows)
        self._halved = context.buffer(2 * rows * matrix_tiles.halved_stride(shape.k), "halved rows")
        self._undo = context.buffer(4 * rows, "powers of two")
        self._parts: dict[int, Any] = {}
        bits = np.random.default_rng(0).integers(0, 1 << 32, _NOISE_WORDS, np.uint32) & np.uint32(0xBFFFBFFF)
        for buffer in (*self._weights, self._halved):
            for at in range(0, buffer.size, bits.nbytes):
                context.write(buffer, bits[: (buffer.size - at) // 4], at)

    def matrix_calls(self, cut: MatrixCut, rows: int) -> list[BoundDispatch]:
        """The product, and the sum of its splits, with each copy in turn."""
        product = matrix_tiles.matrix_gemm(self._shape, self._context.caps, cut, first=0, units=self._units, rows=rows)
        after = {name: self._shared[name] for name in ("bias", "residual", "y") if name in self._shared}
        bound = {"x": self._halved, "undo": self._undo, "ctl": self._control, "scales": self._shared["scales"]}
        if cut.splits == 1:
            return [self._context.bind(product, {**after, **bound, "weights": w}) for w in self._weights]
        nbytes = matrix_tiles.partial_bytes(self._shape, cut, rows)
        if nbytes not in self._parts:
            self._parts[nbytes] = self._context.buffer(nbytes, "partial products")
        parts = self._parts[nbytes]
        sums = matrix_tiles.join_splits(self._shape, cut, first=0, units=self._units, rows=rows)
        join = self._context.bind(sums, {**after, "splits": parts, "ctl": self._control})
        return [
            call
            for w in self._weights
            for call in (self._context.bind(product, {**bound, "weights": w, "y": parts}), join)
        ]

    def close(self) -> None:
        """Free the copies."""
        for buffer in (self._halved, self._undo, *self._parts.values()):
            self._context.free(buffer)
        super().close()
