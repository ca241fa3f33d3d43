"""From the tables of a configuration file to values: keys have types and defaults, and unknown ones are errors."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from volumetric.errors import SpecError
from volumetric.hints import shown, suggestion

T = TypeVar("T")


def not_toml(path: Path, error: Exception) -> SpecError:
    """Return the error of a file that should be a table and is none; `error` is what the parser says."""
    named = f'a TOML file names it: [network] with file = "{path.name}"' if path.suffix == ".json" else None
    return SpecError(f"{path}: not valid TOML: {error}", hint=named)


def expect_keys(table: object, allowed: Iterable[str], where: str, form: str = "a table") -> dict[str, Any]:
    """Return `table`; raise `SpecError` if it is none, or has a key that is not `allowed`.

    `form` is what the file's language calls it.
    """
    if not isinstance(table, dict):
        raise SpecError(f"{where}: expected {form}, got {shown(table)}")
    names = list(allowed)
    for key in table:
        if key not in names:
            raise SpecError(f"{where}: unknown key {shown(key)}", hint=suggestion(key, names))
    return table


def typed(value: object, to: Any, where: str) -> Any:
    """Return `value` as type `to`; raise `SpecError` if it is of another one. Whole numbers pass for floats."""
    if get_origin(to) is Literal and value not in get_args(to):
        names = list(map(str, get_args(to)))
        listed = "one of " + ", ".join(names)
        near = suggestion(value, names, "")
        raise SpecError(f"{where}: unknown name {shown(value)}", hint=f"{near} {listed}" if near else listed)
    try:
        return msgspec.convert(value, to)
    except (msgspec.ValidationError, TypeError) as error:
        raise SpecError(f"{where}: {str(error).partition(' - at')[0]}") from None


def convert(value: object, to: Any, where: str) -> Any:
    """Return a JSON value as type `to`; raise `SpecError` that begins with `where`, and tells the place inside it."""
    try:
        return msgspec.convert(value, to)
    except (msgspec.ValidationError, TypeError) as error:
        raise SpecError(f"{where}: {error}") from None
    except UnicodeEncodeError:
        raise SpecError(f"{where}: half of a surrogate pair, which is no text") from None


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
        raise SpecError(f"{where}: unknown kind {kind!r}", hint=suggestion(kind, registry))
    return call(registry[kind], {key: item for key, item in table.items() if key != "kind"}, where, **given)


def _names(registry: Mapping[str, object]) -> str:
    return "one of " + ", ".join(registry)
