"""The Jinja environment of chat templates: what transformers offers, and limits on what a hostile template can do.

Jinja's sandbox keeps a template from the interpreter and the machine, but not from looping for ever or from asking for
a string of a terabyte. Templates come with downloaded models, so both are bounded here: loop turns and calls are
counted, and operations that multiply text are checked before they are done.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from volumetric.errors import GenerationError

MAX_STEPS: Final = 500_000
"""Loop turns and calls of one rendering. A thousand messages with tools take some tens of thousands."""
MAX_TEXT: Final = 16_000_000
"""Characters or items of one value."""
_SIZED_FILTERS: Final = ("batch", "center", "indent", "replace", "slice", "format")
_DIGITS: Final = re.compile(r"\d{1,18}")


class Budget:
    """Steps left to the rendering that is going on."""

    _left: ContextVar[int] = ContextVar("chat_template_steps", default=MAX_STEPS)

    @classmethod
    @contextmanager
    def fresh(cls) -> Iterator[None]:
        """Give the enclosed rendering its full budget."""
        token = cls._left.set(MAX_STEPS)
        try:
            yield
        finally:
            cls._left.reset(token)

    @classmethod
    def spend(cls, steps: int) -> None:
        """Take steps away; raise `GenerationError` when there are none left."""
        left = cls._left.get() - steps
        cls._left.set(left)
        if left < 0:
            raise GenerationError(f"the chat template takes more than {MAX_STEPS} steps", hint="is it a chat template?")


def _bounded(size: float) -> None:
    if size > MAX_TEXT:
        raise GenerationError(f"the chat template makes a value of more than {MAX_TEXT} characters")


def _size(value: object) -> int:
    return len(value) if isinstance(value, str | bytes | list | tuple) else 0


class _CountLoops(NodeTransformer):
    """Wraps what a for loop runs over, and both sides of every ``~``, in the filters that count."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802  (the name is jinja2's)
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, "__counted__", [], [], None, None, lineno=node.lineno)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Concat:  # noqa: N802  (the name is jinja2's)
        self.generic_visit(node)
        node.nodes = [nodes.Filter(n, "__short__", [], [], None, None, lineno=node.lineno) for n in node.nodes]
        return node


def _counted(items: Iterable[Any]) -> Iterable[Any]:
    """Filter around what a loop runs over. A list keeps ``loop.length`` known."""
    found = items if isinstance(items, list | tuple) else list(items)
    Budget.spend(len(found))
    return found


def _short(value: Any) -> Any:
    """Filter around the parts of a concatenation: each may be half of the limit."""
    _bounded(2 * _size(value))
    return value


class _Environment(ImmutableSandboxedEnvironment):
    """Immutable sandbox that counts calls and loop turns and bounds the growth of values."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    # Private, but the one place through which every template passes as a syntax tree before it becomes code.
    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        return _CountLoops().visit(super()._parse(source, name, filename))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "*":
            _bounded(max(_size(left) * _number(right), _size(right) * _number(left)))
        elif operator == "+":
            _bounded(_size(left) + _size(right))
        elif operator == "**" and isinstance(left, int):
            _bounded(left.bit_length() * abs(_number(right)))
        elif operator == "%" and isinstance(left, str):
            _bounded(_widths(left))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, obj: Any, *args: Any, **kwargs: Any) -> Any:
        Budget.spend(1)
        method = getattr(obj, "__wrapped__", obj)  # the sandbox wraps str.format in a function of its own
        text = getattr(method, "__self__", None)
        if isinstance(text, str):
            _bounded(_grown(text, getattr(method, "__name__", ""), args))
        return super().call(context, obj, *args, **kwargs)


def _number(value: object) -> int:
    return value if isinstance(value, int) else 0


def _grown(text: str, method: str, args: tuple[Any, ...]) -> int:
    """Upper bound for the length of what a growing method of `text` returns for these arguments."""
    match method, args:
        case "replace", (str() as old, str() as new, *_):
            return len(text) + text.count(old) * len(new)
        case "join", (list() | tuple() as parts, *_):
            return sum(map(_size, parts)) + len(text) * len(parts)
        case (("format" | "format_map"), _):
            return _widths(text) + text.count("{") * max([0, *map(_size, args), *map(_number, args)])
        case (("center" | "ljust" | "rjust" | "zfill" | "expandtabs"), (int() as width, *_)):
            return width * (1 + text.count("\t"))
    return 0


def _widths(form: str) -> int:
    """Sum of the field widths in a format string; a width that stands in the arguments is refused."""
    if "*" in form:
        raise jinja2.TemplateError("the format * is not available in chat templates")
    return sum(int(digits) for digits in _DIGITS.findall(form))


class _Generation(Extension):
    """The ``{% generation %}`` tag, by which training marks the assistant's words; here it only groups."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it as a set)

    def parse(self, parser: Parser) -> nodes.Node:
        """Read the block; names set inside stay inside, as in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def sandbox(
    tojson: Callable[..., str], raise_exception: Callable[[str], None], strftime_now: Callable[[str], str]
) -> jinja2.Environment:
    """Return an environment with the given functions under the names that chat templates know."""
    environment = _Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters |= {"tojson": tojson, "__counted__": _counted, "__short__": _short}
    environment.filters |= {name: _limited(environment.filters[name]) for name in _SIZED_FILTERS}
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    del environment.globals["lipsum"]  # makes any amount of text
    return environment


def _limited(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter that refuses to make text or lists beyond the limit out of a text, a replacement and a number."""

    @functools.wraps(original)  # keeps jinja2's note that a filter wants the context
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = [arg for arg in (*args, *kwargs.values()) if isinstance(arg, str | int)]
        texts = [arg for arg in given if isinstance(arg, str)]
        if len(texts) > 2:
            _bounded(_grown(texts[0], "replace", tuple(texts[1:])))
        lines = 1 + texts[0].count("\n") if texts else 1
        _bounded(lines * max(map(_number, given), default=0))
        return original(*args, **kwargs)

    return checked
