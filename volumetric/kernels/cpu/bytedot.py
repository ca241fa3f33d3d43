"""Sums of products of bytes: weights from a panel times quantised activations.

One call adds, in each of 16 lanes, four products: unsigned weight bytes of one row times the four signed activation
bytes that all rows share. There is one form for each instruction set; `Target.dot` chooses.
"""

from __future__ import annotations

from llvmlite import ir

from volumetric.kernels.cpu.emit import I8, I16, I32, LANES, Emitter

_HALF_BYTES = ir.VectorType(I8, 32)
_HALF_WORDS = ir.VectorType(I16, 16)
_HALF_INTS = ir.VectorType(I32, 8)
_QUARTER_BYTES = ir.VectorType(I8, 16)


class ByteDot:
    """Emits byte dot products for weights whose stored byte `zero` means 0.

    LLVM finds none of these instructions by itself, so each is called by name.
    """

    def __init__(self, e: Emitter, zero: int) -> None:
        self.e = e
        self.zero = zero
        self._dot = e.target.dot

    @property
    def high_nibble_in_place(self) -> bool:
        """Whether the high nibble may be used as 16 times its value (no 16-bit saturation in between)."""
        return self._dot in {"vnni512", "vnni256"}

    def start(self, sum_address: ir.Value) -> ir.Value:
        """Initial sums: ``-zero · Σx`` of the block, from the stored ``-8 · Σx``."""
        e = self.e
        if self.zero == 0 or (self.zero == 128 and self._dot in {"avx2", "neon"}):
            return e.ints(0)
        sums = e.broadcast(sum_address, I32)
        return e.b.shl(sums, e.ints(4)) if self.zero == 128 else sums

    def operand(self, address: ir.Value) -> list[ir.Value]:
        """Four activation bytes in the form that `accumulate` takes."""
        e = self.e
        if self._dot != "generic":
            return [e.broadcast(address, I32)]
        return [e.splat(e.b.sext(e.load(e.at(address, j), I8, align=1), I32)) for j in range(4)]

    def accumulate(self, sums: ir.Value, weights: ir.Value, x: list[ir.Value]) -> ir.Value:
        """`sums` plus the four products of every lane."""
        if self._dot == "vnni512":
            return self.e.call("llvm.x86.avx512.vpdpbusd.512", sums.type, [sums, weights, x[0]])
        if self._dot == "generic":
            return self._generic(sums, weights, x)
        if self._dot == "neon":
            return self._join([self._quarter(part, sums, weights, x[0]) for part in range(4)])
        return self._join([self._half(part, sums, weights, x[0]) for part in range(2)])

    def _generic(self, sums: ir.Value, weights: ir.Value, x: list[ir.Value]) -> ir.Value:
        e = self.e
        for j in range(4):
            byte = e.b.and_(e.b.lshr(weights, e.ints(8 * j)), e.ints(0xFF))
            sums = e.b.add(sums, e.b.mul(byte, x[j]))
        return sums

    def _half(self, part: int, sums: ir.Value, weights: ir.Value, x: ir.Value) -> ir.Value:
        b = self.e.b
        sums, weights, x = (self._cut(value, part) for value in (sums, weights, x))
        if self._dot == "vnni256":
            return self.e.call("llvm.x86.avx512.vpdpbusd.256", _HALF_INTS, [sums, weights, x])
        weights, x = b.bitcast(weights, _HALF_BYTES), b.bitcast(x, _HALF_BYTES)
        if self.zero == 128:
            # Two products of an unsigned byte above 127 would saturate: give the sign to the activation instead.
            weights = b.xor(weights, ir.Constant(_HALF_BYTES, [-128] * 32))
            x = self.e.call("llvm.x86.avx2.psign.b", _HALF_BYTES, [x, weights])
            negative = b.icmp_signed("<", weights, ir.Constant(_HALF_BYTES, [0] * 32))
            weights = b.select(negative, b.sub(ir.Constant(_HALF_BYTES, [0] * 32), weights), weights)
        pairs = self.e.call("llvm.x86.avx2.pmadd.ub.sw", _HALF_WORDS, [weights, x])
        ones = ir.Constant(_HALF_WORDS, [1] * 16)
        return b.add(sums, self.e.call("llvm.x86.avx2.pmadd.wd", _HALF_INTS, [pairs, ones]))

    def _quarter(self, part: int, sums: ir.Value, weights: ir.Value, x: ir.Value) -> ir.Value:
        b = self.e.b
        sums, weights, x = (self._cut(value, part, 4) for value in (sums, weights, x))
        weights, x = b.bitcast(weights, _QUARTER_BYTES), b.bitcast(x, _QUARTER_BYTES)
        if self.zero == 128:  # both factors are signed here; codes of 4 bits are the same either way
            weights = b.xor(weights, ir.Constant(_QUARTER_BYTES, [-128] * 16))
        return self.e.call("llvm.aarch64.neon.sdot.v4i32.v16i8", sums.type, [sums, weights, x])

    def _cut(self, value: ir.Value, part: int, parts: int = 2) -> ir.Value:
        """Part of a vector of 16 lanes."""
        size = LANES // parts
        lanes = ir.Constant(ir.VectorType(I32, size), [part * size + lane for lane in range(size)])
        return self.e.b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), lanes)

    def _join(self, parts: list[ir.Value]) -> ir.Value:
        """The vector that `_cut` cut."""

        def pair(a: ir.Value, b: ir.Value) -> ir.Value:
            size = 2 * a.type.count
            return self.e.b.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, size), list(range(size))))

        return self.e.tree(parts, pair)
