"""Sums of products of bytes: weights from a panel times quantised activations.

One call adds, in each of 16 lanes, four products: unsigned weight bytes of one row times the four signed activation
bytes that all rows share. There is one form for each instruction set; `Target.dot` chooses.
"""

from __future__ import annotations

from llvmlite import ir

from volumetric.devices.cpu.kernels.cpu_target import target
from volumetric.devices.cpu.kernels.llvm_emitter import I8, I16, I32, LANES, Emitter
from volumetric.devices.cpu.kernels.panels import PanelFormat

_HALF_BYTES = ir.VectorType(I8, 32)
_HALF_WORDS = ir.VectorType(I16, 16)
_HALF_INTS = ir.VectorType(I32, 8)
_QUARTER_BYTES = ir.VectorType(I8, 16)


def multiplies_bytes(form: PanelFormat) -> bool:
    """Whether this machine's byte products are correct for all codes of a form.

    Codes above 127 with floors are not centred at 0: AVX2's sums of two products overflow for them, and NEON reads the
    bytes as negative.
    """
    return form.codes is None or form.codes.planes != (8,) or form.zero != 0 or target().dot not in ("avx2", "neon")


class ByteDot:
    """Emits byte dot products for weights whose stored byte `zero` means 0.

    LLVM does not select these instructions by itself, so each is called by name.
    """

    def __init__(self, e: Emitter, zero: int) -> None:
        self.e = e
        self.zero = zero
        self._dot = e.target.dot

    @property
    def high_nibble_in_place(self) -> bool:
        """Whether the high nibble may be used as 16 times its value (no 16-bit saturation in between)."""
        return self._dot in {"vnni512", "vnni256"}

    def start(self, sums: ir.Value) -> ir.Value:
        """Initial sums: ``-zero · Σx``, from ``-8 · Σx`` in all lanes; `zero` is 0 or a power of two."""
        e = self.e
        if self.zero == 0 or (self.zero == 128 and self._dot in {"avx2", "neon"}):
            return e.ints(0)
        shift = self.zero.bit_length() - 4
        if shift == 0:
            return sums
        return e.b.shl(sums, e.ints(shift)) if shift > 0 else e.b.ashr(sums, e.ints(-shift))

    def operand(self, address: ir.Value) -> list[ir.Value]:
        """Four activation bytes in the form that `accumulate` takes."""
        e = self.e
        if self._dot != "generic":
            return [e.broadcast(address, I32)]
        return [e.splat(e.b.sext(e.load(e.at(address, j), I8, align=1), I32)) for j in range(4)]

    def bytes_in(self, x: ir.Value) -> ir.Value:
        """The sum of the four signed bytes of every lane."""
        e, ones = self.e, self.e.ints(0x01010101)
        if self._dot != "generic":
            return self.accumulate(e.ints(0), ones, [x])
        return self.accumulate(
            e.ints(0), ones, [e.b.ashr(e.b.shl(x, e.ints(24 - 8 * j)), e.ints(24)) for j in range(4)]
        )

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
            # Two products of an unsigned byte above 127 would saturate: move the sign to the activation instead.
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
        if self.zero == 128:  # both factors are signed here; 4-bit codes are the same either way
            weights = b.xor(weights, ir.Constant(_QUARTER_BYTES, [-128] * 16))
        return self.e.call("llvm.aarch64.neon.sdot.v4i32.v16i8", sums.type, [sums, weights, x])

    def _cut(self, value: ir.Value, part: int, parts: int = 2) -> ir.Value:
        """Part of a vector of 16 lanes."""
        size = LANES // parts
        lanes = ir.Constant(ir.VectorType(I32, size), [part * size + lane for lane in range(size)])
        return self.e.b.shuffle_vector(value, ir.Constant(value.type, ir.Undefined), lanes)

    def _join(self, parts: list[ir.Value]) -> ir.Value:
        """Undo `_cut`."""

        def pair(a: ir.Value, b: ir.Value) -> ir.Value:
            size = 2 * a.type.count
            return self.e.b.shuffle_vector(a, b, ir.Constant(ir.VectorType(I32, size), list(range(size))))

        return self.e.tree(parts, pair)


class BlockSums:
    """The sums of one block of 32 prepared activations (`block_rounding.quantise_row`).

    Parameters
    ----------
    scale : address of the block's scale
    stride : bytes from an array with one number per block to the next
    """

    def __init__(self, e: Emitter, scale: ir.Value, stride: ir.Value) -> None:
        self._e = e
        self._scale = scale
        self._stride = stride

    def _at(self, array: int) -> ir.Value:
        return self._e.at(self._scale, self._e.b.mul(self._stride, ir.Constant(self._stride.type, array)))

    @property
    def scale(self) -> ir.Value:
        """The block's scale d in all lanes."""
        return self._e.broadcast(self._scale)

    def starts(self, parts: int) -> list[ir.Value]:
        """``-8 · Σq`` in all lanes, of the block or of its two halves."""
        e, whole = self._e, self._e.broadcast(self._at(1), I32)
        if parts == 1:
            return [whole]
        first = e.broadcast(self._at(3), I32)
        return [first, e.b.sub(whole, first)]

    def totals(self, parts: int) -> list[ir.Value]:
        """``d · Σq`` in all lanes, of the block or of its two halves."""
        e = self._e
        if parts == 1:
            return [e.broadcast(self._at(2))]
        eighth = e.mul(self.scale, e.floats(-0.125))
        return [e.mul(e.to_float(start), eighth) for start in self.starts(2)]
