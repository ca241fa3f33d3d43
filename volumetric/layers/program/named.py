"""An object of names: keeps its order, and does not change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

from volumetric.errors import SpecError
from volumetric.hints import shown
from volumetric.layers.checks import check_text

T = TypeVar("T")


class Named(dict[str, T]):
    """Values by name. Two are equal where order is, too: the text of equal ones is equal."""

    def __eq__(self, other: object) -> bool:
        """Compare names, values and their order."""
        return isinstance(other, Mapping) and list(self.items()) == list(other.items())

    def __ne__(self, other: object) -> bool:
        """Compare as ``==`` does."""
        return not self == other

    def __hash__(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]  (a dict has none, for it changes)
        """Hash what is compared."""
        return hash(tuple(self.items()))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Copy and pickle by the constructor, for items cannot be put in afterwards."""
        return type(self), (dict(self),)

    def __copy__(self) -> Named[T]:
        """Return itself."""
        return self

    def __or__(self, other: Any) -> Any:
        """Return a plain dict of both."""
        return dict(self) | dict(other)

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("what programs are made of does not change; make a new one")

    __setitem__ = __delitem__ = __ior__ = clear = pop = popitem = setdefault = update = _refuse  # pyright: ignore[reportAssignmentType]  (refuses)


def named(what: str, given: Any, kind: type[T] | tuple[type[T], ...]) -> Named[T]:
    """Return an object as `Named`; raise `SpecError` unless its values are of a kind and its keys are text."""
    if not isinstance(given, Mapping):
        raise SpecError(f"{what} must be names with their values, got {shown(given)}")
    for name, value in given.items():
        check_text(f"{what}: a name", name)
        if not isinstance(value, kind):
            kinds = " or ".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise SpecError(f"{what}: {shown(name)} must be {kinds}, got {shown(value)}")
        if isinstance(value, str):
            check_text(f"{what}: {shown(name)}", value)
    return given if isinstance(given, Named) else Named(given)
