"""Functions of one number and their derivatives, on vectors of 16.

They keep NaN and reach infinity and the subnormal numbers, as NumPy's do. `log` is within 1 ulp over the range of
float32; `volumetric.kernels.cpu.maths` has the others.
"""

from __future__ import annotations

import numpy as np

from volumetric.formula import functions
from volumetric.kernels.cpu.formulas import one_of
from volumetric.kernels.cpu.graph.lanes import (
    bits_of,
    both_bits,
    of_bits,
    root,
    splat_int,
    where_at_most,
    where_equal,
)
from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.maths import WORDS as MATHS
from volumetric.kernels.cpu.maths import exp
from volumetric.kernels.cpu.simd import (
    as_floats,
    magnitude,
    nearest,
    shifted_right,
    splat,
    where_less,
    where_nan,
    with_sign,
)

f32 = np.float32


@kernel
def _log(x, shift):
    """``log(x / 2**shift)`` of positive normal x = 2**n m, √½ ≤ m < √2, by a polynomial for ``log m`` (Cephes)."""
    half = splat_int(0x3F3504F3)  # √½: from there on, a step of 2**23 of the bits is a factor of two
    bits = bits_of(x) - half
    n = as_floats(shifted_right(bits, 23)) - shift
    one = splat(f32(1.0))
    m = of_bits(both_bits(bits, splat_int(0x007FFFFF)) + half) - one
    y = splat(f32(7.0376836292e-2))
    y = y * m + splat(f32(-1.1514610310e-1))
    y = y * m + splat(f32(1.1676998740e-1))
    y = y * m + splat(f32(-1.2420140846e-1))
    y = y * m + splat(f32(1.4249322787e-1))
    y = y * m + splat(f32(-1.6668057665e-1))
    y = y * m + splat(f32(2.0000714765e-1))
    y = y * m + splat(f32(-2.4999993993e-1))
    y = y * m + splat(f32(3.3333331174e-1))
    square = m * m
    y = y * m * square + n * splat(f32(-2.12194440e-4)) - splat(f32(0.5)) * square
    return m + y + n * splat(f32(0.693359375))


@kernel
def log_of_normal(x):
    """Natural logarithm of positive normal numbers."""
    return _log(x, splat(f32(0.0)))


@kernel
def log(x):
    """Natural logarithm."""
    small = splat(f32(1.1754944e-38))
    zero = splat(f32(0.0))
    scaled = where_less(x, small, x * splat(f32(8388608.0)), x)
    result = _log(scaled, where_less(x, small, splat(f32(23.0)), zero))
    infinity = splat(f32(np.inf))
    result = where_equal(x, infinity, infinity, result)
    result = where_equal(x, zero, splat(f32(-np.inf)), result)
    return where_nan(x, x, where_less(x, zero, splat(f32(np.nan)), result))


@kernel
def floor(x):
    """Largest integer that is at most x."""
    even = as_floats(nearest(x * splat(f32(0.5))))
    even = even + even
    zero = splat(f32(0.0))
    one = splat(f32(1.0))
    rest = x - even  # -1 … 1
    whole = even + where_less(rest, zero, splat(f32(-1.0)), where_less(rest, one, zero, one))
    # From 2²³ on all numbers are whole. Zero keeps its sign.
    return where_less(magnitude(x), splat(f32(8388608.0)), where_equal(x, zero, x, whole), x)


@kernel
def turned(x, quarters):
    """``sin(x + quarters π / 2)``: x = n π / 2 + r, |r| ≤ π / 4, and polynomials (Cephes); to 1e-7 for |x| ≤ 8192."""
    n = nearest(x * splat(f32(0.63661977)))
    whole = as_floats(n)
    r = x - whole * splat(f32(1.5703125))
    r = r - whole * splat(f32(4.837512969970703125e-4))
    r = r - whole * splat(f32(7.54978995489188216e-8))
    square = r * r
    s = splat(f32(-1.9515295891e-4))
    s = s * square + splat(f32(8.3321608736e-3))
    s = s * square + splat(f32(-1.6666654611e-1))
    s = s * square * r + r
    c = splat(f32(2.443315711809948e-5))
    c = c * square + splat(f32(-1.388731625493765e-3))
    c = c * square + splat(f32(4.166664568298827e-2))
    c = c * square * square - splat(f32(0.5)) * square + splat(f32(1.0))
    zero = splat(f32(0.0))
    n = n + splat_int(quarters)
    y = where_equal(as_floats(both_bits(n, splat_int(1))), zero, s, c)
    y = where_equal(as_floats(both_bits(n, splat_int(2))), zero, y, zero - y)
    return where_nan(x, x, where_less(magnitude(x), splat(f32(np.inf)), y, splat(f32(np.nan))))


@kernel
def sign(x):
    """-1, 0 or 1."""
    zero = splat(f32(0.0))
    return where_nan(x, x, where_equal(x, zero, zero, with_sign(splat(f32(1.0)), x)))


@kernel
def power(x, exponent):
    """``x**exponent`` for x ≥ 0 and an exponent above 0, by way of logarithms."""
    zero = splat(f32(0.0))
    return where_equal(x, zero, zero, exp(log(x) * exponent))


WORDS = (*MATHS, floor, log, root, sign, turned, where_at_most, where_equal)
"""What functions and slopes are written with."""

FUNCTIONS = tuple(functions.FUNCTIONS)
"""Position = the code of a function; activations come first."""

apply = one_of(__name__, "apply", "x alpha beta", [each.value for each in functions.FUNCTIONS.values()], WORDS)
"""(code, x, alpha, beta) → function number `code` of `FUNCTIONS`; `alpha` and `beta` (vectors) are those of affine."""

SLOPES = tuple(functions.SLOPES)
"""Position = the code of a slope."""

slope = one_of(__name__, "slope", "x", list(functions.SLOPES.values()), WORDS)
"""(code, x) → slope number `code` of `SLOPES` at `x`; at a kink that from the left."""
