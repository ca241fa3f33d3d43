"""Values of constant expressions of WGSL, as far as the linker needs them: sizes, loop bounds and conditions."""

from __future__ import annotations

import ast
import operator
import re
import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

Constants: TypeAlias = Mapping[str, int | float | bool]
"""Name → value of the constants that are known."""

_SUFFIX = re.compile(r"(?<![\w.])(?:(\d+)[ui]|(\d+\.?\d*)f)\b")
_NOT = re.compile(r"!(?!=)")
_OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.Mod: operator.mod,
    ast.BitOr: operator.or_,
    ast.LShift: operator.lshift,
}
_FUNCTIONS = {"min": min, "max": max}
_COMPARISONS = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_UNKNOWN = (SyntaxError, KeyError, TypeError, ZeroDivisionError, OverflowError)


def constant_value(expression: str, constants: Constants) -> int | None:
    """Value of an integer expression over `constants`; None if it is anything else."""
    try:
        return _integer(_parse(expression), constants)
    except _UNKNOWN:
        return None


def constant_truth(condition: str, constants: Constants) -> bool | None:
    """Value of a condition over `constants`; None if it also depends on anything else.

    ``A && b`` is false where ``A`` is, whatever ``b`` is; ``b && A`` as well, unless ``b`` calls a function.
    """
    try:
        node = _parse(_NOT.sub(" not ", condition).replace("&&", " and ").replace("||", " or "))
    except SyntaxError:
        return None
    return _truth(node, constants)


@lru_cache(1024)
def _parse(expression: str) -> ast.expr:
    return ast.parse(_SUFFIX.sub(r"\1\2", expression.strip()), mode="eval").body


def _integer(node: ast.expr, constants: Constants) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        value = constants[node.id]
        if isinstance(value, float):
            raise TypeError(node.id)
        return int(value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_integer(node.left, constants), _integer(node.right, constants))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(_integer(argument, constants) for argument in node.args))
    raise TypeError(ast.dump(node))


def _number(node: ast.expr, constants: Constants) -> int | float:
    """Value of an integer expression, or of a single float32."""
    value = constants.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
    if isinstance(value, float):
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    return _integer(node, constants)


def _truth(node: ast.expr, constants: Constants) -> bool | None:
    if isinstance(node, ast.Name):
        value = constants.get(node.id)
        return value if isinstance(value, bool) else None
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        inner = _truth(node.operand, constants)
        return None if inner is None else not inner
    if isinstance(node, ast.BoolOp):
        return _truth_of_operands(node, constants)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARISONS:
        try:
            sides = [_number(side, constants) for side in (node.left, node.comparators[0])]
        except _UNKNOWN:
            return None
        return bool(_COMPARISONS[type(node.ops[0])](*sides))
    return None


def _truth_of_operands(node: ast.BoolOp, constants: Constants) -> bool | None:
    """Value of operands joined by ``&&`` or ``||``: one of them may decide."""
    decides = isinstance(node.op, ast.Or)
    known = True
    for operand in node.values:
        value = _truth(operand, constants)
        if value is decides:
            return decides
        if value is None:
            if any(isinstance(part, ast.Call) for part in ast.walk(operand)):
                return None  # the call comes first, and may do more than return a value
            known = False
    return not decides if known else None
