"""One tap of 16 windows side by side: load its elements from a line of an image, and add numbers back to them.

For windows one or two elements apart, the usual case; `windows` and `pools` have loops for others. A tap of some
windows may be outside of the line, before the windows that see it or after.
"""

from __future__ import annotations

from llvmlite import ir
from numba import types

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.llvm_emitter import F32X, I32, LANES, Emitter
from volumetric.devices.cpu.kernels.masked_load import (
    even_lanes,
    load_between,
    masked_load,
    odd_lanes,
    spread_first,
    spread_first_odd,
    spread_last,
    spread_last_odd,
    store_between,
)
from volumetric.devices.cpu.kernels.simd import Floats, define, load, store

WIDEST_STRIDE = 2


@define(Floats, types.int64, types.int64, types.int64, Floats)
def _load_between_or(e: Emitter, address: ir.Value, low: ir.Value, high: ir.Value, rest: ir.Value) -> ir.Value:
    """As `load_between`, with the lanes of `rest` elsewhere."""
    lanes = e.lane_numbers()
    above = e.b.icmp_signed(">=", lanes, e.splat(e.b.trunc(low, I32)))
    below = e.b.icmp_signed("<", lanes, e.splat(e.b.trunc(high, I32)))
    return masked_load(e, address, e.b.and_(above, below), rest)


@define(Floats)
def lane_numbers(e: Emitter) -> ir.Value:
    """0 … 15."""
    return ir.Constant(F32X, [float(lane) for lane in range(LANES)])


@kernel
def first_with(stride, shift):
    """First window whose tap, `shift` elements from the window's start, is at 0 or later; `stride` is 1 or 2."""
    return max(0, (stride - 1 - shift) >> (stride - 1))


@kernel
def last_with(size, stride, shift, count):
    """One past the last of `count` windows whose tap is before `size`."""
    return min(count, ((size - 1 - shift) >> (stride - 1)) + 1)


@kernel
def load_tap(x, stride, low, high, rest):
    """The element of each window from `low` up to `high` (any numbers; 16 windows count), `rest` in other lanes.

    `x` is the (possibly outside) address of the tap of the first of the 16 windows.
    """
    if stride == 1:
        if low <= 0 and high >= 16:
            return load(x)
        return _load_between_or(x, low, high, rest)
    if low <= 0 and high > 16:  # the following window sees its tap too, so all 32 elements exist
        return even_lanes(load(x), load(x + 64))
    first, last = 2 * low, 2 * high - 1
    return even_lanes(_load_between_or(x, first, last, rest), _load_between_or(x + 64, first - 16, last - 16, rest))


@kernel
def add_tap(x, stride, low, high, value):
    """Add the lanes of `value` to the elements that `load_tap` reads."""
    if stride == 1:
        store_between(x, load_between(x, low, high) + value, low, high)
    else:
        first, last = 2 * low, 2 * high - 1
        store_between(x, load_between(x, first, last) + spread_first(value), first, last)
        if last > 16:
            here, first, last = x + 64, first - 16, last - 16
            store_between(here, load_between(here, first, last) + spread_last(value), first, last)


@kernel
def load_inside(x, stride, tap):
    """The element of each of 16 windows that are inside of the line with all their taps; no mask is needed.

    `x` as in `load_tap`, and `tap` the number of the tap. For windows two elements apart 31 elements count. The 32nd is
    read after them for the first tap, before them for others: it is another tap of the same windows.
    """
    if stride == 1:
        return load(x)
    if tap == 0:
        return even_lanes(load(x), load(x + 64))
    return odd_lanes(load(x - 4), load(x + 60))


@kernel
def add_inside(x, stride, tap, value):
    """Add the lanes of `value` to the elements that `load_inside` reads."""
    if stride == 1:
        store(x, load(x) + value)
    elif tap == 0:
        store(x, load(x) + spread_first(value))
        store(x + 64, load(x + 64) + spread_last(value))
    else:
        store(x - 4, load(x - 4) + spread_first_odd(value))
        store(x + 60, load(x + 60) + spread_last_odd(value))
