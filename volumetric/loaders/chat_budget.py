"""Budget of one rendering of a chat template: time, memory and the size of every value.

Work is counted often and the clock is read rarely; `RenderBudget.made` checks every result of an operation. `current`
returns the budget of the current rendering.
"""

from __future__ import annotations

import sys
import time
from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from contextlib import contextmanager
from contextvars import ContextVar
from types import NoneType
from typing import Any, Final

from jinja2 import pass_context
from jinja2.runtime import Context
from jinja2.utils import Namespace

from volumetric.base.errors import GenerationError
from volumetric.loaders.chat_contents import repr_with_marks

MAX_SECONDS: Final = 3.0
"""Maximum time of one rendering. A thousand messages with tools take some ten milliseconds."""
MAX_BYTES: Final = 256 * 2**20
"""Maximum bytes of all values that a rendering creates, as if none were freed."""
MAX_SIZE: Final = 8_000_000
"""Maximum size of one value: characters, and `ITEM` for each item; a duplicate in a list counts twice."""
MAX_INT_BITS: Final = 4096
MAX_ODD_KEYS: Final = 1000
"""Maximum keys of a dictionary whose hashes can collide: keys other than text and small numbers."""
ITEM: Final = 16
_ITEM_BYTES: Final = 64
_STRIDE: Final = 20_000
"""Units of work between two reads of the clock; a unit is about ten nanoseconds."""
_SMALL: Final = (float, bool, NoneType)
_VIEWS: Final = (ItemsView, KeysView, ValuesView)
_SHORT: Final = 100
_HINT: Final = "check that this is a chat template"


def refuse(what: str) -> GenerationError:
    """Return the error for a template that does `what`."""
    return GenerationError(f"the chat template {what}", hint=_HINT)


class RenderBudget:
    """The remaining budget of one rendering."""

    __slots__ = ("_bytes", "_deadline", "_sizes", "_units")

    def __init__(self) -> None:
        self._deadline = time.monotonic() + MAX_SECONDS
        self._bytes = MAX_BYTES
        self._units = _STRIDE
        # Values are immutable in the sandbox, so sizes stay valid; the reference prevents reuse of an id.
        self._sizes: dict[int, tuple[Any, int]] = {}

    @staticmethod
    @contextmanager
    def for_rendering() -> Iterator[RenderBudget]:
        """Context manager: the rendering inside has a full budget."""
        budget = RenderBudget()
        token = _current.set(budget)
        try:
            yield budget
        finally:
            _current.reset(token)

    def count_work(self, units: int) -> None:
        """Count work; raise `GenerationError` if the time is exceeded."""
        self._units -= units
        if self._units < 0:
            self.check_time()

    def check_time(self) -> None:
        """Read the clock; raise `GenerationError` if the time is exceeded."""
        if time.monotonic() > self._deadline:
            raise refuse(f"takes more than {MAX_SECONDS:g} seconds")
        self._units = _STRIDE

    def count_bytes(self, count: int) -> None:
        """Count `count` created bytes; raise `GenerationError` if there are too many."""
        self._bytes -= count
        if self._bytes < 0:
            raise refuse(f"creates more than {MAX_BYTES >> 20} MiB of values")

    def check_size(self, size: int) -> None:
        """Raise `GenerationError` if this size is too large for a value."""
        if size > MAX_SIZE:
            raise refuse(f"creates a value of more than {MAX_SIZE} characters")

    def size(self, value: Any) -> int:
        """Return the size of a value; raise `GenerationError` if it is above `MAX_SIZE`."""
        kind = type(value)
        if kind is str:
            return len(value)
        if kind in _SMALL:
            return ITEM
        if isinstance(value, int):
            return max(ITEM, value.bit_length() // 3)
        if isinstance(value, (list, tuple, dict)):
            known = self._sizes.get(id(value))
            if known is None or known[0] is not value:
                known = self._sizes[id(value)] = (value, self._sum(value))
            return known[1]
        if isinstance(value, (set, frozenset, *_VIEWS)):
            return self._sum(value)
        if isinstance(value, range):
            return ITEM * len(value)
        if isinstance(value, (str, bytes)):
            return 6 * len(value)  # Markup, whose methods escape their arguments
        if isinstance(value, Namespace):
            raise refuse("uses a namespace as a value")  # it could contain itself, and is mutable
        return ITEM

    def _sum(self, value: Any) -> int:
        if len(value) > MAX_SIZE // ITEM:
            raise refuse(f"creates a value of more than {MAX_SIZE // ITEM} items")
        self.count_work(len(value))
        total = ITEM
        parts: Iterable[Any] = value
        if isinstance(value, dict):
            total += sum(map(self.size, value))
            parts = value.values()
        for part in parts:
            total += ITEM + self.size(part)
            if total > MAX_SIZE:
                raise refuse(f"creates a value of more than {MAX_SIZE} characters")
        return total

    def check_operand(self, value: Any) -> int:
        """Check the size of an operand, count the work to read it, and return the size."""
        if type(value) is str:
            size = len(value)
            if size > MAX_SIZE:
                self.check_size(size)
            self.count_work(1 + (size >> 4))
            return size
        size = self.size(value)
        self.check_size(size)
        self.count_work(1 + (size >> 2))
        return size

    def count_result(self, value: Any, *, fresh: bool = False) -> Any:
        """Check and count the result of an operation, and return it; an iterator becomes a list.

        Parameters
        ----------
        fresh : whether the items of a list may be new, too
        """
        kind = type(value)
        if kind is str:
            return self.count_text(value)
        if kind in _SMALL:
            return value
        if kind is int:
            if value.bit_length() > MAX_INT_BITS:
                raise refuse(f"creates a number of more than {MAX_INT_BITS} bits")
            return value
        if isinstance(value, Iterator):
            value = self.list_items(value)
        if isinstance(value, (list, tuple, dict)):
            self.count_bytes(_ITEM_BYTES * (1 + len(value)) if fresh else sys.getsizeof(value))
            self.size(value)
        elif isinstance(value, (str, bytes)):
            self.count_bytes(sys.getsizeof(value))
            self.check_size(len(value))
        return value

    def count_text(self, value: str) -> str:
        """`made` for text."""
        size = len(value)
        self._units -= 1 + (size >> 6)
        self._bytes -= 4 * size + 80 if size < 64 else sys.getsizeof(value)
        if self._units < 0 or self._bytes < 0 or size > MAX_SIZE:
            self.check_size(size)
            self.count_work_and_bytes(0, 0)
        return value

    def count_work_and_bytes(self, units: int, count: int) -> None:
        """Count work and created bytes; raise `GenerationError` if there is too much."""
        self._units -= units
        self._bytes -= count
        if self._units < 0 or self._bytes < 0:
            self.count_bytes(0)
            self.check_time()

    def list_items(self, items: Iterable[Any]) -> list[Any]:
        """Return the items of an iterable as a list, within the limits."""
        values: list[Any] = []
        if isinstance(items, str):
            self.check_size(ITEM * len(items))
        for item in items:
            values.append(item)
            self.count_work(1)
            if len(values) > MAX_SIZE // ITEM:
                raise refuse(f"creates a value of more than {MAX_SIZE // ITEM} items")
        self.count_bytes(_ITEM_BYTES * len(values))
        return values

    def check_keys(self, keys: Iterable[Any]) -> None:
        """Refuse many keys that are neither text nor small numbers: their hashes may all collide."""
        odd = sum(1 for key in keys if not (isinstance(key, (str, *_SMALL)) or _is_small(key)))
        if odd > MAX_ODD_KEYS:
            raise refuse(f"hashes more than {MAX_ODD_KEYS} values that are not text")


_current: ContextVar[RenderBudget] = ContextVar("chat_template_budget")
current: Final = _current.get


def _is_small(value: object) -> bool:
    """Whether a value is a whole number that is its own hash."""
    return isinstance(value, int) and value.bit_length() <= 60


# Filters with the context as their argument are never evaluated at compile time.


@pass_context
def _count_turn_filter(_: Context, nothing: None, count: int, text: int) -> None:
    current().count_work_and_bytes(count, text)


@pass_context
def _count_test_filter(_: Context, value: Any, count: int) -> Any:
    current().count_work(count)
    return value


@pass_context
def _count_items_filter(_: Context, items: Iterable[Any]) -> Iterable[Any]:
    """Filter around the iterable of a loop: a list provides ``loop.length``."""
    budget = current()
    if isinstance(items, (list, tuple)):
        budget.count_work(1 + len(items))
        return items
    return budget.list_items(items)


@pass_context
def _count_result_filter(_: Context, value: Any) -> Any:
    if isinstance(value, dict):
        current().check_keys(value)
    return current().count_result(value)


@pass_context
def _check_operand_filter(_: Context, value: Any) -> Any:
    kind = type(value)
    if len(value) > _SHORT if kind is str else kind not in (int, bool, NoneType) or (value and value.bit_length() > 64):
        current().check_operand(value)
    return value


@pass_context
def _check_container_filter(context: Context, value: Any) -> Any:
    """Container of an ``in`` test: for a dictionary only hashes of keys are compared."""
    return value if type(value) is dict else _check_operand_filter(context, value)


def check_written(value: Any) -> Any:
    """Filter around output: text is unchanged, other values are limited in size."""
    if type(value) is str:
        size = len(value)
        current().count_work_and_bytes(1 + (size >> 6), size)
    elif not isinstance(value, (int, float, NoneType)):
        budget = current()
        budget.check_size(2 * budget.check_operand(value))  # repr may make ten characters of one
        if isinstance(value, (list, tuple, dict)):
            return repr_with_marks(str(value))
    return value


@pass_context
def _count_text_filter(_: Context, value: Any) -> Any:
    return check_written(value)


COUNTERS: Final = {
    "__turn__": _count_turn_filter,
    "__tested__": _count_test_filter,
    "__listed__": _count_items_filter,
    "__made__": _count_result_filter,
    "__read__": _check_operand_filter,
    "__inside__": _check_container_filter,
    "__text__": _count_text_filter,
}
"""Filters that wrap parts of templates that Jinja would compile to plain Python, see `chat_sandbox`."""
