"""What kernels are written from formulas, read as Python: their words spelled in NumPy, so that nothing is compiled."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np

from volumetric.graph.numeric.numpy_formulas import erf, sigmoid

_COMMON: dict[str, Any] = {
    "np": np,
    "sqrt": np.sqrt,
    "positive": lambda x: np.maximum(x, x.dtype.type(0)),
    "softplus": lambda x: np.logaddexp(x, x.dtype.type(0)),
    "log_of_one_plus": np.log1p,
}

VECTORS: dict[str, Any] = {
    **_COMMON,
    **{name: getattr(np, name) for name in ("exp", "log", "floor", "sign", "tanh")},
    "f32": float,
    "magnitude": np.abs,
    "negative": np.negative,
    "root": np.sqrt,
    "sigmoid": sigmoid,
    "erf": erf,
    "sin_quarter_turned": lambda x, quarters: np.cos(x) if quarters else np.sin(x),
    "larger": np.maximum,
    "smaller": np.minimum,
    "where_less": lambda a, b, then, otherwise: np.where(a < b, then, otherwise),
    "where_at_most": lambda a, b, then, otherwise: np.where(a <= b, then, otherwise),
    "where_equal": lambda a, b, then, otherwise: np.where(a == b, then, otherwise),
}
"""Word of the CPU's kernels → NumPy."""

WGSL: dict[str, Any] = {
    **_COMMON,
    "abs": np.abs,
    "exponential": np.exp,
    "logarithm": np.log,
    "sign_of": np.sign,
    "floor_of": np.floor,
    "hyperbolic_tangent": np.tanh,
    "logistic": sigmoid,
    "normal_below": lambda x: (1 + erf(x / math.sqrt(2))) / 2,
    "turned": lambda x, quarters: np.cos(x) if quarters else np.sin(x),
    "maximum": np.maximum,
    "minimum": np.minimum,
    "infinity": lambda: math.inf,
    "select": lambda otherwise, then, condition: np.where(condition, then, otherwise),
}
"""Word of shaders → NumPy."""


def wgsl_function(text: str, name: str, **constants: Any) -> Any:
    """Return a function of WGSL text, of which statements are ``let`` and ``return``, as one of arrays."""
    [(arguments, body)] = re.findall(rf"fn {name}\(([^)]*)\)[^{{]*\{{(.*?)\n\}}", text, re.DOTALL)
    names = ", ".join(re.findall(r"(\w+):", arguments))
    lines = [line.removeprefix("let ").rstrip(";") for line in body.strip().splitlines()]
    lines = [re.sub(r"\bvec2<f32>", "", line).replace("||", "|").replace("&&", "&") for line in lines]
    scope = {**WGSL, **constants}
    exec(f"def {name}({names}):\n" + "".join(f"    {line}\n" for line in lines), scope)
    return scope[name]
