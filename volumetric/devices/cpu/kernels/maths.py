"""Elementary functions on vectors of 16 numbers, and the activations built from them by formulas.

As in NumPy, NaN is preserved and overflow gives infinity. Powers too small to be normal numbers, below 1.2e-38, are 0:
processors are slow with these, and most GPUs have none. Errors, measured over the range of float32: ``exp`` and ``log``
1 ulp, ``tanh`` 2, ``sigmoid`` 3; ``erf`` 6e-7 relative.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.formula_kernels import one_of
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import (
    bits_of,
    both_bits,
    larger,
    of_bits,
    root,
    smaller,
    splat_int,
    where_equal,
)
from volumetric.devices.cpu.kernels.simd import (
    as_floats,
    magnitude,
    nearest,
    negative,
    positive,
    shifted_right,
    splat,
    where_at_most,
    where_less,
    where_nan,
    with_exponent,
    with_sign,
)
from volumetric.formula import unary_functions

f32 = np.float32


_MOST = f32(88.72284)
"""The smallest number whose exponential overflows."""
_LEAST = f32(-87.33655)
"""Numbers below have an exponential too small to be normal."""


@kernel
def exp(x):
    """``e**x``: x = n ln 2 + r, |r| ≤ ln 2 / 2, and a polynomial for ``e**r`` (Cephes)."""
    # Adding 1.5 * 2**23 leaves n in the low bits of the sum.
    shifted = x * splat(f32(1.44269504)) + splat(f32(12582912.0))
    whole = shifted - splat(f32(12582912.0))
    r = x - whole * splat(f32(0.693359375))
    r = r + whole * splat(f32(2.12194440e-4))
    y = splat(f32(1.9875691500e-4))
    y = y * r + splat(f32(1.3981999507e-3))
    y = y * r + splat(f32(8.3334519073e-3))
    y = y * r + splat(f32(4.1665795894e-2))
    y = y * r + splat(f32(1.6666665459e-1))
    y = y * r + splat(f32(5.0000001201e-1))
    y = y * (r * r) + r + splat(f32(1.0))
    y = where_less(x, splat(_LEAST), splat(f32(0.0)), with_exponent(y, shifted))
    return where_less(x, splat(_MOST), y, x * splat(f32(np.inf)))  # NaN does not compare as less, and stays


@kernel
def sigmoid(x):
    """``1 / (1 + e**-x)``."""
    one = splat(f32(1.0))
    return one / (one + exp(splat(f32(0.0)) - x))


@kernel
def softplus(x):
    """``log(1 + e**x)`` as ``max(x, 0) + 2 atanh(u / (2 + u))`` with ``u = e**-|x|``, by the series of atanh."""
    u = exp(splat(f32(0.0)) - magnitude(x))
    f = u / (splat(f32(2.0)) + u)
    square = f * f
    y = splat(f32(1.0 / 17.0))
    y = y * square + splat(f32(1.0 / 15.0))
    y = y * square + splat(f32(1.0 / 13.0))
    y = y * square + splat(f32(1.0 / 11.0))
    y = y * square + splat(f32(1.0 / 9.0))
    y = y * square + splat(f32(1.0 / 7.0))
    y = y * square + splat(f32(1.0 / 5.0))
    y = y * square + splat(f32(1.0 / 3.0))
    y = y * square + splat(f32(1.0))
    zero = splat(f32(0.0))
    return where_less(x, zero, zero, x) + (f + f) * y


@kernel
def tanh(x):
    """Odd polynomial (Cephes) below 0.625, else ``1 - 2 / (e**2x + 1)``."""
    size = magnitude(x)
    square = x * x
    p = splat(f32(-5.70498872745e-3))
    p = p * square + splat(f32(2.06390887954e-2))
    p = p * square + splat(f32(-5.37397155531e-2))
    p = p * square + splat(f32(1.33314422036e-1))
    p = p * square + splat(f32(-3.33332819422e-1))
    near = p * square * x + x
    one = splat(f32(1.0))
    far = one - splat(f32(2.0)) / (exp(size + size) + one)
    return where_less(size, splat(f32(0.625)), near, with_sign(far, x))


@kernel
def erf(x):
    """Maclaurin series below 0.5, above it Abramowitz and Stegun 7.1.26.

    The latter is ``1 - (a1 t + … + a5 t⁵) e**-x²`` with ``t = 1 / (1 + p |x|)``.
    """
    size = magnitude(x)
    square = x * x
    series = splat(f32(-8.5483270e-4))
    series = series * square + splat(f32(5.2239776e-3))
    series = series * square + splat(f32(-2.6866171e-2))
    series = series * square + splat(f32(1.1283792e-1))
    series = series * square + splat(f32(-3.7612639e-1))
    series = series * square + splat(f32(1.1283792))
    one = splat(f32(1.0))
    t = one / (one + splat(f32(0.3275911)) * size)
    p = splat(f32(1.061405429))
    p = p * t + splat(f32(-1.453152027))
    p = p * t + splat(f32(1.421413741))
    p = p * t + splat(f32(-0.284496736))
    p = p * t + splat(f32(0.254829592))
    far = with_sign(one - p * t * exp(splat(f32(0.0)) - square), x)
    return where_less(size, splat(f32(0.5)), series * x, far)


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
def sin_quarter_turned(x, quarters):
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
def log_of_one_plus(x):
    """``log(1 + x)`` for x in 0 … 1, without losing what 1 + x rounds away."""
    one = splat(f32(1.0))
    u = one + x
    return where_equal(u, one, x, log(u) * x / (u - one))


WORDS = (
    *(erf, exp, floor, larger, log, log_of_one_plus, magnitude, negative, positive, root, sigmoid, sign, smaller),
    *(softplus, splat, tanh, sin_quarter_turned, where_at_most, where_equal, where_less),
)
"""Functions available to formulas."""

ACTIVATIONS = tuple(unary_functions.ACTIVATIONS.own)
"""Index = the code that a step holds."""

activate = one_of(__name__, "activate", "x", [each.value for each in unary_functions.ACTIVATIONS.own.values()], WORDS)
"""(code, x) → activation number `code` of `ACTIVATIONS`."""


def activate_by(name: str) -> Any:
    """Return `activate` for an activation registered by a package."""
    return one_of(__name__, "activate", "x", [unary_functions.ACTIVATIONS[name].value], WORDS)
