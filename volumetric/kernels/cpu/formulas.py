"""Expressions as kernels of vectors of 16 numbers.

A kernel of an expression is text, compiled as if it stood in the module that asks for it: its compiled code is kept as
that of the module's own kernels, under a name that its text has a part in.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from volumetric.formula.expression import Expression
from volumetric.formula.writing import BASIC, Language, written
from volumetric.kernels.cpu.jit import kernel

_FUNCTIONS = ("exp", "log", "floor", "sign", "tanh", "sigmoid", "softplus", "positive", "log_of_one_plus")

VECTORS: Final = Language(
    constant=lambda value: f"splat(f32({value!r}))".replace("inf", "np.inf"),
    words={
        **{name: BASIC[name] for name in ("add", "sub", "mul", "div")},
        **{name: f"{name}({{0}})" for name in _FUNCTIONS},
        **{f"where_{name}": f"where_{name}({{0}}, {{1}}, {{2}}, {{3}})" for name in ("less", "at_most", "equal")},
        "neg": "negative({0})",
        "abs": "magnitude({0})",
        "sqrt": "root({0})",
        "sin": "turned({0}, 0)",
        "cos": "turned({0}, 1)",
        "max": "larger({0}, {1})",
        "min": "smaller({0}, {1})",
        "twice_normal": "(splat(f32(1.0)) + erf({0} * splat(f32(0.70710678))))",
    },
)


def one_of(
    home: str, name: str, arguments: str, results: Sequence[Expression | Sequence[Expression]], words: Iterable[Any]
) -> Any:
    """Return the kernel ``name(code, …)`` that computes the expression, or the expressions, of that number.

    Parameters
    ----------
    home : name of the module that it belongs to
    arguments : names of variables with spaces between
    words : the functions that `VECTORS` calls
    """
    lines: list[str] = []
    for code, each in enumerate(results):
        statements, values = written([each] if isinstance(each, Expression) else each, VECTORS)
        body = [*statements, f"return {', '.join(values)}"]
        if code < len(results) - 1:
            lines.append(f"    if code == {code}:")
            body = [f"    {line}" for line in body]
        lines += [f"    {line}" for line in body]
    return compiled(home, name, "\n".join((f"def {name}(code, {', '.join(arguments.split())}):", *lines)), words)


def compiled(home: str, name: str, text: str, words: Iterable[Any]) -> Any:
    """Return the kernel `name` of a text."""
    scope: dict[str, Any] = {"__name__": home, "np": np, "f32": np.float32, **{each.__name__: each for each in words}}
    exec(compile(text, str(sys.modules[home].__file__), "exec"), scope)
    scope[name].__qualname__ = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return kernel(scope[name])
