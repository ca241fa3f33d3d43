"""Formulas as text for people, and as steps with their numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from volumetric.formula.expression import Expression, subexpressions
from volumetric.graph.numeric.numpy_formulas import function_of

_INFIX: Final = {
    "add": ("+", 2), "sub": ("−", 2), "mul": ("·", 3), "div": ("/", 3),
    "less": ("<", 1), "at_most": ("≤", 1), "equal": ("=", 1), "either": ("or", 0), "both": ("and", 0),
}  # fmt: skip
_NAMES: Final = {
    "sigmoid": "σ({0})", "exp": "exp({0})", "sqrt": "√({0})", "abs": "|{0}|", "positive": "max({0}, 0)",
    "twice_normal": "(1 + erf({0} / √2))", "log_of_one_plus": "log(1 + {0})", "greater": "[{0} > {1}]",
}  # fmt: skip


def formula_text(of: Expression, names: Mapping[str, str] = {}) -> str:
    """Return an expression as people write it.

    Parameters
    ----------
    names : variable → its text, if that is not its name
    """
    return _text(of, names, 0)


def _text(of: Expression, names: Mapping[str, str], level: int) -> str:
    if of.op == "variable":
        return names.get(of.text, of.text)
    if of.op == "constant":
        return f"{of.value:.6g}".replace("-", "−")
    if of.op == "neg":
        return f"−{_text(of.args[0], names, 4)}"
    if of.op == "mul_nonzero":
        return _text(of.args[0], names, 3) + " · " + _text(of.args[1], names, 3)
    if of.op in _INFIX:
        sign, own = _INFIX[of.op]
        right = own + 1 if of.op in ("sub", "div") else own
        text = f"{_text(of.args[0], names, own)} {sign} {_text(of.args[1], names, right)}"
        return f"({text})" if own < level else text
    if of.op == "where":
        condition, then, otherwise = (_text(arg, names, 0) for arg in of.args)
        return f"({then} if {condition} else {otherwise})"
    args = [_text(arg, names, 0) for arg in of.args]
    return _NAMES.get(of.op, f"{of.op}({', '.join(args)})").format(*args)


def variables_in(of: Expression) -> list[str]:
    """Return the names of the variables of an expression, in the order in which it is computed."""
    return [each.text for each in subexpressions(of) if each.op == "variable"]


def evaluate_formula(of: Expression, values: Mapping[str, float]) -> float:
    """Return the value of an expression in float64."""
    names = variables_in(of)
    with np.errstate(all="ignore"):
        args = [np.array([values[name]], np.float64) for name in names] or [np.zeros(1)]
        [y] = function_of(" ".join(names) or "x", of)(*args)
    return float(np.asarray(y).ravel()[0])
