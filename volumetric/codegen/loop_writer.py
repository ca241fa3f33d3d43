"""Writes loops over flat arrays, in Python or C."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from math import prod

from volumetric.base._typing import Shape
from volumetric.codegen.source_language import SourceLanguage
from volumetric.formula.expression import Expression
from volumetric.formula.statements import write_expressions

_LOOPS = "ijklmnpqrstuvw"


@dataclass(frozen=True, slots=True)
class ArrayView:
    """A row-major array inside a flat one of the generated code.

    Attributes
    ----------
    name : of the flat array
    shape : sizes
    offset : its first element
    """

    name: str
    shape: Shape
    offset: int = 0

    @property
    def strides(self) -> Shape:
        """Distance of neighbours along each axis."""
        return tuple(prod(self.shape[i + 1 :]) for i in range(len(self.shape)))

    def at(self, *terms: tuple[str, int], plus: int = 0) -> str:
        """Return the text of an element: a sum of index names times strides."""
        return f"{self.name}[{index_text(terms, self.offset + plus)}]"

    def reshaped(self, shape: Shape) -> ArrayView:
        """Return the same elements in another shape."""
        return ArrayView(self.name, shape, self.offset)


def index_text(terms: Sequence[tuple[str, int]], constant: int = 0) -> str:
    """Return the text of ``Σ name · stride + constant``; the index ``"0"`` is that of an axis of size 1."""
    parts = [name if stride == 1 else f"{name} * {stride}" for name, stride in terms if stride and name != "0"]
    text = " + ".join(parts)
    if not text:
        return str(constant)
    return f"{text} + {constant}" if constant > 0 else f"{text} - {-constant}" if constant < 0 else text


class LoopWriter:
    """Collects the lines of a function.

    Attributes
    ----------
    lines : written so far
    used : helper functions that the lines call
    """

    def __init__(self, language: SourceLanguage, reserved: Iterable[str] = ()) -> None:
        self.language = language
        self.lines: list[str] = []
        self.used: set[str] = set()
        self._depth = 1
        self._scopes: list[set[str]] = [{*reserved, *_LOOPS}]
        self._open = 0

    def comment(self, text: str) -> None:
        """Write a comment of one line."""
        plain = " ".join(text.replace("\\", "/").replace("??", "?").split())  # "\\" and "??/" go on in C
        self._add(self.language.comment + plain)

    def line(self, text: str) -> None:
        """Write a statement."""
        self._add(text + self.language.stop)

    def set(self, target: str, value: str) -> None:
        """Assign to a variable or element."""
        self.line(f"{target} = {value}")

    def let(self, name: str, value: str) -> str:
        """Introduce a number, and return its name."""
        own = self.unique(name)
        self.line(self.language.let.format(name=own, value=value))
        return own

    def array(self, name: str, shape: Shape) -> ArrayView:
        """Introduce a scratch array of zeros."""
        own = self.unique(name)
        self.line(self.language.array.format(name=own, count=max(prod(shape), 1)))
        return ArrayView(own, shape)

    def unique(self, name: str) -> str:
        """Return a name that no other variable has which can be seen here."""
        names = itertools.chain([name], (f"{name}_{n}" for n in itertools.count(2)))
        own = next(each for each in names if not any(each in scope for scope in self._scopes))
        self._scopes[-1].add(own)
        return own

    @contextmanager
    def loop(self, count: int) -> Iterator[str]:
        """Write a loop; its variable is the value."""
        name = _LOOPS[self._open] if self._open < len(_LOOPS) else f"i{self._open}"
        self._add(self.language.loop.format(name=name, count=count))
        self._depth, self._open = self._depth + 1, self._open + 1
        self._scopes.append(set())
        yield name
        self._scopes.pop()
        self._depth, self._open = self._depth - 1, self._open - 1
        if self.language.end:
            self._add(self.language.end)

    @contextmanager
    def condition(self, text: str) -> Iterator[None]:
        """Write a condition; the body runs where it holds."""
        self._add(self.language.condition.format(condition=text))
        self._depth += 1
        yield
        self._depth -= 1
        if self.language.end:
            self._add(self.language.end)

    @contextmanager
    def loops(self, sizes: Sequence[int]) -> Iterator[list[str]]:
        """Write nested loops; an axis of size 1 has no loop, and the index 0."""
        with ExitStack() as opened:
            yield [opened.enter_context(self.loop(size)) if size != 1 else "0" for size in sizes]

    @contextmanager
    def nest(self, sizes: Sequence[int], *operands: tuple[ArrayView, Sequence[int], int]) -> Iterator[list[str]]:
        """Write loops over `sizes`, with neighbouring axes merged, and give the element of each operand.

        Parameters
        ----------
        operands : array, its stride along each axis (0: repeated), and an offset
        """
        merged, strides = _merge_axes(sizes, [steps for _, steps, _ in operands])
        with self.loops(merged) as names:
            yield [
                view.at(*((n, s) for n, s, size in zip(names, steps, merged, strict=True) if size != 1), plus=plus)
                for (view, _, plus), steps in zip(operands, strides, strict=True)
            ]

    def choose(self, condition: str, then: str, otherwise: str) -> str:
        """Return the text of one of two values."""
        return self.language.choice.format(condition=condition, then=then, otherwise=otherwise)

    def both(self, conditions: Sequence[str]) -> str:
        """Return the text of a condition that holds where all do."""
        return self.language.join.join(conditions)

    def formula(self, names: Mapping[str, str], *results: Expression) -> list[str]:
        """Write the statements of expressions, and return the texts of their values."""
        prefix = self.unique("v") + "_"
        statements, texts = write_expressions(results, self.language.formulas, names, prefix)
        for statement in statements:
            self.line(statement)
        self._use(*statements, *texts)
        return texts

    def word(self, name: str, *args: str) -> str:
        """Return the text of a function."""
        text = self.language.formulas.words[name].format(*args)
        self._use(text)
        return text

    def _use(self, *texts: str) -> None:
        self.used |= {name for name in self.language.helpers if any(f"{name}(" in text for text in texts)}

    def _add(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)


def _merge_axes(sizes: Sequence[int], strides: Sequence[Sequence[int]]) -> tuple[list[int], list[list[int]]]:
    """Merge neighbouring axes along which all operands are one behind the other."""
    merged: list[int] = []
    own: list[list[int]] = [[] for _ in strides]
    for axis in reversed(range(len(sizes))):
        size = sizes[axis]
        if size == 1:
            continue
        if merged and all(steps[axis] == inner[0] * merged[0] for steps, inner in zip(strides, own, strict=True)):
            merged[0] *= size
            continue
        merged.insert(0, size)
        for steps, inner in zip(strides, own, strict=True):
            inner.insert(0, steps[axis])
    return merged, own
