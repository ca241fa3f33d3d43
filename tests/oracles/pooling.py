"""Pooling written out in NumPy."""

from __future__ import annotations

import numpy as np

from tests.oracles.base import Arrays, Grads, Oracle, Saved, oracle_of
from tests.oracles.memory import Memory
from volumetric.base._typing import Array
from volumetric.layers.adaptive_pooling import AdaptiveAvgPool, AdaptiveMaxPool, AdaptivePool, ranges
from volumetric.layers.pooling import AvgPool, MaxPool


@oracle_of(MaxPool)
class MaxPoolOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        windows, counts = self.spec.windows(xs[0].shape)
        y, tap = windows.largest(xs[0], counts)
        return y, {"windows": windows, "tap": tap, "sizes": xs[0].shape[2:]}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((saved["windows"].at_taps(gy, saved["tap"], saved["sizes"]),))


@oracle_of(AvgPool)
class AvgPoolOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        (windows, counts), sizes = self.spec.windows(xs[0].shape), xs[0].shape[2:]
        divisors = self.spec.divisors(windows, counts, sizes).astype(xs[0].dtype)
        saved = {"windows": windows, "divisors": divisors, "sizes": sizes}
        return windows.sums(xs[0], counts) / divisors, saved

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        return Grads((saved["windows"].spread_sums(gy / saved["divisors"], saved["sizes"]),))


@oracle_of(AdaptivePool)
class AdaptivePoolOracle(Oracle):
    def forward(self, p: Arrays, *xs: Array, memory: Memory | None = None) -> tuple[Array, Saved]:
        y, tape = xs[0], []
        sizes = self.spec.output_shape(y.shape)[2:]
        for axis, count in reversed(list(enumerate(sizes, 2))):  # of equal elements the first one, as in one window
            size, parts, kept = y.shape[axis], [], []
            for start, end in ranges(size, count):
                part, choice = self.pooled(y.take(range(start, end), axis), axis)
                parts.append(part)
                kept.append(choice)
            tape.append((axis, size, kept))
            y = np.concatenate(parts, axis)
        return y, {"tape": tape}

    def vjp(self, p: Arrays, saved: Saved, gy: Array) -> Grads:
        g = gy
        for axis, size, kept in reversed(saved["tape"]):
            shape = tuple(size if i == axis else n for i, n in enumerate(g.shape))
            gx = np.zeros(shape, g.dtype)
            for i, ((start, end), choice) in enumerate(zip(ranges(size, len(kept)), kept, strict=True)):
                place = (*(slice(None),) * axis, slice(start, end))
                gx[place] += self.spread(g.take([i], axis), choice, axis, end - start)
            g = gx
        return Grads((g,))

    def pooled(self, x: Array, axis: int) -> tuple[Array, Array | None]:
        """Return one axis pooled as a whole, which keeps it with size 1, and what `spread` needs."""
        raise NotImplementedError(self.spec.kind)

    def spread(self, g: Array, choice: Array | None, axis: int, size: int) -> Array:
        """Return the gradient of what `pooled` took: `size` elements along the axis, or one that stands for all."""
        raise NotImplementedError(self.spec.kind)


@oracle_of(AdaptiveAvgPool)
class AdaptiveAvgPoolOracle(AdaptivePoolOracle):
    def pooled(self, x: Array, axis: int) -> tuple[Array, Array | None]:
        return x.mean(axis, keepdims=True), None

    def spread(self, g: Array, choice: Array | None, axis: int, size: int) -> Array:
        return g / g.dtype.type(size)


@oracle_of(AdaptiveMaxPool)
class AdaptiveMaxPoolOracle(AdaptivePoolOracle):
    def pooled(self, x: Array, axis: int) -> tuple[Array, Array | None]:
        choice = x.argmax(axis, keepdims=True)
        return np.take_along_axis(x, choice, axis), choice

    def spread(self, g: Array, choice: Array | None, axis: int, size: int) -> Array:
        gx = np.zeros((*g.shape[:axis], size, *g.shape[axis + 1 :]), g.dtype)
        if choice is not None:
            np.put_along_axis(gx, choice, g, axis)
        return gx
