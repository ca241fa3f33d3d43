"""More primitives for vectors of 16 numbers: partial loads and stores, comparisons, roots, transposition."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from volumetric.devices.cpu.kernels.jit import intrinsic
from volumetric.devices.cpu.kernels.llvm_emitter import F32, F32X, I32, I32X, LANES, Emitter, constant
from volumetric.devices.cpu.kernels.simd import Floats, Ints, define

_MASK = ir.VectorType(ir.IntType(1), LANES)


def mask_of_first(e: Emitter, count: ir.Value) -> ir.Value:
    """Mask of the first `count` lanes; `count` may be outside of 0 … 16."""
    return e.b.icmp_signed("<", e.lane_numbers(), e.splat(e.b.trunc(count, I32)))


def masked_load(e: Emitter, address: ir.Value, mask: ir.Value, rest: ir.Value) -> ir.Value:
    """Load the lanes of `mask` from memory, the others from `rest`; memory of the others is not accessed."""
    pointer = e.b.inttoptr(address, F32X.as_pointer())
    return e.call("llvm.masked.load.v16f32.p0", F32X, [pointer, ir.Constant(I32, 4), mask, rest])


def masked_store(e: Emitter, address: ir.Value, value: ir.Value, mask: ir.Value) -> None:
    """Write the lanes of `mask`."""
    pointer = e.b.inttoptr(address, F32X.as_pointer())
    e.call("llvm.masked.store.v16f32.p0", ir.VoidType(), [value, pointer, ir.Constant(I32, 4), mask])


def _store_lanes(e: Emitter, address: ir.Value, value: ir.Value, mask: ir.Value, every: ir.Value) -> None:
    """Write the lanes of `mask`; `every` says that these are all, as in all but the last round of most loops.

    If the processor has no mask registers, a masked store is a loop: on a Zen 3 the branch around it makes copies up to
    six times as fast.
    """
    if "avx512f" in e.target.features:
        masked_store(e, address, value, mask)
        return
    with e.b.if_else(every, likely=True) as (whole, part):
        with whole:
            e.store(address, value)
        with part:
            masked_store(e, address, value, mask)


@define(Floats, types.int64, types.int64)
def load_part(e: Emitter, address: ir.Value, count: ir.Value) -> ir.Value:
    """The first `count` (at most 16) numbers at `address`, then zeros."""
    return masked_load(e, address, mask_of_first(e, count), e.floats(0.0))


def _between(e: Emitter, low: ir.Value, high: ir.Value) -> ir.Value:
    lanes = e.lane_numbers()
    above = e.b.icmp_signed(">=", lanes, e.splat(e.b.trunc(low, I32)))
    return e.b.and_(above, e.b.icmp_signed("<", lanes, e.splat(e.b.trunc(high, I32))))


@define(Floats, types.int64, types.int64, types.int64)
def load_between(e: Emitter, address: ir.Value, low: ir.Value, high: ir.Value) -> ir.Value:
    """Lanes `low` to `high` (exclusive) of the 16 numbers at `address`; zeros elsewhere."""
    return masked_load(e, address, _between(e, low, high), e.floats(0.0))


@define(types.void, types.int64, Floats, types.int64, types.int64)
def store_between(e: Emitter, address: ir.Value, value: ir.Value, low: ir.Value, high: ir.Value) -> None:
    """Write lanes `low` to `high` (exclusive)."""
    every = e.b.and_(e.b.icmp_signed("<=", low, constant(0)), e.b.icmp_signed(">=", high, constant(LANES)))
    _store_lanes(e, address, value, _between(e, low, high), every)


def _shuffle(e: Emitter, a: ir.Value, b: ir.Value, lanes: list[int]) -> ir.Value:
    """Lanes of the 32 numbers of `a` and `b`, by number."""
    return e.b.shuffle_vector(a, b, ir.Constant(I32X, lanes))


@define(Floats, Floats, Floats)
def even_lanes(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Every second number of `a` and `b` concatenated."""
    return _shuffle(e, a, b, list(range(0, 2 * LANES, 2)))


@define(Floats, Floats, Floats)
def odd_lanes(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """The odd-numbered numbers of `a` and `b` concatenated."""
    return _shuffle(e, a, b, list(range(1, 2 * LANES, 2)))


@define(Floats, Floats)
def spread_first(e: Emitter, a: ir.Value) -> ir.Value:
    """The first eight numbers, each followed by a zero."""
    return _shuffle(e, a, e.floats(0.0), [lane // 2 if lane % 2 == 0 else LANES for lane in range(LANES)])


@define(Floats, Floats)
def spread_last(e: Emitter, a: ir.Value) -> ir.Value:
    """The last eight numbers, each followed by a zero."""
    return _shuffle(e, a, e.floats(0.0), [8 + lane // 2 if lane % 2 == 0 else LANES for lane in range(LANES)])


@define(Floats, Floats)
def spread_first_odd(e: Emitter, a: ir.Value) -> ir.Value:
    """The first eight numbers, each preceded by a zero."""
    return _shuffle(e, a, e.floats(0.0), [lane // 2 if lane % 2 else LANES for lane in range(LANES)])


@define(Floats, Floats)
def spread_last_odd(e: Emitter, a: ir.Value) -> ir.Value:
    """The last eight numbers, each preceded by a zero."""
    return _shuffle(e, a, e.floats(0.0), [8 + lane // 2 if lane % 2 else LANES for lane in range(LANES)])


@define(Floats, types.int64, types.int64, Floats)
def load_part_or(e: Emitter, address: ir.Value, count: ir.Value, rest: ir.Value) -> ir.Value:
    """The first `count` numbers at `address`, then those of `rest`."""
    return masked_load(e, address, mask_of_first(e, count), rest)


@define(types.void, types.int64, Floats, types.int64)
def store_part(e: Emitter, address: ir.Value, value: ir.Value, count: ir.Value) -> None:
    """Write the first `count` lanes."""
    _store_lanes(e, address, value, mask_of_first(e, count), e.b.icmp_signed(">=", count, constant(LANES)))


@define(Floats, Floats, Floats, Floats, Floats)
def where_equal(e: Emitter, a: ir.Value, b: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
    """`then` where ``a == b``, else `otherwise`."""
    return e.b.select(e.b.fcmp_ordered("==", a, b), then, otherwise)


@define(Floats, Floats, Floats, Floats, Floats)
def where_beats(e: Emitter, a: ir.Value, b: ir.Value, then: ir.Value, otherwise: ir.Value) -> ir.Value:
    """`then` if `a` replaces `b` as the largest: it is greater, or the first NaN; else `otherwise`."""
    less = e.b.fcmp_unordered("<", b, a)  # true for any NaN as well
    return e.b.select(e.b.and_(less, e.b.fcmp_ordered("ord", b, b)), then, otherwise)


def _first_unless(e: Emitter, a: ir.Value, b: ir.Value, order: str) -> ir.Value:
    """`b` where ``a order b`` holds, else `a`; NaN where either is NaN."""
    chosen = e.b.select(e.b.fcmp_ordered(order, a, b), b, a)
    with_b = e.b.select(e.b.fcmp_unordered("uno", b, b), b, chosen)
    return e.b.select(e.b.fcmp_unordered("uno", a, a), a, with_b)


@define(Floats, Floats, Floats)
def larger(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """The larger one; NaN wins."""
    return _first_unless(e, a, b, "<")


@define(Floats, Floats, Floats)
def smaller(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """The smaller one; NaN wins."""
    return _first_unless(e, a, b, ">")


@define(Floats, Floats)
def root(e: Emitter, a: ir.Value) -> ir.Value:
    """Square root, rounded correctly."""
    return e.call("llvm.sqrt.v16f32", F32X, [a])


@define(Floats, Floats)
def whole_part(e: Emitter, a: ir.Value) -> ir.Value:
    """Largest whole number that is at most `a`."""
    return e.call("llvm.floor.v16f32", F32X, [a])


@define(Ints, Floats)
def bits_of(e: Emitter, a: ir.Value) -> ir.Value:
    """The bits of each number."""
    return e.b.bitcast(a, I32X)


@define(Floats, Ints)
def of_bits(e: Emitter, a: ir.Value) -> ir.Value:
    """The numbers with these bits."""
    return e.b.bitcast(a, F32X)


@define(Ints, types.int64)
def splat_int(e: Emitter, a: ir.Value) -> ir.Value:
    """The same integer in all lanes."""
    return e.splat(e.b.trunc(a, I32))


@define(Ints, Ints, Ints)
def both_bits(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Bits that are set in both."""
    return e.b.and_(a, b)


@define(Ints, Ints, Ints)
def either_bits(e: Emitter, a: ir.Value, b: ir.Value) -> ir.Value:
    """Bits that are set in either."""
    return e.b.or_(a, b)


@define(Floats, types.int64, types.int64)
def load_strided(e: Emitter, address: ir.Value, stride: ir.Value) -> ir.Value:
    """16 numbers that are `stride` bytes apart."""
    value: ir.Value = ir.Constant(F32X, ir.Undefined)
    for lane in range(LANES):
        number = e.load(e.at(address, e.b.mul(stride, constant(lane))), F32)
        value = e.b.insert_element(value, number, ir.Constant(I32, lane))
    return value


def _blend(e: Emitter, rows: list[ir.Value], distance: int) -> list[ir.Value]:
    """Exchange blocks of `distance` × `distance` off the diagonal between rows `distance` apart."""
    blended = list(rows)
    lanes = range(LANES)
    first = ir.Constant(I32X, [i if not i & distance else 16 + (i ^ distance) for i in lanes])
    second = ir.Constant(I32X, [i ^ distance if not i & distance else 16 + i for i in lanes])
    for i in range(LANES):
        if not i & distance:
            a, b = rows[i], rows[i | distance]
            blended[i], blended[i | distance] = e.b.shuffle_vector(a, b, first), e.b.shuffle_vector(a, b, second)
    return blended


def transpose_lanes(e: Emitter, rows: list[ir.Value]) -> list[ir.Value]:
    """The columns of 16 vectors."""
    for distance in (1, 2, 4, 8):
        rows = _blend(e, rows, distance)
    return rows


@intrinsic
def transpose_block(
    typing_context: Any, source: Any, stride: Any, rows: Any, columns: Any, out: Any, apart: Any
) -> Any:
    """Write 16 vectors ``out[j, i] = source[i, j]`` with rows `stride` and `apart` bytes apart.

    Only `rows` × `columns` numbers of the source are read; the others of the 16 × 16 block become zeros, except that
    rows beyond `rows` repeat the last one.
    """

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        e = Emitter(builder)
        source, stride, rows, columns, out, apart = args
        mask = mask_of_first(e, columns)
        last = builder.sub(rows, constant(1))
        vectors: list[ir.Value] = []
        for i in range(LANES):
            index = builder.select(builder.icmp_signed("<", constant(i), rows), constant(i), last)
            vectors.append(masked_load(e, e.at(source, builder.mul(index, stride)), mask, e.floats(0.0)))
        for j, vector in enumerate(transpose_lanes(e, vectors)):
            e.store(e.at(out, builder.mul(apart, constant(j))), vector)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 6), generate
