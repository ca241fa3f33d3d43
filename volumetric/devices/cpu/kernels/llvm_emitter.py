"""Primitives for writing LLVM vector code, used by the intrinsics of this package.

A vector has 16 lanes everywhere; the code generator splits it where registers are narrower. Addresses are 64-bit
integers. Operations carry ``contract`` (a multiply and an add may fuse) and nothing that could reorder a sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from volumetric.devices.cpu.kernels.cpu_target import CpuTarget, target


class BrainType(ir.Type):
    """LLVM's bfloat, which llvmlite's builder does not know."""

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrainType)

    def __hash__(self) -> int:
        return hash(BrainType)


LANES = 16
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))
F32 = ir.FloatType()
HALF = ir.HalfType()
BRAIN = BrainType()
F32X = ir.VectorType(F32, LANES)
I32X = ir.VectorType(I32, LANES)
I8X64 = ir.VectorType(I8, 4 * LANES)

_FLAGS = ("contract",)


class Emitter:
    """Appends vector instructions to `builder`."""

    def __init__(self, builder: ir.IRBuilder, machine: CpuTarget | None = None) -> None:
        self.b = builder
        self.target = machine or target()

    # ---- addresses and memory

    def at(self, base: ir.Value, offset: int | ir.Value = 0) -> ir.Value:
        """Address `base` + `offset` bytes."""
        if isinstance(offset, int):
            if offset == 0:
                return base
            offset = ir.Constant(I64, offset)
        return self.b.add(base, offset)

    def load(self, address: ir.Value, kind: ir.Type, align: int = 4) -> ir.Value:
        """Value of type `kind` at `address`, which is a multiple of `align` bytes."""
        return self.b.load(self.b.inttoptr(address, kind.as_pointer()), align=align)

    def store(self, address: ir.Value, value: ir.Value, align: int = 4) -> None:
        """Write `value` to `address`, which is a multiple of `align` bytes."""
        self.b.store(value, self.b.inttoptr(address, value.type.as_pointer()), align=align)

    def load_lanes(self, address: ir.Value, storage: str) -> ir.Value:
        """16 numbers stored as ``float32``, ``float16`` or ``int8``, as a float vector."""
        if storage == "float32":
            return self.load(address, F32X)
        if storage == "int8":
            return self.to_float(self.b.sext(self.load(address, ir.VectorType(I8, LANES), align=1), I32X))
        return self.from_half(self.load(address, ir.VectorType(I16, LANES), align=2))

    def load_pairs(self, address: ir.Value) -> list[ir.Value]:
        """16 pairs of bfloat16 as two float vectors: the first numbers, the second numbers."""
        return self.parts(self.load(address, I32X))

    def parts(self, pairs: ir.Value) -> list[ir.Value]:
        """Both numbers of 16 pairs of bfloat16: each is the upper half of a float32."""
        low, high = self.b.shl(pairs, self.ints(16)), self.b.and_(pairs, self.ints(0xFFFF0000))
        return [self.b.bitcast(low, F32X), self.b.bitcast(high, F32X)]

    def fetch(self, address: ir.Value, *, write: bool = False) -> None:
        """Prefetch the cache line at `address`."""
        to_write, keep, data = (ir.Constant(I32, value) for value in (int(write), 3, 1))
        pointer = self.b.inttoptr(address, I8.as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, I32, I32, I32])
        prefetch = cgutils.get_or_insert_function(self.b.module, kind, "llvm.prefetch.p0")
        self.b.call(prefetch, [pointer, to_write, keep, data])

    # ---- constants and broadcasts

    def ints(self, value: int) -> ir.Constant:
        """Constant vector of 16 int32, all `value`."""
        return ir.Constant(I32X, [value] * LANES)

    def floats(self, value: float) -> ir.Constant:
        """Constant vector of 16 float32, all `value`."""
        return ir.Constant(F32X, [value] * LANES)

    def splat(self, scalar: ir.Value) -> ir.Value:
        """Vector with `scalar` in all 16 lanes."""
        kind = ir.VectorType(scalar.type, LANES)
        one = self.b.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(I32, 0))
        return self.b.shuffle_vector(one, ir.Constant(kind, ir.Undefined), self.ints(0))

    def broadcast(self, address: ir.Value, kind: ir.Type = F32) -> ir.Value:
        """One number from memory in all lanes."""
        return self.splat(self.load(address, kind, align=1 if kind is I8 else 4))

    def lane_numbers(self) -> ir.Constant:
        """Constant vector 0, 1, … 15 of int32."""
        return ir.Constant(I32X, list(range(LANES)))

    # ---- arithmetic

    def add(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """``a + b`` of floats, which the target may contract with a product."""
        return self.b.fadd(a, b, flags=_FLAGS)

    def mul(self, a: ir.Value, b: ir.Value) -> ir.Value:
        """``a * b`` of floats, which the target may contract with a sum."""
        return self.b.fmul(a, b, flags=_FLAGS)

    def fma(self, a: ir.Value, b: ir.Value, c: ir.Value) -> ir.Value:
        """``a * b + c``, fused where the target can."""
        return self.add(self.mul(a, b), c)

    def tree(self, values: Sequence[ir.Value], join: Callable[[ir.Value, ir.Value], ir.Value]) -> ir.Value:
        """Join `values` pairwise, in a fixed order."""
        items = list(values)
        while len(items) > 1:
            paired = [join(items[i], items[i + 1]) for i in range(0, len(items) - 1, 2)]
            items = paired + items[len(items) - len(items) % 2 :]
        return items[0]

    def to_float(self, ints: ir.Value) -> ir.Value:
        """Float32 vector of signed integers, with as many lanes."""
        return self.b.sitofp(ints, ir.VectorType(F32, ints.type.count))

    def dot_pairs(self, sums: ir.Value, a: ir.Value, b: ir.Value) -> ir.Value:
        """`sums` plus both products of 16 pairs of bfloat16 (as 32-bit integers): the second, then the first."""
        if "avx512bf16" in self.target.features:
            kind = ir.VectorType(BRAIN, 2 * LANES)
            pairs = [self.b.bitcast(value, kind) for value in (a, b)]
            return self.call("llvm.x86.avx512bf16.dpbf16ps.512", F32X, [sums, *pairs])
        for left, right in zip(reversed(self.parts(a)), reversed(self.parts(b)), strict=True):
            sums = self.fma(left, right, sums)
        return sums

    def call(self, name: str, result: ir.Type, args: Sequence[ir.Value]) -> ir.Value:
        """Call the LLVM function `name`, declaring it if needed; returns its `result`."""
        kind = ir.FunctionType(result, [a.type for a in args])
        return self.b.call(cgutils.get_or_insert_function(self.b.module, kind, name), list(args))

    # ---- float16

    def from_half(self, bits: ir.Value) -> ir.Value:
        """Float vector from the bits (``<n x i16>``) of float16 numbers."""
        lanes = bits.type.count
        if self.target.half:
            return self.b.fpext(self.b.bitcast(bits, ir.VectorType(HALF, lanes)), ir.VectorType(F32, lanes))
        # Without the instruction the compiler would call a library function that a JIT cannot link.
        # Moving the exponent to its float32 place and scaling by 2**112 is exact, subnormals included.
        b, kind = self.b, ir.VectorType(I32, lanes)

        def const(value: int) -> ir.Constant:
            return ir.Constant(kind, [value] * lanes)

        wide = b.zext(bits, kind)
        magnitude = b.shl(b.and_(wide, const(0x7FFF)), const(13))
        scale = ir.Constant(ir.VectorType(F32, lanes), [float(2.0**112)] * lanes)
        scaled = b.bitcast(b.fmul(b.bitcast(magnitude, scale.type), scale), kind)
        special = b.icmp_unsigned(">=", magnitude, const(0x7C00 << 13))
        scaled = b.select(special, b.or_(magnitude, const(0x7F800000)), scaled)
        sign = b.shl(b.and_(wide, const(0x8000)), const(16))
        return b.bitcast(b.or_(scaled, sign), scale.type)

    def to_half(self, value: ir.Value) -> ir.Value:
        """Bits of `value` (``<16 x float>``) rounded to float16, nearest even."""
        b, half_bits = self.b, ir.VectorType(I16, LANES)
        if self.target.half:
            return b.bitcast(b.fptrunc(value, ir.VectorType(HALF, LANES)), half_bits)
        bits = b.bitcast(value, I32X)
        sign = b.and_(b.lshr(bits, self.ints(16)), self.ints(0x8000))
        size = b.and_(bits, self.ints(0x7FFFFFFF))
        odd = b.and_(b.lshr(size, self.ints(13)), self.ints(1))
        normal = b.lshr(b.add(b.add(size, odd), self.ints(0x0FFF - (112 << 23))), self.ints(13))
        # Adding 0.5 aligns a subnormal's last bit with the last bit of the sum: the addition rounds it.
        shifted = b.bitcast(b.fadd(b.bitcast(size, F32X), self.floats(0.5)), I32X)
        small = b.sub(shifted, self.ints(0x3F000000))
        result = b.select(b.icmp_unsigned("<", size, self.ints(113 << 23)), small, normal)
        result = b.select(b.icmp_unsigned(">=", size, self.ints(0x477FF000)), self.ints(0x7C00), result)
        result = b.select(b.icmp_unsigned(">", size, self.ints(0x7F800000)), self.ints(0x7E00), result)
        return b.trunc(b.or_(result, sign), half_bits)

    def to_brain(self, value: ir.Value) -> ir.Value:
        """Bits of `value` (``<16 x float>``) rounded to bfloat16, nearest even."""
        b, bits = self.b, self.b.bitcast(value, I32X)
        odd = b.and_(b.lshr(bits, self.ints(16)), self.ints(1))
        rounded = b.lshr(b.add(b.add(bits, odd), self.ints(0x7FFF)), self.ints(16))
        unordered = b.fcmp_unordered("uno", value, value)
        return b.trunc(b.select(unordered, self.ints(0x7FC0), rounded), ir.VectorType(I16, LANES))

    # ---- control

    def cell(self, kind: ir.Type, value: ir.Value | None = None) -> ir.Value:
        """A stack variable; the optimiser turns it into a register."""
        slot = cgutils.alloca_once(self.b, kind)
        self.b.store(ir.Constant(kind, None) if value is None else value, slot)
        return slot

    @contextmanager
    def loop(self, count: ir.Value, step: int = 1) -> Iterator[ir.Value]:
        """Counts 0, `step`, … below `count` (int64)."""
        with cgutils.for_range_slice(self.b, ir.Constant(I64, 0), count, ir.Constant(I64, step), I64) as (index, _):
            yield index


def constant(value: int) -> Any:
    """An int64 constant."""
    return ir.Constant(I64, value)
