"""One panel times one vector, or a few: the kernels of decoding one sequence or several.

``panel_dot(kind, panel, x, units)`` returns 16 results in a vector. `kind` is a compile-time string: the panel format,
with ``:exact`` appended when integer weights meet float32 activations. Otherwise integer weights take activations as
`prepare` writes them: int8, then block scales, then ``-8·Σx`` and then ``scale·Σx`` of every block.

Each sum has a fixed order, whatever the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from volumetric.kernels.cpu.bytedot import ByteDot
from volumetric.kernels.cpu.emit import F32, F32X, I16, I32X, LANES, Emitter, constant
from volumetric.kernels.cpu.jit import intrinsic
from volumetric.kernels.cpu.panels import FORMATS
from volumetric.kernels.cpu.simd import Floats

_BY_NAME = {form.name: form for form in FORMATS.values()}

# How many independent sums hide the latency of a fused multiply-add (4 cycles, up to 2 a cycle).
_CHAINS = 4


@intrinsic
def panel_dot(typing_context: Any, kind: Any, panel: Any, x: Any, units: Any) -> Any:
    """16 dot products: `units` units of the panel at address `panel` with prepared activations at `x`."""
    if not isinstance(kind, types.StringLiteral):
        return None
    name = kind.literal_value

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        panel, x, units = args[1:]
        return _sum_units(Emitter(builder), name, panel, [x], units)[0]

    return Floats(kind, types.int64, types.int64, types.int64), generate


@intrinsic
def panel_dots(
    typing_context: Any, kind: Any, rows: Any, panel: Any, x: Any, x_stride: Any, units: Any, out: Any
) -> Any:
    """`panel_dot` of `rows` (compile-time) vectors, `x_stride` bytes apart; vector m goes to ``out + 64 m``.

    Weights are loaded and opened once for all rows. Each row's sums have the order that `panel_dot` gives them, so its
    bits do not depend on the rows beside it.
    """
    if not isinstance(kind, types.StringLiteral) or not isinstance(rows, types.IntegerLiteral):
        return None
    name, count = kind.literal_value, rows.literal_value

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        e = Emitter(builder)
        panel, x, x_stride, units, out = args[2:]
        vectors = [e.at(x, e.b.mul(x_stride, constant(m))) for m in range(count)]
        for m, value in enumerate(_sum_units(e, name, panel, vectors, units)):
            e.store(e.at(out, 64 * m), value)
        return context.get_dummy_value()

    return types.void(kind, rows, *[types.int64] * 5), generate


Unit = Callable[[Emitter, ir.Value, ir.Value, ir.Value, ir.Value, list[ir.Value]], list[ir.Value]]


def _unit(kind: str) -> Unit:
    """What one unit of a panel adds to the sums of a row."""
    name, _, exact = kind.partition(":")
    if not _BY_NAME[name].is_integer:
        return _float_unit(name)
    return _exact_unit(name) if exact else _integer_unit(name)


def _sum_units(e: Emitter, kind: str, panel: Any, vectors: list[Any], units: Any) -> list[ir.Value]:
    """Dot products of a panel with each of `vectors`."""
    emit, unit_bytes = _unit(kind), _BY_NAME[kind.partition(":")[0]].unit_bytes
    cells = [[e.cell(F32X) for _ in range(_CHAINS)] for _ in vectors]
    with e.loop(units) as index:
        weights = e.at(panel, e.b.mul(index, constant(unit_bytes)))
        for x, row in zip(vectors, cells, strict=True):
            sums = emit(e, weights, x, index, units, [e.b.load(cell) for cell in row])
            for cell, value in zip(row, sums, strict=True):
                e.b.store(value, cell)
    return [e.tree([e.b.load(cell) for cell in row], e.add) for row in cells]


def _float_unit(name: str) -> Unit:
    def emit(e: Emitter, weights: Any, x: Any, index: Any, units: Any, sums: list[ir.Value]) -> list[ir.Value]:
        row = e.at(x, e.b.mul(index, constant(4 * 8)))
        if name == "bfloat16":
            vectors = [lanes for k in range(0, 8, 2) for lanes in e.load_pairs(e.at(weights, 32 * k))]
        else:
            vectors = [e.load_lanes(e.at(weights, k * (64 if name == "float32" else 32)), name) for k in range(8)]
        for k, lanes in enumerate(vectors):
            sums[k % _CHAINS] = e.fma(lanes, e.broadcast(e.at(row, 4 * k)), sums[k % _CHAINS])
        return sums

    return emit


def scales_at(e: Emitter, address: ir.Value) -> ir.Value:
    """16 float16 scales as floats."""
    return e.from_half(e.load(address, ir.VectorType(I16, LANES), align=2))


def _integer_unit(name: str) -> Unit:
    form = _BY_NAME[name]
    vectors = 16 if name == "int8" else 8  # in a unit; half of them are one block

    def emit(e: Emitter, weights: Any, x: Any, index: Any, units: Any, sums: list[ir.Value]) -> list[ir.Value]:
        dot = ByteDot(e, form.zero)
        quants = e.at(x, e.b.mul(index, constant(64)))
        blocks = e.at(e.at(x, e.b.mul(units, constant(64))), e.b.mul(index, constant(8)))
        kinds = e.b.mul(units, constant(8))  # bytes of the array of block scales, and of each array after it
        for block in range(2):
            scale = e.at(blocks, 4 * block)
            quants_here = e.at(quants, 32 * block)
            first = e.at(weights, 64 * (vectors // 2) * block)
            whole = _block_sum(e, dot, name, first, quants_here, e.at(scale, kinds))
            after = e.at(weights, 64 * vectors + 32 * block)
            step = e.mul(scales_at(e, after), e.broadcast(scale))
            sums[block] = e.fma(e.to_float(whole), step, sums[block])
            if name == "uint4":
                offset = scales_at(e, e.at(after, 64))
                total = e.broadcast(e.at(scale, e.b.add(kinds, kinds)))
                sums[2 + block] = e.fma(offset, total, sums[2 + block])
        return sums

    return emit


def _block_sum(e: Emitter, dot: ByteDot, name: str, weights: Any, quants: Any, start: Any) -> ir.Value:
    """Integer dot products of one block of 32."""
    sums = dot.start(start)
    if name == "int8":
        other = e.ints(0)
        for j in range(0, 8, 2):
            pair = [e.load(e.at(weights, 64 * (j + i)), I32X, align=64) for i in range(2)]
            sums = dot.accumulate(sums, pair[0], dot.operand(e.at(quants, 4 * j)))
            other = dot.accumulate(other, pair[1], dot.operand(e.at(quants, 4 * j + 4)))
        return e.b.add(sums, other)
    high = e.ints(0)
    for j in range(4):
        both = e.load(e.at(weights, 64 * j), I32X, align=64)
        low = e.b.and_(both, e.ints(0x0F0F0F0F))
        if not dot.high_nibble_in_place:
            both = e.b.lshr(both, e.ints(4))
        upper = e.b.and_(both, e.ints(0xF0F0F0F0 if dot.high_nibble_in_place else 0x0F0F0F0F))
        sums = dot.accumulate(sums, low, dot.operand(e.at(quants, 8 * j)))
        high = dot.accumulate(high, upper, dot.operand(e.at(quants, 8 * j + 4)))
    if dot.high_nibble_in_place:
        high = e.b.ashr(high, e.ints(4))
    return e.b.add(sums, high)


def byte_of(name: str, k: int) -> tuple[int, int]:
    """(vector, shift) of number `k` (0-31) of a block, in the 32-bit lane of its row."""
    if name == "int8":
        return k // 4, 8 * (k % 4)
    return k // 8, 8 * (k % 4) + (4 if k % 8 >= 4 else 0)


def _exact_unit(name: str) -> Unit:
    form = _BY_NAME[name]
    vectors, mask = (16, 0xFF) if name == "int8" else (8, 0x0F)

    def emit(e: Emitter, weights: Any, x: Any, index: Any, units: Any, sums: list[ir.Value]) -> list[ir.Value]:
        row = e.at(x, e.b.mul(index, constant(64 * 4)))
        for block in range(2):
            parts, plain = [e.floats(0.0)] * 2, [e.floats(0.0)] * 2
            for k in range(32):
                vector, shift = byte_of(name, k)
                lanes = e.load(e.at(weights, 64 * (vectors // 2 * block + vector)), I32X, align=64)
                code = e.b.and_(e.b.lshr(lanes, e.ints(shift)), e.ints(mask))
                value = e.to_float(e.b.sub(code, e.ints(form.zero)))
                factor = e.broadcast(e.at(row, 4 * (32 * block + k)), F32)
                parts[k % 2] = e.fma(value, factor, parts[k % 2])
                plain[k % 2] = e.add(plain[k % 2], factor)
            after = e.at(weights, 64 * vectors + 32 * block)
            sums[block] = e.fma(e.add(*parts), scales_at(e, after), sums[block])
            if name == "uint4":
                offset = scales_at(e, e.at(after, 64))
                sums[2 + block] = e.fma(e.add(*plain), offset, sums[2 + block])
        return sums

    return emit
