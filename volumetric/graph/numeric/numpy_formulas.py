"""Compiles expressions to NumPy functions on arrays of any float dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from volumetric.base._typing import Array
from volumetric.formula.expression import Expression, depends_on
from volumetric.formula.losses import TERMS, term_of
from volumetric.formula.optimisers import field, fields_of, form_of, step_of
from volumetric.formula.statements import BASIC, Language, write_expressions


def sigmoid(x: Array) -> Array:
    """Logistic function 1/(1+e⁻ˣ) that neither overflows nor loses precision at either end."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), small / (1 + small)).astype(x.dtype, copy=False)


def erf(x: Array) -> Array:
    """Error function, exact to the last bits (the C library's, element by element)."""
    flat = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return flat.reshape(x.shape).astype(x.dtype, copy=False)


_NUMPY: Final = Language(
    constant=lambda value: f"number({value!r})".replace("inf", "np.inf"),
    words={
        **BASIC,
        **{name: f"np.{name}({{0}})" for name in ("exp", "log", "sqrt", "abs", "sign", "floor", "sin", "cos", "tanh")},
        "where": "np.where({0}, {1}, {2})",
        "either": "({0} | {1})",
        "both": "({0} & {1})",
        "max": "np.maximum({0}, {1})",
        "min": "np.minimum({0}, {1})",
        "positive": "np.maximum({0}, number(0))",
        "log_of_one_plus": "np.log1p({0})",
        "softplus": "np.logaddexp({0}, number(0))",
        "sigmoid": "sigmoid({0})",
        "twice_normal": "(1 + erf({0} / math.sqrt(2)))",
    },
)


def function_of(arguments: str, *results: Expression) -> Callable[..., tuple[Array, ...]]:
    """Return the function that evaluates expressions: takes arrays or numbers, returns a tuple of arrays.

    Parameters
    ----------
    arguments : names of variables, separated by spaces; the first one has the dtype of the results
    """
    return _compile_source(tuple(arguments.split()), results)


@cache
def _compile_source(arguments: Sequence[str], results: Sequence[Expression]) -> Callable[..., tuple[Array, ...]]:
    statements, texts = write_expressions(results, _NUMPY)
    values = ", ".join(
        f"np.asarray({text}, dtype=kind)" if depends_on(each) else f"np.full_like({arguments[0]}, {text})"
        for each, text in zip(results, texts, strict=True)
    )
    lines = [f"kind = {arguments[0]}.dtype", "number = kind.type", *statements, f"return ({values},)"]
    code = f"def formula({', '.join(arguments)}):\n" + "".join(f"    {line}\n" for line in lines)
    scope: dict[str, Any] = {"np": np, "math": math, "sigmoid": sigmoid, "erf": erf}
    exec(compile(code, "<formula>", "exec"), scope)
    return scope["formula"]


def terms_of(y: Array, target: Array, attrs: Mapping[str, Any]) -> tuple[Array, ...]:
    """Return the terms of an element-wise loss with these attributes, and their derivatives by the prediction `y`."""
    function, names = _terms(term_of(attrs))
    return function(y, target, *(y.dtype.type(attrs[name]) for name in names))


@cache
def _terms(name: str) -> tuple[Callable[..., tuple[Array, ...]], tuple[str, ...]]:
    """Return the function of the terms of a loss, and the fields that it takes after prediction and target."""
    of = TERMS[name]
    return function_of(" ".join(("y", "t", *of.fields)), of.value, of.slope), tuple(of.fields)


def optimiser_step(
    w: Array, g: Array, slots: Sequence[Array], attrs: Mapping[str, Any], knobs: Sequence[float]
) -> tuple[Array, ...]:
    """Return a weight and its slots after a step of an optimiser.

    Parameters
    ----------
    attrs : name and fields of the optimiser
    knobs : learning rate of the update, and the two scalars that `formula.optimisers` derives from its number
    """
    function, fields = _step(form_of(attrs))
    numbers = [w.dtype.type(each) for each in (*knobs, *(field(attrs, name) for name in fields))]
    return function(w, g, *numbers, *slots)


@cache
def _step(form: str) -> tuple[Callable[..., tuple[Array, ...]], tuple[str, ...]]:
    """Return the function of a step of an optimiser, and the fields that it takes after gradient and knobs."""
    (new, after), fields = step_of(form), fields_of(form)
    arguments = " ".join(("w", "g", "rate", "first", "second", *fields, *after))
    return function_of(arguments, new, *after.values()), fields
