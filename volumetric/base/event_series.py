"""Events of a run as a sequence, with the values of all of them by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, SupportsIndex, TypeVar, overload

from volumetric.base.errors import SpecError
from volumetric.base.hints import suggestion

E = TypeVar("E")
_LINES = 20


class EventSeries(tuple[E, ...]):
    """Events in order. ``series["loss"]`` is the list of a value of all; ``print(series)`` shows a table."""

    __slots__ = ()

    word: ClassVar[str]
    """What an event is about, such as ``"epoch"``; the name of its number, from 0."""
    values: ClassVar[tuple[str, ...]]
    """Values by name, those of the table first."""
    columns: ClassVar[int]
    """Number of values in the table."""
    synonyms: ClassVar[Mapping[str, str]] = {}
    """Names of other packages → of a value."""

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> E: ...
    @overload
    def __getitem__(self, key: slice, /) -> tuple[E, ...]: ...
    @overload
    def __getitem__(self, key: str, /) -> list[Any]: ...
    def __getitem__(self, key: SupportsIndex | slice | str, /) -> Any:
        """Return one event, several, or a value of all by its name.

        Raises
        ------
        SpecError : events have no value of this name
        """
        if not isinstance(key, str):
            return super().__getitem__(key)
        name = self.synonyms.get(key, key)
        if name not in self.values:
            raise SpecError(f"{self.word}s have no {key!r}", hint=suggestion(key, self.values))
        return [getattr(event, name) for event in self]

    def __repr__(self) -> str:
        shown = [name for name in self.values[: self.columns] if any(value is not None for value in self[name])]
        numbers = [self[name] for name in shown]
        rows = [
            f"{number + 1:>{len(self.word)}}" + "".join(f"  {_short(values[i]):>15}" for values in numbers)
            for i, number in enumerate(self[self.word])
        ]
        if len(rows) > _LINES:
            rows = [*rows[: _LINES // 2], f"… {len(rows) - _LINES} more …", *rows[-_LINES // 2 :]]
        return "\n".join([self.word + "".join(f"  {name.replace('_', ' '):>15}" for name in shown), *rows])


def _short(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
