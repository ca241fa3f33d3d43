"""The storage forms of weights in products, under one signature.

A *kind* names a form: a panel format as stored (``int4``), with ``:exact`` if codes are multiplied by float32
activations and ``:rounded`` if bfloat16 weights are multiplied by bfloat16 activations; or panels unpacked for many
rows: ``bytes:ZERO:GROUP`` (see `unpack_bytes`), and ``float32`` for `unpack_floats`. Every sum runs over k in order,
into one register, so the unpacked form of a kind gives the bits of the packed form, for any number of rows.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types

from volumetric.devices.cpu.kernels.jit import intrinsic, kernel
from volumetric.devices.cpu.kernels.llvm_emitter import Emitter, constant
from volumetric.devices.cpu.kernels.matvec import emit_packed_panels
from volumetric.devices.cpu.kernels.panel_microkernels import emit_brain_tile, emit_float_tile, emit_integer_tile
from volumetric.devices.cpu.kernels.panels import BY_NAME

AHEAD = ":ahead"
"""Suffix of a kind of packed integer panels: prefetch the next panels, see `emit_packed_panels`."""

_CODED = {form.name for form in BY_NAME.values() if form.is_coded}


@intrinsic
def product_tile(
    typing_context: Any,
    kind: Any,
    rows: Any,
    panels: Any,
    weights: Any,
    panel_stride: Any,
    x: Any,
    x_stride: Any,
    units: Any,
    out: Any,
    out_stride: Any,
) -> Any:
    """``out[m, 16 p + lane] = Σ_k x[m, k] · w[p, k, lane]`` for `rows` × `panels` (compile-time constants).

    `x` are prepared rows, `x_stride` bytes apart; `units` is the number of units of a panel of `kind`: 8 k where
    weights are floats, else 64 k.
    """
    if not isinstance(kind, types.StringLiteral) or not isinstance(rows, types.IntegerLiteral):
        return None
    name, shape = kind.literal_value, (rows.literal_value, panels.literal_value)

    def generate(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
        _emit(Emitter(builder), name, shape, *args[3:])
        return context.get_dummy_value()

    return types.void(kind, rows, panels, *[types.int64] * 7), generate


def _emit(
    e: Emitter,
    kind: str,
    shape: tuple[int, int],
    weights: Any,
    panel_stride: Any,
    x: Any,
    x_stride: Any,
    units: Any,
    out: Any,
    out_stride: Any,
) -> None:
    """Emit the product of a tile of rows with panels by the code for `kind`; sums go to `out`."""
    name, _, how = kind.removesuffix(AHEAD).partition(":")
    if name == "bytes":
        padded = e.b.mul(units, constant(64))
        zero, group = (int(part) for part in how.split(":"))
        emit_integer_tile(e, zero, group, shape, weights, panel_stride, x, x_stride, padded, out, out_stride)
    elif name in _CODED:
        vectors = [e.at(x, e.b.mul(x_stride, constant(m))) for m in range(shape[0])]
        columns = [e.at(weights, e.b.mul(panel_stride, constant(p))) for p in range(shape[1])]
        together = [columns] if len(vectors) == 1 else [[column] for column in columns]  # as many as registers hold
        # A single row waits only for memory: enough panels are in flight.
        ahead = kind.endswith(AHEAD) and len(vectors) > 1
        panel_sums = [
            sums
            for some in together
            for sums in emit_packed_panels(e, name, some, vectors, units, exact=how == "exact", ahead=ahead)
        ]
        for p, sums in enumerate(panel_sums):
            for m, value in enumerate(sums):
                e.store(e.at(e.at(out, e.b.mul(out_stride, constant(m))), 64 * p), value)
    elif how == "rounded":
        emit_brain_tile(e, shape, weights, panel_stride, x, x_stride, e.b.mul(units, constant(8)), out, out_stride)
    else:
        k_stride, count = constant(32 if name == "float16" else 64), e.b.mul(units, constant(8))
        emit_float_tile(e, name, shape, weights, k_stride, panel_stride, x, x_stride, count, out, out_stride)


@kernel
def product_tiles(kind, rows, wide, weights, panel_stride, panels, x, x_stride, units, out):
    """`product_tile` over any number of panels: `wide` at once, the rest one by one; results are stored row by row."""
    panel = 0
    while panel < panels:
        source = weights + panel * panel_stride
        target = out + 64 * panel
        if panels - panel >= wide:
            product_tile(kind, rows, wide, source, panel_stride, x, x_stride, units, target, 64 * panels)
            panel += wide
        else:
            product_tile(kind, rows, 1, source, panel_stride, x, x_stride, units, target, 64 * panels)
            panel += 1


@kernel
def some_rows(kind, most, middle, few, wide, alone, weights, panel_stride, panels, x, x_stride, count, units, out):
    """`product_tiles` for `count` rows in the smallest tile of `most`, `middle`, `few` rows or one that holds them.

    A single row takes `alone` panels at once. Rows beyond `count` are computed from whatever memory holds, and their
    results are ignored.
    """
    if count > middle:
        product_tiles(kind, most, wide, weights, panel_stride, panels, x, x_stride, units, out)
    elif count > few:
        product_tiles(kind, middle, wide, weights, panel_stride, panels, x, x_stride, units, out)
    elif count > 1:
        product_tiles(kind, few, wide, weights, panel_stride, panels, x, x_stride, units, out)
    else:
        product_tiles(kind, 1, alone, weights, panel_stride, panels, x, x_stride, units, out)
