"""Translation of the noise of samples, a hash of their places: the same numbers as on all devices."""

from __future__ import annotations

from typing import Final

import numpy as np

from volumetric.loaders.onnx_export.onnx_operations import Operands, translates
from volumetric.loaders.onnx_export.onnx_writer import OnnxWriter

_WORD: Final = 1 << 32


class _Words:
    """Arithmetic modulo 2³² in int64, whose products keep the low bits."""

    def __init__(self, writer: OnnxWriter) -> None:
        self._writer = writer
        self._mask = self.number(_WORD - 1)

    def number(self, value: int) -> str:
        return self._writer.constant(np.array(value, np.int64))

    def low(self, x: str) -> str:
        return self._writer.node("BitwiseAnd", x, self._mask)

    def shifted(self, x: str, bits: int) -> str:
        return self._writer.node("Div", x, self.number(1 << bits))

    def multiplied_and_added(self, x: str, y: str, z: str) -> str:
        """``x + y z``."""
        return self.low(self._writer.node("Add", x, self.low(self._writer.node("Mul", y, z))))

    def pcg4d(self, *of: str) -> str:
        """The first word of the hash, see `volumetric.graph.numeric.counter_noise`."""
        multiplier, increment = self.number(1664525), self.number(1013904223)
        x, y, z, w = (self.multiplied_and_added(increment, v, multiplier) for v in of)
        for last in (False, True):
            x = self.multiplied_and_added(x, y, w)
            y = self.multiplied_and_added(y, z, x)
            z = self.multiplied_and_added(z, x, y)
            w = self.multiplied_and_added(w, y, z)
            if not last:
                x, y, z, w = (self._writer.node("BitwiseXor", v, self.shifted(v, 16)) for v in (x, y, z, w))
        return x


@translates("gumbel")
def _gumbel(writer: OnnxWriter, of: Operands) -> str:
    words = _Words(writer)
    zero, one = words.number(0), words.number(1)
    index = writer.node("Range", zero, writer.scalar_size(of.shapes[0][1]), one)
    places = writer.node("Unsqueeze", writer.cast(of.inputs[1], "INT64"), writer.ints(1))
    low, high = (words.number(part % _WORD) for part in (of.attrs["seed"], of.attrs["seed"] >> 32))
    # The products of int64 wrap around, which leaves their low 32 bits as they are.
    n = words.shifted(words.pcg4d(index, places, low, high), 9)
    half, levels = (writer.constant(np.array(value, np.float64)) for value in (0.5, 1 << 23))
    u = writer.node("Div", writer.node("Add", writer.cast(n, "DOUBLE"), half), levels)
    for _ in range(2):
        u = writer.node("Neg", writer.node("Log", u))
    return writer.node("Add", of.inputs[0], writer.cast(u, "FLOAT"))
