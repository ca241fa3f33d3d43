"""Expressions as kernels of vectors of 16 numbers.

A kernel of an expression is text, compiled as if it stood in the module that asks for it: its compiled code is kept as
that of the module's own kernels, under a name that its text has a part in.

The formulas of the engine are computed by number, as one kernel with a branch for each. One that a package registers
gets a kernel of its own, in the place of that one in a copy of the operation (`or_registered`), whose name has that of
the kernel in it: no compiled code ever meets a formula that it was not compiled for.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import FunctionType
from typing import Any, Final

import numpy as np

from volumetric.devices.cpu.kernels.jit import kernel
from volumetric.formula.expression import Expression, node, replaced, variable
from volumetric.formula.writing import BASIC, Language, written

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
    each = (written([of] if isinstance(of, Expression) else of, VECTORS) for of in results)
    return by_code(home, name, arguments, ([*lines, f"return {', '.join(texts)}"] for lines, texts in each), words)


def by_code(home: str, name: str, arguments: str, bodies: Iterable[Sequence[str]], words: Iterable[Any]) -> Any:
    """Return the kernel ``name(code, …)`` of statements, of which those of a number are run; parameters as `one_of`."""
    lines = [f"def {name}(code, {', '.join(arguments.split())}):"]
    *several, last = bodies
    for code, body in enumerate(several):
        lines += [f"    {'if' if code == 0 else 'elif'} code == {code}:", *(f"        {line}" for line in body)]
    lines += ["    else:" if several else "    if True:", *(f"        {line}" for line in last)]
    text = "\n".join(lines)
    scope: dict[str, Any] = {"__name__": home, "np": np, "f32": np.float32, **{each.__name__: each for each in words}}
    exec(compile(text, str(sys.modules[home].__file__), "exec"), scope)
    scope[name].__qualname__ = f"{name}_{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    return kernel(scope[name])


def placed(results: Iterable[Expression], loads: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Write expressions of which variables are read from memory, each once: name → text, of operations too."""
    leaves = {variable(name): node(name) for name in loads}
    return written([replaced(each, leaves) for each in results], Language(VECTORS.constant, {**VECTORS.words, **loads}))


def code_of(name: str, names: Sequence[str]) -> int | str:
    """Return the number of a formula of the engine, or the name of one that a package has registered."""
    return names.index(name) if name in names else name


def or_registered(kernels_of: Callable[[str], Mapping[str, Any]]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Let what makes an operation of the number of a formula also take the name of a registered one; a decorator.

    Parameters
    ----------
    kernels_of : of that name, the kernels in the place of those that know the engine's formulas, by their names
    """

    def decorate(make: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(make)
        def operation_of(code: int | str, *constants: str | int) -> Any:
            return (
                with_kernels(make(0, *constants), kernels_of(code)) if isinstance(code, str) else make(code, *constants)
            )

        return operation_of

    return decorate


def with_kernels(function: Any, kernels: Mapping[str, Any]) -> Any:
    """Return a function, or that of a kernel, that calls other kernels than its module has by these names."""
    function = getattr(function, "py_func", function)
    named = {**function.__globals__, **kernels}
    other = FunctionType(function.__code__, named, function.__name__, function.__defaults__, function.__closure__)
    other.__qualname__ = "_".join((function.__qualname__, *(each.py_func.__qualname__ for each in kernels.values())))
    return other
