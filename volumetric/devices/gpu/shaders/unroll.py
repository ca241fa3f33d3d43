"""The one directive of the shader language: ``//@unroll`` before a loop of constant trip count writes it out.

Neither naga nor every driver unrolls loops, and straight-line code is 1.5 to 2 times faster in matrix kernels. The loop
must have the form ``for (var i = A; i < B; i++) {`` where A and B are integers, header constants, counters of enclosing
marked loops, or sums, differences, products, quotients and shifts of these. Each copy of the body is a block that
starts with ``const i = …;``, so arrays that the loop indexes stay in registers.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from functools import lru_cache

from volumetric.base.errors import SpecError

_DIRECTIVE = re.compile(r"^[ \t]*//@unroll[ \t]*\n", re.MULTILINE)
_LOOP = re.compile(r"\s*for\s*\(\s*var\s+(\w+)\s*=\s*([^;]+);\s*(\w+)\s*<\s*([^;]+);\s*(\w+)\s*\+\+\s*\)\s*\{")
_INTEGER_SUFFIX = re.compile(r"\b(\d+)[ui]\b")
_BRACE = re.compile(r"[{}]")
_JUMP = re.compile(r"\b(break|continue)\b")
_LIMIT = 256
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


def unroll(text: str, constants: Mapping[str, int | float | bool]) -> str:
    """Write out every marked loop of `text`; inner loops too.

    Raises
    ------
    SpecError : a marked loop has another form, a bound that is not a known constant, a jump, or over 256 rounds
    """
    at = 0
    while (mark := _DIRECTIVE.search(text, at)) is not None:
        at = mark.start()
        loop = _LOOP.match(text, mark.end())
        if loop is None or not loop.group(1) == loop.group(3) == loop.group(5):
            raise SpecError(
                f"//@unroll is not followed by a counting loop: {_line(text, mark.end())!r}",
                hint="write `for (var i = A; i < B; i++) {` on the next line",
            )
        end = _closing_brace(text, loop.end())
        body = text[loop.end() : end]
        if _JUMP.search(body):
            raise SpecError(f"an unrolled loop must not break or continue: {_line(text, mark.end())!r}")
        copies = _copies(
            loop.group(1), _bound(loop.group(2), constants), _bound(loop.group(4), constants), body, constants
        )
        text = text[: mark.start()] + copies + text[end + 1 :]
    return text


def _copies(name: str, start: int, stop: int, body: str, constants: Mapping[str, int | float | bool]) -> str:
    if stop - start > _LIMIT:
        raise SpecError(
            f"unrolling {name} from {start} to {stop} writes over {_LIMIT} copies", hint="use a smaller tile"
        )
    return "".join(f"{{ const {name} = {i}u;{unroll(body, {**constants, name: i})}}}\n" for i in range(start, stop))


def _closing_brace(text: str, start: int) -> int:
    depth = 1
    for mark in _BRACE.finditer(text, start):
        depth += 1 if mark.group() == "{" else -1
        if depth == 0:
            return mark.start()
    raise SpecError(f"no closing brace for the loop {_line(text, start)!r}")


def constant_value(expression: str, constants: Mapping[str, int | float | bool]) -> int | None:
    """Value of an integer expression over `constants`; None if it is anything else."""
    try:
        return _evaluate(_parse_constant(expression), constants)
    except (SyntaxError, KeyError, TypeError, ZeroDivisionError):
        return None


@lru_cache(1024)
def _parse_constant(expression: str) -> ast.expr:
    return ast.parse(_INTEGER_SUFFIX.sub(r"\1", expression.strip()), mode="eval").body


def _bound(expression: str, constants: Mapping[str, int | float | bool]) -> int:
    value = constant_value(expression, constants)
    if value is None:
        raise SpecError(
            f"the loop bound {expression.strip()!r} is not a constant", hint=f"known: {', '.join(sorted(constants))}"
        )
    return value


def _evaluate(node: ast.expr, constants: Mapping[str, int | float | bool]) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.Name):
        value = constants[node.id]
        if isinstance(value, float):
            raise TypeError(node.id)
        return int(value)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate(node.left, constants), _evaluate(node.right, constants))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return _FUNCTIONS[node.func.id](*(_evaluate(argument, constants) for argument in node.args))
    raise TypeError(ast.dump(node))


def _line(text: str, start: int) -> str:
    return text[start:].lstrip("\n").split("\n", 1)[0].strip()
