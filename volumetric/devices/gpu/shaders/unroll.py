"""The one directive of the shader language: ``//@unroll`` before a loop of constant trip count writes it out.

Neither naga nor every driver unrolls loops, and straight-line code is 1.5 to 2 times faster in matrix kernels. The loop
must have the form ``for (var i = A; i < B; i++) {`` where A and B are integers, header constants, counters of enclosing
marked loops, or sums, differences, products, quotients and shifts of these. Each copy of the body is a block that
starts with ``const i = …;``, so arrays that the loop indexes stay in registers.
"""

from __future__ import annotations

import re

from volumetric.base.errors import SpecError
from volumetric.devices.gpu.shaders.constant_expressions import Constants, constant_value

_DIRECTIVE = re.compile(r"^[ \t]*//@unroll[ \t]*\n", re.MULTILINE)
_LOOP = re.compile(r"\s*for\s*\(\s*var\s+(\w+)\s*=\s*([^;]+);\s*(\w+)\s*<\s*([^;]+);\s*(\w+)\s*\+\+\s*\)\s*\{")
_BRACE = re.compile(r"[{}]")
_JUMP = re.compile(r"\b(break|continue)\b")
_LIMIT = 256


def unroll(text: str, constants: Constants) -> str:
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


def _copies(name: str, start: int, stop: int, body: str, constants: Constants) -> str:
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


def _bound(expression: str, constants: Constants) -> int:
    value = constant_value(expression, constants)
    if value is None:
        raise SpecError(
            f"the loop bound {expression.strip()!r} is not a constant", hint=f"known: {', '.join(sorted(constants))}"
        )
    return value


def _line(text: str, start: int) -> str:
    return text[start:].lstrip("\n").split("\n", 1)[0].strip()
