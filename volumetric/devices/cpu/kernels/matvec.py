"""Integer panels times rows of activations, without unpacking to memory: the kernels of decoding.

Codes are unpacked in registers; only results are written. If integer weights are multiplied by activations that
`prepare` rounded, a block of 32 is summed in integers; otherwise (`exact`) every number is unpacked to the same float32
as in `unpack_floats`.

Every sum has one order, that of `tiles`: block after block, or number after number, into one register. So a row has the
same bits in every kernel.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from volumetric.devices.cpu.kernels.blocks.unpack_codes import (
    PanelUnit,
    code_bytes,
    floor_vectors,
    numbers,
    plane_vector,
    scale_vectors,
    unit_of,
)
from volumetric.devices.cpu.kernels.bytedot import BlockSums, ByteDot
from volumetric.devices.cpu.kernels.llvm_emitter import F32X, Emitter, constant
from volumetric.devices.cpu.kernels.panels import BY_NAME

_AHEAD = 4096
"""Prefetch distance in bytes. One core of a Xeon reads 13 GB/s from memory; four rows of int4 took 9.4 ms for 88 MB
without prefetching, and take 7.2 ms with it, where the reading alone takes 6.6 ms."""


def emit_packed_panels(
    e: Emitter, name: str, panels: list[Any], vectors: list[Any], units: Any, *, exact: bool, ahead: bool = False
) -> list[list[ir.Value]]:
    """Dot products of integer panels of format `name` with each of the prepared rows at addresses `vectors`.

    A single row processes several panels at once: a sum waits for the one before it, and the processor has time for
    others. With `ahead`, the next data are prefetched; otherwise the hardware prefetcher waits for the products.
    """
    emit, form = (_exact_unit if exact else _rounded_unit), BY_NAME[name]
    cells = [[e.cell(F32X) for _ in vectors] for _ in panels]
    with e.loop(units) as index:
        for panel, own in zip(panels, cells, strict=True):
            unit = unit_of(e, form, panel, index)
            for line in range(0, form.unit_bytes if ahead else 0, 64):
                e.fetch(e.at(unit.address, _AHEAD + line))
            sums = emit(e, unit, vectors, index, units, [e.b.load(cell) for cell in own])
            for cell, value in zip(own, sums, strict=True):
                e.b.store(value, cell)
    return [[e.b.load(cell) for cell in own] for own in cells]


def _rounded_unit(
    e: Emitter, unit: PanelUnit, vectors: list[Any], index: Any, units: Any, sums: list[ir.Value]
) -> list[ir.Value]:
    codes = unit.codes
    dot, parts = ByteDot(e, codes.zero), 32 // codes.group
    kinds = e.b.mul(units, constant(8))  # bytes of the array of block scales, and of each array after it
    for block in range(2):
        scales, floors = scale_vectors(e, unit, block), floor_vectors(e, unit, block)
        for m, x in enumerate(vectors):
            quants = e.at(e.at(x, e.b.mul(index, constant(64))), 32 * block)
            scale = e.at(
                e.at(x, e.b.mul(units, constant(64))), e.b.add(e.b.mul(index, constant(8)), constant(4 * block))
            )
            about = BlockSums(e, scale, kinds)
            starts = about.starts(parts) if codes.zero else [e.ints(0)] * parts
            for part in range(parts):
                whole = _group_sum(e, dot, unit, block, part, quants, dot.start(starts[part]))
                sums[m] = e.fma(e.to_float(whole), e.mul(scales[part], about.scale), sums[m])
            for floor, total in zip(floors, about.totals(parts) if floors else [], strict=True):
                sums[m] = e.fma(floor, total, sums[m])
    return sums


def _group_sum(
    e: Emitter, dot: ByteDot, unit: PanelUnit, block: int, part: int, quants: Any, start: ir.Value
) -> ir.Value:
    """Integer dot products of one group of a block of 32; two sums for a whole block, to shorten the chain."""
    codes = unit.codes
    if codes.planes == (4,) and codes.table is None:
        return _nibble_sum(e, dot, unit, block, quants, start)
    steps = codes.group // 4
    sums = [start, e.ints(0)] if steps == 8 else [start]
    for j in range(steps):
        step = part * steps + j
        at = j % len(sums)
        lanes = code_bytes(e, unit, block, step)
        sums[at] = dot.accumulate(sums[at], lanes, dot.operand(e.at(quants, 4 * step)))
    return e.tree(sums, e.b.add)


def _nibble_sum(e: Emitter, dot: ByteDot, unit: PanelUnit, block: int, quants: Any, sums: ir.Value) -> ir.Value:
    """The same for plain nibbles: upper ones need no shift if the instruction cannot saturate."""
    high = e.ints(0)
    for j in range(4):
        both = plane_vector(e, unit, 0, block, j)
        low = e.b.and_(both, e.ints(0x0F0F0F0F))
        if not dot.high_nibble_in_place:
            both = e.b.lshr(both, e.ints(4))
        upper = e.b.and_(both, e.ints(0xF0F0F0F0 if dot.high_nibble_in_place else 0x0F0F0F0F))
        sums = dot.accumulate(sums, low, dot.operand(e.at(quants, 8 * j)))
        high = dot.accumulate(high, upper, dot.operand(e.at(quants, 8 * j + 4)))
    if dot.high_nibble_in_place:
        high = e.b.ashr(high, e.ints(4))
    return e.b.add(sums, high)


def _exact_unit(
    e: Emitter, unit: PanelUnit, vectors: list[Any], index: Any, units: Any, sums: list[ir.Value]
) -> list[ir.Value]:
    rows = [e.at(x, e.b.mul(index, constant(64 * 4))) for x in vectors]
    for k, value in enumerate(numbers(e, unit)):
        sums = [e.fma(value, e.broadcast(e.at(row, 4 * k)), total) for row, total in zip(rows, sums, strict=True)]
    return sums
