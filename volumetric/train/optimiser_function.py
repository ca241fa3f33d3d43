"""Optimisers as functions: the step of a weight in plain arithmetic, from which the code of all devices follows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final, TypeVar

from volumetric.base.errors import SpecError
from volumetric.formula.expression import Expression, as_expression, subexpressions, substitute, variable
from volumetric.formula.optimisers import FIRST, RATE, SECOND, Attributes, G, Moved, OptimiserFormula, W, check_size
from volumetric.formula.optimisers import OPTIMISERS as STEPS
from volumetric.train.optim import OPTIMISERS

F = TypeVar("F", bound=Callable[..., Any])
Knobs = Callable[[Attributes, int], tuple[float, float]]
_KNOWN: Final = {"w": W, "g": G, "rate": RATE, "first": FIRST, "second": SECOND}
_FORM: Final = "def f(w, g, rate, mean, *, beta=0.9): …; return w - rate * mean, beta * mean + (1 - beta) * g"


def optimiser(name: str, *, knobs: Knobs | None = None) -> Callable[[F], F]:
    """Register the step of a weight as an optimiser.

    The arguments of the function are named: ``w, g, rate`` are weight, gradient and learning rate, arguments with a
    default are the optimiser's fields, and all others are its slots: values stored for each weight, 0 at first. It
    returns the new weight, followed by the new slots in the order of the arguments, in plain arithmetic of numbers. At
    most 3 slots and 8 fields. Weight decay is a field called ``weight_decay``.

    Parameters
    ----------
    knobs : ``(fields, update) -> (first, second)``: two numbers for update 1, 2, …, which the function gets as
        ``first`` and ``second``; for corrections that depend on time

    Raises
    ------
    SpecError : the engine has the name, or the function is no step

    Examples
    --------
    >>> @optimiser("heavy_ball")
    ... def heavy_ball(w, g, rate, velocity, *, beta=0.9):
    ...     velocity = beta * velocity - rate * g
    ...     return w + velocity, velocity
    """

    def declare(function: F) -> F:
        if name in OPTIMISERS.own:
            raise SpecError(f"the engine has an optimiser {name!r}", hint="choose another name")
        fields, slots = _arguments(name, function)
        values = {**_KNOWN, **{each: variable(each) for each in (*slots, *fields)}}
        used = inspect.signature(function).parameters

        def moved(at: Attributes) -> Moved:
            results = function(**{each: values[each] for each in used})
            several = results if isinstance(results, tuple) else (results,)
            if len(several) != 1 + len(slots) or not all(
                isinstance(each, Expression | float | int) for each in several
            ):
                raise SpecError(
                    f"optimiser {name!r}: the function returned {len(several)} values, expected the new weight"
                    + "".join(f", {each}" for each in slots),
                    hint=_FORM,
                )
            weight, *after = (_with_exact_rests(as_expression(each), fields) for each in several)
            return weight, dict(zip(slots, after, strict=True))

        step = OptimiserFormula(moved, fields) if knobs is None else OptimiserFormula(moved, fields, knobs=knobs)
        _check(name, moved({}), {*values})
        check_size(*moved({}))
        STEPS.declare(name, step, function.__module__)
        if OPTIMISERS.is_declared(name):
            del OPTIMISERS[name]  # the class of a former step
        return function

    return declare


def _arguments(name: str, function: Callable[..., Any]) -> tuple[dict[str, float | bool], list[str]]:
    """Return the fields of a step, and its slots."""
    fields, slots = dict[str, float | bool](), list[str]()
    for each in inspect.signature(function).parameters.values():
        if each.name in _KNOWN:
            continue
        if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD):
            raise SpecError(f"optimiser {name!r}: {each} has no name", hint=_FORM)
        if each.default is each.empty:
            slots.append(each.name)
        elif isinstance(each.default, bool) or not isinstance(each.default, int | float):
            raise SpecError(f"optimiser {name!r}: the default of {each.name} must be a number, got {each.default!r}")
        else:
            fields[each.name] = float(each.default)
    return fields, slots


def _with_exact_rests(of: Expression, fields: dict[str, float | bool]) -> Expression:
    """Return an expression in which 1 minus a field is computed in float64: in float32 it would be inexact."""
    return substitute(of, {1 - variable(each): variable(f"rest_{each}") for each in fields})


def _check(name: str, step: Moved, known: set[str]) -> None:
    weight, slots = step
    names = {
        each.text.removeprefix("rest_") for each in subexpressions(weight, *slots.values()) if each.op == "variable"
    }
    if "g" not in names or names - known:
        raise SpecError(
            f"optimiser {name!r}: the step "
            + (f"uses {', '.join(sorted(names - known))}" if names - known else "does not depend on the gradient g"),
            hint=_FORM,
        )
