"""Exponential, tanh, erf and the activations on vectors of 16 numbers.

As NumPy's, they keep NaN and overflow to infinity. Powers too small to be normal numbers, below 1.2e-38, are 0:
processors are slow with these, GPUs mostly have none. Errors, measured over the range of float32: ``exp`` 1 ulp,
``tanh`` 2, ``sigmoid`` 3; ``erf`` 6e-7 relative.
"""

from __future__ import annotations

import numpy as np

from volumetric.formula import functions
from volumetric.kernels.cpu.formulas import one_of
from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.simd import magnitude, negative, positive, splat, where_less, with_exponent, with_sign

f32 = np.float32


_MOST = f32(88.72284)
"""The smallest number whose power overflows."""
_LEAST = f32(-87.33655)
"""Below it a power is too small to be normal."""


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
    return where_less(x, splat(_MOST), y, x * splat(f32(np.inf)))  # NaN is not less, and stays


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


WORDS = (exp, erf, magnitude, negative, positive, sigmoid, softplus, splat, tanh, where_less)
"""What activations are written with."""

ACTIVATIONS = tuple(functions.ACTIVATIONS)
"""Position = the code that a step holds."""

activate = one_of(__name__, "activate", "x", [each.value for each in functions.ACTIVATIONS.values()], WORDS)
"""(code, x) → activation number `code` of `ACTIVATIONS`."""
