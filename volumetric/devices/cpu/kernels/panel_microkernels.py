"""Register tiles: a few rows of activations times a few panels, the kernels of prefill, batches and attention.

A tile keeps rows × panels sums in registers while k runs; both tiles write to memory only when k is done. Results go to
`out`, row by row, 16 numbers a panel. Tile sizes depend on the register file (`float_tile_shape`,
`integer_tile_shape`).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from volumetric.devices.cpu.kernels.bytedot import BlockSums, ByteDot
from volumetric.devices.cpu.kernels.cpu_target import target as machine
from volumetric.devices.cpu.kernels.jit import intrinsic, kernel
from volumetric.devices.cpu.kernels.llvm_emitter import F32X, I32, I32X, Emitter, constant

# 24 sums, 4 vectors of weights and one broadcast fill 32 registers; 8 or more sums hide latency. In float32 12 × 2
# and 8 × 3 measured the same; 6 × 4 has the fewest address registers.
_FLOAT_SHAPES = {32: (6, 4), 8: (6, 1), 4: (2, 1)}
# An integer tile needs every sum twice: the int32 sums of the block and the float32 sums of the row.
_INTEGER_SHAPES = {32: (6, 2), 8: (2, 1), 4: (1, 1)}


def float_tile_shape() -> tuple[int, int]:
    """(rows, panels) of the float tile on this machine."""
    return _FLOAT_SHAPES[machine().registers]


def integer_tile_shape() -> tuple[int, int]:
    """(rows, panels) of the integer tile on this machine."""
    return _INTEGER_SHAPES[machine().registers]


def _store_tile(e: Emitter, cells: list[list[ir.Value]], out: Any, stride: Any) -> None:
    for m, row in enumerate(cells):
        base = e.at(out, e.b.mul(stride, constant(m)))
        for p, cell in enumerate(row):
            e.store(e.at(base, 64 * p), e.b.load(cell))


@intrinsic
def float_tile(
    typing_context: Any,
    storage: Any,
    rows: Any,
    panels: Any,
    weights: Any,
    k_stride: Any,
    panel_stride: Any,
    x: Any,
    x_stride: Any,
    count: Any,
    out: Any,
    out_stride: Any,
) -> Any:
    """``out[m, 16 p + lane] = Σ_k x[m, k] · w[p, k, lane]`` for `rows` × `panels` (compile-time constants).

    `weights` are vectors of 16 numbers of type `storage` (compile-time), at ``p * panel_stride + k * k_stride``; `x`
    is float32 in rows of `x_stride` bytes; `count` is the number of k. bfloat16 is stored in pairs of k: `k_stride`
    then steps from pair to pair, and an odd `count` is rounded up. With the suffix ``:pairs`` for another storage, a
    sum takes
    the second number of a pair before the first: numbers that bfloat16 can hold then give the bits of `brain_tile`.
    """
    if not isinstance(storage, types.StringLiteral) or not isinstance(rows, types.IntegerLiteral):
        return None
    shape = (rows.literal_value, panels.literal_value)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emit_float_tile(Emitter(builder), storage.literal_value, shape, *args[3:])
        return context.get_dummy_value()

    return types.void(storage, rows, panels, *[types.int64] * 8), generate


def emit_float_tile(
    e: Emitter,
    storage: str,
    shape: tuple[int, int],
    weights: Any,
    k_stride: Any,
    panel_stride: Any,
    x: Any,
    x_stride: Any,
    count: Any,
    out: Any,
    out_stride: Any,
) -> None:
    """Emit `float_tile` for rows and panels of `shape`."""
    rows, panels = shape
    cells = [[e.cell(F32X) for _ in range(panels)] for _ in range(rows)]
    x_rows = [e.at(x, e.b.mul(x_stride, constant(m))) for m in range(rows)]
    columns = [e.at(weights, e.b.mul(panel_stride, constant(p))) for p in range(panels)]
    storage, _, order = storage.partition(":")

    def add(parts: list[ir.Value], x_offset: ir.Value) -> None:
        for m in range(rows):
            factor = e.broadcast(e.at(x_rows[m], x_offset))
            for p in range(panels):
                e.b.store(e.fma(parts[p], factor, e.b.load(cells[m][p])), cells[m][p])

    def number(k: ir.Value) -> None:
        w_offset = e.b.mul(k, k_stride)
        add([e.load_lanes(e.at(column, w_offset), storage) for column in columns], e.b.mul(k, constant(4)))

    if storage == "bfloat16":
        with e.loop(e.b.sdiv(e.b.add(count, constant(1)), constant(2))) as pair:
            both = [e.load_pairs(e.at(column, e.b.mul(pair, k_stride))) for column in columns]
            for i in range(2):
                add([parts[i] for parts in both], e.at(e.b.mul(pair, constant(8)), 4 * i))
    elif order == "pairs":
        with e.loop(e.b.and_(count, constant(-2)), 2) as k:
            number(e.b.add(k, constant(1)))
            number(k)
        with e.loop(e.b.and_(count, constant(1))):
            number(e.b.sub(count, constant(1)))
    else:
        with e.loop(count) as k:
            number(k)
    _store_tile(e, cells, out, out_stride)


@intrinsic
def brain_tile(
    typing_context: Any,
    rows: Any,
    panels: Any,
    weights: Any,
    panel_stride: Any,
    x: Any,
    x_stride: Any,
    count: Any,
    out: Any,
    out_stride: Any,
) -> Any:
    """``out[m, 16 p + lane] = Σ_k x[m, k] · w[p, k, lane]``, both in bfloat16, summed in float32.

    As `float_tile` with storage bfloat16 and pairs that follow each other; `x` is bfloat16 too. A sum takes the second
    number of a pair before the first, as the processor's instruction does.
    """
    if not isinstance(rows, types.IntegerLiteral) or not isinstance(panels, types.IntegerLiteral):
        return None
    shape = (rows.literal_value, panels.literal_value)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emit_brain_tile(Emitter(builder), shape, *args[2:])
        return context.get_dummy_value()

    return types.void(rows, panels, *[types.int64] * 7), generate


def emit_brain_tile(
    e: Emitter,
    shape: tuple[int, int],
    weights: Any,
    panel_stride: Any,
    x: Any,
    x_stride: Any,
    count: Any,
    out: Any,
    out_stride: Any,
) -> None:
    """Emit `brain_tile` for rows and panels of `shape`."""
    rows, panels = shape
    cells = [[e.cell(F32X) for _ in range(panels)] for _ in range(rows)]
    x_rows = [e.at(x, e.b.mul(x_stride, constant(m))) for m in range(rows)]
    columns = [e.at(weights, e.b.mul(panel_stride, constant(p))) for p in range(panels)]
    with e.loop(e.b.lshr(e.b.add(count, constant(1)), constant(1))) as pair:
        w_offset, x_offset = e.b.mul(pair, constant(64)), e.b.mul(pair, constant(4))
        lanes = [e.load(e.at(column, w_offset), I32X) for column in columns]
        for m in range(rows):
            factor = e.broadcast(e.at(x_rows[m], x_offset), I32)
            for p in range(panels):
                e.b.store(e.dot_pairs(e.b.load(cells[m][p]), lanes[p], factor), cells[m][p])
    _store_tile(e, cells, out, out_stride)


def byte_block_bytes(zero: int, group: int) -> int:
    """Bytes of one block of a byte panel: codes, then scales, then floors if the code for 0 is 0."""
    return 8 * 64 + 32 // group * (64 + (64 if zero == 0 else 0))


def emit_integer_tile(
    e: Emitter,
    zero: int,
    group: int,
    shape: tuple[int, int],
    weights: Any,
    panel_stride: Any,
    x: Any,
    x_stride: Any,
    padded: Any,
    out: Any,
    out_stride: Any,
) -> None:
    """Rows of quantised activations times byte panels, as `unpack_bytes` writes them; `padded` is k.

    A block of 32 k of a byte panel is 8 vectors of 16 rows × 4 k, a vector of float32 scales for each `group` of k, and
    as many of floors if `zero` is 0.
    """
    rows, panels = shape
    dot, parts = ByteDot(e, zero), 32 // group
    cells = [[e.cell(F32X) for _ in range(panels)] for _ in range(rows)]
    x_rows = [e.at(x, e.b.mul(x_stride, constant(m))) for m in range(rows)]
    columns = [e.at(weights, e.b.mul(panel_stride, constant(p))) for p in range(panels)]
    per_kind = e.b.lshr(padded, constant(3))  # bytes of an array with one number per block
    with e.loop(e.b.lshr(padded, constant(5))) as block:
        quants = e.b.mul(block, constant(32))
        scale = e.at(padded, e.b.mul(block, constant(4)))
        here = [e.at(column, e.b.mul(block, constant(byte_block_bytes(zero, group)))) for column in columns]
        about = [BlockSums(e, e.at(row, scale), per_kind) for row in x_rows]
        starts = [own.starts(parts) if zero else [e.ints(0)] * parts for own in about]
        for part in range(parts):
            sums = [[dot.start(starts[m][part])] * panels for m in range(rows)]
            for j in range(8 // parts * part, 8 // parts * (part + 1)):
                lanes = [e.load(e.at(column, 64 * j), I32X, align=64) for column in here]
                for m in range(rows):
                    factor = dot.operand(e.at(e.at(x_rows[m], quants), 4 * j))
                    sums[m] = [dot.accumulate(sums[m][p], lanes[p], factor) for p in range(panels)]
            scales = [e.load(e.at(column, (8 + part) * 64), F32X, align=64) for column in here]
            for m in range(rows):
                factor = about[m].scale
                for p in range(panels):
                    value = e.fma(e.to_float(sums[m][p]), e.mul(scales[p], factor), e.b.load(cells[m][p]))
                    e.b.store(value, cells[m][p])
        for part in range(parts if zero == 0 else 0):
            _add_floors(e, cells, [e.at(column, (8 + parts + part) * 64) for column in here], about, part, parts)
    _store_tile(e, cells, out, out_stride)


def _add_floors(
    e: Emitter, cells: list[list[ir.Value]], here: list[ir.Value], about: list[BlockSums], part: int, parts: int
) -> None:
    floors = [e.load(address, F32X, align=64) for address in here]
    for m, own in enumerate(about):
        factor = own.totals(parts)[part]
        for p, floor in enumerate(floors):
            e.b.store(e.fma(floor, factor, e.b.load(cells[m][p])), cells[m][p])


@kernel
def float_tiles(storage, rows, wide, weights, k_stride, panel_stride, panels, x, x_stride, count, out, out_stride):
    """`float_tile` over any number of panels: `wide` at once, the rest one by one."""
    panel = 0
    while panel < panels:
        source = weights + panel * panel_stride
        target = out + 64 * panel
        if panels - panel >= wide:
            float_tile(storage, rows, wide, source, k_stride, panel_stride, x, x_stride, count, target, out_stride)
            panel += wide
        else:
            float_tile(storage, rows, 1, source, k_stride, panel_stride, x, x_stride, count, target, out_stride)
            panel += 1


@kernel
def brain_tiles(rows, wide, weights, panel_stride, panels, x, x_stride, count, out, out_stride):
    """`brain_tile` over any number of panels."""
    panel = 0
    while panel < panels:
        source = weights + panel * panel_stride
        target = out + 64 * panel
        if panels - panel >= wide:
            brain_tile(rows, wide, source, panel_stride, x, x_stride, count, target, out_stride)
            panel += wide
        else:
            brain_tile(rows, 1, source, panel_stride, x, x_stride, count, target, out_stride)
            panel += 1
