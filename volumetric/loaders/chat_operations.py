"""Operations of chat templates: the available filters, tests and methods, each with a bound on its cost.

The lists are complete: other filters of Jinja or methods of Python are not available. The check next to a name covers
operations whose cost is more than linear in the sizes of the arguments, or whose result is larger than they are; all
else is covered by the sizes of the arguments (`RenderBudget.check_operand`) and of the result (`RenderBudget.made`).
"""

from __future__ import annotations

import functools
import re
import string
from collections.abc import Callable, Mapping
from typing import Any, Final

from volumetric.loaders.chat_budget import ITEM, MAX_SIZE, RenderBudget, current, refuse

Check = Callable[[RenderBudget, tuple[Any, ...]], None]
"""Function that refuses arguments of an operation, the value itself first."""
MAX_WIDTH: Final = 10_000
"""Maximum width, precision and number of columns."""
MAX_PRODUCT: Final = 200_000_000
"""Maximum character comparisons of an operation that is quadratic in the worst case."""
MAX_LINES: Final = 1_000_000
"""Maximum characters of a text that is split at white space: it may have as many parts."""
_SHORT: Final = 100
_PERCENT: Final = re.compile(r"%(?:\([^)]*\))?[#0\- +]*(\*|\d*)(?:\.(\*|\d*))?")


def _number(value: object) -> int:
    return abs(value) if isinstance(value, int) else 0


def _check_width(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """Numeric arguments are widths: a character may be padded to that width."""
    width = max(map(_number, args[1:]), default=0)
    if width > MAX_WIDTH:
        raise refuse(f"uses a width of {width}")
    budget.check_size(width * (1 + budget.size(args[0])))


def _lines(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """Every line grows by the width, which may be a string."""
    width = max([4, *(len(arg) if isinstance(arg, str) else _number(arg) for arg in args[1:])])
    text = str(args[0]) if budget.check_operand(args[0]) else ""
    budget.check_size(len(text) + width * (1 + len(text.splitlines() if len(text) < MAX_LINES else text)))


def _check_replace(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    text, old, new = (str(part) for part in [*args, "", "", ""][:3])
    budget.check_size(len(text) + (text.count(old) if old else len(text) + 1) * len(new))


def _check_join(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """Join items with a separator; the order of the two arguments differs between filter and method."""
    sizes = sorted(map(budget.size, args[:2]))
    items = max((len(arg) for arg in args[:2] if hasattr(arg, "__len__")), default=0)
    budget.check_size(sum(sizes) + items * min(sizes, default=0))


def _check_reversal(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """Searching from the right and stripping characters are quadratic in the worst case."""
    others = max((len(arg) for arg in args[1:] if isinstance(arg, str)), default=0)
    cost = len(args[0]) * others if isinstance(args[0], str) else 0
    if cost > MAX_PRODUCT:
        raise refuse("searches for a text that is too long")
    budget.count_work(cost >> 4)


def _pieces(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """Split a text; without a separator at white space, which may be frequent."""
    _check_reversal(budget, args)
    text: str = args[0]
    separator = next((arg for arg in args[1:2] if isinstance(arg, str) and arg), None)
    count = len(text) if separator is None else ITEM * text.count(separator)
    if (count > MAX_LINES and separator is None) or count > MAX_LINES * ITEM // 2:
        raise refuse("splits a text into too many parts")


def _braces(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """`str.format`: widths must be small literals, and every field shows one argument."""
    fields = 0
    for _, field, spec, _ in string.Formatter().parse(str(args[0])):
        if field is None:
            continue
        fields += 1
        if spec and ("{" in spec or any(int(digits) > MAX_WIDTH for digits in _digits(spec))):
            raise refuse("formats to a computed or large width")
    budget.check_size(len(args[0]) + fields * (MAX_WIDTH // 10 + sum(map(budget.size, args[1:]))))


def percent(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """``%`` formats, as operator and as filter."""
    specs = _PERCENT.findall(str(args[0]))
    if any(part == "*" or len(part) > 5 or int(part or 0) > MAX_WIDTH for spec in specs for part in spec):
        raise refuse("formats to a computed or large width")
    budget.check_size(len(args[0]) + len(specs) * sum(map(budget.size, args[1:])) + sum(int(w or 0) for w, _ in specs))


def _digits(spec: str) -> list[str]:
    return [digits[:9] for digits in re.findall(r"\d+", spec)]


def _columns(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """Lists are filled up to a number of columns."""
    _check_list(budget, args)
    budget.check_size(ITEM * max(map(_number, args[1:]), default=0))


def _precision(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    if max(map(_number, args[1:]), default=0) > 300:
        raise refuse("rounds to more than 300 digits")


def _check_addition(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """Adding lists copies the sum repeatedly."""
    _check_each_item(budget, args)
    if any(not isinstance(arg, (int, float, str, type(None))) for arg in args[1:]):
        cost = len(args[0]) * budget.size(args[0]) if hasattr(args[0], "__len__") else 0
        if cost > MAX_PRODUCT:
            raise refuse("adds up too many lists")


def _check_list(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """A string becomes the list of its characters."""
    if isinstance(args[0], str):
        budget.check_size(ITEM * len(args[0]))


def _check_each_item(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    """String arguments are names of attributes and are parsed for every item."""
    _check_list(budget, args)
    names = sum(len(arg) for arg in args[1:] if isinstance(arg, str))
    items = len(args[0]) if hasattr(args[0], "__len__") else 0
    if names > MAX_WIDTH or names * items > MAX_PRODUCT // 10:
        raise refuse("looks up attributes with too long names")
    budget.count_work(items)


def _check_hashing(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    _check_each_item(budget, args)
    budget.check_keys(args[0] if not isinstance(args[0], str) else ())


def _words(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    if isinstance(args[0], str) and len(args[0]) > MAX_LINES:
        raise refuse("splits a text into too many parts")


def _check_join_of_items(budget: RenderBudget, args: tuple[Any, ...]) -> None:
    _check_each_item(budget, args)
    _check_join(budget, args)


FREE_FILTERS: Final = frozenset({"default", "d", "first", "last", "length", "count", "attr", "random"})
"""Filters that do not iterate over their argument."""
FILTERS: Final[Mapping[str, Check | None]] = {
    **dict.fromkeys(("abs", "capitalize", "e", "escape", "filesizeformat", "float", "forceescape", "int", "items")),
    **dict.fromkeys(("lower", "safe", "string", "truncate", "upper", "urlencode")),
    **dict.fromkeys(("title", "wordcount"), _words),
    **dict.fromkeys(
        ("dictsort", "map", "max", "min", "reject", "rejectattr", "select", "selectattr", "sort"), _check_each_item
    ),
    **dict.fromkeys(("unique", "groupby"), _check_hashing),
    **dict.fromkeys(("list", "reverse"), _check_list),
    **dict.fromkeys(("batch", "slice"), _columns),
    "center": _check_width,
    "format": percent,
    "indent": _lines,
    "join": _check_join_of_items,
    "replace": _check_replace,
    "round": _precision,
    "sum": _check_addition,
    "trim": _check_reversal,
}
"""Available filters of Jinja; striptags, wordwrap, xmlattr, urlize, pprint and lipsum are excluded."""
FREE_TESTS: Final = frozenset(
    {"boolean", "callable", "defined", "divisibleby", "escaped", "even", "false", "filter", "float", "integer"}
    | {"iterable", "mapping", "none", "number", "odd", "sameas", "sequence", "string", "test", "true", "undefined"}
)

METHODS: Final[Mapping[type, Mapping[str, Check | None]]] = {
    str: {
        **dict.fromkeys(("capitalize", "casefold", "count", "endswith", "find", "index", "lower", "removeprefix")),
        **dict.fromkeys(("removesuffix", "startswith", "swapcase", "title", "upper", "partition")),
        **dict.fromkeys(("isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower")),
        **dict.fromkeys(("isnumeric", "isprintable", "isspace", "istitle", "isupper")),
        **dict.fromkeys(("rfind", "rindex", "rpartition", "strip", "lstrip", "rstrip"), _check_reversal),
        **dict.fromkeys(("split", "rsplit", "splitlines"), _pieces),
        **dict.fromkeys(("center", "ljust", "rjust", "zfill", "expandtabs"), _check_width),
        **dict.fromkeys(("format", "format_map"), _braces),
        "join": _check_join,
        "replace": _check_replace,
    },
    list: dict.fromkeys(("count", "index")),
    tuple: dict.fromkeys(("count", "index")),
    dict: dict.fromkeys(("copy", "get", "items", "keys", "values")),
    int: dict.fromkeys(("bit_length",)),
    float: dict.fromkeys(("is_integer",)),
}
"""Available methods of Python's types: most of those that do not change the object."""


def test_within(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a test of Jinja with a bounded cost."""

    @functools.wraps(original)
    def checked(*args: Any) -> Any:
        for arg in args:
            if type(arg) is not str or len(arg) > _SHORT:
                current().check_operand(arg)
        return original(*args)

    return checked


def filter_within(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Return a filter of Jinja with a bounded cost."""
    skip = 1 if hasattr(original, "jinja_pass_arg") else 0
    check = FILTERS[name]
    plain = check in (None, _check_reversal) and not skip

    @functools.wraps(original)  # keeps jinja2's marker for filters that need the context
    def checked(*args: Any, **kwargs: Any) -> Any:
        budget = current()
        if plain and len(args) == 1 and not kwargs and type(args[0]) is str and len(args[0]) <= MAX_SIZE:
            return budget.count_result(original(args[0]))
        arguments = (*args[skip:], *kwargs.values())
        for arg in arguments:
            budget.check_operand(arg)
        if check is not None:
            check(budget, arguments)
        return budget.count_result(original(*args, **kwargs), fresh=True)

    return checked


def check_method(budget: RenderBudget, owner: Any, name: str, args: tuple[Any, ...]) -> None:
    """Count the work of a method of a Python type, or raise `GenerationError` if the call is not allowed."""
    kind = type(owner)
    if kind not in METHODS:
        kind = next((known for known in METHODS if isinstance(owner, known)), kind)
    if name not in METHODS.get(kind, ()):
        raise refuse(f"calls {type(owner).__name__}.{name}, which is not available")
    arguments = (owner, *args)
    for arg in arguments if kind is not dict else args:
        budget.check_operand(arg)
    check = METHODS[kind][name]
    if check is not None:
        check(budget, arguments)
