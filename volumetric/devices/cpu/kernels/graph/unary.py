"""Functions of one number and their derivatives, on vectors of 16, by number."""

from __future__ import annotations

from typing import Any

import numpy as np

from volumetric.devices.cpu.kernels.formula_kernels import one_of
from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.devices.cpu.kernels.masked_load import where_equal
from volumetric.devices.cpu.kernels.maths import WORDS, exp, log
from volumetric.devices.cpu.kernels.simd import splat
from volumetric.formula import unary_functions

f32 = np.float32


@kernel
def power(x, exponent):
    """``x**exponent`` for x ≥ 0 and an exponent above 0, by way of logarithms."""
    zero = splat(f32(0.0))
    return where_equal(x, zero, zero, exp(log(x) * exponent))


FUNCTIONS = tuple(unary_functions.OWN)
"""Index = the code of a function; activations come first."""

apply = one_of(__name__, "apply", "x alpha beta", [each.value for each in unary_functions.OWN.values()], WORDS)
"""(code, x, alpha, beta) → function number `code` of `FUNCTIONS`; `alpha` and `beta` (vectors) are those of affine."""

SLOPES = tuple(unary_functions.SLOPES)
"""Index = the code of a slope."""

slope = one_of(__name__, "slope", "x", list(unary_functions.SLOPES.values()), WORDS)
"""(code, x) → slope number `code` of `SLOPES` at `x`; the left derivative at a kink."""


def apply_by(name: str) -> dict[str, Any]:
    """Return `apply` for an activation registered by a package, by its name."""
    return {"apply": one_of(__name__, "apply", "x alpha beta", [unary_functions.ACTIVATIONS[name].value], WORDS)}


def slope_by(name: str) -> dict[str, Any]:
    """Return `slope` for an activation registered by a package, by its name."""
    return {"slope": one_of(__name__, "slope", "x", [unary_functions.slope_by_name(name)], WORDS)}
