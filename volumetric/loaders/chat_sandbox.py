"""The Jinja environment of chat templates: transformers' features, with limits on hostile templates.

Jinja's sandbox protects the interpreter and the machine, but allows endless loops and strings of a terabyte. Templates
come with downloaded models, so time and memory of a rendering are bounded:

- *Every value* has a bounded size; duplicates in a list count twice. So no single operation takes long: available
  operations are at most n log n in the sizes of their arguments, or are refused before they run.
- *Every operation* is checked. Jinja compiles a template to Python. Calls of the environment (operators, calls, output)
  are intercepted there, filters and tests are wrapped, and plain Python is wrapped in the syntax tree: comparisons,
  slices, literals, ``~``, loops, and the bodies of loops and macros, whose text and nodes are counted each time. Only
  listed filters and methods of Python's types are available (`chat_operations`).
- *Between* operations the clock is read, and the bytes of all values are summed, as if none were freed (`chat_budget`,
  which also has the counting filters).

So a rendering ends at most one short operation after its time limit, within its memory limit. It runs in this process:
a separate process that is killed would need no lists, but takes a tenth of a second to start and a copy of all
messages, cannot receive functions, and has no memory limit on macOS and Windows.
"""

from __future__ import annotations

from collections.abc import Callable
from types import BuiltinMethodType, FunctionType, MethodType
from typing import Any, Final, cast

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, LoopContext, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from volumetric.loaders.chat_budget import COUNTERS, MAX_INT_BITS, check_written, current, refuse
from volumetric.loaders.chat_contents import html_with_marks, remove_marks
from volumetric.loaders.chat_operations import (
    FILTERS,
    FREE_FILTERS,
    FREE_TESTS,
    METHODS,
    check_method,
    filter_within,
    percent,
    test_within,
)

MAX_NODES: Final = 20_000
"""Maximum nodes of a template's syntax tree. The longest templates of known models have some thousand."""
_TYPES: Final = tuple(METHODS)
_METHODS: Final = (BuiltinMethodType, MethodType)
_SMALL: Final = (nodes.Const, nodes.Compare, nodes.Not, nodes.Test)
"""Expressions whose values are small, or at most as large as the template."""
_FRAME: Final = ("_loop_vars", "_block_vars")
"""Keyword arguments that compiled templates pass to `call` in addition to those of the template."""


class _CountingTransformer(NodeTransformer):
    """Wraps parts that Jinja compiles to plain Python in counting filters."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802  (the names are jinja2's)
        """Count the items of a loop, the nodes of its condition, and each run of its body."""
        self.generic_visit(node)
        node.iter = _wrap_in_filter(node.iter, "__listed__")
        if node.test is not None:
            count = nodes.Const(sum(1 for _ in node.test.find_all(nodes.Node)))
            node.test = nodes.Filter(node.test, "__tested__", [count], [], None, None, lineno=node.lineno)
        return _count_body(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Macro:  # noqa: N802
        """Count each run of a macro's body."""
        self.generic_visit(node)
        return _count_body(node)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.CallBlock:  # noqa: N802
        """Count each run of the body of a ``{% call %}`` block."""
        self.generic_visit(node)
        return _count_body(node)

    def visit_Block(self, node: nodes.Block) -> nodes.Block:  # noqa: N802
        """Count each run of a named block."""
        self.generic_visit(node)
        return _count_body(node)

    def visit_AssignBlock(self, node: nodes.AssignBlock) -> nodes.AssignBlock:  # noqa: N802
        """Count the value that a ``{% set %}`` block assigns."""
        self.generic_visit(node)
        inner = cast("nodes.Filter | None", node.filter)  # None, against the annotation: the content of the block
        node.filter = _wrap_in_filter(inner, "__made__")
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        """Count the operands that a comparison reads, unless they are constant or known to be small."""
        self.generic_visit(node)
        for operand in node.ops:
            if operand.op in ("in", "notin"):
                operand.expr = operand.expr if _constant(operand.expr) else _wrap_in_filter(operand.expr, "__inside__")
                node.expr = _wrap_operand(node.expr)
            elif not isinstance(node.expr, _SMALL) and not isinstance(operand.expr, _SMALL):
                operand.expr = _wrap_operand(operand.expr)
                node.expr = _wrap_operand(node.expr)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:  # noqa: N802
        """Count the parts of ``a ~ b`` as text, and the result."""
        self.generic_visit(node)
        node.nodes = [
            part if isinstance(part, nodes.Const) else _wrap_in_filter(part, "__text__") for part in node.nodes
        ]
        return _wrap_in_filter(node, "__made__")

    def visit_List(self, node: nodes.List) -> nodes.Expr:  # noqa: N802
        """Count a list that is not constant."""
        self.generic_visit(node)
        return node if _constant(node) else _wrap_in_filter(node, "__made__")

    def visit_Tuple(self, node: nodes.Tuple) -> nodes.Expr:  # noqa: N802
        """Count a tuple that is read and not constant."""
        self.generic_visit(node)
        return node if node.ctx != "load" or _constant(node) else _wrap_in_filter(node, "__made__")

    def visit_Dict(self, node: nodes.Dict) -> nodes.Expr:  # noqa: N802
        """Count a dictionary."""
        self.generic_visit(node)
        return _wrap_in_filter(node, "__made__")

    def visit_Call(self, node: nodes.Call) -> nodes.Call:  # noqa: N802
        """Count the arguments that a call spreads from a list."""
        self.generic_visit(node)
        return _count_spread_arguments(node)

    def visit_Filter(self, node: nodes.Filter) -> nodes.Filter:  # noqa: N802
        """Count the arguments that a filter spreads from a list."""
        self.generic_visit(node)
        return _count_spread_arguments(node)

    def visit_Test(self, node: nodes.Test) -> nodes.Test:  # noqa: N802
        """Count the arguments that a test spreads from a list."""
        self.generic_visit(node)
        return _count_spread_arguments(node)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        """Count a slice as a new value, any other index as an operand."""
        self.generic_visit(node)
        if isinstance(node.arg, nodes.Slice):
            return _wrap_in_filter(node, "__made__")
        node.arg = _wrap_operand(node.arg)
        return node

    def visit_ScopedEvalContextModifier(self, node: nodes.Node) -> nodes.Node:  # noqa: N802
        """Refuse ``{% autoescape %}`` with a `TemplateSyntaxError`."""
        raise jinja2.TemplateSyntaxError("autoescape is not available in chat templates", node.lineno)

    visit_EvalContextModifier = visit_ScopedEvalContextModifier  # noqa: N815


def _wrap_in_filter(node: nodes.Node | None, name: str) -> nodes.Filter:
    return nodes.Filter(
        cast("nodes.Expr | None", node), name, [], [], None, None, lineno=1 if node is None else node.lineno
    )


def _count_spread_arguments(node: Any) -> Any:
    """Count the arguments that ``f(*items)`` spreads."""
    if node.dyn_args is not None:
        node.dyn_args = _wrap_in_filter(node.dyn_args, "__listed__")
    return node


def _wrap_operand(node: nodes.Expr) -> nodes.Expr:
    """Wrap an operand that may be large."""
    return node if _constant(node) else _wrap_in_filter(node, "__read__")


def _constant(node: nodes.Node) -> bool:
    if isinstance(node, (nodes.List, nodes.Tuple)):
        return all(map(_constant, node.items))
    return isinstance(node, nodes.Const)


def _count_body(node: Any) -> Any:
    """Insert code at the start of a body that counts its nodes and text at each run."""
    text = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
    counts = [nodes.Const(sum(1 for _ in node.find_all(nodes.Node))), nodes.Const(text)]
    turn = nodes.Filter(nodes.Const(None), "__turn__", counts, [], None, None, lineno=node.lineno)
    node.body.insert(0, nodes.ExprStmt(turn, lineno=node.lineno))
    return node


def _escape_with_marks(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a filter that escapes marked characters like the originals.

    URLs keep no marks: they escape every character that can begin a control token.
    """
    if original.__name__ == "do_urlencode":
        return lambda value: original(remove_marks(value) if type(value) is str else value)
    return lambda value: html_with_marks(original(value))


class _Environment(ImmutableSandboxedEnvironment):
    """Immutable sandbox that counts every operation in the budget."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "**", "%"})

    # Private, but the only place where the syntax tree of every template is available before compilation.
    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        if sum(1 for _ in tree.find_all(nodes.Node)) > MAX_NODES:
            raise refuse(f"has more than {MAX_NODES} parts")
        return _CountingTransformer().visit(tree)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Return ``left operator right``, or raise `GenerationError` if the result is too large for the budget."""
        budget = current()
        if operator == "+" and type(left) is str and type(right) is str:
            return budget.count_text(left + right)  # both are bounded, and so is the sum
        if isinstance(left, str) and operator == "%":
            budget.check_operand(left)
            percent(budget, (left, right))
        elif isinstance(left, int) and isinstance(right, int):
            if max(left.bit_length(), right.bit_length()) > MAX_INT_BITS:
                raise refuse("computes with numbers that are too large")
            if operator == "**" and left.bit_length() * abs(right) > MAX_INT_BITS:
                raise refuse("computes with numbers that are too large")
        elif operator == "*":
            times, value = (left, right) if isinstance(left, int) else (right, left)
            if isinstance(times, int) and not isinstance(value, float):
                budget.check_size(max(times, 0) * budget.size(value))
        else:
            budget.check_size(budget.size(left) + budget.size(right))
        return budget.count_result(self.binop_table[operator](left, right))

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a method, macro or function of a template, and count its arguments and its result."""
        budget = current()
        method = getattr(obj, "__wrapped__", obj) if type(obj) is FunctionType else obj  # str.format, see the sandbox
        if isinstance(method, _METHODS) and isinstance(method.__self__, (*_TYPES, type, bytes, bytearray)):
            named = {name: value for name, value in kwargs.items() if name not in _FRAME} if kwargs else kwargs
            check_method(budget, method.__self__, method.__name__, (*args, *named.values()))
            return budget.count_result(obj(*args, **named), fresh=True)
        if isinstance(obj, LoopContext) and args:
            args = (budget.list_items(args[0]), *args[1:])
        elif isinstance(obj, Macro):
            budget.count_work(10)
        else:
            for arg in (*args, *(value for name, value in kwargs.items() if name not in _FRAME)):
                budget.check_operand(arg)
            if obj is dict and args:
                budget.check_keys(args[0] if isinstance(args[0], dict) else (pair[0] for pair in args[0] if pair))
        return budget.count_result(super().call(context, obj, *args, **kwargs), fresh=True)


_SEEKING: Final = frozenset(
    {"count", "endswith", "find", "index", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind"}
    | {"rindex", "rpartition", "rsplit", "rstrip", "split", "startswith", "strip"}
)
"""Methods of strings that search for their arguments."""


def constants_in(tree: nodes.Template) -> tuple[frozenset[str], frozenset[str]]:
    """Return the string constants of a template, and those that it searches for in other texts."""
    seeking: list[nodes.Node] = [*tree.find_all(nodes.Compare)]
    for call in tree.find_all(nodes.Call):
        if isinstance(call.node, nodes.Getattr) and call.node.attr in _SEEKING:
            seeking += call.args
    seeking += (
        argument
        for jinja_filter in tree.find_all(nodes.Filter)
        if jinja_filter.name in _SEEKING
        for argument in jinja_filter.args
    )
    return _texts(tree), frozenset().union(*map(_texts, seeking))


def _texts(node: nodes.Node) -> frozenset[str]:
    inside = [node] if isinstance(node, nodes.Const) else node.find_all(nodes.Const)
    return frozenset(one.value for one in inside if isinstance(one.value, str))


class _GenerationTag(Extension):
    """The ``{% generation %}`` tag, which marks the assistant's text for training; here it only groups."""

    tags = {"generation"}  # noqa: RUF012  (jinja2 declares it as a set)

    def parse(self, parser: Parser) -> nodes.Node:
        """Parse the block; variables set inside are local to it, as in transformers."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def sandbox(
    tojson: Callable[..., str], raise_exception: Callable[[str], None], strftime_now: Callable[[str], str]
) -> jinja2.Environment:
    """Return an environment with the given functions under the names that chat templates use."""
    # Jinja's optimiser is quadratic in the depth of an expression.
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols], optimized=False
    )
    theirs = environment.filters
    environment.filters = {name: theirs[name] for name in FREE_FILTERS}
    environment.filters |= {name: filter_within(name, theirs[name]) for name in FILTERS}
    for name in ("e", "escape", "forceescape", "urlencode"):
        environment.filters[name] = _escape_with_marks(environment.filters[name])
    environment.filters |= {"tojson": tojson, **COUNTERS}
    environment.tests = {
        name: test if name in FREE_TESTS else test_within(test) for name, test in environment.tests.items()
    }
    environment.finalize = check_written
    environment.globals |= {"raise_exception": raise_exception, "strftime_now": strftime_now}
    del environment.globals["lipsum"]  # returns any amount of text
    return environment
