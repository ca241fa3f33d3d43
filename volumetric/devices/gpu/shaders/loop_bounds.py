"""Maximum number of loop rounds of an invocation, all loops of a kernel together.

Some drivers end loops silently: llvmpipe gives each invocation 65,535 rounds over its life, nested loops, successive
loops and loops of called functions counted together (`gallivm`'s loop limiter). The results are then wrong without an
error, so kernels are split to stay below the limit, and those that cannot be split are refused.

A bound follows from the loop's own line if that names constants, sizes in ``dims`` or names bound with ``let``; if it
depends on anything else, the line before states it: ``//@rounds dims.chunk / WG + 1``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from volumetric.base.errors import SpecError
from volumetric.devices.gpu.shaders.declarations import declarations

_TOKEN = re.compile(
    r"//@rounds (?P<rounds>[^\n]*)|\b(?P<loop>for|while|loop)\b|\blet\s+(?P<let>\w+)[^=;]*=(?=(?P<value>[^;]*);)"
    r"|\b(?P<call>[A-Za-z_]\w*)\s*\(|[{}]"
)
_CONST = re.compile(r"^const\s+(\w+)\s*:\s*\w+\s*=\s*([^;]+);", re.MULTILINE)
_STRUCT = re.compile(r"\bstruct\s+Dims\s*\{([^}]*)\}")
_PARAMETERS = re.compile(r"\bfn\s+\w+\s*\(([^)]*)\)")
_SUFFIX = re.compile(r"\b(\d+)[ui]\b")
_WORDS = {"u32": 1, "i32": 1, "f32": 1, "vec4<u32>": 4, "vec4<f32>": 4}


@dataclass(frozen=True, slots=True)
class _WgslCall:
    name: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Loop:
    line: str
    stated: str | None
    body: list[_Loop | _WgslCall]


@dataclass(frozen=True, slots=True)
class _WgslFunction:
    parameters: tuple[str, ...]
    body: list[_Loop | _WgslCall]
    lets: dict[str, list[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _WgslModule:
    """`functions` are those with loops, directly or in functions they call."""

    functions: dict[str, _WgslFunction]
    constants: dict[str, int]
    sizes: tuple[str, ...]


def loop_rounds_bound(text: str, dims: Sequence[int | float] = ()) -> int:
    """Return the maximum loop rounds of an invocation of a linked module.

    Parameters
    ----------
    dims : words of the uniform ``dims``, if the module has one

    Raises
    ------
    SpecError : the bound of a loop is unknown
    """
    return _rounds(text, tuple(dims))


@lru_cache(1024)
def _rounds(text: str, dims: tuple[int | float, ...]) -> int:
    """Cached version of `loop_rounds_bound`: networks bind the same kernels with the same sizes repeatedly."""
    module = _parse_expression(text)
    known = dict(module.constants)
    known |= {name: int(value) for name, value in zip(module.sizes, dims, strict=False) if name}
    known.setdefault("lid", known.get("WG", 1) - 1)
    return _cost(module, "main", known)


def _cost(module: _WgslModule, name: str, known: Mapping[str, int]) -> int:
    function = module.functions.get(name)
    if function is None:
        return 0
    scope = _Scope(module.constants, known, function.lets)

    def total(nodes: Sequence[_Loop | _WgslCall]) -> int:
        count = 0
        for node in nodes:
            if isinstance(node, _Loop):
                count += scope.trips(node) * (1 + total(node.body))
            elif node.name in module.functions:
                inner = dict(module.constants) | {key: value for key, value in known.items() if "." in key}
                callee = module.functions[node.name]
                for parameter, argument in zip(callee.parameters, node.arguments, strict=True):
                    value = scope.bound(argument)
                    if value is not None:
                        inner[parameter] = value
                count += _cost(module, node.name, inner)
        return count

    return total(function.body)


class _Scope:
    """Upper bounds of expressions in a function."""

    def __init__(self, constants: Mapping[str, int], known: Mapping[str, int], lets: Mapping[str, list[str]]) -> None:
        self._constants, self._known, self._lets = constants, known, lets
        self._found: dict[tuple[str, int], int | None] = {}

    def trips(self, loop: _Loop) -> int:
        """Return the number of rounds of a loop."""
        trips = self.bound(loop.stated) if loop.stated is not None else self._from_line(loop.line)
        if trips is None:
            raise SpecError(
                f"no bound is known for the loop `{' '.join(loop.line.split())}`",
                hint="write `//@rounds EXPRESSION` on the line before, of constants and sizes in dims",
            )
        return max(trips, 0)

    def _from_line(self, line: str) -> int | None:
        start, condition, step = (part.strip() for part in line.split(";"))
        if (stop := re.fullmatch(r"\w+(?:\s*\+\s*[^<]+)?\s*<\s*(.+)", condition)) is not None:
            end = self.bound(stop.group(1))
            stride = 1 if step.endswith("++") else self.bound(step.partition("+=")[2])
            return None if end is None or not stride else -(-end // stride)
        if re.fullmatch(r"\w+\s*>\s*0u", condition):
            first = self.bound(start.partition("=")[2])
            if first is not None and re.search(r"/\s*2u$", step):
                return first.bit_length()
            return first if step.endswith("--") else None
        return None

    def bound(self, expression: str) -> int | None:
        """Return an upper bound of an expression of unsigned numbers; None if it is not known."""
        parsed = _expression(expression)
        try:
            return None if parsed is None else self._bound(parsed, 8)
        except ZeroDivisionError:
            return None

    def _bound(self, node: ast.expr, depth: int) -> int | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return self._bound_of_name(node.id, depth)
        if isinstance(node, ast.BinOp):
            return self._bound_of_operation(node, depth)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            values = [self._bound(argument, depth) for argument in node.args]
            there = [value for value in values if value is not None]
            if node.func.id == "min" and there:
                return min(there)
            several = values[:2] if node.func.id == "select" else values
            if node.func.id in ("max", "select", "u32") and None not in several:
                return max(value for value in several if value is not None)
        return None

    def _bound_of_name(self, name: str, depth: int) -> int | None:
        if name in self._known:
            return self._known[name]
        if name not in self._lets or depth == 0:
            return None
        if (name, depth) not in self._found:
            self._found[name, depth] = self._bound_of_let(self._lets[name], depth - 1)
        return self._found[name, depth]

    def _bound_of_let(self, expressions: Sequence[str], depth: int) -> int | None:
        values = []
        for expression in expressions:
            parsed = _expression(expression)
            value = None if parsed is None else self._bound(parsed, depth)
            if value is None:
                return None
            values.append(value)
        return max(values)

    def _exact(self, node: ast.expr) -> bool:
        """Whether an expression contains only numbers, constants and sizes, so that its bound is its value."""
        names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
        return all(name.id in self._constants or name.id.startswith("dims.") for name in names)

    def _bound_of_operation(self, node: ast.BinOp, depth: int) -> int | None:
        left, right = self._bound(node.left, depth), self._bound(node.right, depth)
        if isinstance(node.op, ast.Mod):
            bounds = [value for value in (left, None if right is None else right - 1) if value is not None]
            return min(bounds) if bounds else None
        if left is None or (right is None and not isinstance(node.op, ast.Sub)):
            return None
        if isinstance(node.op, ast.Sub):
            return left - right if right is not None and self._exact(node) else left
        assert right is not None
        if isinstance(node.op, (ast.Add, ast.BitOr)):
            return left + right
        if isinstance(node.op, ast.Mult):
            return left * right
        return left // right if isinstance(node.op, ast.Div) else None


class _NameJoiner(ast.NodeTransformer):
    """Maps ``dims.size.y`` or ``dims.more[1].z`` to one name."""

    def _join(self, node: ast.Attribute | ast.Subscript) -> ast.Name:
        return ast.Name(id=ast.unparse(node))

    visit_Attribute = visit_Subscript = _join  # noqa: N815 - as ast names them


@lru_cache(4096)
def _expression(text: str) -> ast.expr | None:
    """Return an expression of unsigned numbers as a tree; None if it is beyond Python's grammar."""
    try:
        return _NameJoiner().visit(ast.parse(_SUFFIX.sub(r"\1", text.strip()), mode="eval").body)
    except SyntaxError:
        return None


@lru_cache(256)
def _parse_expression(text: str) -> _WgslModule:
    constants: dict[str, int] = {}
    for name, expression in _CONST.findall(text):
        value = {"true": 1, "false": 0}.get(expression) if expression in ("true", "false") else None
        value = _Scope(constants, constants, {}).bound(expression) if value is None else value
        if value is not None:
            constants[name] = value
    functions = {}
    for part in declarations(text):
        if part.name and "fn " in part.text:
            functions[part.name] = _function(part.text)
    looping = _functions_with_loops(functions)
    functions = {name: function for name, function in functions.items() if name in looping}
    struct = _STRUCT.search(text)
    return _WgslModule(functions, constants, _sizes(struct.group(1)) if struct else ())


def _functions_with_loops(functions: Mapping[str, _WgslFunction]) -> set[str]:
    """Names of the functions that loop, or call one that does."""

    def loops(nodes: Sequence[_Loop | _WgslCall]) -> bool:
        return any(isinstance(node, _Loop) or node.name in names for node in nodes)

    names: set[str] = set()
    before = -1
    while before < len(names):
        before = len(names)
        names |= {name for name, function in functions.items() if loops(function.body)}
    return names


def _sizes(fields: str) -> tuple[str, ...]:
    """Name of each word of ``dims``; empty for padding."""
    names: list[str] = []
    for one in re.findall(r"(\w+)\s*:\s*(array<[\w<>]+,\s*\d+>|[\w<>]+)", fields):
        name, kind = one
        count = 0
        if kind.startswith("array<"):
            kind, _, length = kind[6:-1].rpartition(",")
            count = int(length)
        words = _WORDS[kind.strip()]
        names += [""] * (-len(names) % words)
        for i in range(max(count, 1)):
            base = f"dims.{name}[{i}]" if count else f"dims.{name}"
            names += [base] if words == 1 else [f"{base}.{letter}" for letter in "xyzw"]
    return tuple(names)


def _function(text: str) -> _WgslFunction:
    inside = _PARAMETERS.search(text)
    listed = inside.group(1) if inside else ""
    parameters = tuple(re.findall(r"(\w+)\s*:", re.sub(r"@\w+(\([^)]*\))?", "", listed)))
    lets: dict[str, list[str]] = {}
    start = text.index("{") + 1
    body, _ = _block(text, start, lets)
    return _WgslFunction(parameters, body, lets)


def _block(text: str, at: int, lets: dict[str, list[str]]) -> tuple[list[_Loop | _WgslCall], int]:
    """Read up to the closing brace; returns the parsed block, and its end."""
    nodes: list[_Loop | _WgslCall] = []
    stated: str | None = None
    while (token := _TOKEN.search(text, at)) is not None:
        at = token.end()
        if token.group() == "}":
            return nodes, at
        if token.group() == "{":
            inner, at = _block(text, at, lets)
            nodes += inner
        elif token["rounds"] is not None:
            stated = token["rounds"]
        elif token["let"] is not None:
            lets.setdefault(token["let"], []).append(token["value"])
        elif token["call"] is not None and token["call"] not in ("if", "switch", "fn"):
            nodes.append(_WgslCall(token["call"], _arguments(text, at)))
        elif token["loop"] is not None:
            line = ""
            if token["loop"] == "for":
                at = text.index("(", at) + 1
                end = _closing_position(text, at)
                line, at = text[at:end], end
            body, at = _block(text, text.index("{", at) + 1, lets)
            nodes.append(_Loop(line, stated, body))
            stated = None
    return nodes, len(text)


def _closing_position(text: str, at: int) -> int:
    depth = 1
    for i in range(at, len(text)):
        depth += {"(": 1, ")": -1}.get(text[i], 0)
        if depth == 0:
            return i
    return len(text)


def _arguments(text: str, at: int) -> tuple[str, ...]:
    inside = text[at : _closing_position(text, at)]
    arguments, depth, start = [], 0, 0
    for i, letter in enumerate(inside):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            arguments.append(inside[start:i])
            start = i + 1
    return (*arguments, inside[start:]) if inside.strip() else ()
