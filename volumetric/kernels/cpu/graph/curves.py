"""Functions of one number and their derivatives, on vectors of 16.

Unlike `volumetric.kernels.cpu.maths`, which serves inference, these keep NaN, overflow to infinity and reach into the
subnormal numbers, as NumPy's do. Errors, measured over the range of float32: `exp` and `log` 1 ulp, `tanh` 2, `sigmoid`
3; `erf` 2e-7 absolute.
"""

from __future__ import annotations

import numpy as np

from volumetric.kernels.cpu.graph.lanes import (
    bits_of,
    both_bits,
    either_bits,
    of_bits,
    root,
    shifted_right,
    splat_int,
    where_at_most,
    where_equal,
    where_nan,
)
from volumetric.kernels.cpu.jit import kernel
from volumetric.kernels.cpu.simd import (
    as_floats,
    largest,
    magnitude,
    nearest,
    power_of_two,
    smallest,
    splat,
    where_less,
    with_sign,
)

FUNCTIONS = (
    "linear",
    "relu",
    "silu",
    "gelu",
    "gelu_tanh",
    "tanh",
    "sigmoid",
    "leaky_relu",
    "relu2",
    "exp",
    "log",
    "neg",
    "square",
    "sqrt",
    "rsqrt",
    "reciprocal",
    "abs",
    "sign",
    "affine",
)
"""Position = the code of a function; activations come first."""

(
    _LINEAR,
    _RELU,
    _SILU,
    _GELU,
    _GELU_TANH,
    _TANH,
    _SIGMOID,
    _LEAKY_RELU,
    _RELU2,
    _EXP,
    _LOG,
    _NEG,
    _SQUARE,
    _SQRT,
    _RSQRT,
    _RECIPROCAL,
    _ABS,
    _SIGN,
    _AFFINE,
) = range(len(FUNCTIONS))

f32 = np.float32


@kernel
def exp(x):
    """``e**x``: x = n ln 2 + r, |r| ≤ ln 2 / 2, and a polynomial for ``e**r`` (Cephes)."""
    clamped = smallest(largest(x, splat(f32(-104.0))), splat(f32(89.0)))
    n = nearest(clamped * splat(f32(1.44269504)))
    whole = as_floats(n)
    r = clamped - whole * splat(f32(0.693359375))
    r = r + whole * splat(f32(2.12194440e-4))
    y = splat(f32(1.9875691500e-4))
    y = y * r + splat(f32(1.3981999507e-3))
    y = y * r + splat(f32(8.3334519073e-3))
    y = y * r + splat(f32(4.1665795894e-2))
    y = y * r + splat(f32(1.6666665459e-1))
    y = y * r + splat(f32(5.0000001201e-1))
    y = y * (r * r) + r + splat(f32(1.0))
    # Two factors: their product may lie beyond what one exponent can say, at either end.
    half = shifted_right(n, 1)
    return where_nan(x, x, y * power_of_two(half) * power_of_two(n - half))


@kernel
def log(x):
    """Natural logarithm: x = 2**n m, √½ ≤ m < √2, and a polynomial for ``log m`` (Cephes)."""
    small = splat(f32(1.1754944e-38))
    scaled = where_less(x, small, x * splat(f32(8388608.0)), x)
    bits = bits_of(scaled)
    n = as_floats(shifted_right(bits, 23) - splat_int(126)) - where_less(x, small, splat(f32(23.0)), splat(f32(0.0)))
    m = of_bits(either_bits(both_bits(bits, splat_int(0x007FFFFF)), splat_int(0x3F000000)))
    low = splat(f32(0.70710678))
    one = splat(f32(1.0))
    n = n - where_less(m, low, one, splat(f32(0.0)))
    m = where_less(m, low, m + m, m) - one
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
    result = m + y + n * splat(f32(0.693359375))
    zero = splat(f32(0.0))
    infinity = splat(f32(np.inf))
    result = where_equal(x, infinity, infinity, result)
    result = where_equal(x, zero, splat(f32(-np.inf)), result)
    return where_nan(x, x, where_less(x, zero, splat(f32(np.nan)), result))


@kernel
def sigmoid(x):
    """``1 / (1 + e**-x)``."""
    one = splat(f32(1.0))
    return one / (one + exp(splat(f32(0.0)) - x))


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
def _gelu_inner(x):
    return splat(f32(0.79788456)) * (x + splat(f32(0.044715)) * x * x * x)


@kernel
def apply(code, x, alpha, beta):
    """Function number `code` of `FUNCTIONS`; `alpha` and `beta` (vectors) are those of affine."""
    zero = splat(f32(0.0))
    half = splat(f32(0.5))
    one = splat(f32(1.0))
    if code == _LINEAR:
        return x
    if code == _RELU:
        return where_at_most(x, zero, zero, x)
    if code == _SILU:
        return x * sigmoid(x)
    if code == _GELU:
        return half * x * (one + erf(x * splat(f32(0.70710678))))
    if code == _GELU_TANH:
        return half * x * (one + tanh(_gelu_inner(x)))
    if code == _TANH:
        return tanh(x)
    if code == _SIGMOID:
        return sigmoid(x)
    if code == _LEAKY_RELU:
        return where_at_most(x, zero, splat(f32(0.01)) * x, x)
    if code == _RELU2:
        positive = where_at_most(x, zero, zero, x)
        return positive * positive
    if code == _EXP:
        return exp(x)
    if code == _LOG:
        return log(x)
    if code == _NEG:
        return splat(f32(-0.0)) - x
    if code == _SQUARE:
        return x * x
    if code == _SQRT:
        return root(x)
    if code == _RSQRT:
        return one / root(x)
    if code == _RECIPROCAL:
        return one / x
    if code == _ABS:
        return magnitude(x)
    if code == _SIGN:
        return where_nan(x, x, where_equal(x, zero, zero, with_sign(one, x)))
    return x * alpha + beta


@kernel
def slope(code, x):
    """Derivative of activation number `code` at `x`; at a kink that from the left."""
    zero = splat(f32(0.0))
    half = splat(f32(0.5))
    one = splat(f32(1.0))
    if code == _RELU:
        return where_less(zero, x, one, zero)
    if code == _SILU:
        s = sigmoid(x)
        return s * (one + x * (one - s))
    if code == _GELU:
        density = exp(splat(f32(-0.5)) * x * x) * splat(f32(0.3989422804))
        return half * (one + erf(x * splat(f32(0.70710678)))) + x * density
    if code == _GELU_TANH:
        t = tanh(_gelu_inner(x))
        inner = splat(f32(0.79788456)) * (one + splat(f32(0.134145)) * x * x)
        return half * (one + t) + half * x * (one - t * t) * inner
    if code == _TANH:
        t = tanh(x)
        return one - t * t
    if code == _SIGMOID:
        s = sigmoid(x)
        return s * (one - s)
    if code == _LEAKY_RELU:
        return where_less(zero, x, one, splat(f32(0.01)))
    if code == _RELU2:
        return where_at_most(x, zero, zero, x + x)
    return one


@kernel
def power(x, exponent):
    """``x**exponent`` for x ≥ 0 and an exponent above 0, by way of logarithms."""
    zero = splat(f32(0.0))
    return where_equal(x, zero, zero, exp(log(x) * exponent))
