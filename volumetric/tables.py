"""From the tables of a configuration file to values: keys have types and defaults, and unknown ones are errors."""

from __future__ import annotations

import dataclasses
import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from volumetric.errors import SpecError

T = TypeVar("T")


def expect_keys(table: object, allowed: Iterable[str], where: str) -> dict[str, Any]:
    """Return `table`; raise `SpecError` if it is none, or has a key that is not `allowed`."""
    if not isinstance(table, dict):
        raise SpecError(f"{where}: expected a table, got {table!r}")
    names = list(allowed)
    for key in table:
        if key not in names:
            close = difflib.get_close_matches(key, names, 1)
            known = f"did you mean {close[0]!r}?" if close else "one of " + ", ".join(names)
            raise SpecError(f"{where}: unknown key {key!r}", hint=known)
    return table


def typed(value: object, to: Any, where: str) -> Any:
    """Return `value` as type `to`; raise `SpecError` if it is of another one. Whole numbers pass for floats."""
    if get_origin(to) is Literal and value not in get_args(to):
        close = difflib.get_close_matches(str(value), get_args(to), 1)
        names = "one of " + ", ".join(map(str, get_args(to)))
        raise SpecError(
            f"{where}: unknown name {value!r}", hint=f"did you mean {close[0]!r}? {names}" if close else names
        )
    try:
        return msgspec.convert(value, to)
    except (msgspec.ValidationError, TypeError) as error:
        raise SpecError(f"{where}: {str(error).partition(' - at')[0]}") from None


def entries(table: object, types: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the entries of `table` as their `types`; raise `SpecError` where one is unknown or of another type."""
    return {
        name: typed(value, types[name], f"{where}.{name}") for name, value in expect_keys(table, types, where).items()
    }


def keywords(target: Callable[..., Any]) -> dict[str, Any]:
    """Name → type of everything that `target`, a function, a dataclass or a struct, can be given by keyword."""
    if inspect.isclass(target) and issubclass(target, msgspec.Struct):
        hints = get_type_hints(target)
        return {name: hints[name] for name in target.__struct_fields__}
    if inspect.isclass(target) and dataclasses.is_dataclass(target):
        hints = get_type_hints(target)
        return {f.name: hints[f.name] for f in dataclasses.fields(target) if f.init}
    hints = get_type_hints(target.__init__ if inspect.isclass(target) else target)
    return {name: hints[name] for name in inspect.signature(target).parameters}


def required(target: Callable[..., Any]) -> list[str]:
    """Names of what `target` must be given."""
    empty = inspect.Parameter.empty
    return [name for name, p in inspect.signature(target).parameters.items() if p.default is empty]


def call(target: Callable[..., T], table: object, where: str, **given: Any) -> T:
    """Call `target` with the entries of `table`, and with `given` where the table says nothing else.

    Raises
    ------
    SpecError
        An entry is unknown, ill-typed or missing; `where` and its name are in the message.
    """
    types = keywords(target)
    arguments = {**{name: value for name, value in given.items() if name in types}, **entries(table, types, where)}
    missing = [name for name in required(target) if name not in arguments]
    if missing:
        raise SpecError(f"{where}: {', '.join(missing)} must be given")
    try:
        return target(**arguments)
    except SpecError as error:
        raise SpecError(f"{where}: {error}", hint=error.hint) from None


def choose(registry: Mapping[str, Callable[..., T]], value: object, where: str, **given: Any) -> T:
    """Make what a name, or a table with the name under ``kind``, asks for out of `registry`."""
    table = {"kind": value} if isinstance(value, str) else value
    if not isinstance(table, dict) or not isinstance(table.get("kind"), str):
        raise SpecError(f"{where}: expected a name or a table with a kind, got {value!r}", hint=_names(registry))
    kind = table["kind"]
    if kind not in registry:
        close = difflib.get_close_matches(kind, list(registry), 1)
        raise SpecError(
            f"{where}: unknown kind {kind!r}", hint=f"did you mean {close[0]!r}?" if close else _names(registry)
        )
    return call(registry[kind], {key: item for key, item in table.items() if key != "kind"}, where, **given)


def _names(registry: Mapping[str, object]) -> str:
    return "one of " + ", ".join(registry)
