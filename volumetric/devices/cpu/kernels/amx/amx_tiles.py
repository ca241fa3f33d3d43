"""Tiles of 16 rows × 16 outputs on the processor's matrix registers.

One instruction multiplies 16 rows of activations with 16 rows of weights along a group of k that shares a scale. The
sums go through memory to vector registers, which scale them and add them up in float32. Sums of integers are exact, and
the float32 sums have the order of `devices.cpu.kernels.tiles.emit_integer_tile`, so results are bit-identical.

A panel is unpacked to codes minus their zero, otherwise laid out as by `unpack_bytes`: the instruction reads 16 rows ×
4 k per vector. A matrix register holds 16 rows of 64 bytes: 16 × 16 sums, 16 rows of ``group`` activations, or ``group
/ 4`` vectors of weights. All functions are specialised to a format, whose name is a compile-time constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from volumetric.devices.cpu.kernels.amx.amx_scratch import MATRIX_ROWS, SUM_BYTES, about_bytes, unpacked_unit_bytes
from volumetric.devices.cpu.kernels.blocks.unpack_codes import code_bytes, floor_vectors, scale_vectors, unit_of
from volumetric.devices.cpu.kernels.jit import intrinsic
from volumetric.devices.cpu.kernels.llvm_emitter import F32X, I8, I8X64, I32X, Emitter, constant
from volumetric.devices.cpu.kernels.panels import BLOCK, BY_NAME, UNIT, PanelFormat

SCALED_ROWS = 4
"""Rows scaled together: enough sums to hide the latency of one."""

_VOID = ir.VoidType()
_SUMS, _ROWS, _WEIGHTS = range(4), (4, 5), (6, 7)  # register numbers


def _for_format(emit: Callable[..., None], name: Any, count: int) -> Any:
    """An intrinsic of `count` integers and the format."""
    if not isinstance(name, types.StringLiteral):
        return None

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        emit(Emitter(builder), BY_NAME[name.literal_value], *args[1:])
        return context.get_dummy_value()

    return types.void(name, *[types.int64] * count), generate


@intrinsic
def begin_tiles(typing_context: Any, name: Any) -> Any:
    """Configure this thread's matrix registers for groups of the format; `end_tiles` must follow."""
    return _for_format(_emit_begin, name, 0)


def _emit_begin(e: Emitter, form: PanelFormat) -> None:
    # LDTILECFG reads: palette 1, then bytes of a row (two bytes each, from 16 on) and rows (from 48 on).
    config = [1] + [0] * 63
    shapes = dict.fromkeys(_SUMS, (MATRIX_ROWS, 64))
    shapes |= dict.fromkeys(_ROWS, (MATRIX_ROWS, form.group))
    shapes |= dict.fromkeys(_WEIGHTS, (form.group // 4, 64))
    for number, (rows, size) in shapes.items():
        config[16 + 2 * number], config[48 + number] = size, rows
    shape = e.cell(I8X64, ir.Constant(I8X64, config))
    e.call("llvm.x86.ldtilecfg", _VOID, [e.b.bitcast(shape, I8.as_pointer())])


@intrinsic
def end_tiles(typing_context: Any) -> Any:
    """Release the matrix registers: otherwise every context switch of the thread must save them."""

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        Emitter(builder).call("llvm.x86.tilerelease", _VOID, [])
        return context.get_dummy_value()

    return types.void(), generate


@intrinsic
def open_codes(typing_context: Any, name: Any, panel: Any, start: Any, units: Any, opened: Any) -> Any:
    """Unpack units of a panel from `start` on: codes minus their zero, then scales, then floors if any."""
    return _for_format(_emit_open, name, 4)


def _emit_open(e: Emitter, form: PanelFormat, panel: Any, start: Any, units: Any, opened: Any) -> None:
    size = unpacked_unit_bytes(form) // 2
    zeros = ir.Constant(I8X64, [form.zero] * 64)
    with e.loop(units) as i:
        unit = unit_of(e, form, panel, e.b.add(start, i))
        for block in range(2):
            here = e.at(opened, e.b.add(e.b.mul(i, constant(2 * size)), constant(block * size)))
            for step in range(8):
                codes = e.b.bitcast(code_bytes(e, unit, block, step), I8X64)
                e.store(e.at(here, 64 * step), e.b.sub(codes, zeros), align=64)
            for part, value in enumerate(scale_vectors(e, unit, block) + floor_vectors(e, unit, block)):
                e.store(e.at(here, 64 * (8 + part)), value, align=64)


@intrinsic
def multiply_units(typing_context: Any, name: Any, x: Any, x_stride: Any, opened: Any, units: Any, sums: Any) -> Any:
    """Write the integer dot products of 16 prepared rows with unpacked units, group by group, to `sums`."""
    return _for_format(_emit_multiply, name, 5)


def _emit_multiply(e: Emitter, form: PanelFormat, x: Any, x_stride: Any, opened: Any, units: Any, sums: Any) -> None:
    each = UNIT // form.group
    together = len(_SUMS) // each  # a product waits for the previous one in the same register

    def multiply(unit: ir.Value, count: int) -> None:
        here = e.at(opened, e.b.mul(unit, constant(unpacked_unit_bytes(form))))
        quants = e.at(x, e.b.mul(unit, constant(UNIT)))
        target = e.at(sums, e.b.mul(unit, constant(each * SUM_BYTES)))
        for i in range(count * each):
            block, k = divmod(i * form.group, BLOCK)
            vectors = e.at(here, block * unpacked_unit_bytes(form) // 2 + 64 * (k // 4))
            _emit_group(e, form, i, e.at(quants, form.group * i), x_stride, vectors, e.at(target, SUM_BYTES * i))

    whole = e.b.and_(units, constant(-together))
    with e.loop(whole, together) as unit:
        multiply(unit, together)
    if together > 1:
        with e.loop(e.b.sub(units, whole)) as rest:
            multiply(e.b.add(whole, rest), 1)


def _emit_group(e: Emitter, form: PanelFormat, number: int, x: Any, x_stride: Any, codes: Any, target: Any) -> None:
    """Integer dot products of one group, 16 × 16 of them."""
    sums, rows, weights = (ir.Constant(I8, some[number % len(some)]) for some in (_SUMS, _ROWS, _WEIGHTS))
    e.call("llvm.x86.tilezero", _VOID, [sums])
    e.call("llvm.x86.tileloadd64", _VOID, [rows, _pointer(e, x), x_stride])
    e.call("llvm.x86.tileloadd64", _VOID, [weights, _pointer(e, codes), constant(64)])
    product = "llvm.x86.tdpbsud" if form.zero == 0 else "llvm.x86.tdpbssd"  # codes are unsigned if zero is 0
    e.call(product, _VOID, [sums, rows, weights])
    e.call("llvm.x86.tilestored64", _VOID, [sums, _pointer(e, target), constant(64)])


def _pointer(e: Emitter, address: Any) -> ir.Value:
    return e.b.inttoptr(address, I8.as_pointer())


@intrinsic
def scale_rows(
    typing_context: Any,
    name: Any,
    sums: Any,
    opened: Any,
    about: Any,
    units: Any,
    out: Any,
    out_stride: Any,
    adds: Any,
    ahead: Any,
    lines: Any,
) -> Any:
    """Scale the sums from `multiply_units` for `SCALED_ROWS` rows, and add them to `out`, or to zeros if `adds` is 0.

    `sums` and `about` point to the first of these rows. With each block `lines` cache lines from `ahead` on are
    prefetched: the processor has a dozen requests in flight at a time, so they must be spread out.
    """
    return _for_format(_emit_scale, name, 9)


def _emit_scale(
    e: Emitter,
    form: PanelFormat,
    sums: Any,
    opened: Any,
    about: Any,
    units: Any,
    out: Any,
    out_stride: Any,
    adds: Any,
    ahead: Any,
    lines: Any,
) -> None:
    """Emit `scale_rows`: add scaled integer sums, and floors times sums of rows, to the float sums at `out`."""
    parts, size, own = BLOCK // form.group, unpacked_unit_bytes(form) // 2, about_bytes(form)
    targets = [e.at(out, e.b.mul(out_stride, constant(m))) for m in range(SCALED_ROWS)]
    first = e.b.icmp_signed("==", adds, constant(0))
    cells = [e.cell(F32X, e.b.select(first, e.floats(0.0), e.load(target, F32X))) for target in targets]
    with e.loop(e.b.shl(units, constant(1))) as block:
        here, rows = e.at(opened, e.b.mul(block, constant(size))), e.at(about, e.b.mul(block, constant(own)))
        block_sums = e.at(sums, e.b.mul(block, constant(parts * SUM_BYTES)))
        with e.loop(lines) as line:
            e.fetch(e.at(ahead, e.b.mul(e.b.add(e.b.mul(block, lines), line), constant(64))))
        for part in range(parts):
            scale = e.load(e.at(here, (8 + part) * 64), F32X, align=64)
            for m, cell in enumerate(cells):
                whole = e.to_float(e.load(e.at(block_sums, part * SUM_BYTES + 64 * m), I32X, align=64))
                factor = e.mul(scale, e.broadcast(e.at(rows, 4 * m)))
                e.b.store(e.fma(whole, factor, e.b.load(cell)), cell)
        for part in range(parts if form.zero == 0 else 0):
            floor = e.load(e.at(here, (8 + parts + part) * 64), F32X, align=64)
            for m, cell in enumerate(cells):
                total = e.broadcast(e.at(rows, 64 * (1 + part) + 4 * m))
                e.b.store(e.fma(floor, total, e.b.load(cell)), cell)
    for target, cell in zip(targets, cells, strict=True):
        e.store(target, e.b.load(cell))
