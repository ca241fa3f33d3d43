"""Element-wise activations with their derivatives, in NumPy.

gelu_tanh is the approximation of Hendrycks & Gimpel 2016 (arXiv 1606.08415) that GPT-2 uses; relu2 is the squared
ReLU of Primer (arXiv 2109.08668); leaky_relu has slope 0.01 below zero, as torch's default; quick_gelu is x·σ(1.702x),
the other approximation of Hendrycks & Gimpel, which CLIP uses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, cast, get_args

import numpy as np

from volumetric._typing import Array
from volumetric.errors import SpecError

Activation = Literal[
    "linear", "relu", "silu", "gelu", "gelu_tanh", "tanh", "sigmoid", "leaky_relu", "relu2", "quick_gelu"
]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
LEAKY_SLOPE = 0.01
_GELU_SCALE = math.sqrt(2.0 / math.pi)
_GELU_CUBIC = 0.044715
_QUICK = 1.702


def sigmoid(x: Array) -> Array:
    """Logistic function 1/(1+e⁻ˣ) that neither overflows nor loses precision at either end."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype, copy=False)


def erf(x: Array) -> Array:
    """Error function, exact to the last bits (the C library's, element by element)."""
    flat = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return flat.reshape(x.shape).astype(x.dtype, copy=False)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def _gelu_slope(x: Array) -> Array:
    return 0.5 * (1 + erf(x / math.sqrt(2))) + x * np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1 + np.tanh(_GELU_SCALE * (x + _GELU_CUBIC * x**3)))


def _gelu_tanh_slope(x: Array) -> Array:
    t = np.tanh(_GELU_SCALE * (x + _GELU_CUBIC * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * _GELU_SCALE * (1 + 3 * _GELU_CUBIC * x * x)


def _silu_slope(x: Array) -> Array:
    s = sigmoid(x)
    return s * (1 + x * (1 - s))


def _quick_gelu_slope(x: Array) -> Array:
    s = sigmoid(_QUICK * x)
    return s * (1 + _QUICK * x * (1 - s))


_FORWARD: dict[str, Callable[[Array], Array]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "silu": lambda x: x * sigmoid(x),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "leaky_relu": lambda x: np.where(x > 0, x, LEAKY_SLOPE * x),
    "relu2": lambda x: np.square(np.maximum(x, 0)),
    "quick_gelu": lambda x: x * sigmoid(_QUICK * x),
}

_SLOPE: dict[str, Callable[[Array], Array]] = {
    "linear": np.ones_like,
    "relu": lambda x: (x > 0).astype(x.dtype),
    "silu": _silu_slope,
    "gelu": _gelu_slope,
    "gelu_tanh": _gelu_tanh_slope,
    "tanh": lambda x: 1 - np.square(np.tanh(x)),
    "sigmoid": lambda x: sigmoid(x) * (1 - sigmoid(x)),
    "leaky_relu": lambda x: np.where(x > 0, 1, LEAKY_SLOPE),
    "relu2": lambda x: 2 * np.maximum(x, 0),
    "quick_gelu": _quick_gelu_slope,
}


def check_activation(name: str) -> None:
    """Raise `SpecError` unless `name` is an activation."""
    if name not in _FORWARD:
        raise SpecError(f"unknown activation {name!r}", hint="one of " + ", ".join(ACTIVATIONS))


def activate(name: str, x: Array) -> Array:
    """Apply the activation `name`; the result has the dtype of `x`."""
    return cast("Array", np.asarray(_FORWARD[name](x), dtype=x.dtype))


def slope(name: str, x: Array) -> Array:
    """Derivative of the activation at its input `x`; at a kink it is the derivative from the left."""
    return cast("Array", np.asarray(cast("Any", _SLOPE[name])(x), dtype=x.dtype))
