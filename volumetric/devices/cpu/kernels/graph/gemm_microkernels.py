"""Register tiles of the float32 matrix product.

`panel_tile` multiplies a few rows of the left side, read number by number, by neighbouring columns of the right side,
read as vectors. `dot_tile` multiplies rows of both sides that are contiguous along the summed axis: nothing has to be
rearranged, but each sum is spread over 16 lanes until its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba import types

from volumetric.devices.cpu.kernels.cpu_target import target
from volumetric.devices.cpu.kernels.jit import intrinsic
from volumetric.devices.cpu.kernels.llvm_emitter import F32X, LANES, Emitter, constant
from volumetric.devices.cpu.kernels.masked_load import mask_of_first, masked_load, masked_store, transpose_lanes

# Sums, the vectors of one k and a broadcast number fill the register file; 8 or more sums hide latency.
_PANEL_SHAPES = {32: (6, 4), 8: (6, 1), 4: (2, 1)}
_DOT_SHAPES = {32: (4, 4), 8: (2, 2), 4: (1, 2)}


def panel_shape() -> tuple[int, int]:
    """(rows, vectors) of `panel_tile` on this machine."""
    return _PANEL_SHAPES[target().registers]


def dot_shape() -> tuple[int, int]:
    """(rows, columns) of `dot_tile` on this machine."""
    return _DOT_SHAPES[target().registers]


@intrinsic
def panel_tile(
    typing_context: Any,
    rows: Any,
    vectors: Any,
    a: Any,
    a_row: Any,
    a_k: Any,
    b: Any,
    b_k: Any,
    count: Any,
    start: Any,
    start_row: Any,
    out: Any,
    out_row: Any,
) -> Any:
    """``out[m, n] = start[m, n] + Σ_k a[m, k] b[k, n]`` for `rows` × 16 `vectors` numbers (compile-time constants).

    Elements of a are at ``a + m · a_row + k · a_k``, of b at ``b + k · b_k + 4 n``, of `start` and `out` likewise.
    """
    if not isinstance(rows, types.IntegerLiteral) or not isinstance(vectors, types.IntegerLiteral):
        return None
    shape = (rows.literal_value, vectors.literal_value)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _emit_panel_tile(Emitter(builder), shape, *args[2:])
        return context.get_dummy_value()

    return types.void(rows, vectors, *[types.int64] * 10), generate


def _emit_panel_tile(
    e: Emitter,
    shape: tuple[int, int],
    a: Any,
    a_row: Any,
    a_k: Any,
    b: Any,
    b_k: Any,
    count: Any,
    start: Any,
    start_row: Any,
    out: Any,
    out_row: Any,
    masks: list[ir.Value] | None = None,
) -> None:
    """Emit one tile; `masks` say which lanes of each vector of `start` and `out` may be touched."""
    rows, vectors = shape

    def begin(address: ir.Value, v: int) -> ir.Value:
        if masks is None:
            return e.load(e.at(address, 64 * v), F32X)
        return masked_load(e, e.at(address, 64 * v), masks[v], e.floats(0.0))

    starts = [e.at(start, e.b.mul(start_row, constant(m))) for m in range(rows)]
    sums = [[e.cell(F32X, begin(address, v)) for v in range(vectors)] for address in starts]
    a_rows = [e.at(a, e.b.mul(a_row, constant(m))) for m in range(rows)]
    with e.loop(count) as k:
        here, offset = e.at(b, e.b.mul(k, b_k)), e.b.mul(k, a_k)
        lanes = [e.load(e.at(here, 64 * v), F32X) for v in range(vectors)]
        for m in range(rows):
            factor = e.broadcast(e.at(a_rows[m], offset))
            for v in range(vectors):
                e.b.store(e.fma(lanes[v], factor, e.b.load(sums[m][v])), sums[m][v])
    for m in range(rows):
        base = e.at(out, e.b.mul(out_row, constant(m)))
        for v in range(vectors):
            value = e.b.load(sums[m][v])
            if masks is None:
                e.store(e.at(base, 64 * v), value)
            else:
                masked_store(e, e.at(base, 64 * v), value, masks[v])


@intrinsic
def panel_rows(
    typing_context: Any,
    tall: Any,
    most: Any,
    m: Any,
    a: Any,
    a_row: Any,
    a_k: Any,
    b: Any,
    b_k: Any,
    count: Any,
    start: Any,
    start_row: Any,
    out: Any,
    out_row: Any,
    columns: Any,
) -> Any:
    """`panel_tile` over `m` rows, `tall` at a time and the rest by 2 and 1; return the number of columns computed.

    These are 4, 2 or 1 vectors, at most `most`, and as few as hold `columns`; no other columns of out are written. It
    is one function because Numba is slow at passing compile-time constants between functions.
    """
    if not isinstance(tall, types.IntegerLiteral) or not isinstance(most, types.IntegerLiteral):
        return None
    high, widest = tall.literal_value, most.literal_value

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        def narrowest(widths: Sequence[int]) -> ir.Value:
            width, *narrower = widths
            if not narrower:
                _emit_panel_rows(Emitter(builder), high, width, args[2:])
                return constant(16 * width)
            many = builder.icmp_signed(">", args[-1], constant(16 * narrower[0]))
            with builder.if_else(many) as (then, otherwise):
                with then:
                    _emit_panel_rows(Emitter(builder), high, width, args[2:])
                    wider = builder.block
                with otherwise:
                    rest = narrowest(narrower)
                    last = builder.block
            chosen = builder.phi(rest.type)
            chosen.add_incoming(constant(16 * width), wider)
            chosen.add_incoming(rest, last)
            return chosen

        return narrowest([width for width in (4, 2, 1) if width <= widest])

    return types.int64(tall, most, *[types.int64] * 12), generate


def _emit_panel_rows(e: Emitter, high: int, wide: int, args: Sequence[Any]) -> None:
    """`panel_rows` of one width."""
    m, a, a_row, a_k, b, b_k, count, start, start_row, out, out_row, columns = args
    masks = [mask_of_first(e, e.b.sub(columns, constant(16 * v))) for v in range(wide)]
    first: ir.Value = constant(0)
    for rows in sorted({high, 2, 1} - {n for n in (2, 1) if n > high}, reverse=True):
        left = e.b.sub(m, first)
        covered = e.b.sub(left, e.b.srem(left, constant(rows)))
        with e.loop(covered, rows) as index:
            row = e.b.add(first, index)
            places = [e.at(base, e.b.mul(row, step)) for base, step in ((a, a_row), (start, start_row), (out, out_row))]
            tile = (places[0], a_row, a_k, b, b_k, count, places[1], start_row, places[2], out_row)
            _emit_panel_tile(e, (rows, wide), *tile, masks)
        first = e.b.add(first, covered)


@intrinsic
def dot_tile(
    typing_context: Any, rows: Any, columns: Any, a: Any, a_row: Any, b: Any, b_row: Any, count: Any, out: Any
) -> Any:
    """``out[m · columns + n] = Σ_k a[m, k] b[n, k]`` for `rows` × `columns` sums (compile-time, at most 16 together).

    Rows of both sides are contiguous and `a_row` and `b_row` bytes apart. 16 numbers are written.
    """
    if not isinstance(rows, types.IntegerLiteral) or not isinstance(columns, types.IntegerLiteral):
        return None
    shape = (rows.literal_value, columns.literal_value)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _emit_dot_tile(Emitter(builder), shape, *args[2:])
        return context.get_dummy_value()

    return types.void(rows, columns, *[types.int64] * 6), generate


def _emit_dot_tile(
    e: Emitter, shape: tuple[int, int], a: Any, a_row: Any, b: Any, b_row: Any, count: Any, out: Any
) -> None:
    """Emit all dot products of ``rows × columns`` (16 at most) rows of length `count`; 16 sums go to `out`."""
    rows, columns = shape
    sums = [e.cell(F32X) for _ in range(rows * columns)]
    a_rows = [e.at(a, e.b.mul(a_row, constant(m))) for m in range(rows)]
    b_rows = [e.at(b, e.b.mul(b_row, constant(n))) for n in range(columns)]

    def add(left: list[ir.Value], right: list[ir.Value]) -> None:
        for m in range(rows):
            for n in range(columns):
                cell = sums[m * columns + n]
                e.b.store(e.fma(left[m], right[n], e.b.load(cell)), cell)

    with e.loop(e.b.lshr(count, constant(4))) as block:
        offset = e.b.mul(block, constant(64))
        add([e.load(e.at(r, offset), F32X) for r in a_rows], [e.load(e.at(r, offset), F32X) for r in b_rows])
    rest = e.b.and_(count, constant(LANES - 1))
    with e.b.if_then(e.b.icmp_signed(">", rest, constant(0))):
        mask, zero = mask_of_first(e, rest), e.floats(0.0)
        offset = e.b.mul(e.b.sub(count, rest), constant(4))
        left, right = ([masked_load(e, e.at(r, offset), mask, zero) for r in side] for side in (a_rows, b_rows))
        add(left, right)
    finished: list[ir.Value] = [e.b.load(cell) for cell in sums]
    padded = finished + [e.floats(0.0)] * (LANES - len(finished))
    e.store(out, e.tree(transpose_lanes(e, padded), e.add))
