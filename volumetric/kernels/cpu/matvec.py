"""Integer panels times rows of activations, as they lie in memory: the kernels of decoding.

Codes are taken out of their words in registers; nothing is written but results. Where integer weights meet activations
that `prepare` rounded, a block of 32 is summed in integers; otherwise (`exact`) every number is opened to the very
float32 that `unpack_floats` makes of it.

Every sum has one order, that of `tiles`: block after block, or number after number, into one register. So a row has the
same bits whichever kernel computes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from volumetric.kernels.cpu.bytedot import ByteDot
from volumetric.kernels.cpu.emit import F32X, I16, I32X, LANES, Emitter, constant
from volumetric.kernels.cpu.panels import FORMATS

_BY_NAME = {form.name: form for form in FORMATS.values()}


def emit_packed_panels(
    e: Emitter, name: str, panels: list[Any], vectors: list[Any], units: Any, *, exact: bool
) -> list[list[ir.Value]]:
    """Dot products of integer panels of format `name` with each of the prepared rows at addresses `vectors`.

    One row needs several panels at once: a sum waits for the one before it, and the processor has time for others.
    """
    emit, unit_bytes = (_exact_unit if exact else _rounded_unit), _BY_NAME[name].unit_bytes
    cells = [[e.cell(F32X) for _ in vectors] for _ in panels]
    with e.loop(units) as index:
        for panel, own in zip(panels, cells, strict=True):
            weights = e.at(panel, e.b.mul(index, constant(unit_bytes)))
            sums = emit(e, name, weights, vectors, index, units, [e.b.load(cell) for cell in own])
            for cell, value in zip(own, sums, strict=True):
                e.b.store(value, cell)
    return [[e.b.load(cell) for cell in own] for own in cells]


def scales_at(e: Emitter, address: ir.Value) -> ir.Value:
    """16 float16 scales as floats."""
    return e.from_half(e.load(address, ir.VectorType(I16, LANES), align=2))


def _rounded_unit(
    e: Emitter, name: str, weights: Any, vectors: list[Any], index: Any, units: Any, sums: list[ir.Value]
) -> list[ir.Value]:
    dot, words = ByteDot(e, _BY_NAME[name].zero), _unit_words(name)
    kinds = e.b.mul(units, constant(8))  # bytes of the array of block scales, and of each array after it
    for block in range(2):
        first = e.at(weights, 64 * (words // 2) * block)
        after = e.at(weights, 64 * words + 32 * block)
        scales = scales_at(e, after)
        for m, x in enumerate(vectors):
            quants = e.at(e.at(x, e.b.mul(index, constant(64))), 32 * block)
            scale = e.at(
                e.at(x, e.b.mul(units, constant(64))), e.b.add(e.b.mul(index, constant(8)), constant(4 * block))
            )
            whole = _block_sum(e, dot, name, first, quants, e.at(scale, kinds))
            sums[m] = e.fma(e.to_float(whole), e.mul(scales, e.broadcast(scale)), sums[m])
            if name == "uint4":
                total = e.broadcast(e.at(scale, e.b.add(kinds, kinds)))
                sums[m] = e.fma(scales_at(e, e.at(after, 64)), total, sums[m])
    return sums


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


def _exact_unit(
    e: Emitter, name: str, weights: Any, vectors: list[Any], index: Any, units: Any, sums: list[ir.Value]
) -> list[ir.Value]:
    rows = [e.at(x, e.b.mul(index, constant(64 * 4))) for x in vectors]
    for k, value in enumerate(opened_numbers(e, name, weights)):
        sums = [e.fma(value, e.broadcast(e.at(row, 4 * k)), total) for row, total in zip(rows, sums, strict=True)]
    return sums


def opened_numbers(e: Emitter, name: str, unit: Any) -> Iterator[ir.Value]:
    """The 64 numbers of each of 16 rows that a unit holds, as vectors of float32."""
    words, mask = _unit_words(name), 0xFF if name == "int8" else 0x0F
    zero = e.ints(_BY_NAME[name].zero)
    for block in range(2):
        after = e.at(unit, 64 * words + 32 * block)
        scale = scales_at(e, after)
        for k in range(32):
            vector, shift = byte_of(name, k)
            lanes = e.load(e.at(unit, 64 * (words // 2 * block + vector)), I32X, align=64)
            code = e.b.and_(e.b.lshr(lanes, e.ints(shift)), e.ints(mask))
            value = e.mul(e.to_float(e.b.sub(code, zero)), scale)
            yield e.add(value, scales_at(e, e.at(after, 64))) if name == "uint4" else value


def _unit_words(name: str) -> int:
    """Vectors of codes in a unit; half of them are one block."""
    return 16 if name == "int8" else 8
