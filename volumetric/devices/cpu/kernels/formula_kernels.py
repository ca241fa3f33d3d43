"""Expressions as kernels of vectors of 16 numbers.

A kernel of an expression is generated source text, compiled as part of the requesting module: its compiled code is
cached with that module's kernels, under a name that includes a hash of its text.

The engine's formulas are selected by number in one kernel with a branch for each. A formula registered by a package
gets a separate kernel, which replaces that one in a copy of the operation (`allow_registered`). The copy's name
includes the name of the kernel, so compiled code is never used for another formula.
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
from volumetric.formula.expression import Expression, node, substitute, variable
from volumetric.formula.statements import BASIC, Language, write_expressions

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
        "sin": "sin_quarter_turned({0}, 0)",
        "cos": "sin_quarter_turned({0}, 1)",
        "max": "larger({0}, {1})",
        "min": "smaller({0}, {1})",
        "twice_normal": "(splat(f32(1.0)) + erf({0} * splat(f32(0.70710678))))",
    },
)


def one_of(
    home: str, name: str, arguments: str, results: Sequence[Expression | Sequence[Expression]], words: Iterable[Any]
) -> Any:
    """Return the kernel ``name(code, …)`` that computes expression number ``code``, or several expressions.

    Parameters
    ----------
    home : name of the module it belongs to
    arguments : names of variables, separated by spaces
    words : the functions that `VECTORS` calls
    """
    each = (write_expressions([of] if isinstance(of, Expression) else of, VECTORS) for of in results)
    return kernel_by_code(
        home, name, arguments, ([*lines, f"return {', '.join(texts)}"] for lines, texts in each), words
    )


def kernel_by_code(home: str, name: str, arguments: str, bodies: Iterable[Sequence[str]], words: Iterable[Any]) -> Any:
    """Return the kernel ``name(code, …)`` that runs the statements of number ``code``; parameters as `one_of`."""
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


def statements_of(results: Iterable[Expression], loads: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Write expressions whose variables are read from memory, each once: name → text, also of operations."""
    leaves = {variable(name): node(name) for name in loads}
    return write_expressions(
        [substitute(each, leaves) for each in results], Language(VECTORS.constant, {**VECTORS.words, **loads})
    )


def code_of(name: str, names: Sequence[str]) -> int | str:
    """Return the number of a formula of the engine, or the name of a registered one."""
    return names.index(name) if name in names else name


def allow_registered(
    kernels_of: Callable[[str], Mapping[str, Any]],
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a function that creates an operation from a formula's number, so that it accepts registered names, too.

    Parameters
    ----------
    kernels_of : name of a formula → kernels that replace those of the engine's formulas, by their names
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
    """Return a function, or a kernel's function, that calls other kernels than those of its module by these names."""
    function = getattr(function, "py_func", function)
    named = {**function.__globals__, **kernels}
    other = FunctionType(function.__code__, named, function.__name__, function.__defaults__, function.__closure__)
    other.__qualname__ = "_".join((function.__qualname__, *(each.py_func.__qualname__ for each in kernels.values())))
    return other
